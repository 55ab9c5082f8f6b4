// SPDX-License-Identifier: Apache-2.0
// Register tiles of one warp. Where element (row, col) lives, (lane, register) -> (row, col), is
// constexpr data that kernels, emulator and tests share, so masks and score changes are written
// once.
#pragma once
#include "kernels/configs.h"
#include "kernels/tile/map.h"
#include "kernels/warp/warp.h"

namespace tessera {

// For a tile whose every register is written at once.
struct Unwritten {};

// Rows x Cols accumulators of one warp.
template <int Rows, int Cols, class T = float, class Map = MmaMap>
struct Accumulator {
  static_assert(Rows % Map::kRowStep == 0 && Cols % Map::kColStep == 0);
  static constexpr int kRows = Rows, kCols = Cols, kRowTiles = Rows / Map::Grid::kRows / 2,
                       kColTiles = Cols / Map::Grid::kRowLanes / 2;
  static_assert(2 * kRowTiles * Map::Grid::kRows == Rows &&
                2 * kColTiles * Map::Grid::kRowLanes == Cols);
  Lanes<T> x[kRowTiles][kColTiles][4];

  TESSERA_FN Accumulator() {
    TESSERA_UNROLL_FOR (int m = 0; m < kRowTiles; m++)
      TESSERA_UNROLL_FOR (int n = 0; n < kColTiles; n++)
        TESSERA_UNROLL_FOR (int i = 0; i < 4; i++) poison(x[m][n][i]);
  }
  TESSERA_FN explicit Accumulator(Unwritten) {}
  TESSERA_FN explicit Accumulator(T value) {
    TESSERA_UNROLL_FOR (int m = 0; m < kRowTiles; m++)
      TESSERA_UNROLL_FOR (int n = 0; n < kColTiles; n++)
        TESSERA_UNROLL_FOR (int i = 0; i < 4; i++) x[m][n][i] = Lanes<T>(value);
  }
  // The lane's v-th row and c-th column.
  TESSERA_FN Lanes<T>& at(int v, int c) { return x[v / 2][c / 2][2 * (v % 2) + c % 2]; }
  TESSERA_FN const Lanes<T>& at(int v, int c) const { return x[v / 2][c / 2][2 * (v % 2) + c % 2]; }
};

// Rows x Depth of an A operand in 16-bit storage T, packed two a register.
template <int Rows, int Depth, class T>
struct Operand {
  static_assert(Rows % 16 == 0 && Depth % 16 == 0 && sizeof(T) == 2);
  static constexpr int kRowTiles = Rows / 16, kSlices = Depth / 8;
  Lanes<u32> x[kRowTiles][kSlices][2];

  TESSERA_FN Operand() {
    TESSERA_UNROLL_FOR (int m = 0; m < kRowTiles; m++)
      TESSERA_UNROLL_FOR (int k = 0; k < kSlices; k++)
        TESSERA_UNROLL_FOR (int i = 0; i < 2; i++) poison(x[m][k][i]);
  }
  TESSERA_FN explicit Operand(Unwritten) {}
};
// Types that the CUDA cores multiply need no packing: their operand is an accumulator.
template <int Rows, int Depth>
struct Operand<Rows, Depth, float> : Accumulator<Rows, Depth, float> {
  TESSERA_FN Operand() {}
  TESSERA_FN explicit Operand(Unwritten) {}
};
template <int Rows, int Depth>
struct Operand<Rows, Depth, Fq> : Accumulator<Rows, Depth, Fq> {
  TESSERA_FN Operand() {}
  TESSERA_FN explicit Operand(Unwritten) {}
};

// One value a row: running maximum, running sum, LSE. Replicated over the lanes of a row, of which
// each has the rows that it has of an accumulator.
template <int Rows, class T = float, class Grid = MmaGrid>
struct RowVector {
  static constexpr int kRowTiles = Rows / Grid::kRows / 2;
  Lanes<T> x[kRowTiles][2];

  TESSERA_FN RowVector() {
    TESSERA_UNROLL_FOR (int m = 0; m < kRowTiles; m++)
      TESSERA_UNROLL_FOR (int h = 0; h < 2; h++) poison(x[m][h]);
  }
};

// One value a column: a slice of a weight vector. Replicated over the eight lanes of a column.
template <int Cols, class T = float>
struct ColVector {
  static constexpr int kColTiles = Cols / 8;
  Lanes<T> x[kColTiles][2];  // columns 2t and 2t + 1
};

// ---- every element: f(row, col, x), coordinates in the warp's tile
template <int Rows, int Cols, class T, class Map, class F>
TESSERA_FN void for_each(Accumulator<Rows, Cols, T, Map>& a, F f) {
  const Lanes<i32> row = Map::first_row(lane_id()), col = Map::first_col(lane_id());
  TESSERA_UNROLL_FOR (int m = 0; m < a.kRowTiles; m++)
    TESSERA_UNROLL_FOR (int n = 0; n < a.kColTiles; n++)
      TESSERA_UNROLL_FOR (int i = 0; i < 4; i++)
        f(row + Lanes<i32>(Map::down(2 * m + (i >> 1))),
          col + Lanes<i32>(Map::right(2 * n + (i & 1))), a.x[m][n][i]);
}
// every element with its row's value: f(x, v)
template <int Rows, int Cols, class T, class Map, class F>
TESSERA_FN void for_each(Accumulator<Rows, Cols, T, Map>& a,
                         const RowVector<Rows, T, typename Map::Grid>& v, F f) {
  TESSERA_UNROLL_FOR (int m = 0; m < a.kRowTiles; m++)
    TESSERA_UNROLL_FOR (int n = 0; n < a.kColTiles; n++)
      TESSERA_UNROLL_FOR (int i = 0; i < 4; i++) f(a.x[m][n][i], v.x[m][i >> 1]);
}
template <int Rows, int Cols, class T, class Map>
TESSERA_FN void fill(Accumulator<Rows, Cols, T, Map>& a, T value) {
  for_each(a, [&](const Lanes<i32>&, const Lanes<i32>&, Lanes<T>& x) { x = Lanes<T>(value); });
}
template <int Rows, int Cols, class T, class Map>
TESSERA_FN void scale_rows(Accumulator<Rows, Cols, T, Map>& a,
                           const RowVector<Rows, T, typename Map::Grid>& v) {
  for_each(a, v, [](Lanes<T>& x, const Lanes<T>& s) { x = x * s; });
}
template <int Rows, int Cols, class T>
TESSERA_FN void scale_cols(Accumulator<Rows, Cols, T>& a, const ColVector<Cols, T>& v) {
  TESSERA_UNROLL_FOR (int m = 0; m < a.kRowTiles; m++)
    TESSERA_UNROLL_FOR (int n = 0; n < a.kColTiles; n++)
      TESSERA_UNROLL_FOR (int i = 0; i < 4; i++) a.x[m][n][i] = a.x[m][n][i] * v.x[n][i & 1];
}

// Columns Cols * part .. Cols * (part + 1) - 1 of a.
template <int Cols, int Rows, int AllCols, class T, class Map>
TESSERA_FN Accumulator<Rows, Cols, T, Map> columns(const Accumulator<Rows, AllCols, T, Map>& a,
                                                   int part) {
  static_assert(AllCols % Cols == 0);
  Accumulator<Rows, Cols, T, Map> r{Unwritten{}};
  TESSERA_UNROLL_FOR (int m = 0; m < r.kRowTiles; m++)
    TESSERA_UNROLL_FOR (int n = 0; n < r.kColTiles; n++)
      TESSERA_UNROLL_FOR (int i = 0; i < 4; i++) r.x[m][n][i] = a.x[m][part * r.kColTiles + n][i];
  return r;
}

// ---- row vectors, row by row
template <class F, int Rows, class T, class Grid, class... V>
TESSERA_FN RowVector<Rows, T, Grid> map_rows(F f, const RowVector<Rows, T, Grid>& v,
                                             const V&... others) {
  RowVector<Rows, T, Grid> r;
  TESSERA_UNROLL_FOR (int m = 0; m < r.kRowTiles; m++)
    TESSERA_UNROLL_FOR (int h = 0; h < 2; h++) r.x[m][h] = f(v.x[m][h], others.x[m][h]...);
  return r;
}
template <int Rows, class T, class Grid>
TESSERA_FN void fill(RowVector<Rows, T, Grid>& v, T value) {
  v = map_rows([&](const Lanes<T>&) { return Lanes<T>(value); }, v);
}
template <int Rows, class T, class Grid>
TESSERA_FN RowVector<Rows, T, Grid> max(const RowVector<Rows, T, Grid>& a,
                                        const RowVector<Rows, T, Grid>& b) {
  return map_rows([](const Lanes<T>& x, const Lanes<T>& y) { return max(x, y); }, a, b);
}
template <int Rows, class T, class Grid>
TESSERA_FN RowVector<Rows, T, Grid> operator+(const RowVector<Rows, T, Grid>& a,
                                              const RowVector<Rows, T, Grid>& b) {
  return map_rows([](const Lanes<T>& x, const Lanes<T>& y) { return x + y; }, a, b);
}
template <int Rows, class T, class Grid>
TESSERA_FN RowVector<Rows, T, Grid> operator*(const RowVector<Rows, T, Grid>& a,
                                              const RowVector<Rows, T, Grid>& b) {
  return map_rows([](const Lanes<T>& x, const Lanes<T>& y) { return x * y; }, a, b);
}

// Whether f(v...) holds for any row that a lane has.
template <class F, int Rows, class T, class Grid, class... V>
TESSERA_FN Lanes<bool> any_row(F f, const RowVector<Rows, T, Grid>& v, const V&... others) {
  Lanes<bool> r = false;
  TESSERA_UNROLL_FOR (int m = 0; m < v.kRowTiles; m++)
    TESSERA_UNROLL_FOR (int h = 0; h < 2; h++) r = r | f(v.x[m][h], others.x[m][h]...);
  return r;
}

// ---- across a row: over a lane's columns in ascending order (reduce_lanes), then its row's
// other lanes, each time those of twice as many.
template <int Rows, class T, class Grid, class F>
TESSERA_FN RowVector<Rows, T, Grid> across_row(const RowVector<Rows, T, Grid>& v, F f) {
  return map_rows(
      [&](const Lanes<T>& x) {
        Lanes<T> r = x;
        TESSERA_UNROLL_FOR (int i = 0; i < Grid::kLog; i++)
          r = f(r, shuffle_xor(r, Grid::distance(i)));
        return r;
      },
      v);
}
template <int Rows, int Cols, class T, class Map, class F>
TESSERA_FN RowVector<Rows, T, typename Map::Grid> reduce_lanes(
    const Accumulator<Rows, Cols, T, Map>& a, F f) {
  RowVector<Rows, T, typename Map::Grid> v;
  TESSERA_UNROLL_FOR (int m = 0; m < a.kRowTiles; m++)
    TESSERA_UNROLL_FOR (int h = 0; h < 2; h++) {
      Lanes<T> r = f(a.x[m][0][2 * h], a.x[m][0][2 * h + 1]);
      TESSERA_UNROLL_FOR (int n = 1; n < a.kColTiles; n++)
        r = f(f(r, a.x[m][n][2 * h]), a.x[m][n][2 * h + 1]);
      v.x[m][h] = r;
    }
  return v;
}
template <int Rows, int Cols, class T, class Map, class F>
TESSERA_FN RowVector<Rows, T, typename Map::Grid> reduce_rows(
    const Accumulator<Rows, Cols, T, Map>& a, F f) {
  return across_row(reduce_lanes(a, f), f);
}
// The sum of f(x, v), v being the row's value, over each lane's own columns of a row, pairs first;
// across_row adds a row's lanes.
template <int Rows, int Cols, class T, class Map, class F>
TESSERA_FN RowVector<Rows, T, typename Map::Grid> lane_sums(
    const Accumulator<Rows, Cols, T, Map>& a, const RowVector<Rows, T, typename Map::Grid>& v,
    F f) {
  RowVector<Rows, T, typename Map::Grid> r;
  TESSERA_UNROLL_FOR (int m = 0; m < a.kRowTiles; m++)
    TESSERA_UNROLL_FOR (int h = 0; h < 2; h++)
      TESSERA_UNROLL_FOR (int n = 0; n < a.kColTiles; n++) {
        const Lanes<T> pair = f(a.x[m][n][2 * h], v.x[m][h]) + f(a.x[m][n][2 * h + 1], v.x[m][h]);
        r.x[m][h] = n == 0 ? pair : r.x[m][h] + pair;
      }
  return r;
}
template <int Rows, int Cols, class T, class Map>
TESSERA_FN RowVector<Rows, T, typename Map::Grid> lane_sums(
    const Accumulator<Rows, Cols, T, Map>& a) {
  return lane_sums(a, RowVector<Rows, T, typename Map::Grid>(),
                   [](const Lanes<T>& x, const Lanes<T>&) { return x; });
}
// The largest of each lane's own columns of a row; of the row's lanes; of the row.
template <int Rows, int Cols, class T, class Map>
TESSERA_FN RowVector<Rows, T, typename Map::Grid> lane_max(
    const Accumulator<Rows, Cols, T, Map>& a) {
  return reduce_lanes(a, [](const Lanes<T>& x, const Lanes<T>& y) { return max(x, y); });
}
template <int Rows, class T, class Grid>
TESSERA_FN RowVector<Rows, T, Grid> row_max(const RowVector<Rows, T, Grid>& v) {
  return across_row(v, [](const Lanes<T>& x, const Lanes<T>& y) { return max(x, y); });
}
template <int Rows, int Cols, class T, class Map>
TESSERA_FN RowVector<Rows, T, typename Map::Grid> row_max(
    const Accumulator<Rows, Cols, T, Map>& a) {
  return row_max(lane_max(a));
}
template <int Rows, int Cols, class T, class Map>
TESSERA_FN RowVector<Rows, T, typename Map::Grid> row_sum(
    const Accumulator<Rows, Cols, T, Map>& a) {
  return reduce_rows(a, [](const Lanes<T>& x, const Lanes<T>& y) { return x + y; });
}

// What a variant casts an fp32 weight to, as fp32 again; without such a variant, the weight.
template <Variant V, class T>
TESSERA_FN Lanes<T> cast_as(const Lanes<T>& x) {
  if constexpr (V == Variant::p_f16) {
    return widen(narrow<f16>(x));
  } else if constexpr (V == Variant::p_bf16) {
    return widen(narrow<bf16>(x));
  } else if constexpr (V == Variant::p_bf16x2) {
    const Lanes<T> high = widen(narrow<bf16>(x));
    return high + widen(narrow<bf16>(x - high));  // 16 significant bits or so: exact in fp32
  } else {
    return x;
  }
}

// ---- a product's accumulators as the next product's A operand, rounded to T, without leaving
// registers: columns 8n .. 8n + 7 of an accumulator sit where slice n of an operand wants them.
template <class T, Variant V = Variant::none, int Rows, int Cols, class Acc>
TESSERA_FN Operand<Rows, Cols, T> as_operand(const Accumulator<Rows, Cols, Acc>& a) {
  Operand<Rows, Cols, T> p{Unwritten{}};
  TESSERA_UNROLL_FOR (int m = 0; m < a.kRowTiles; m++)
    TESSERA_UNROLL_FOR (int n = 0; n < a.kColTiles; n++) {
      if constexpr (sizeof(T) == 2) {
        TESSERA_UNROLL_FOR (int h = 0; h < 2; h++)
          p.x[m][n][h] = pack<T>(a.x[m][n][2 * h], a.x[m][n][2 * h + 1]);
      } else {
        TESSERA_UNROLL_FOR (int i = 0; i < 4; i++) p.x[m][n][i] = cast_as<V>(a.x[m][n][i]);
      }
    }
  return p;
}
// The bug of a cast that is computed and dropped: registers are handed over as they are, so a
// 16-bit multiplier reads halves of fp32 numbers. For 32-bit types nothing changes, which is why it
// passed there.
template <class T, int Rows, int Cols, class Acc>
TESSERA_FN Operand<Rows, Cols, T> as_operand_without_cast(const Accumulator<Rows, Cols, Acc>& a) {
  if constexpr (sizeof(T) != 2) {
    return as_operand<T>(a);
  } else {
    Operand<Rows, Cols, T> p;
    TESSERA_UNROLL_FOR (int m = 0; m < a.kRowTiles; m++)
      TESSERA_UNROLL_FOR (int n = 0; n < a.kColTiles; n++)
        TESSERA_UNROLL_FOR (int h = 0; h < 2; h++) p.x[m][n][h] = float_to_bits(a.x[m][n][2 * h]);
    return p;
  }
}

}  // namespace tessera
