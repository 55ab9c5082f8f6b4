// SPDX-License-Identifier: Apache-2.0
// Windows into global memory, and the copies between them, shared tiles and registers.
#pragma once
#include "kernels/tile/fragment.h"
#include "kernels/tile/shared.h"

namespace tessera {

TESSERA_HD constexpr i32 ceil_div(i32 a, i32 b) { return (a + b - 1) / b; }

// Position of a block in a grid of (columns, ...): the grid is one-dimensional (y and z end at
// 65535).
struct GridPosition {
  i32 x;
  i32 y;
};
TESSERA_FN GridPosition grid_position(i32 columns) {
  return {i32(block_index() % u32(columns)), i32(block_index() / u32(columns))};
}

// A Rows x Cols window into a (rows, cols) matrix of T with contiguous rows, `stride` elements
// apart (0 allowed). Loads fill with zero what lies outside the matrix, stores leave it out: the
// boundary check is part of the pointer, as in Triton's make_block_ptr. Offsets are 64-bit.
template <class T, int Rows, int Cols>
struct BlockPtr {
  T* base;         // element (0, 0) of the matrix
  i64 stride;      // elements from row to row
  i32 rows, cols;  // of the matrix
  i32 row, col;    // of the window's first element

  TESSERA_FN void advance(i32 down, i32 right) { row += down, col += right; }
};

// A window of Size into a contiguous vector.
template <class T, int Size>
struct VectorPtr {
  T* base;
  i32 size;
  i32 offset;

  TESSERA_FN void advance(i32 by) { offset += by; }
};

// ---- block-wide: window -> shared tile, 16 bytes a thread and step; what lies outside is zero.
// On sm_80 and up the copy is asynchronous (commit, then wait); on sm_75 it goes through registers.
// Bases and strides must be multiples of 16 bytes; the matrix may end inside a chunk.
template <Config C, class T, int Rows, int Cols>
TESSERA_FN void load(const SharedTile<std::remove_const_t<T>, Rows, Cols>& to,
                     const BlockPtr<T, Rows, Cols>& from, Site site = Site::here()) {
  using Tile = SharedTile<std::remove_const_t<T>, Rows, Cols>;
  constexpr int kPerChunk = 16 / int(sizeof(T)), kSteps = Rows * Tile::kChunks / C.threads();
  static_assert(Rows * Tile::kChunks % C.threads() == 0, "a tile must be a whole number of steps");
  // Steps go in batches: within one, loads are in flight together; across them nothing is kept,
  // since the addresses of all steps at once are more registers than a kernel has to spare.
  constexpr int kBatch = kSteps % 4 == 0 ? 4 : kSteps % 3 == 0 ? 3 : kSteps % 2 == 0 ? 2 : 1;
  at(site);
  const Lanes<i32> thread = lane_id() + Lanes<i32>(warp_id() * 32);
  TESSERA_ROLLED_FOR (int first = 0; first < kSteps; first += kBatch) {
    Chunk staged[kBatch];
    Lanes<u32> address[kBatch];
    TESSERA_UNROLL_FOR (int i = 0; i < kBatch; i++) {
      const Lanes<i32> index = thread + Lanes<i32>((first + i) * C.threads());
      const Lanes<i32> row = index / Lanes<i32>(Tile::kChunks),
                       chunk = index % Lanes<i32>(Tile::kChunks);
      const Lanes<i32> left = Lanes<i32>(from.cols - from.col) - chunk * Lanes<i32>(kPerChunk);
      // Cut to a chunk before it is counted in bytes: a row may be longer than 2^31 bytes.
      const Lanes<i32> whole = select(left < Lanes<i32>(kPerChunk), left, Lanes<i32>(kPerChunk));
      Lanes<i32> bytes = whole * Lanes<i32>(int(sizeof(T)));
      const Lanes<bool> inside = (row < Lanes<i32>(from.rows - from.row)) & (left > Lanes<i32>(0));
      bytes = select(inside, bytes, Lanes<i32>(0));
      const Lanes<i64> offset = Lanes<i64>(row + Lanes<i32>(from.row)) * Lanes<i64>(from.stride) +
                                Lanes<i64>(chunk * Lanes<i32>(kPerChunk) + Lanes<i32>(from.col));
      const Lanes<const char*> source = reinterpret_cast<const char*>(from.base) +
                                        offset * Lanes<i64>(i64(sizeof(T)));
      if constexpr (C.has_cp_async()) {
        cp_async(to.at(row, chunk), source, bytes);
      } else {
        staged[i] = ld_global_chunk(source, bytes);
        address[i] = to.at(row, chunk);
      }
    }
    if constexpr (!C.has_cp_async())
      TESSERA_UNROLL_FOR (int i = 0; i < kBatch; i++) st_shared_chunk(address[i], staged[i]);
  }
}
// Closes a group of asynchronous copies.
template <Config C>
TESSERA_FN void commit() {
  if constexpr (C.has_cp_async()) cp_async_commit();
}
// Waits until at most `Pending` of this warp's newest groups are in flight, then for the block:
// what the older groups and all stores before have written is there for everyone.
template <Config C, int Pending>
TESSERA_FN void wait(Site site = Site::here()) {
  if constexpr (C.has_cp_async()) cp_async_wait<Pending>();
  barrier(site);
}

// ---- one warp: window -> registers, widened to fp32
template <int Rows, int Cols, class T>
TESSERA_FN void load(Accumulator<Rows, Cols>& to, const BlockPtr<const T, Rows, Cols>& from,
                     Site site = Site::here()) {
  at(site);
  for_each(to, [&](const Lanes<i32>& r, const Lanes<i32>& c, Lanes<float>& x) {
    const Lanes<i32> row = r + Lanes<i32>(from.row), col = c + Lanes<i32>(from.col);
    const Lanes<bool> inside = (row < Lanes<i32>(from.rows)) & (col < Lanes<i32>(from.cols));
    const Lanes<const T*> p = from.base +
                              (Lanes<i64>(row) * Lanes<i64>(from.stride) + Lanes<i64>(col));
    x = widen(ld_global(p, inside, T{}));
  });
}
template <int Cols, class T>
TESSERA_FN void load(ColVector<Cols>& to, const VectorPtr<const T, Cols>& from,
                     Site site = Site::here()) {
  at(site);
  TESSERA_UNROLL_FOR (int n = 0; n < to.kColTiles; n++)
    TESSERA_UNROLL_FOR (int i = 0; i < 2; i++) {
      const Lanes<i32> col = col_of(lane_id(), i) + Lanes<i32>(8 * n + from.offset);
      const Lanes<const T*> p = from.base + Lanes<i64>(col);
      to.x[n][i] = widen(ld_global(p, col < Lanes<i32>(from.size), T{}));
    }
}

// ---- one warp: registers -> window; f turns an accumulator into what is stored
template <int Rows, int Cols, int WindowRows, class T, class Acc, class F>
TESSERA_FN void store(const BlockPtr<T, WindowRows, Cols>& to,
                      const Accumulator<Rows, Cols, Acc>& from, int row0, F f,
                      Site site = Site::here()) {
  at(site);
  const Lanes<i32> lane = lane_id();
  TESSERA_UNROLL_FOR (int m = 0; m < from.kRowTiles; m++)
    TESSERA_UNROLL_FOR (int n = 0; n < from.kColTiles; n++)
      TESSERA_UNROLL_FOR (int i = 0; i < 4; i++) {
        const Lanes<i32> row = row_of(lane, i) + Lanes<i32>(16 * m + row0 + to.row);
        const Lanes<i32> col = col_of(lane, i) + Lanes<i32>(8 * n + to.col);
        const Lanes<bool> inside = (row < Lanes<i32>(to.rows)) & (col < Lanes<i32>(to.cols));
        const Lanes<T*> p = to.base + (Lanes<i64>(row) * Lanes<i64>(to.stride) + Lanes<i64>(col));
        st_global(p, f(from.x[m][n][i]), inside);
      }
}
template <int Rows, int Size, class T, class Acc, class F>
TESSERA_FN void store(const VectorPtr<T, Size>& to, const RowVector<Rows, Acc>& from, int row0, F f,
                      Site site = Site::here()) {
  at(site);
  const Lanes<i32> lane = lane_id();
  TESSERA_UNROLL_FOR (int m = 0; m < from.kRowTiles; m++)
    TESSERA_UNROLL_FOR (int h = 0; h < 2; h++) {
      const Lanes<i32> row = row_of(lane, 2 * h) + Lanes<i32>(16 * m + row0 + to.offset);
      const Lanes<bool> mine = (row < Lanes<i32>(to.size)) &
                               ((lane & Lanes<i32>(3)) == Lanes<i32>(0));
      st_global(to.base + Lanes<i64>(row), f(from.x[m][h]), mine);
    }
}

}  // namespace tessera
