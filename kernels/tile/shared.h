// SPDX-License-Identifier: Apache-2.0
// Tiles in shared memory.
#pragma once
#include "kernels/configs.h"
#include "kernels/tile/swizzle.h"
#include "kernels/warp/warp.h"

namespace tessera {

// Rows x Cols elements of T, rows of Cols * sizeof(T) bytes, their 16-byte chunks swizzled
// (swizzle.h) so that ldmatrix meets no bank conflict. Everyone reaches them through this type.
template <class T, int Rows, int Cols>
struct SharedTile {
  using element = T;
  static constexpr int kRows = Rows, kCols = Cols, kElement = int(sizeof(T));
  static constexpr int kPitch = Cols * kElement;  // bytes
  static constexpr int kChunks = kPitch / 16;     // a row
  static constexpr int kBytes = (Rows * kPitch + 1023) / 1024 *
                                1024;  // tiles start at multiples of 1024
  static_assert(kPitch % 16 == 0);
  static constexpr PositionOf kPosition = swizzled_position;

  u32 base;

  // Address of chunk `chunk` of row `row`.
  TESSERA_FN Lanes<u32> at(const Lanes<i32>& row, const Lanes<i32>& chunk) const {
    return Lanes<u32>(row * kPitch + swizzle(kChunks, row, chunk) * 16) + base;
  }
  // Where lanes point for ldmatrix.x4, lane 8i + j at row j of matrix i. By rows: the matrices are
  // rows 0-7 and 8-15 of chunk 0, then of chunk 1; by chunks: chunks 0 and 1 of rows 0-7, then of
  // rows 8-15. From there to the same rows `down` (a multiple of 8) below and `chunks` (even)
  // further on it is an xor and a constant, the same for every lane: the swizzle permutes within
  // groups, and it repeats after 8 rows.
  enum class Order { rows, chunks };
  template <Order O>
  TESSERA_FN Lanes<u32> fragment(int down, int chunks) const {
    constexpr int kGroup = swizzle_group(kChunks);
    const Lanes<i32> lane = lane_id(), high = lane >> 4, middle = (lane >> 3) & 1, low = lane & 7;
    const Lanes<u32> first = O == Order::rows ? SharedTile{0}.at(low + middle * 8, high)
                                              : SharedTile{0}.at(low + high * 8, middle);
    return (first ^ Lanes<u32>(u32(chunks % kGroup * 16))) +
           Lanes<u32>(base + u32(down * kPitch + chunks / kGroup * kGroup * 16));
  }
  // From the address of element (row, col) to that of (row + down, col + right): row and col may be
  // a lane's own, down and right are the same for every lane. In binary row and down have no 1 in
  // common, nor have col and right; then the swizzle of the sum is an xor of the swizzles.
  static TESSERA_FN Lanes<u32> beyond(const Lanes<u32>& address, int down, int right) {
    constexpr u32 kLine = swizzle_group(kChunks) * 16;
    const u32 bytes = u32(right * kElement), key = swizzle_key(kChunks, u32(down));
    return (address ^ Lanes<u32>(bytes % kLine ^ key * 16)) +
           Lanes<u32>(u32(down * kPitch) + bytes / kLine * kLine);
  }
  // Address of element (row, col): col must not split an access over two chunks.
  TESSERA_FN Lanes<u32> address_of(const Lanes<i32>& row, const Lanes<i32>& col) const {
    constexpr int kPerChunk = 16 / kElement;
    return at(row, col / kPerChunk) + Lanes<u32>((col % kPerChunk) * kElement);
  }
};

// A Rows x Cols tile of a 32-bit type as multiply-adds want their first operand: 16 bytes are four
// rows of one column, so that a row's register is even or odd at every column and the compiler can
// keep it and the sums it goes into in different banks of the register file; 64 bytes are four
// columns of these, 16 * Rows bytes are four columns of the tile. No swizzle: all that a lane reads
// is a constant away from one address, and where it stores 16 bytes, no bank is met twice.
template <class T, int Rows, int Cols>
struct WordTile {
  using element = T;
  static constexpr int kRows = Rows, kCols = Cols, kElement = 4;
  static constexpr int kBytes = (Rows * Cols * 4 + 1023) / 1024 * 1024;
  static_assert(sizeof(T) == 4 && Rows % 4 == 0 && Cols % 4 == 0);
  static constexpr PositionOf kPosition = word_tile_position;

  u32 base;

  // Bytes from element (0, 0) to (row, col), which add where the columns modulo 4 do not carry.
  template <class Index>
  static TESSERA_HD constexpr Index offset(const Index& row, const Index& col) {
    return word_tile_offset(Rows, row, col);
  }
  TESSERA_FN Lanes<u32> at(const Lanes<i32>& row, const Lanes<i32>& col) const {
    return Lanes<u32>(offset(row, col)) + base;
  }
};

// Rows Rows * part .. Rows * (part + 1) - 1 of a tile, a tile themselves.
template <int Rows, class T, int AllRows, int Cols>
TESSERA_FN SharedTile<T, Rows, Cols> rows(const SharedTile<T, AllRows, Cols>& tile, int part) {
  using Part = SharedTile<T, Rows, Cols>;
  static_assert(AllRows % Rows == 0 && Part::kBytes == Rows * Part::kPitch);
  return {tile.base + u32(part * Part::kBytes)};
}

// A (Cols, Rows) view of a tile, for products: transpose(k) is the second operand of Q K^T.
template <class Tile>
struct Transposed {
  using element = typename Tile::element;
  Tile tile;
};
template <class Tile>
TESSERA_FN Transposed<Tile> transpose(const Tile& tile) {
  return {tile};
}

// Every element of a tile times x, by the whole block: behind a barrier, and before one. x is 1, -1
// or 0, so nothing is rounded; what was NaN or inf stays one or becomes NaN.
template <Config C, class Tile>
TESSERA_FN void multiply(const Tile& tile, float x, Site site = Site::here()) {
  using T = typename Tile::element;
  if constexpr (!std::is_same_v<T, Fq>) {
    constexpr int kWords = Tile::kRows * Tile::kCols * int(sizeof(T)) / 4;
    at(site);
    const Lanes<u32> thread = Lanes<u32>(lane_id() + Lanes<i32>(warp_id() * 32));
    static_assert(kWords % C.threads() == 0);
    TESSERA_ROLLED_FOR (int word = 0; word < kWords; word += C.threads()) {
      const Lanes<u32> address = (thread + Lanes<u32>(u32(word))) * Lanes<u32>(4u) + tile.base;
      Lanes<u32> bits;
      ld_shared(bits, address);
      if constexpr (sizeof(T) == 2)
        bits = pack<T>(widen(half_of<T>(bits, 0)) * Lanes<float>(x),
                       widen(half_of<T>(bits, 1)) * Lanes<float>(x));
      else
        bits = float_to_bits(bits_to_float(bits) * Lanes<float>(x));
      st_shared(address, bits);
    }
  }
}

// Lays out a block's shared memory, in order of the calls; names are for the emulator's messages.
class SharedMemory {
 public:
  TESSERA_FN SharedMemory() : next_(shared_base()) {}
  template <class Tile>
  TESSERA_FN Tile tile(const char* name) {
    const u32 base = next_;
    next_ += Tile::kBytes;
    name_shared(name, base, Tile::kRows * Tile::kCols * Tile::kElement, Tile::kRows, Tile::kCols,
                Tile::kElement, Tile::kPosition);
    return Tile{base};
  }
  // `Stages` tiles of a ring, one after the other.
  template <class Ring>
  TESSERA_FN Ring ring(const char* name) {
    const u32 base = next_;
    for (int s = 0; s < Ring::kStages; s++) tile<typename Ring::Tile>(name);
    return Ring{base};
  }

 private:
  u32 next_;
};

// A ring of tiles: step j uses slot j % Stages. While one slot is read, others are filled:
//   load(ring.acquire(j + Stages - 1), ...); commit(); ... wait<Stages - 2>(); dot(...,
//   ring.ready(j))
// The wait's barrier is also the release of slot j - 1: it is refilled only behind it.
template <class T, int Stages>
struct Ring {
  using Tile = T;
  static constexpr int kStages = Stages, kBytes = Stages * Tile::kBytes;
  u32 base;
  TESSERA_FN Tile acquire(int j) const { return Tile{base + u32(j) % Stages * Tile::kBytes}; }
  TESSERA_FN Tile ready(int j) const { return acquire(j); }
};

}  // namespace tessera
