// SPDX-License-Identifier: Apache-2.0
// Operations on register tiles: visiting elements, rows and columns, reductions, the step from
// accumulators to an operand; and what does not compile.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <type_traits>

#include "kernels/tile/element.h"
#include "kernels/tile/fragment.h"
#include "sim/random.h"
#include "tests/sim/run_kernel.h"

namespace tessera {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
u32 to_bits(float x) { return std::bit_cast<u32>(x); }

// ---- a condition on lanes is not a condition of the warp, and a lane's value no loop bound: under
// nvcc, where Lanes<T> is T, these would compile and diverge.
static_assert(!std::is_convertible_v<Lanes<bool>, bool> &&
              !std::is_constructible_v<bool, Lanes<bool>>);
static_assert(!std::is_convertible_v<Lanes<int>, int> && !std::is_constructible_v<int, Lanes<int>>);
static_assert(!std::is_convertible_v<Lanes<float>, float> &&
              !std::is_constructible_v<float, Lanes<float>>);
static_assert(!std::is_constructible_v<bool, decltype(lane_id() < Lanes<i32>(3))>);
static_assert(!std::is_convertible_v<Lanes<i32>, Lanes<u32>> &&
              !std::is_convertible_v<Lanes<float>, Lanes<i32>>);
static_assert(std::is_convertible_v<float, Lanes<float>> &&
              std::is_same_v<decltype(warp_any(true)), bool>);
// 16-bit patterns have no arithmetic.
template <class T>
concept adds = requires(T a, T b) {
  a + b;
};
template <class T>
concept multiplies = requires(Lanes<T> a, Lanes<T> b) {
  T(a.v[0] * b.v[0]);
};
static_assert(!adds<f16> && !adds<bf16> && !multiplies<f16> && !multiplies<bf16> && adds<Fq> &&
              multiplies<Fq>);

template <int Rows, int Cols>
struct Values {
  float x[Rows][Cols];
  explicit Values(u64 seed) {
    for (int i = 0; i < Rows; i++)
      for (int j = 0; j < Cols; j++)
        x[i][j] = float(i32(sim::mix(seed, u64(i * Cols + j)) % 20001) - 10000) * 0x1.234p-9f;
  }
  Accumulator<Rows, Cols> accumulator() const {
    Accumulator<Rows, Cols> a;
    for_each(a, [&](const Lanes<i32>& row, const Lanes<i32>& col, Lanes<float>& v) {
      for (int i = 0; i < 32; i++) v.v[i] = x[row.v[i]][col.v[i]];
    });
    return a;
  }
};

TEST(FragmentOps, NewTilesArePoison) {
  Accumulator<16, 16> a;
  RowVector<16> v;
  Operand<16, 16, f16> p;
  for (int lane = 0; lane < 32; lane++) {
    EXPECT_TRUE(std::isnan(a.x[0][1][3].v[lane]));
    EXPECT_TRUE(std::isnan(v.x[0][1].v[lane]));
    EXPECT_GT(p.x[0][1][1].v[lane] & 0x7fff, 0x7c00u);
  }
}

TEST(FragmentOps, ForEachVisitsEveryElementOnce) {
  int visits[32][24] = {};
  Accumulator<32, 24> a;
  for_each(a, [&](const Lanes<i32>& row, const Lanes<i32>& col, Lanes<float>& x) {
    for (int i = 0; i < 32; i++) {
      visits[row.v[i]][col.v[i]]++;
      EXPECT_TRUE(std::isnan(x.v[i]));
    }
  });
  for (auto& row : visits)
    for (int n : row) EXPECT_EQ(n, 1);
}

// ---- maps: every element has one lane, and a lane's neighbours share what its grid says
template <class Map, int Rows, int Cols>
void expect_a_map() {
  using Grid = typename Map::Grid;
  const auto row = [](int lane, int v) { return Map::first_row(lane) + Map::down(v); };
  const auto col = [](int lane, int c) { return Map::first_col(lane) + Map::right(c); };
  int visits[Rows][Cols] = {};
  Accumulator<Rows, Cols, float, Map> a(0.0f);
  for_each(a, [&](const Lanes<i32>& r, const Lanes<i32>& c, Lanes<float>&) {
    for (int lane = 0; lane < 32; lane++) visits[r.v[lane]][c.v[lane]]++;
  });
  for (auto& visits_of_row : visits)
    for (int n : visits_of_row) EXPECT_EQ(n, 1);
  for (int lane = 0; lane < 32; lane++) {
    for (int i = 0; i < Grid::kLog; i++) EXPECT_EQ(row(lane, 1), row(lane ^ Grid::distance(i), 1));
    for (int v = 0; v < Rows / Grid::kRows; v++)  // no carry: a swizzle is an xor of swizzles
      EXPECT_EQ(Map::first_row(lane) & Map::down(v), 0);
    for (int c = 0; c < Cols / Grid::kRowLanes; c++)
      EXPECT_EQ(Map::first_col(lane) & Map::right(c), 0);
    EXPECT_EQ(col(lane, 1) - col(lane, 0), Map::kRun > 1 ? 1 : Grid::kRowLanes);
  }
  // A row's reduction meets each of its columns once, in every lane.
  RowVector<Rows, float, Grid> sums;
  for_each(a, [&](const Lanes<i32>& r, const Lanes<i32>& c, Lanes<float>& x) {
    for (int lane = 0; lane < 32; lane++) x.v[lane] = float(r.v[lane] + 100 * c.v[lane]);
  });
  sums = row_sum(a);
  for (int v = 0; v < Rows / Grid::kRows; v++)
    for (int lane = 0; lane < 32; lane++)
      EXPECT_EQ(sums.x[v / 2][v % 2].v[lane], float(Cols * row(lane, v) + 50 * Cols * (Cols - 1)));
}
TEST(FragmentOps, Maps) {
  expect_a_map<MmaMap, 32, 24>();
  expect_a_map<TileMap<WordGrid<8>, 1>, 32, 64>();
  expect_a_map<TileMap<WordGrid<8>, 4>, 16, 96>();
  expect_a_map<TileMap<WordGrid<8>, 1>, 16, 16>();
  expect_a_map<TileMap<WordGrid<16>, 1>, 32, 64>();
  expect_a_map<TileMap<WordGrid<16>, 4>, 16, 128>();
  // The tensor cores' map is the one of the instruction.
  for (int lane = 0; lane < 32; lane++)
    for (int i = 0; i < 4; i++) {
      EXPECT_EQ(MmaMap::first_row(lane) + MmaMap::down(i >> 1), row_of(lane, i));
      EXPECT_EQ(MmaMap::first_col(lane) + MmaMap::right(i & 1), col_of(lane, i));
    }
  // Squares: what lane ^ 1 has of a row, and lane ^ 2 of a column.
  using Grid = WordGrid<8>;
  for (int lane = 0; lane < 32; lane++) {
    EXPECT_EQ(Grid::row(lane), Grid::row(lane ^ 1));
    EXPECT_EQ(Grid::col(lane), Grid::col(lane ^ 2));
  }
}

TEST(FragmentOps, RowsAndColumns) {
  const Values<32, 24> values(1);
  Accumulator<32, 24> a = values.accumulator();
  RowVector<32> rows;
  for (int m = 0; m < 2; m++)
    for (int h = 0; h < 2; h++)
      rows.x[m][h] = Lanes<float>(row_of(lane_id(), 2 * h) + Lanes<i32>(16 * m));
  ColVector<24> cols;
  for (int n = 0; n < 3; n++)
    for (int i = 0; i < 2; i++)
      cols.x[n][i] = Lanes<float>(col_of(lane_id(), i) + Lanes<i32>(8 * n));
  const auto expect = [&](auto f) {
    for_each(a, [&](const Lanes<i32>& row, const Lanes<i32>& col, Lanes<float>& x) {
      for (int i = 0; i < 32; i++)
        ASSERT_EQ(x.v[i], f(values.x[row.v[i]][col.v[i]], float(row.v[i]), float(col.v[i])))
            << row.v[i] << "," << col.v[i];
    });
  };
  scale_rows(a, rows);
  expect([](float x, float row, float) { return x * row; });
  scale_cols(a, cols);
  expect([](float x, float row, float col) { return x * row * col; });
  fill(a, 3.0f);
  expect([](float, float, float) { return 3.0f; });
  for_each(a, rows, [](Lanes<float>& x, const Lanes<float>& v) { x = x - v; });
  expect([](float, float row, float) { return 3.0f - row; });
}

TEST(FragmentOps, RowVectors) {
  RowVector<32> rows, seven;
  for (int m = 0; m < 2; m++)
    for (int h = 0; h < 2; h++)
      rows.x[m][h] = Lanes<float>(row_of(lane_id(), 2 * h) + Lanes<i32>(16 * m));
  fill(seven, 7.0f);
  const RowVector<32> sum = rows + seven, product = rows * seven, larger = max(rows, seven);
  const auto mapped = map_rows(
      [](const Lanes<float>& a, const Lanes<float>& b, const Lanes<float>& c) { return a * b - c; },
      rows, seven, sum);
  for (int m = 0; m < 2; m++)
    for (int h = 0; h < 2; h++)
      for (int lane = 0; lane < 32; lane++) {
        const float row = float(lane / 4 + 8 * h + 16 * m);
        EXPECT_EQ(seven.x[m][h].v[lane], 7.0f);
        EXPECT_EQ(sum.x[m][h].v[lane], row + 7);
        EXPECT_EQ(product.x[m][h].v[lane], row * 7);
        EXPECT_EQ(larger.x[m][h].v[lane], std::max(row, 7.0f));
        EXPECT_EQ(mapped.x[m][h].v[lane], row * 7 - (row + 7));
      }
}

// The sum's order is part of the contract: a lane's columns ascending, then neighbours at 1 and 2.
TEST(FragmentOps, RowSumInItsOrder) {
  const Values<32, 40> values(2);
  const RowVector<32> sum = row_sum(values.accumulator());
  bool order_matters = false;
  for (int row = 0; row < 32; row++) {
    float lane[4], ascending = 0;
    for (int t = 0; t < 4; t++) {
      lane[t] = values.x[row][2 * t] + values.x[row][2 * t + 1];
      for (int n = 1; n < 5; n++)
        for (int i = 0; i < 2; i++) lane[t] = lane[t] + values.x[row][8 * n + 2 * t + i];
    }
    for (int j = 0; j < 40; j++) ascending += values.x[row][j];
    const float expected = (lane[0] + lane[1]) + (lane[2] + lane[3]);
    order_matters = order_matters || expected != ascending;
    for (int t = 0; t < 4; t++)  // all four lanes of a row have it
      EXPECT_EQ(to_bits(sum.x[row / 16][row % 16 / 8].v[row % 8 * 4 + t]), to_bits(expected))
          << row;
  }
  EXPECT_TRUE(order_matters);
}

// A lane's own columns, pairs first; across_row then adds a row's four lanes, at distance 1 and 2.
TEST(FragmentOps, LaneSumsAndAcrossRowInTheirOrder) {
  const Values<32, 40> values(6);
  const RowVector<32> own = lane_sums(values.accumulator());
  const RowVector<32> whole = across_row(
      own, [](const Lanes<float>& a, const Lanes<float>& b) { return a + b; });
  const RowVector<32> last = across_row(  // not symmetric: which neighbour is which
      own, [](const Lanes<float>& a, const Lanes<float>& b) { return a - b; });
  for (int row = 0; row < 32; row++) {
    float lane[4];
    for (int t = 0; t < 4; t++) {
      lane[t] = values.x[row][2 * t] + values.x[row][2 * t + 1];
      for (int n = 1; n < 5; n++)
        lane[t] += values.x[row][8 * n + 2 * t] + values.x[row][8 * n + 2 * t + 1];
    }
    for (int t = 0; t < 4; t++) {
      const auto at = [&](const RowVector<32>& v) {
        return to_bits(v.x[row / 16][row % 16 / 8].v[row % 8 * 4 + t]);
      };
      EXPECT_EQ(at(own), to_bits(lane[t]));
      EXPECT_EQ(at(whole), to_bits((lane[0] + lane[1]) + (lane[2] + lane[3])));
      const auto pair = [&](int a) { return lane[a] - lane[a ^ 1]; };
      EXPECT_EQ(at(last), to_bits(pair(t) - pair(t ^ 2)));
    }
  }
}

TEST(FragmentOps, AnyRowOfALane) {
  for (int row = -1; row < 32; row++) {  // -1: none
    RowVector<32> index, one;
    for (int m = 0; m < 2; m++)
      for (int h = 0; h < 2; h++)
        index.x[m][h] = Lanes<float>(row_of(lane_id(), 2 * h) + Lanes<i32>(16 * m));
    fill(one, 1.0f);
    const Lanes<bool> any = any_row(
        [&](const Lanes<float>& i, const Lanes<float>& x) {
          return i * x == Lanes<float>(float(row));
        },
        index, one);
    for (int lane = 0; lane < 32; lane++)
      EXPECT_EQ(any.v[lane] != 0, row >= 0 && lane / 4 == row % 8) << row << " " << lane;
  }
}

TEST(FragmentOps, RowMaxDropsNan) {
  Values<16, 24> values(3);
  values.x[2][17] = kNan;                 // beside numbers: dropped, as max.f32 drops it
  for (float& x : values.x[5]) x = kNan;  // nothing but NaN
  for (float& x : values.x[6]) x = -std::numeric_limits<float>::infinity();
  const RowVector<16> r = row_max(values.accumulator());
  for (int row = 0; row < 16; row++) {
    float expected = kNan;
    for (float x : values.x[row]) expected = std::fmax(expected, x);
    for (int t = 0; t < 4; t++) {
      const float got = r.x[0][row / 8].v[row % 8 * 4 + t];
      if (row == 5)
        EXPECT_TRUE(std::isnan(got));
      else
        EXPECT_EQ(got, expected) << row;
    }
  }
}

TEST(FragmentOps, FieldReductions) {
  Accumulator<16, 16, Fq> a;
  for_each(a, [](const Lanes<i32>& row, const Lanes<i32>& col, Lanes<Fq>& x) {
    x = apply(
        [](i32 i, i32 j) {
          return i == 3 || (i == 4 && j != 9) ? Fq{Fq::kHidden} : Fq::of(i * 7 - j * 11);
        },
        row, col);
  });
  const auto largest = row_max(a);
  EXPECT_EQ(largest.x[0][0].v[2 * 4], Fq::of(2 * 7));
  EXPECT_EQ(largest.x[0][0].v[3 * 4].value, Fq::kHidden);
  EXPECT_EQ(largest.x[0][0].v[4 * 4 + 1], Fq::of(4 * 7 - 99));
  EXPECT_EQ(row_sum(a).x[0][1].v[5 * 4 + 2], Fq::of(16 * 13 * 7 - 120 * 11));
}

template <class T>
void expect_operand() {
  const Values<32, 48> values(4);
  const auto a = values.accumulator();
  const Operand<32, 48, T> p = as_operand<T>(a);
  for (int m = 0; m < 2; m++)
    for (int s = 0; s < 6; s++)
      for (int i = 0; i < 2; i++)
        for (int lane = 0; lane < 32; lane++)
          for (int half = 0; half < 2; half++) {
            const float x =
                values.x[16 * m + operand_a_row(lane, i)][8 * s + operand_a_col(lane, half)];
            ASSERT_EQ(u16(p.x[m][s][i].v[lane] >> (16 * half)),
                      narrow<T>(Lanes<float>(x)).v[0].bits);
          }
  // The dropped cast hands over other bits, or the variant that shows it would show nothing.
  const Operand<32, 48, T> raw = as_operand_without_cast<T>(a);
  EXPECT_EQ(raw.x[1][3][1].v[9], to_bits(a.x[1][3][2].v[9]));
  EXPECT_NE(raw.x[1][3][1].v[9], p.x[1][3][1].v[9]);
}
TEST(FragmentOps, AsOperandRoundsAndStaysInPlace) {
  expect_operand<f16>();
  expect_operand<bf16>();
  const auto a = Values<16, 16>(5).accumulator();
  const auto same = as_operand<float>(a), also = as_operand_without_cast<float>(a);
  for (int n = 0; n < 2; n++)
    for (int i = 0; i < 4; i++)
      for (int lane = 0; lane < 32; lane++) {
        EXPECT_EQ(same.x[0][n][i].v[lane], a.x[0][n][i].v[lane]);
        EXPECT_EQ(also.x[0][n][i].v[lane], a.x[0][n][i].v[lane]);
      }
}

// The variants of docs/p-cast.md, on a weight that each of them rounds to another number.
TEST(FragmentOps, AsOperandOfAVariantRoundsAndStaysInPlace) {
  const auto a = Values<16, 16>(6).accumulator();
  const auto f = as_operand<float, Variant::p_f16>(a);
  const auto b = as_operand<float, Variant::p_bf16>(a);
  const auto bb = as_operand<float, Variant::p_bf16x2>(a);
  for (int n = 0; n < 2; n++)
    for (int i = 0; i < 4; i++)
      for (int lane = 0; lane < 32; lane++) {
        const float x = a.x[0][n][i].v[lane];
        const float high = widen(narrow<bf16>(Lanes<float>(x))).v[0];
        EXPECT_EQ(f.x[0][n][i].v[lane], widen(narrow<f16>(Lanes<float>(x))).v[0]);
        EXPECT_EQ(b.x[0][n][i].v[lane], high);
        EXPECT_EQ(bb.x[0][n][i].v[lane], high + widen(narrow<bf16>(Lanes<float>(x - high))).v[0]);
      }
  // 1 + 3 2^-10 + 2^-13 + 2^-18: fp16 holds the first two terms, bf16 the first, two bf16 the first
  // three.
  const Accumulator<16, 16> weight(0x1.00c84p0f);
  const auto element = [](const auto& operand) { return operand.x[0][1][2].v[5]; };
  EXPECT_EQ((element(as_operand<float, Variant::p_f16>(weight))), 0x1.00cp0f);
  EXPECT_EQ((element(as_operand<float, Variant::p_bf16>(weight))), 1.0f);
  EXPECT_EQ((element(as_operand<float, Variant::p_bf16x2>(weight))), 0x1.00c8p0f);
}

}  // namespace
}  // namespace tessera
