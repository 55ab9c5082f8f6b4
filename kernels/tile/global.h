// SPDX-License-Identifier: Apache-2.0
// Windows into global memory, and the copies between them, shared tiles and registers.
#pragma once
#include "kernels/tile/fragment.h"
#include "kernels/tile/shared.h"

namespace tessera {

TESSERA_HD constexpr int log2_of(int power_of_two) {
  return power_of_two == 1 ? 0 : 1 + log2_of(power_of_two / 2);
}

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

  // Whether the matrix is a whole number of aligned 16-byte chunks.
  TESSERA_FN bool in_chunks() const {
    return ((reinterpret_cast<std::uintptr_t>(base) | std::uintptr_t(stride) * sizeof(T) |
             std::uintptr_t(cols) * sizeof(T)) &
            15) == 0;
  }
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

// ---- block-wide: window -> shared tile, 16 bytes a lane and step; what lies outside is zero.
// On sm_80 and up the copy is asynchronous (commit, then wait); on sm_75 it goes through registers.
// Bases and strides must be multiples of 16 bytes. The matrix may end inside a chunk; on the GPU
// the launcher copies such a one first, so that a chunk is there or is not.

// A window that moves down a matrix, a tile at a time. What a lane must know to copy its share is
// worked out once, so that a copy in a loop costs an addition. Neighbouring lanes take neighbouring
// chunks of a row, as many as the swizzle permutes among themselves, so the shared address of every
// later step is a constant away.
//   stream.start(tile) ... other work ... stream.finish(tile); commit(); wait()
// On sm_80 and up start() issues cp.async; on sm_75 it loads into registers and finish() stores
// them. Both act on the tile that is next; start() moves on.
template <Config C, class T, int Rows, int Cols>
class TileStream {
  using Element = std::remove_const_t<T>;
  using Tile = SharedTile<Element, Rows, Cols>;
  static constexpr int kPerChunk = 16 / int(sizeof(T));
  static constexpr int kGroup = swizzle_group(Tile::kChunks);
  static constexpr int kStepRows = C.threads() / kGroup;
  static constexpr int kColSteps = Tile::kChunks / kGroup, kRowSteps = Rows / kStepRows;
  static_assert(C.threads() % kGroup == 0 && Rows % kStepRows == 0,
                "a tile must be a whole number of steps");

 public:
  TESSERA_FN explicit TileStream(const BlockPtr<T, Rows, Cols>& from)
      : rows_left_(from.rows - from.row), step_bytes_(from.stride * i64(sizeof(T)) * kStepRows) {
    const Lanes<i32> thread = lane_id() + Lanes<i32>(warp_id() * 32);
    const Lanes<i32> chunk = thread & Lanes<i32>(kGroup - 1);
    row_ = thread >> Lanes<i32>(log2_of(kGroup));
    at_ = Tile{0}.at(row_, chunk);
    const Lanes<i64> offset = Lanes<i64>(row_ + Lanes<i32>(from.row)) * Lanes<i64>(from.stride) +
                              Lanes<i64>(chunk * Lanes<i32>(kPerChunk) + Lanes<i32>(from.col));
    source_ = reinterpret_cast<const char*>(from.base) + offset * Lanes<i64>(i64(sizeof(T)));
    // Cut to a tile before it is counted in bytes: a row may be longer than 2^31 bytes.
    const i32 cols = from.cols - from.col < Cols ? from.cols - from.col : Cols;
    row_bytes_ = (Lanes<i32>(cols) - chunk * Lanes<i32>(kPerChunk)) * Lanes<i32>(int(sizeof(T)));
  }

  TESSERA_FN void start(const Tile& to, Site site = Site::here()) {
    at(site);
    start_rows<0, kRowSteps>(to);
    rows_left_ -= Rows;
  }
  TESSERA_FN void finish(const Tile& to, Site site = Site::here()) {
    at(site);
    finish_rows<0, kRowSteps>(to);
  }
  // Both, a few steps at a time: the registers of a whole tile are more than a kernel may have.
  TESSERA_FN void all(const Tile& to, Site site = Site::here()) {
    at(site);
    all_rows<0>(to);
    rows_left_ -= Rows;
  }

 private:
  template <int First, int Last>
  TESSERA_FN void start_rows(const Tile& to) {
    TESSERA_UNROLL_FOR (int r = First; r < Last; r++) {
      const Lanes<bool> inside = row_ < Lanes<i32>(rows_left_ - r * kStepRows);
      TESSERA_UNROLL_FOR (int c = 0; c < kColSteps; c++) {
        const Lanes<i32> bytes = select(
            inside, chunk_bytes(row_bytes_ - Lanes<i32>(c * kGroup * 16)), Lanes<i32>(0));
        const Lanes<const char*> source = source_ + Lanes<i64>(i64(c * kGroup * 16));
        if constexpr (C.has_cp_async())
          cp_async(address(to, r, c), source, bytes);
        else
          staged_[(r - First) * kColSteps + c] = ld_global_chunk(source, bytes);
      }
      source_ = source_ + Lanes<i64>(step_bytes_);
    }
  }
  template <int First, int Last>
  TESSERA_FN void finish_rows(const Tile& to) {
    if constexpr (!C.has_cp_async())
      TESSERA_UNROLL_FOR (int r = First; r < Last; r++)
        TESSERA_UNROLL_FOR (int c = 0; c < kColSteps; c++)
          st_shared_chunk(address(to, r, c), staged_[(r - First) * kColSteps + c]);
  }
  template <int First>
  TESSERA_FN void all_rows(const Tile& to) {
    constexpr int kBatch = kColSteps < 4 ? 4 / kColSteps : 1;
    constexpr int kLast = First + kBatch < kRowSteps ? First + kBatch : kRowSteps;
    start_rows<First, kLast>(to);
    finish_rows<First, kLast>(to);
    if constexpr (kLast < kRowSteps) all_rows<kLast>(to);
  }
  // r steps down and c groups of chunks from the lane's first one: the rows of a step are a power
  // of two, so their part of the swizzle is an xor of its own.
  TESSERA_FN Lanes<u32> address(const Tile& to, int r, int c) const {
    const int key = swizzle_key(Tile::kChunks, r * kStepRows);
    return (at_ ^ Lanes<u32>(u32(key * 16))) + Lanes<u32>(to.base) +
           Lanes<u32>(u32(r * kStepRows * Tile::kPitch + c * kGroup * 16));
  }

  Lanes<const char*> source_;
  Lanes<u32> at_;
  Lanes<i32> row_, row_bytes_;  // from the lane's first chunk to the row's end; below 1: none
  i32 rows_left_;               // of the matrix, from the next tile's first row on
  i64 step_bytes_;
  struct Nothing {};
  std::conditional_t<C.has_cp_async(), Nothing, Chunk>
      staged_[C.has_cp_async() ? 1 : kRowSteps * kColSteps];
};

template <Config C, class T, int Rows, int Cols>
TESSERA_FN void load(const SharedTile<std::remove_const_t<T>, Rows, Cols>& to,
                     const BlockPtr<T, Rows, Cols>& from, Site site = Site::here()) {
  TileStream<C, T, Rows, Cols>(from).all(to, site);
}
// Into a WordTile, word after word through registers: a barrier, not a wait, makes it visible. The
// base and the stride may be any.
template <Config C, class T, int Rows, int Cols>
TESSERA_FN void load(const WordTile<std::remove_const_t<T>, Rows, Cols>& to,
                     const BlockPtr<T, Rows, Cols>& from, Site site = Site::here()) {
  constexpr int kFour = 4 * Rows;  // words of four columns
  static_assert(kFour % C.threads() == 0);
  at(site);
  const Lanes<i32> word = lane_id() + Lanes<i32>(warp_id() * 32);  // the first of the tile
  const Lanes<i32> row = (word >> 4) * 4 + (word & 3) + Lanes<i32>(from.row);
  const Lanes<i32> col = ((word >> 2) & 3) + Lanes<i32>(from.col);
  const Lanes<T*> first = from.base + (Lanes<i64>(row) * Lanes<i64>(from.stride) + Lanes<i64>(col));
  const Lanes<u32> address = Lanes<u32>(word * 4) + to.base;
  TESSERA_UNROLL_FOR (int down = 0; down < kFour; down += C.threads()) {
    const Lanes<bool> inside = row < Lanes<i32>(from.rows - down / 4);
    const Lanes<T*> source = first + Lanes<i64>(from.stride * (down / 4));
    TESSERA_UNROLL_FOR (int right = 0; right < Cols; right += 4)
      st_shared(
          address + Lanes<u32>(u32(right * kFour + 4 * down)),
          ld_global(source + Lanes<i64>(right), inside & (col < Lanes<i32>(from.cols - right)),
                    std::remove_const_t<T>{}));
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
template <int Rows, int Cols, int WindowRows, class T, class Acc, class Map, class F>
TESSERA_FN void store(const BlockPtr<T, WindowRows, Cols>& to,
                      const Accumulator<Rows, Cols, Acc, Map>& from, int row0, F f,
                      Site site = Site::here()) {
  at(site);
  const Lanes<i32> lane = lane_id();
  TESSERA_UNROLL_FOR (int m = 0; m < from.kRowTiles; m++)
    TESSERA_UNROLL_FOR (int n = 0; n < from.kColTiles; n++)
      TESSERA_UNROLL_FOR (int i = 0; i < 4; i++) {
        const Lanes<i32> row = Map::first_row(lane) +
                               Lanes<i32>(Map::down(2 * m + (i >> 1)) + row0 + to.row);
        const Lanes<i32> col = Map::first_col(lane) +
                               Lanes<i32>(Map::right(2 * n + (i & 1)) + to.col);
        const Lanes<bool> inside = (row < Lanes<i32>(to.rows)) & (col < Lanes<i32>(to.cols));
        const Lanes<T*> p = to.base + (Lanes<i64>(row) * Lanes<i64>(to.stride) + Lanes<i64>(col));
        st_global(p, f(from.x[m][n][i]), inside);
      }
}
template <int Rows, int Size, class T, class Acc, class Grid, class F>
TESSERA_FN void store(const VectorPtr<T, Size>& to, const RowVector<Rows, Acc, Grid>& from,
                      int row0, F f, Site site = Site::here()) {
  using Map = TileMap<Grid, 1>;
  at(site);
  const Lanes<i32> lane = lane_id();
  TESSERA_UNROLL_FOR (int m = 0; m < from.kRowTiles; m++)
    TESSERA_UNROLL_FOR (int h = 0; h < 2; h++) {
      const Lanes<i32> row = Map::first_row(lane) +
                             Lanes<i32>(Map::down(2 * m + h) + row0 + to.offset);
      const Lanes<bool> mine = (row < Lanes<i32>(to.size)) &
                               (Map::first_col(lane) == Lanes<i32>(0));
      st_global(to.base + Lanes<i64>(row), f(from.x[m][h]), mine);
    }
}

namespace detail {
// Through `scratch`, of which rows row0 .. row0 + Rows - 1 are this warp's alone.
template <int Rows, int Cols, int WindowRows, class T, class Acc>
TESSERA_FN void store_through(const SharedTile<T, WindowRows, Cols>& scratch,
                              const BlockPtr<T, WindowRows, Cols>& to,
                              const Accumulator<Rows, Cols, Acc>& from, int row0, Site site) {
  using Tile = SharedTile<T, WindowRows, Cols>;
  constexpr int kPerChunk = 16 / int(sizeof(T)), kGroup = swizzle_group(Tile::kChunks);
  constexpr int kStepRows = 32 / kGroup, kColSteps = Tile::kChunks / kGroup;
  static_assert(Rows % kStepRows == 0);
  at(site);
  const Lanes<i32> lane = lane_id();
  warp_sync(site);  // what other lanes have read of these rows
  TESSERA_UNROLL_FOR (int m = 0; m < from.kRowTiles; m++)
    TESSERA_UNROLL_FOR (int n = 0; n < from.kColTiles; n++)
      TESSERA_UNROLL_FOR (int h = 0; h < 2; h++) {
        const Lanes<i32> row = row_of(lane, 2 * h) + Lanes<i32>(16 * m + row0);
        const auto& x = from.x[m][n];
        if constexpr (sizeof(T) == 2) {
          st_shared(scratch.address_of(row, col_of(lane, 0) + Lanes<i32>(8 * n)),
                    pack<T>(x[2 * h], x[2 * h + 1]));
        } else {
          TESSERA_UNROLL_FOR (int i = 0; i < 2; i++)
            st_shared(scratch.address_of(row, col_of(lane, i) + Lanes<i32>(8 * n)), x[2 * h + i]);
        }
      }
  warp_sync(site);
  const Lanes<i32> chunk = lane & Lanes<i32>(kGroup - 1);
  TESSERA_UNROLL_FOR (int down = 0; down < Rows; down += kStepRows)
    TESSERA_UNROLL_FOR (int c = 0; c < kColSteps; c++) {
      const Lanes<i32> r = (lane >> Lanes<i32>(log2_of(kGroup))) + Lanes<i32>(down + row0);
      const Lanes<i32> row = r + Lanes<i32>(to.row);
      const Lanes<i32> col = (chunk + Lanes<i32>(c * kGroup)) * Lanes<i32>(kPerChunk) +
                             Lanes<i32>(to.col);
      const Lanes<i64> offset = Lanes<i64>(row) * Lanes<i64>(to.stride) + Lanes<i64>(col);
      st_global_chunk(reinterpret_cast<char*>(to.base) + offset * Lanes<i64>(i64(sizeof(T))),
                      ld_shared_chunk(scratch.at(r, chunk + Lanes<i32>(c * kGroup))),
                      (row < Lanes<i32>(to.rows)) & (col < Lanes<i32>(to.cols)));
    }
}
}  // namespace detail

// The same in chunks of 16 bytes, rounded to T, so that lanes store whole chunks of a row: from the
// registers where a lane has such, otherwise through `scratch`, of which rows row0 .. row0 +
// Rows - 1 are this warp's alone. A window that cannot be written 16 bytes at a time is stored
// element by element.
template <int Rows, int Cols, int WindowRows, class T, class Acc, class Map>
TESSERA_FN void store(const BlockPtr<T, WindowRows, Cols>& to,
                      const Accumulator<Rows, Cols, Acc, Map>& from, int row0,
                      const SharedTile<T, WindowRows, Cols>& scratch, Site site = Site::here()) {
  if (!to.in_chunks())
    return store(
        to, from, row0,
        [](const Lanes<Acc>& x) {
          if constexpr (std::is_same_v<Acc, float>)
            return narrow<T>(x);
          else
            return x;
        },
        site);
  if constexpr (Map::kRun * sizeof(T) == 16 && std::is_same_v<T, Acc>) {
    at(site);
    const Lanes<i32> lane = lane_id();
    TESSERA_UNROLL_FOR (int m = 0; m < from.kRowTiles; m++)
      TESSERA_UNROLL_FOR (int n = 0; n < from.kColTiles; n += 2)
        TESSERA_UNROLL_FOR (int h = 0; h < 2; h++) {
          const Lanes<i32> row = Map::first_row(lane) +
                                 Lanes<i32>(Map::down(2 * m + h) + row0 + to.row);
          const Lanes<i32> col = Map::first_col(lane) + Lanes<i32>(Map::right(2 * n) + to.col);
          const Lanes<i64> offset = Lanes<i64>(row) * Lanes<i64>(to.stride) + Lanes<i64>(col);
          const auto &low = from.x[m][n], &high = from.x[m][n + 1];
          st_global_chunk(reinterpret_cast<char*>(to.base) + offset * Lanes<i64>(i64(sizeof(T))),
                          make_chunk(low[2 * h], low[2 * h + 1], high[2 * h], high[2 * h + 1]),
                          (row < Lanes<i32>(to.rows)) & (col < Lanes<i32>(to.cols)));
        }
  } else {
    detail::store_through(scratch, to, from, row0, site);
  }
}

}  // namespace tessera
