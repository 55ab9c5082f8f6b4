// SPDX-License-Identifier: Apache-2.0
// The maps (lane, register) -> (row, column) against the tables of the PTX ISA ("Matrix fragments
// for mma.m16n8k8 / m16n8k16"), written out here as they are drawn there, and against what the
// emulated instruction does.
#include "kernels/tile/fragment.h"

#include <gtest/gtest.h>

#include "tests/sim/run_kernel.h"

namespace tessera {
namespace {

// Who holds an element: the lane and its number among the lane's elements (a0, a1, ...).
struct Holder {
  int lane, element;
};

// Eight rows of eight columns: the block that every fragment is made of. Two elements a lane.
constexpr int kLanes[8][8] = {
    {0, 0, 1, 1, 2, 2, 3, 3},         {4, 4, 5, 5, 6, 6, 7, 7},
    {8, 8, 9, 9, 10, 10, 11, 11},     {12, 12, 13, 13, 14, 14, 15, 15},
    {16, 16, 17, 17, 18, 18, 19, 19}, {20, 20, 21, 21, 22, 22, 23, 23},
    {24, 24, 25, 25, 26, 26, 27, 27}, {28, 28, 29, 29, 30, 30, 31, 31},
};
constexpr Holder holder(int row, int col, int first_element) {
  return {kLanes[row % 8][col % 8], first_element + col % 2};
}
// C and D (16, 8): rows 0-7 hold c0 c1, rows 8-15 c2 c3.
constexpr Holder holder_c(int row, int col) { return holder(row, col, row < 8 ? 0 : 2); }
// A (16, 16): upper left a0 a1, lower left a2 a3, upper right a4 a5, lower right a6 a7. m16n8k8 has
// the left half.
constexpr Holder holder_a(int row, int col) {
  constexpr int kFirst[2][2] = {{0, 4}, {2, 6}};
  return holder(row, col, kFirst[row / 8][col / 8]);
}
// B (16, 8): rows 0-7 hold b0 b1, rows 8-15 b2 b3; the block is transposed. m16n8k8: the upper
// half.
constexpr Holder holder_b(int row, int col) { return holder(col, row, row < 8 ? 0 : 2); }

// Lane arithmetic on the machine's own lanes and at compile time.
static_assert(row_of(13, 2) == 11 && col_of(13, 3) == 3);

TEST(Fragment, AccumulatorMap) {
  int seen = 0;
  for (int row = 0; row < 16; row++)
    for (int col = 0; col < 8; col++) {
      const Holder h = holder_c(row, col);
      EXPECT_EQ(row_of(h.lane, h.element), row);
      EXPECT_EQ(col_of(h.lane, h.element), col);
      const Lanes<i32> rows = row_of(lane_id(), h.element), cols = col_of(lane_id(), h.element);
      EXPECT_EQ(rows.v[h.lane], row);
      EXPECT_EQ(cols.v[h.lane], col);
      seen++;
    }
  EXPECT_EQ(seen, 32 * 4);
}

TEST(Fragment, OperandAMap) {
  for (int row = 0; row < 16; row++)
    for (int k = 0; k < 16; k++) {
      const Holder h = holder_a(row, k);
      const int reg = h.element / 2, half = h.element % 2;
      // Register 2 s + i of the instruction is register i of slice s.
      EXPECT_EQ(operand_a_row(h.lane, reg % 2), row);
      EXPECT_EQ(operand_a_col(h.lane, half) + 8 * (reg / 2), k);
    }
}

TEST(Fragment, OperandBMap) {
  for (int k = 0; k < 16; k++)
    for (int col = 0; col < 8; col++) {
      const Holder h = holder_b(k, col);
      EXPECT_EQ(operand_b_row(h.lane, h.element % 2) + 8 * (h.element / 2), k);
      EXPECT_EQ(operand_b_col(h.lane), col);
    }
}

// One 1 in A and one 1 in B: the product has a 1 where the tables say, and nothing else.
template <int K>
void expect_unit_products(sim::MmaMode mode) {
  constexpr u16 kOne = 0x3c00;  // fp16
  for (int row = 0; row < 16; row++)
    for (int col = 0; col < 8; col++)
      for (int k = 0; k < K; k++) {
        alignas(64) u32 a[K / 4][32] = {}, b[K / 8][32] = {};
        alignas(64) float c[4][32] = {};
        const Holder in_a = holder_a(row, k), in_b = holder_b(k, col), out = holder_c(row, col);
        a[in_a.element / 2][in_a.lane] = u32(kOne) << (16 * (in_a.element % 2));
        b[in_b.element / 2][in_b.lane] = u32(kOne) << (16 * (in_b.element % 2));
        sim::MmaState state;
        sim::mma_function(false, K, mode, state.rule)(c[0], a[0], b[0], state);
        for (int i = 0; i < 4; i++)
          for (int lane = 0; lane < 32; lane++)
            ASSERT_EQ(c[i][lane], i == out.element && lane == out.lane ? 1.0f : 0.0f)
                << "A(" << row << ", " << k << ") B(" << k << ", " << col << ")";
      }
}
TEST(Fragment, InstructionAgreesWithTheTables) {
  for (const auto mode : {sim::MmaMode::exact, sim::MmaMode::fma, sim::MmaMode::scalar}) {
    expect_unit_products<8>(mode);
    expect_unit_products<16>(mode);
  }
}

}  // namespace
}  // namespace tessera
