// SPDX-License-Identifier: Apache-2.0
// Where an element of a register tile lives: lane and register, row and column, as plain functions.
#pragma once
#include "kernels/warp/types.h"

namespace tessera {

// The 16x8 accumulator of m16n8k8 and m16n8k16, register i of 4 (PTX ISA, matrix fragments for
// mma): lane 4g + t holds rows g and g + 8, columns 2t and 2t + 1.
template <class Lane>
TESSERA_HD constexpr Lane row_of(const Lane& lane, int i) {
  return (lane >> 2) + Lane(8 * (i >> 1));
}
template <class Lane>
TESSERA_HD constexpr Lane col_of(const Lane& lane, int i) {
  return (lane & 3) * 2 + Lane(i & 1);
}
// The 16x8 slice of an A operand, 16-bit elements, register i of 2: row g + 8i, columns 2t (low
// half) and 2t + 1. m16n8k16 takes two slices. The 8x8 slice of B, one register: rows 2t and 2t +
// 1, column g.
TESSERA_HD constexpr int operand_a_row(int lane, int i) { return (lane >> 2) + 8 * i; }
TESSERA_HD constexpr int operand_a_col(int lane, int half) { return (lane & 3) * 2 + half; }
TESSERA_HD constexpr int operand_b_row(int lane, int half) { return (lane & 3) * 2 + half; }
TESSERA_HD constexpr int operand_b_col(int lane) { return lane >> 2; }

// How the lanes of a warp stand on a tile: in kRows rows of kRowLanes lanes, of which each has
// kRowRun neighbouring rows. The lanes of a row are those at the kLog xor distances.
struct MmaGrid {  // that of the tensor cores: one row after the other
  static constexpr int kRowLanes = 4, kRows = 8, kRowRun = 1, kLog = 2;
  template <class Lane>
  static TESSERA_HD constexpr Lane row(const Lane& lane) {
    return lane >> 2;
  }
  template <class Lane>
  static TESSERA_HD constexpr Lane col(const Lane& lane) {
    return lane & 3;
  }
  static TESSERA_HD constexpr int distance(int i) { return 1 << i; }
};
// Those of multiply-adds: 8 or 16 lanes a row. A lane has its row in common with lane ^ 1 and its
// column with lane ^ 2: shared memory serves 16 bytes a lane twice as fast where every lane reads
// the same as one of these two.
template <int RowLanes>
struct WordGrid {
  static_assert(RowLanes == 8 || RowLanes == 16);
  static constexpr int kRowLanes = RowLanes, kRows = 32 / RowLanes, kRowRun = 4;
  static constexpr int kLog = RowLanes == 8 ? 3 : 4;
  template <class Lane>
  static TESSERA_HD constexpr Lane row(const Lane& lane) {
    return ((lane >> 1) & 1) + ((lane >> 3) & (kRows - 2));
  }
  template <class Lane>
  static TESSERA_HD constexpr Lane col(const Lane& lane) {
    return (lane & 1) + ((lane >> 1) & (RowLanes - 2));
  }
  static TESSERA_HD constexpr int distance(int i) { return i == 0 ? 1 : 2 << i; }
};

// Which elements of a tile a lane has: its grid's rows, and of the columns runs of Run, dealt out
// among the lanes of a row. Register (m, n, i) is the lane's row 2m + (i >> 1) and its column
// 2n + (i & 1).
template <class LanesOnTile, int Run>
struct TileMap {
  using Grid = LanesOnTile;
  static constexpr int kRun = Run, kRowRun = Grid::kRowRun;
  static constexpr int kRowStep = Grid::kRows * kRowRun,
                       kColStep = Grid::kRowLanes * Run;  // of all lanes
  // The lane's v-th row and c-th column are these below and right of its first ones.
  static TESSERA_HD constexpr int down(int v) { return v / kRowRun * kRowStep + v % kRowRun; }
  static TESSERA_HD constexpr int right(int c) { return c / Run * kColStep + c % Run; }
  template <class Lane>
  static TESSERA_HD constexpr Lane first_row(const Lane& lane) {
    return Grid::row(lane) * kRowRun;
  }
  template <class Lane>
  static TESSERA_HD constexpr Lane first_col(const Lane& lane) {
    return Grid::col(lane) * Run;
  }
};
using MmaMap = TileMap<MmaGrid, 2>;

}  // namespace tessera
