// SPDX-License-Identifier: Apache-2.0
// The online softmax of a warp's rows against float64 over all keys at once: maxima that rise
// slowly, fast, or fall and rise, hidden keys, scores that cannot be folded, and the finite field.
#include "kernels/tile/online_softmax.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <functional>
#include <limits>
#include <vector>

#include "sim/random.h"
#include "tests/sim/run_kernel.h"

namespace tessera {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr int kRows = 32, kCols = 32, kTiles = 7, kKeys = kCols * kTiles;

template <class A>
struct Table {
  A x[kRows][kKeys];
};
template <class A>
struct Online {
  A o[kRows], lse[kRows];  // o: the sum of weight * value, divided by the sum of weights
  u64 exp2;
  int again = 0;  // tiles that were weighed twice
};

// The maximum first, as in a first or masked tile; or weights first, and the maximum where that
// fails.
enum class Way { maximum, weights };

template <class E, class A = typename E::accumulator>
Online<A> online(const Table<A>& scores, const std::vector<A>& values, float scale,
                 Way way = Way::maximum) {
  Online<A> r;
  const auto outcome = sim::run_kernel({}, [&] {
    AttentionArgs args;
    args.set_scale(scale);
    const typename E::Scaling scaling(args);
    OnlineSoftmax<E, kRows> softmax(scaling);
    Accumulator<kRows, 8, A> acc;
    fill(acc, E::zero());
    for (int j = 0; j < kTiles; j++) {
      Accumulator<kRows, kCols, A> s;
      for_each(s, [&](const Lanes<i32>& row, const Lanes<i32>& col, Lanes<A>& x) {
        for (int i = 0; i < 32; i++) x.v[i] = scores.x[row.v[i]][j * kCols + col.v[i]];
      });
      if (way == Way::maximum) {
        softmax.weigh(s, acc);
      } else {
        const Accumulator<kRows, kCols, A> again = s;
        if (!softmax.try_weigh(s)) s = again, softmax.weigh_again(s, acc), r.again++;
      }
      for_each(s, [&](const Lanes<i32>&, const Lanes<i32>& col, Lanes<A>& x) {
        for (int i = 0; i < 32; i++) x.v[i] = x.v[i] * values[std::size_t(j * kCols + col.v[i])];
      });
      for_each(acc, row_sum(s), [](Lanes<A>& x, const Lanes<A>& v) { x = x + v; });
    }
    const auto rows = softmax.finish();
    scale_rows(acc, rows.reciprocal);
    for (int row = 0; row < kRows; row++) {
      const int m = row / 16, h = row % 16 / 8, lane = row % 8 * 4;
      r.o[row] = acc.x[m][0][2 * h].v[lane], r.lse[row] = rows.lse.x[m][h].v[lane];
      for (int t = 1; t < 4; t++)  // all four lanes of a row agree
        EXPECT_EQ(std::bit_cast<u32>(rows.lse.x[m][h].v[lane + t]), std::bit_cast<u32>(r.lse[row]));
    }
  });
  r.exp2 = outcome.counters.exp2;
  return r;
}

double random(u64 seed, u64 n) { return double(i32(sim::mix(seed, n) % 20001) - 10000) * 1e-4; }

// Kinds of rows, in scores already scaled.
constexpr int kKinds = 8;
double score(int row, int key, u64 seed) {
  const double noise = random(seed, u64(row * kKeys + key)), at = double(key) / kKeys;
  switch (row % kKinds) {
    case 0: return 3 * noise;
    case 1: return 5 * at + 0.1 * noise;  // at most 2^8 in all: raised once or twice
    case 2: return 90 * at + noise;       // raised at every tile
    case 3: return key < kKeys - 2 ? -30.0 * (key / kCols) + noise : 60;
    case 4: return 1000 + 4 * noise;
    case 5: return -1000 + 4 * noise;
    case 6: return sim::mix(seed, u64(key)) % 3 ? -kInf : 2 * noise;
    default: return -kInf;
  }
}

struct Direct {
  double o, lse;
};
Direct direct(const Table<float>& scores, const std::vector<float>& values, double scale, int row) {
  double m = -kInf, l = 0, o = 0;
  for (const float s : scores.x[row]) m = std::max(m, s * scale);
  if (m == -kInf) return {0, m};
  for (int j = 0; j < kKeys; j++) {
    const double w = std::exp(scores.x[row][j] * scale - m);
    l += w, o += w * values[std::size_t(j)];
  }
  return {o / l, m + std::log(l)};
}
std::vector<float> some_values(u64 seed) {
  std::vector<float> v;
  for (u64 j = 0; j < kKeys; j++) v.push_back(float(random(seed + 99, j)));
  return v;
}
double ulps(double got, double want) {
  return std::fabs(got - want) / std::ldexp(1.0, std::ilogb(float(want)) - 23);
}

constexpr Way kWays[] = {Way::maximum, Way::weights};

template <class E>
class OnlineSoftmaxOf : public ::testing::Test {};
using Elements = ::testing::Types<Element<float, Exp2::soft>, Element<f16, Exp2::soft>,
                                  Element<bf16, Exp2::hardware>>;
TYPED_TEST_SUITE(OnlineSoftmaxOf, Elements);

TYPED_TEST(OnlineSoftmaxOf, EqualsFloat64) {
  double worst = 0, sum = 0, count = 0;
  for (u64 seed = 0; seed < 20; seed++)
    for (const float scale : {1.0f, 0.125f, 0.0883883f, 30.0f}) {
      Table<float> scores;
      for (int row = 0; row < kRows; row++)
        for (int key = 0; key < kKeys; key++)
          scores.x[row][key] = float(score(row, key, seed) / scale);
      const std::vector<float> values = some_values(seed);
      for (const Way way : kWays) {
        const auto got = online<TypeParam>(scores, values, scale, way);
        for (int row = 0; row < kRows; row++) {
          const Direct want = direct(scores, values, scale, row);
          SCOPED_TRACE(::testing::Message() << "row " << row << " scale " << scale);
          // A score of 1000 is known to 2^-24 of it, and so is its weight.
          const double size = row % kKinds == 4 || row % kKinds == 5 ? 1000 : 100;
          EXPECT_NEAR(got.o[row], want.o, 4 * 0x1p-24 * (size + 4));
          if (want.lse == -kInf) {
            EXPECT_EQ(got.lse[row], -kInf);
            EXPECT_EQ(got.o[row], 0);
          } else {
            // l is a sum of kKeys terms, 56 of them one after the other, each term rounded itself.
            const double error = ulps(got.lse[row], want.lse);
            worst = std::max(worst, error), sum += error, count++;
            EXPECT_LE(error, size == 1000 ? 0.7 : 1.5) << got.lse[row] << ", not " << want.lse;
          }
        }
      }
    }
  EXPECT_LE(sum / count, 0.35);
  this->RecordProperty("worst_ulps_of_lse", std::to_string(worst));
}

// A row's reference is raised only when its scores grew by more than 2^5: slow rows cost a tile one
// test, and every exponential is a weight's.
TYPED_TEST(OnlineSoftmaxOf, SlowRowsAreRaisedOnce) {
  for (const double total : {3.0, 60.0}) {
    Table<float> scores;
    for (auto& row : scores.x)
      for (int key = 0; key < kKeys; key++) row[key] = float(total * key / kKeys);
    const u64 raised = total == 3 ? 1 : kTiles;
    const u64 exp2 = online<TypeParam>(scores, some_values(1), 1.0f).exp2;
    const u64 weights = u64(kRows * kKeys), rescale = u64(kRows * 4);
    EXPECT_EQ(exp2, weights + raised * rescale);
    const auto tried = online<TypeParam>(scores, some_values(1), 1.0f, Way::weights);
    EXPECT_EQ(u64(tried.again), raised);
    EXPECT_EQ(tried.exp2, exp2 + 2 * raised * u64(kRows * kCols));
  }
}

// Rows that stand at the edge of what fits, tile after tile, are raised there once: no tile after
// that is weighed twice.
TYPED_TEST(OnlineSoftmaxOf, ARowOfLargeWeightsIsRaisedOnce) {
  for (const float step : {5.1f, 6.0f, 7.9f, 8.1f}) {  // powers of two above the first tile
    Table<float> scores;
    for (auto& row : scores.x)
      for (int key = 0; key < kKeys; key++) row[key] = key < kCols ? 0 : step * 0.6931472f;
    EXPECT_EQ(online<TypeParam>(scores, some_values(1), 1.0f, Way::weights).again, 2) << step;
  }
}

// What other rows of the warp hold changes no bit, though it sends the warp the wide way.
TYPED_TEST(OnlineSoftmaxOf, WideRowsBesideOrdinaryOnes) {
  Table<float> ordinary;
  for (int row = 0; row < kRows; row++)
    for (int key = 0; key < kKeys; key++) ordinary.x[row][key] = float(score(row, key, 5));
  Table<float> mixed = ordinary;
  const float large[] = {1e6f, -1e6f, 1e12f, -1e30f, std::nanf(""), kInf};
  for (int row = 1; row < kRows; row += 2)
    for (int key = 0; key < kKeys; key++)
      mixed.x[row][key] = large[row / 2 % 6] * (row % 4 == 1 ? 1 : float(1 + key % 3));
  mixed.x[5][40] = 1e12f;
  for (int key = 0; key < kKeys; key++)  // one key with 1e12 beside zeros
    mixed.x[7][key] = key == 100 ? 1e12f : 0.0f, mixed.x[9][key] = -1e30f;
  const std::vector<float> values = some_values(5);
  for (const Way way : kWays) {
    const auto a = online<TypeParam>(ordinary, values, 1.0f, way),
               b = online<TypeParam>(mixed, values, 1.0f, way);
    for (int row = 0; row < kRows; row++) {
      if (row % 2 == 0) {
        EXPECT_EQ(std::bit_cast<u32>(a.o[row]), std::bit_cast<u32>(b.o[row])) << row;
        EXPECT_EQ(std::bit_cast<u32>(a.lse[row]), std::bit_cast<u32>(b.lse[row])) << row;
        continue;
      }
      const Direct want = direct(mixed, values, 1.0, row);
      const float first = mixed.x[row][0];
      if (std::isnan(first) || first == kInf) {
        EXPECT_TRUE(std::isnan(b.o[row]) && std::isnan(b.lse[row])) << row;
      } else {
        EXPECT_NEAR(b.o[row], want.o, 1e-5) << row;
        EXPECT_LE(ulps(b.lse[row], want.lse), 1) << row;
      }
    }
    EXPECT_EQ(b.o[7], values[100]);
    EXPECT_EQ(b.lse[7], 1e12f);
    EXPECT_EQ(b.lse[9], -1e30f);
  }
}

// Near the border between both ways, the maximum crossing it from tile to tile.
TYPED_TEST(OnlineSoftmaxOf, AcrossTheBorderOfFolding) {
  const double border = 65536 * std::log(2.0);
  for (const double from : {-1.2 * border, -border, 0.9 * border})
    for (const double rise : {0.05 * border, 9.0, -7.0}) {
      Table<float> scores;
      for (int row = 0; row < kRows; row++)
        for (int key = 0; key < kKeys; key++)
          scores.x[row][key] = float(from + rise * (key / kCols) +
                                     random(3, u64(row * kKeys + key)));
      const std::vector<float> values = some_values(3);
      for (const Way way : kWays) {
        const auto got = online<TypeParam>(scores, values, 1.0f, way);
        for (int row = 0; row < kRows; row++) {
          const Direct want = direct(scores, values, 1.0, row);
          EXPECT_NEAR(got.o[row], want.o, 4 * 0x1p-24 * 1.4 * border) << from << " " << rise;
          EXPECT_LE(ulps(got.lse[row], want.lse), 1) << from << " " << rise;
        }
      }
    }
}

TEST(OnlineSoftmaxOfTheField, EqualsTheFormula) {
  using E = Element<Fq, Exp2::soft>;
  for (u64 seed = 0; seed < 10; seed++) {
    Table<Fq> scores;
    std::vector<Fq> values;
    for (u64 j = 0; j < kKeys; j++) values.push_back(Fq{u32(sim::mix(seed, j) % kFieldPrime)});
    for (int row = 0; row < kRows; row++)
      for (int key = 0; key < kKeys; key++) {
        const u64 r = sim::mix(seed + 7, u64(row * kKeys + key));
        scores.x[row][key] = row == 3 || r % 5 == 0 ? E::hidden() : Fq::of(i32(r >> 8) % 100);
      }
    for (const Way way : kWays) {
      const auto got = online<E>(scores, values, 1.0f, way);
      for (int row = 0; row < kRows; row++) {
        Fq l{0}, o{0};
        for (int j = 0; j < kKeys; j++) {
          const Fq w = E::weight(Lanes<Fq>(scores.x[row][j]), Lanes<Fq>(Fq{0})).v[0];
          l = l + w, o = o + w * values[std::size_t(j)];
        }
        EXPECT_EQ(got.lse[row], l);
        EXPECT_EQ(got.o[row] * l, o);
      }
    }
  }
}

}  // namespace
}  // namespace tessera
