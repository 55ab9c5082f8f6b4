// SPDX-License-Identifier: Apache-2.0
// The algebra that online softmax stands on, in floats and in the field: rescaled weights are
// weights, whatever a row's tiling; rows without a key, with NaN and with inf.
#include "kernels/tile/element.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "kernels/tile/fragment.h"
#include "sim/random.h"
#include "tests/sim/run_kernel.h"

namespace tessera {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// A row's l and LSE by the online recurrence, `tile` keys at a time, as kernels run it.
template <class E>
struct Row {
  typename E::accumulator m, l, lse, o;  // o: the sum of weight * value, divided by l
};
template <class E, class A = typename E::accumulator>
Row<E> online(const std::vector<A>& scores, const std::vector<A>& values, std::size_t tile) {
  Row<E> row;
  sim::run_kernel({}, [&] {
    Lanes<A> m(E::hidden()), l(E::zero()), o(E::zero());
    for (std::size_t first = 0; first < scores.size(); first += tile) {
      const std::size_t end = std::min(scores.size(), first + tile);
      Lanes<A> m_new = m;
      for (std::size_t j = first; j < end; j++) m_new = max(m_new, Lanes<A>(scores[j]));
      const Lanes<A> alpha = E::rescale(m, m_new);
      l = l * alpha, o = o * alpha;
      for (std::size_t j = first; j < end; j++) {
        const Lanes<A> w = E::weight(Lanes<A>(scores[j]), m_new);
        l = l + w, o = o + w * Lanes<A>(values[j]);
      }
      m = m_new;
    }
    row = {m.v[0], l.v[0], E::make_lse(m, l).v[0], (o * E::reciprocal(l)).v[0]};
  });
  return row;
}

template <class E>
class FloatElement : public ::testing::Test {};
using FloatElements = ::testing::Types<Element<float, Exp2::soft>, Element<f16, Exp2::soft>,
                                       Element<bf16, Exp2::soft>, Element<float, Exp2::hardware>,
                                       Element<bf16, Exp2::hardware>>;
TYPED_TEST_SUITE(FloatElement, FloatElements);

// One value through a trait function, counters and all.
template <class F>
float one(F f) {
  float r = 0;
  sim::run_kernel({}, [&] { r = Lanes<float>(f()).v[5]; });
  return r;
}
using L = Lanes<float>;

TYPED_TEST(FloatElement, AHiddenKeyWeighsNothing) {
  using E = TypeParam;
  for (float m : {-kInf, -1e30f, 0.0f, 3.0f, 1e30f, kInf})
    EXPECT_EQ(one([&] { return E::weight(E::hidden(), L(m)); }), 0.0f) << m;
  EXPECT_EQ(one([] { return E::rescale(E::hidden(), E::hidden()); }), 0.0f);
  EXPECT_EQ(one([] { return E::rescale(E::hidden(), L(2.0f)); }), 0.0f);
  EXPECT_EQ(one([] { return E::probability(E::hidden(), L(-kInf)); }), 0.0f);
}
TYPED_TEST(FloatElement, WeightsAreExponentials) {
  using E = TypeParam;
  for (float m : {-1e5f, -3.5f, 0.0f, 100.0f})
    for (float d : {0.0f, -1e-3f, -0.5f, -1.0f, -20.0f, -80.0f}) {
      const float s = m + d;  // rounded: the oracle takes the same difference
      EXPECT_NEAR(one([&] { return E::weight(L(s), L(m)); }) / std::exp(double(s) - m), 1, 1e-5);
      EXPECT_NEAR(one([&] { return E::probability(L(s), L(m)); }) / std::exp(double(s) - m), 1,
                  1e-5);
      EXPECT_EQ(one([&] { return E::rescale(L(s), L(m)); }),
                one([&] { return E::weight(L(s), L(m)); }));
    }
  EXPECT_EQ(one([] { return E::weight(L(1e12f), L(1e12f)); }),
            1.0f);  // subtracted before it is scaled
  EXPECT_EQ(one([] { return E::weight(L(-1e30f), L(-1e30f)); }), 1.0f);
  EXPECT_EQ(one([] { return E::weight(L(-1e30f), L(0.0f)); }), 0.0f);
  EXPECT_EQ(one([] { return E::score(L(3.0f), 0.125f); }), 0.375f);
}
// A NaN must come out of every step. select(l > 0, y, 0) would drop it.
TYPED_TEST(FloatElement, NanGoesThrough) {
  using E = TypeParam;
  for (float r :
       {one([] { return E::weight(L(kNan), L(0.0f)); }),
        one([] { return E::weight(L(1.0f), L(kNan)); }),
        one([] { return E::weight(L(kInf), L(kInf)); }), one([] { return E::reciprocal(L(kNan)); }),
        one([] { return E::make_lse(L(0.0f), L(kNan)); }),
        one([] { return E::make_lse(L(kNan), L(1.0f)); }),
        one([] { return E::probability(L(kNan), L(0.0f)); }),
        one([] { return E::score(L(kNan), 2.0f); })})
    EXPECT_TRUE(std::isnan(r));
}
TYPED_TEST(FloatElement, RowsWithoutAVisibleKey) {
  using E = TypeParam;
  EXPECT_EQ(one([] { return E::reciprocal(L(0.0f)); }), 0.0f);
  EXPECT_EQ(one([] { return E::make_lse(L(-kInf), L(0.0f)); }), -kInf);
  const auto row = online<E>({-kInf, -kInf, -kInf}, {1, 2, 3}, 2);
  EXPECT_EQ(row.l, 0.0f);
  EXPECT_EQ(row.o, 0.0f);
  EXPECT_EQ(row.lse, -kInf);
}
TYPED_TEST(FloatElement, OnlineEqualsDirect) {
  using E = TypeParam;
  for (u64 seed = 0; seed < 20; seed++) {
    std::vector<float> s, v;
    for (u64 j = 0; j < 37; j++) {
      s.push_back(float(i32(sim::mix(seed, j) % 4001) - 2000) * 0.01f);
      v.push_back(float(i32(sim::mix(seed, j + 100) % 201) - 100) * 0.01f);
      if (sim::mix(seed, j + 200) % 5 == 0) s.back() = -kInf;
    }
    double l = 0, o = 0;
    for (std::size_t j = 0; j < s.size(); j++)
      l += std::exp(double(s[j])), o += std::exp(double(s[j])) * v[j];
    for (const std::size_t tile : {1, 4, 16, 64}) {
      const auto row = online<E>(s, v, tile);
      EXPECT_NEAR(row.lse, std::log(l), 2e-5);
      EXPECT_NEAR(row.o, o / l, 2e-5);
    }
  }
  // True scores near the lowest number, and a single enormous one: no stand-in for -inf, no
  // overflow.
  const auto low = online<E>({-1e30f, -1e30f}, {1, 3}, 1);
  EXPECT_EQ(low.o, 2.0f);
  EXPECT_EQ(low.lse, -1e30f);
  EXPECT_EQ(online<E>({1e12f, 0}, {5, 7}, 1).o, 5.0f);
}
TYPED_TEST(FloatElement, NonFiniteScores) {
  using E = TypeParam;
  for (const std::size_t tile : {1, 2, 8})
    for (float bad : {kNan, kInf}) {
      for (std::size_t place : {0, 1, 4}) {
        std::vector<float> s{1, 2, 0, -1, 3};
        s[place] = bad;
        const auto row = online<E>(s, {1, 1, 1, 1, 1}, tile);
        EXPECT_TRUE(std::isnan(row.o)) << bad << " at " << place << " by " << tile;
        EXPECT_TRUE(std::isnan(row.lse)) << bad << " at " << place << " by " << tile;
      }
    }
}

// ---- the field

using F = Element<Fq, Exp2::soft>;
Fq base_to(int e) {
  return field_power(Fq{kFieldBase}, u32((e + 10 * i32(kFieldPrime - 1)) % i32(kFieldPrime - 1)));
}
template <class G>
Fq in_field(G g) {
  return Lanes<Fq>(g()).v[3];
}

TEST(FieldElement, Algebra) {
  using Q = Lanes<Fq>;
  for (int s = -300; s <= 300; s += 7)
    for (int m : {-30000, -5, 0, 9, 32000}) {
      EXPECT_EQ(in_field([&] { return F::weight(Q(Fq::of(s)), Q(Fq::of(m))); }), base_to(s - m))
          << s << " " << m;
      const Fq step = in_field([&] { return F::rescale(Q(Fq::of(s)), Q(Fq::of(m))); });
      const Fq before = in_field([&] { return F::weight(Q(Fq::of(4)), Q(Fq::of(s))); });
      EXPECT_EQ(before * step, in_field([&] { return F::weight(Q(Fq::of(4)), Q(Fq::of(m))); }));
    }
  for (u32 x : {1u, 2u, 17u, 65520u, 30000u})
    EXPECT_EQ(in_field([&] { return F::reciprocal(Q(Fq{x})); }) * Fq{x}, Fq{1});
  EXPECT_EQ(in_field([] { return F::reciprocal(Q(Fq{0})); }), Fq{0});
  const Q hidden(F::hidden());
  for (const Q& m : {hidden, Q(Fq{0}), Q(Fq::of(-7))}) {
    EXPECT_EQ(in_field([&] { return F::weight(hidden, m); }), Fq{0});
    EXPECT_EQ(in_field([&] { return F::rescale(hidden, m); }), Fq{0});
  }
  EXPECT_EQ(in_field([&] { return F::make_lse(hidden, Q(Fq{0})); }), Fq{0});
  EXPECT_EQ(in_field([] { return F::make_lse(Q(Fq::of(3)), Q(Fq{2})); }), Fq{2} * base_to(3));
  // probability(s, lse) is weight(s, m) / l
  EXPECT_EQ(in_field([] {
              return F::probability(Q(Fq::of(5)), F::make_lse(Q(Fq::of(9)), Q(Fq{123})));
            }) * Fq{123},
            base_to(-4));
}
TEST(FieldElement, OrderOfScores) {
  const std::vector<Fq> ascending{Fq{Fq::kHidden}, Fq::of(-32760), Fq::of(-1),
                                  Fq::of(0),       Fq::of(1),      Fq::of(32760)};
  for (std::size_t i = 0; i < ascending.size(); i++)
    for (std::size_t j = 0; j < ascending.size(); j++)
      EXPECT_EQ(max(Lanes<Fq>(ascending[i]), Lanes<Fq>(ascending[j])).v[0],
                ascending[std::max(i, j)]);
}
TEST(FieldElement, EveryTilingIsEqual) {
  for (u64 seed = 0; seed < 20; seed++) {
    std::vector<Fq> s, v;
    Fq sum{0}, weighted{0};
    for (u64 j = 0; j < 29; j++) {
      const int score = int(sim::mix(seed, j) % 201) - 100;
      const bool hidden = sim::mix(seed, j + 50) % 4 == 0 || seed == 0;
      s.push_back(hidden ? F::hidden() : Fq::of(score));
      v.push_back(Fq{u32(sim::mix(seed, j + 100) % kFieldPrime)});
      if (!hidden) sum = sum + base_to(score), weighted = weighted + base_to(score) * v.back();
    }
    for (const std::size_t tile : {1, 3, 16, 64}) {
      const auto row = online<F>(s, v, tile);
      EXPECT_EQ(row.lse, sum);
      EXPECT_EQ(row.o * sum, weighted);
    }
  }
}

}  // namespace
}  // namespace tessera
