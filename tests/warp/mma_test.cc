// SPDX-License-Identifier: Apache-2.0
// Tensor-core instructions: the card's rounding rule in vectors, in plain integers, and once more
// in double from the rule's own words; the FMA chain; hand-computed cases that tell rules apart.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "kernels/tile/fragment.h"
#include "sim/random.h"
#include "sim/tensor_core.h"
#include "tests/sim/run_kernel.h"

namespace tessera::sim {
namespace {

float from_bits(u32 x) { return std::bit_cast<float>(x); }
u32 to_bits(float x) { return std::bit_cast<u32>(x); }
float widened(u16 h, bool is_bf16) {
  return from_bits(is_bf16 ? bf16_to_f32_bits(h) : f16_to_f32_bits(h));
}
u16 narrowed(float x, bool is_bf16) {
  return is_bf16 ? f32_to_bf16_bits(to_bits(x)) : f32_to_f16_bits(to_bits(x));
}

// ---- one instruction on matrices

constexpr int kMaxK = 16;
struct Product {
  u16 a[16][kMaxK] = {}, b[kMaxK][8] = {};
  float c[16][8] = {};
};
using Matrix = std::array<std::array<float, 8>, 16>;

Matrix multiply(const Product& p, bool is_bf16, int k, MmaMode mode, const MmaRule& rule) {
  alignas(64) u32 a[4][32] = {}, b[2][32] = {};
  alignas(64) float c[4][32];
  for (int lane = 0; lane < 32; lane++) {
    for (int s = 0; s < k / 8; s++)
      for (int half = 0; half < 2; half++) {
        for (int i = 0; i < 2; i++)
          a[2 * s + i][lane] |= u32(p.a[operand_a_row(lane, i)][8 * s + operand_a_col(lane, half)])
                                << (16 * half);
        b[s][lane] |= u32(p.b[8 * s + operand_b_row(lane, half)][operand_b_col(lane)])
                      << (16 * half);
      }
    for (int i = 0; i < 4; i++) c[i][lane] = p.c[row_of(lane, i)][col_of(lane, i)];
  }
  static MmaState state;  // operands of the last call must not show
  state.rule = rule;
  mma_function(is_bf16, k, mode, rule)(c[0], a[0], b[0], state);
  Matrix d;
  for (int lane = 0; lane < 32; lane++)
    for (int i = 0; i < 4; i++)
      d[std::size_t(row_of(lane, i))][std::size_t(col_of(lane, i))] = c[i][lane];
  return d;
}

// ---- the rule in double, as its text says it (DESIGN, research note: steps 1 to 7)

// The exponent of a number whose format has `least` as the exponent of its subnormals.
int exponent(double x, int least) {
  return std::isfinite(x) ? std::max(std::ilogb(x), least) : least;
}

float step_in_double(float c, const u16* a, const u16* b, int stride_b, int n, bool is_bf16,
                     int fraction_bits) {
  const int least = is_bf16 ? -126 : -14;
  double special = 0, term[17];
  int e[17], top = -10000;
  bool any_special = std::isinf(c) || std::isnan(c);
  if (any_special) special += c;
  for (int i = 0; i <= n; i++) {
    if (i == n) {
      term[i] = c;
      e[i] = exponent(c, -126);
    } else {
      const double x = widened(a[i], is_bf16), y = widened(b[i * stride_b], is_bf16);
      term[i] = x * y;  // exact: 22 bits at most
      if (!std::isfinite(x) || !std::isfinite(y)) any_special = true, special += x * y;
      e[i] = exponent(x, least) + exponent(y, least);
    }
    if (term[i] != 0 && std::isfinite(term[i])) top = std::max(top, e[i]);
  }
  if (any_special) return std::isnan(special) ? from_bits(0x7fffffffu) : float(special);
  double sum = 0;  // of integers below 2^31: exact
  for (int i = 0; i <= n; i++)
    if (term[i] != 0) sum += std::trunc(std::ldexp(term[i], fraction_bits - top));
  if (sum == 0) return 0.0f;
  // Toward zero to 24 bits, or to a multiple of the smallest subnormal; then 2^128 and up is inf.
  const int unit = std::max(std::ilogb(sum) - 23, -149 - (top - fraction_bits));
  const double cut = std::ldexp(std::trunc(std::ldexp(sum, -unit)), unit + top - fraction_bits);
  return std::fabs(cut) >= 0x1p128
             ? std::copysign(std::numeric_limits<float>::infinity(), float(cut))
             : float(cut);
}

Matrix in_double(const Product& p, bool is_bf16, int k, const MmaRule& rule) {
  Matrix d;
  for (int r = 0; r < 16; r++)
    for (int c = 0; c < 8; c++) {
      float x = p.c[r][c];
      const int terms = std::min(rule.terms, k);
      for (int first = 0; first < k; first += terms)
        x = step_in_double(x, &p.a[r][first], &p.b[first][c], 8, terms, is_bf16,
                           rule.fraction_bits);
      d[std::size_t(r)][std::size_t(c)] = x;
    }
  return d;
}

// ---- inputs

struct Random {
  u64 state;
  u32 operator()() { return u32((state = mix(state, 1)) >> 32); }
  int below(int n) { return int((*this)() % u32(n)); }
};

enum class Inputs { normal, spread, bits, near_the_edge };
const char* name_of(Inputs i) {
  constexpr const char* kNames[] = {"normal", "spread", "bits", "edge"};
  return kNames[int(i)];
}
// A number of the 16-bit type. normal: magnitudes of attention; spread: all exponents; bits: any
// pattern; near_the_edge: zeros, subnormals, the largest numbers, inf and NaN, often.
u16 draw(Random& r, Inputs kind, bool is_bf16) {
  const u16 any = u16(r());
  if (kind == Inputs::bits) return any;
  const int e_bits = is_bf16 ? 8 : 5, m_bits = 15 - e_bits, bias = (1 << (e_bits - 1)) - 1;
  const u16 rest = u16(any & ~(((1 << e_bits) - 1) << m_bits));
  if (kind == Inputs::normal) return u16(rest | (bias - r.below(5)) << m_bits);
  if (kind == Inputs::spread) return u16(rest | (1 + r.below((1 << e_bits) - 2)) << m_bits);
  switch (r.below(8)) {
    case 0: return u16(any & 0x8000);
    case 1: return rest;                                       // subnormal
    case 2: return u16(rest | ((1 << e_bits) - 2) << m_bits);  // large
    case 3: return r.below(4) ? rest : u16((any & 0x8000) | ((1 << e_bits) - 1) << m_bits);  // inf
    case 4: return r.below(16) ? rest : u16(any | ((1 << e_bits) - 1) << m_bits);            // NaN
    default: return u16(rest | (bias - r.below(5)) << m_bits);
  }
}
float draw_c(Random& r, Inputs kind) {
  const u32 any = r();
  if (kind == Inputs::bits) return from_bits(any);
  const u32 rest = any & 0x807fffffu;
  switch (kind == Inputs::near_the_edge ? r.below(6) : r.below(2)) {
    case 0: return from_bits(rest | u32(127 - 8 + r.below(12)) << 23);
    case 1: return kind == Inputs::spread ? from_bits(rest | u32(1 + r.below(254)) << 23) : 0.0f;
    case 2: return from_bits(any & 0x80000000u);
    case 3: return from_bits(rest);
    case 4: return from_bits(rest | 254u << 23);
    default: return r.below(8) ? 1.0f : from_bits(rest | 255u << 23);
  }
}
Product random_product(u64 seed, Inputs kind, bool is_bf16) {
  Random r{seed * 16 + u64(kind)};
  Product p;
  for (auto& row : p.a)
    for (u16& x : row) x = draw(r, kind, is_bf16);
  for (auto& row : p.b)
    for (u16& x : row) x = draw(r, kind, is_bf16);
  for (auto& row : p.c)
    for (float& x : row) x = draw_c(r, kind);
  return p;
}

// ---- parameterised by instruction and rule

struct Case {
  bool is_bf16;
  int k;
  MmaRule rule;
};
std::vector<Case> cases() {
  std::vector<Case> r;
  for (const MmaRule rule : {MmaRule{8, 24}, MmaRule{16, 25}})
    for (const auto& [is_bf16, k] :
         {std::pair(false, 8), std::pair(false, 16), std::pair(true, 16)})
      r.push_back({is_bf16, k, rule});
  return r;
}
std::string label(const Case& c) {
  return std::string(c.is_bf16 ? "bf16" : "f16") + "_k" + std::to_string(c.k) + "_L" +
         std::to_string(c.rule.terms) + "_F" + std::to_string(c.rule.fraction_bits);
}
class Mma : public ::testing::TestWithParam<Case> {};
INSTANTIATE_TEST_SUITE_P(All, Mma, ::testing::ValuesIn(cases()),
                         [](const auto& info) { return label(info.param); });

// Multiples of 1/8 up to 1: every partial sum is a number, so no mode may round anything.
TEST_P(Mma, ExactDomain) {
  const auto [is_bf16, k, rule] = GetParam();
  for (u64 seed = 0; seed < 50; seed++) {
    Random r{seed};
    Product p;
    const auto eighths = [&] { return float(r.below(17) - 8) / 8; };
    for (auto& row : p.a)
      for (u16& x : row) x = narrowed(eighths(), is_bf16);
    for (auto& row : p.b)
      for (u16& x : row) x = narrowed(eighths(), is_bf16);
    for (auto& row : p.c)
      for (float& x : row) x = eighths();
    for (const MmaMode mode : {MmaMode::exact, MmaMode::fma, MmaMode::scalar}) {
      const Matrix d = multiply(p, is_bf16, k, mode, rule);
      for (std::size_t i = 0; i < 16; i++)
        for (std::size_t j = 0; j < 8; j++) {
          double sum = p.c[i][j];
          for (int n = 0; n < k; n++)
            sum += double(widened(p.a[i][n], is_bf16)) * widened(p.b[n][j], is_bf16);
          ASSERT_EQ(to_bits(d[i][j]), to_bits(float(sum) + 0.0f))
              << i << " " << j << " mode " << int(mode);
        }
    }
  }
}

// What a comparison met, so that a test of special values cannot pass without any.
struct Met {
  int nan = 0, inf = 0, subnormal = 0, zero = 0, other = 0;
  void count(float x) {
    (std::isnan(x)              ? nan
     : std::isinf(x)            ? inf
     : x == 0                   ? zero
     : std::fabs(x) < 0x1p-126f ? subnormal
                                : other)++;
  }
};

TEST_P(Mma, ExactEqualsTheRule) {
  const auto [is_bf16, k, rule] = GetParam();
  for (const Inputs kind : {Inputs::normal, Inputs::spread, Inputs::bits, Inputs::near_the_edge}) {
    Met met;
    for (u64 seed = 0; seed < 3000; seed++) {
      const Product p = random_product(seed, kind, is_bf16);
      const Matrix fast = multiply(p, is_bf16, k, MmaMode::exact, rule);
      const Matrix slow = multiply(p, is_bf16, k, MmaMode::scalar, rule);
      const bool thrice = seed % 4 == 0;
      const Matrix third = thrice ? in_double(p, is_bf16, k, rule) : slow;
      for (std::size_t i = 0; i < 16; i++)
        for (std::size_t j = 0; j < 8; j++) {
          met.count(slow[i][j]);
          ASSERT_EQ(to_bits(fast[i][j]), to_bits(slow[i][j]))
              << name_of(kind) << " seed " << seed << " (" << i << ", " << j << ") " << fast[i][j]
              << " " << slow[i][j];
          ASSERT_EQ(to_bits(third[i][j]), to_bits(slow[i][j]))
              << "rule in double: " << name_of(kind) << " seed " << seed << " (" << i << ", " << j
              << ")";
        }
    }
    EXPECT_GT(met.other, 1000) << name_of(kind);
    if (kind == Inputs::bits || kind == Inputs::near_the_edge) {
      EXPECT_GT(met.nan, 1000) << name_of(kind);
      EXPECT_GT(met.inf, 100) << name_of(kind);
    }
  }
}

// Results below 2^-126 and beyond 2^128, which attention never meets: c alone, and in bf16
// products.
TEST_P(Mma, SubnormalResultsAndOverflow) {
  const auto [is_bf16, k, rule] = GetParam();
  Met met;
  for (u64 seed = 0; seed < 2000; seed++) {
    Random r{seed};
    const bool large = seed % 2;
    Product p;
    if (is_bf16) {
      for (auto& row : p.a)
        for (u16& x : row)
          x = u16((r() & 0x807f) | u32(large ? 190 - r.below(3) : 63 - r.below(8)) << 7);
      for (auto& row : p.b)
        for (u16& x : row)
          x = u16((r() & 0x807f) | u32(large ? 190 - r.below(3) : 63 - r.below(8)) << 7);
    }
    for (auto& row : p.c)
      for (float& x : row)
        x = from_bits((r() & 0x807fffff) | u32(large ? 254 - r.below(2) : r.below(3)) << 23);
    const Matrix fast = multiply(p, is_bf16, k, MmaMode::exact, rule),
                 slow = in_double(p, is_bf16, k, rule);
    for (std::size_t i = 0; i < 16; i++)
      for (std::size_t j = 0; j < 8; j++) {
        met.count(slow[i][j]);
        ASSERT_EQ(to_bits(fast[i][j]), to_bits(slow[i][j]))
            << seed << " (" << i << ", " << j << ")";
      }
  }
  EXPECT_GT(met.subnormal, 1000);
  EXPECT_GE(met.inf, is_bf16 ? 1000 : 0);
}

TEST_P(Mma, FmaModeIsAChainOfFma) {
  const auto [is_bf16, k, rule] = GetParam();
  for (const Inputs kind : {Inputs::normal, Inputs::spread, Inputs::bits, Inputs::near_the_edge})
    for (u64 seed = 0; seed < 1000; seed++) {
      const Product p = random_product(seed, kind, is_bf16);
      const Matrix d = multiply(p, is_bf16, k, MmaMode::fma, rule);
      for (std::size_t i = 0; i < 16; i++)
        for (std::size_t j = 0; j < 8; j++) {
          float sum = p.c[i][j];
          for (int n = 0; n < k; n++)
            sum = std::fma(widened(p.a[i][n], is_bf16), widened(p.b[n][j], is_bf16), sum);
          if (std::isnan(sum))
            ASSERT_TRUE(std::isnan(d[i][j]));
          else
            ASSERT_EQ(to_bits(d[i][j]), to_bits(sum))
                << name_of(kind) << " seed " << seed << " (" << i << ", " << j << ")";
        }
    }
}

// ---- cases by hand, which tell one rule from another

float step(const std::vector<float>& a, const std::vector<float>& b, float c, int fraction_bits,
           bool is_bf16 = false) {
  std::vector<u16> x, y;
  for (float v : a) x.push_back(narrowed(v, is_bf16));
  for (float v : b) y.push_back(narrowed(v, is_bf16));
  return mma_step_scalar(c, x.data(), y.data(), int(x.size()), is_bf16, fraction_bits);
}
float in_two_steps(const std::vector<float>& a, const std::vector<float>& b, float c,
                   int fraction_bits) {
  const std::size_t half = a.size() / 2;
  const auto h = std::ptrdiff_t(half);
  return step({a.begin() + h, a.end()}, {b.begin() + h, b.end()},
              step({a.begin(), a.begin() + h}, {b.begin(), b.begin() + h}, c, fraction_bits),
              fraction_bits);
}

TEST(MmaByHand, HowManyTermsAreAddedAtOnce) {
  constexpr float s = 0x1p-9f;
  const std::vector<float> a{128, 128, 0, 0, s, s, s, s}, b{128, -128, 0, 0, s, s, s, s};
  // Beside 2^14 the products 2^-18 lie below the last bit that is kept, although 2^14 cancels.
  EXPECT_EQ(step(a, b, 0, 24), 0.0f);
  EXPECT_EQ(step(a, b, 0, 25), 0.0f);
  EXPECT_EQ(in_two_steps(a, b, 0, 24), 0x1p-16f);  // two adders of four keep them
}
TEST(MmaByHand, HowManyFractionBits) {
  const float c = -(1 - 0x1p-24f);  // its 24th bit has weight 2^-24, one below what F = 23 keeps
  EXPECT_EQ(step({1}, {1}, c, 24), 0x1p-24f);
  EXPECT_EQ(step({1}, {1}, c, 25), 0x1p-24f);
  EXPECT_EQ(step({1}, {1}, c, 23), 0x1p-23f);
  // 2^-25 beside 1: F = 25 keeps it until the end, where two of them reach the last bit of 1 -
  // 2^-24.
  const std::vector<float> a{1, -0x1p-12f, -0x1p-12f}, b{1, 0x1p-13f, 0x1p-13f};
  EXPECT_EQ(step(a, b, 0, 24), 1.0f);
  EXPECT_EQ(step(a, b, 0, 25), 1 - 0x1p-24f);
}
TEST(MmaByHand, TermsAreCutTowardZero) {
  // -2^-25 is cut to 0, where a floor would make it -2^-24 and a rounded sum 1 - 2^-24 is possible.
  EXPECT_EQ(step({1, -0x1p-12f}, {1, 0x1p-13f}, 0, 24), 1.0f);
  // The sum too: 1 + 2^-24 + 2^-24 is a number, 1 + 2^-24 is cut, and so is 2 - 2^-24 + 1.
  EXPECT_EQ(step({1, 0x1p-12f, 0x1p-12f}, {1, 0x1p-12f, 0x1p-12f}, 0, 24), 1 + 0x1p-23f);
  EXPECT_EQ(step({1, 0x1p-12f}, {1, 0x1p-12f}, 0, 24), 1.0f);
  EXPECT_EQ(step({-1, -0x1p-12f}, {1, 0x1p-12f}, 0, 24), -1.0f);
  EXPECT_EQ(step({1}, {1}, 2 - 0x1p-23f, 24), 3 - 0x1p-22f);
}
TEST(MmaByHand, ProductsAreNotNormalised) {
  // 1.5 * 1.5 counts as exponent 0: 2^-24 beside it is still kept (with c = -2.25 it is all there
  // is).
  EXPECT_EQ(step({1.5f, 0x1p-12f}, {1.5f, 0x1p-12f}, -1.25f, 24), 1.0f);
  EXPECT_EQ(step({1.5f, 1.5f, 0x1p-12f}, {1.5f, -1.5f, 0x1p-12f}, 0, 24), 0x1p-24f);
  EXPECT_EQ(step({2.25f, -2.25f, 0x1p-12f}, {1, 1, 0x1p-12f}, 0, 24), 0.0f);
}
TEST(MmaByHand, SubnormalInputsKeepTheirExponent) {
  // fp16 2^-24 is 2^-10 at exponent -14. Times 1, beside 2^10 * 2^-14: E = -4, 2^-24 is kept.
  EXPECT_EQ(step({0x1p-24f}, {1}, 0, 24), 0x1p-24f);
  EXPECT_EQ(step({0x1p-24f}, {0x1p-24f}, 0, 24), 0x1p-48f);
  // Subnormal times subnormal counts as exponent -28: c = 2^-53 is one bit below 2^(-28 - 24).
  EXPECT_EQ(step({0x1p-24f}, {0x1p-24f}, 0x1p-53f, 24), 0x1p-48f);
  EXPECT_EQ(step({0x1p-24f}, {0x1p-24f}, 0x1p-53f, 25), 0x1p-48f + 0x1p-53f);
}
TEST(MmaByHand, SpecialValues) {
  constexpr float inf = std::numeric_limits<float>::infinity(),
                  nan = std::numeric_limits<float>::quiet_NaN();
  for (bool is_bf16 : {false, true}) {
    EXPECT_EQ(step({inf, 1}, {1, 1}, 0, 24, is_bf16), inf);
    EXPECT_EQ(step({inf, 1}, {-1, 1}, 0, 24, is_bf16), -inf);
    EXPECT_EQ(step({1}, {1}, -inf, 24, is_bf16), -inf);
    for (float x : {step({inf}, {0}, 0, 24, is_bf16), step({inf, inf}, {1, -1}, 0, 24, is_bf16),
                    step({inf}, {1}, -inf, 24, is_bf16), step({nan}, {0}, 0, 24, is_bf16),
                    step({1}, {1}, nan, 24, is_bf16), step({nan, inf}, {1, 1}, inf, 24, is_bf16)})
      EXPECT_EQ(to_bits(x), 0x7fffffffu);
    EXPECT_EQ(to_bits(step({1, 1}, {1, -1}, 0, 24, is_bf16)), 0u);  // an exact zero is +0
    EXPECT_EQ(to_bits(step({-0.0f}, {1}, -0.0f, 24, is_bf16)), 0u);
  }
  const float largest = std::numeric_limits<float>::max();
  EXPECT_EQ(step({256}, {256}, largest, 24), largest);  // below its last bit
  EXPECT_EQ(step({0x1p52f, 0x1p52f}, {0x1p52f, 0x1p52f}, largest, 24, true), inf);
  EXPECT_EQ(step({0x1p51f}, {0x1p52f}, largest, 24, true), largest);  // half a unit, cut
}

// A rule that is off in one number disagrees on ordinary data, so the comparisons above cannot pass
// by accident.
TEST(MmaByHand, WrongRulesAreRejected) {
  int differ[5] = {}, total = 0;
  for (u64 seed = 0; seed < 40; seed++) {
    const Product p = random_product(seed, Inputs::normal, false);
    for (int i = 0; i < 16; i++)
      for (int j = 0; j < 8; j++, total++) {
        u16 b[8];
        for (int n = 0; n < 8; n++) b[n] = p.b[n][j];
        const float c = p.c[i][j], right = mma_step_scalar(c, p.a[i], b, 8, false, 24);
        float chain = c;
        double sum = c;
        for (int n = 0; n < 8; n++) {
          chain = std::fma(widened(p.a[i][n], false), widened(b[n], false), chain);
          sum += double(widened(p.a[i][n], false)) * widened(b[n], false);
        }
        const float wrong[] = {mma_step_scalar(c, p.a[i], b, 8, false, 23),
                               mma_step_scalar(c, p.a[i], b, 8, false, 25),
                               mma_step_scalar(mma_step_scalar(c, p.a[i], b, 4, false, 24),
                                               p.a[i] + 4, b + 4, 4, false, 24),
                               float(sum), chain};
        for (int w = 0; w < 5; w++) differ[w] += to_bits(wrong[w]) != to_bits(right);
      }
  }
  const char* name[] = {"F = 23", "F = 25", "two adders of four", "one rounding to nearest",
                        "FMA chain"};
  for (int w = 0; w < 5; w++) {
    EXPECT_GT(differ[w], total / 50) << name[w];
    RecordProperty(std::string("differ_") + std::to_string(w), differ[w]);
  }
}

// ---- the warp instructions reach the right function

TEST(MmaInstruction, UsesTheCardsRuleAndNumerics) {
  struct Expected {
    const Card& card;
    MmaMode numerics;
  };
  for (const Card& card : kCards)
    for (const MmaMode mode : {MmaMode::exact, MmaMode::fma}) {
      for (u64 seed = 0; seed < 20; seed++) {
        const Product f = random_product(seed, Inputs::normal, false),
                      h = random_product(seed, Inputs::normal, true);
        const auto run = [&](const Product& p, int k, bool is_bf16) {
          Matrix d;
          const auto outcome = run_kernel({.card = card, .numerics = mode}, [&] {
            Lanes<u32> a[4], b[2], a8[2];
            Lanes<float> c[4];
            for (int lane = 0; lane < 32; lane++) {
              for (int s = 0; s < 2; s++) {
                for (int i = 0; i < 2; i++) {
                  const u16* row = &p.a[operand_a_row(lane, i)][8 * s + operand_a_col(lane, 0)];
                  a[2 * s + i].v[lane] = row[0] | u32(row[1]) << 16;
                }
                const int r = 8 * s + operand_b_row(lane, 0), n = operand_b_col(lane);
                b[s].v[lane] = p.b[r][n] | u32(p.b[r + 1][n]) << 16;
              }
              for (int i = 0; i < 4; i++) c[i].v[lane] = p.c[row_of(lane, i)][col_of(lane, i)];
            }
            a8[0] = a[0], a8[1] = a[1];
            if (is_bf16)
              mma_m16n8k16<bf16>(c, a, b);
            else if (k == 16)
              mma_m16n8k16<f16>(c, a, b);
            else
              mma_m16n8k8<f16>(c, a8, b[0]);
            for (int lane = 0; lane < 32; lane++)
              for (int i = 0; i < 4; i++)
                d[std::size_t(row_of(lane, i))][std::size_t(col_of(lane, i))] = c[i].v[lane];
          });
          EXPECT_EQ(outcome.counters.mma, 1u);
          return d;
        };
        EXPECT_EQ(run(f, 8, false), multiply(f, false, 8, mode, card.mma));
        EXPECT_EQ(run(f, 16, false), multiply(f, false, 16, mode, card.mma));
        EXPECT_EQ(run(h, 16, true), multiply(h, true, 16, mode, card.mma));
      }
    }
}

// k16 on the RTX 4070 is two steps of eight: the same bits as a pair of k8, which the T4 has.
TEST(MmaInstruction, K16IsAPairOfK8UnderRule8) {
  bool hopper_differs = false;
  for (u64 seed = 0; seed < 200; seed++) {
    const Product p = random_product(seed, Inputs::normal, false);
    Product second = p;
    for (const MmaRule rule : {MmaRule{8, 24}, MmaRule{16, 25}}) {
      const Matrix whole = multiply(p, false, 16, MmaMode::exact, rule),
                   first = multiply(p, false, 8, MmaMode::exact, rule);
      for (std::size_t i = 0; i < 16; i++) {
        std::copy(p.a[i] + 8, p.a[i] + 16, second.a[i]);
        std::copy(first[i].begin(), first[i].end(), second.c[i]);
      }
      for (int n = 0; n < 8; n++) std::copy(p.b[n + 8], p.b[n + 8] + 8, second.b[n]);
      const Matrix pair = multiply(second, false, 8, MmaMode::exact, rule);
      if (rule.terms == 8)
        EXPECT_EQ(whole, pair);
      else
        hopper_differs = hopper_differs || whole != pair;
    }
  }
  EXPECT_TRUE(hopper_differs);
}

TEST(MmaInstruction, Bf16HasNoK8) {
  EXPECT_EQ(mma_function(true, 8, MmaMode::exact, {8, 24}), nullptr);
}

}  // namespace
}  // namespace tessera::sim
