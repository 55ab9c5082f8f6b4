// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "kernels/warp/types.h"
#include "reference/attention.h"
#include "reference/flash_attention2.h"
#include "reference/hash.h"
#include "reference/inputs.h"
#include "reference/plain_attention.h"
#include "reference/sample.h"

namespace tessera {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

template <class T>
std::vector<T> random_tensor(Dtype dtype, std::int64_t count, std::uint32_t tensor,
                             double scale = 1) {
  std::vector<T> x(count);
  fill(x.data(), dtype, count, 7, tensor, scale);
  return x;
}

// Numbers of the storage type, as float64.
std::vector<double> random_values(Dtype dtype, std::int64_t count, std::uint32_t tensor,
                                  double scale = 1) {
  std::vector<double> x(count);
  for (std::int64_t i = 0; i < count; ++i) x[i] = round_to(dtype, input_value(7, tensor, i, scale));
  return x;
}

std::vector<float> narrow(const std::vector<double>& x) { return {x.begin(), x.end()}; }
std::vector<double> widened(const std::vector<float>& x) { return {x.begin(), x.end()}; }

Band causal(std::int64_t shift = 0) { return Band{Band::kUnlimited, 0, shift}; }

// ---- types.h

// What a 16-bit pattern means, by ldexp: no shift of one format's bits into the other's.
struct Format {
  Dtype dtype;
  int mantissa_bits, bias;
  u32 (*to_f32)(u16);
  u16 (*from_f32)(u32);

  u16 infinity() const { return u16(0x7fff >> mantissa_bits << mantissa_bits); }
  double value(u16 h) const {
    const int exponent = (h & 0x7fff) >> mantissa_bits, m = h & ((1 << mantissa_bits) - 1);
    const int implicit = exponent ? 1 << mantissa_bits : 0;
    const double x = std::ldexp(m + implicit, std::max(exponent, 1) - bias - mantissa_bits);
    return h & 0x8000 ? -x : x;
  }
  double widen(u16 h) const { return std::bit_cast<float>(to_f32(h)); }
  u16 narrow(float x) const { return from_f32(std::bit_cast<u32>(x)); }

  // Nearest even by search among the values, where infinity stands one step beyond the largest
  // number.
  u16 oracle(float x) const {
    const u16 sign = std::signbit(x) ? 0x8000 : 0;
    const double a = std::fabs(double(x));
    if (a >= value(infinity())) return sign | infinity();
    u16 low = 0, high = infinity();  // value(low) <= a < value(high)
    while (high - low > 1) {
      const u16 middle = (low + high) / 2;
      (value(middle) <= a ? low : high) = middle;
    }
    const double down = a - value(low), up = value(high) - a;
    return sign | (down < up || (down == up && low % 2 == 0) ? low : high);
  }
};
constexpr Format kF16{Dtype::f16, 10, 15, f16_to_f32_bits, f32_to_f16_bits};
constexpr Format kBf16{Dtype::bf16, 7, 127, bf16_to_f32_bits, f32_to_bf16_bits};

class Conversion : public testing::TestWithParam<Format> {};
INSTANTIATE_TEST_SUITE_P(, Conversion, testing::Values(kF16, kBf16), [](const auto& info) {
  return std::string(info.param.dtype == Dtype::f16 ? "f16" : "bf16");
});

TEST_P(Conversion, EveryPatternWidensToItsValueAndBack) {
  const Format& format = GetParam();
  for (u32 h = 0; h < 0x10000; ++h) {
    const double wide = format.widen(u16(h));
    const u16 back = format.narrow(float(wide)), magnitude = h & 0x7fff;
    if (magnitude > format.infinity()) {
      ASSERT_TRUE(std::isnan(wide)) << h;
      ASSERT_EQ(back, 0x7fff) << h;
      continue;
    }
    const double value = magnitude == format.infinity() ? std::copysign(kInf, wide)
                                                        : format.value(u16(h));
    ASSERT_EQ(wide, value) << h;
    ASSERT_EQ(std::signbit(wide), bool(h & 0x8000)) << h;
    ASSERT_EQ(back, h);
    const u16 pattern = u16(h);
    ASSERT_EQ(widen(format.dtype, &pattern, 0), wide) << h;
  }
}

TEST_P(Conversion, TiesAndTheirNeighboursRoundToNearestEven) {
  const Format& format = GetParam();
  for (u16 h = 0; h < format.infinity(); ++h) {
    const double midpoint = (format.value(h) + format.value(h + 1)) / 2;
    const float tie = float(midpoint);
    ASSERT_EQ(tie, midpoint) << h;
    ASSERT_EQ(format.narrow(tie), h % 2 ? h + 1 : h) << h;
    ASSERT_EQ(format.narrow(std::nextafterf(tie, 0)), h) << h;
    ASSERT_EQ(format.narrow(std::nextafterf(tie, float(kInf))), h + 1) << h;
    ASSERT_EQ(format.narrow(-tie), 0x8000 | (h % 2 ? h + 1 : h)) << h;
    ASSERT_EQ(format.narrow(std::nextafterf(-tie, 0)), 0x8000 | h) << h;
    ASSERT_EQ(format.narrow(std::nextafterf(-tie, -float(kInf))), 0x8000 | (h + 1)) << h;
  }
}

TEST_P(Conversion, RandomPatternsAgreeWithTheOracle) {
  const Format& format = GetParam();
  for (std::uint64_t i = 0; i < 300000; ++i) {
    u32 bits = u32(mix64(i + 1));
    // Half of them with an exponent near the small and the large end of fp16.
    if (i % 2) bits = (bits & 0x807fffff) | (97 + (bits >> 23) % 50) << 23;
    const float x = std::bit_cast<float>(bits);
    ASSERT_EQ(format.narrow(x), std::isnan(x) ? 0x7fff : format.oracle(x)) << std::hex << bits;
    if (!std::isnan(x)) {
      ASSERT_EQ(round_to(format.dtype, x), float(format.widen(format.oracle(x))));
    }
  }
}

TEST(Field, TheBaseIsAPrimitiveRootOfAPrime) {
  for (u32 d = 2; d * d <= kFieldPrime; ++d) ASSERT_NE(kFieldPrime % d, 0u) << d;
  // p - 1 = 2^4 3^2 5 7 13: the order is p - 1 if no power by (p - 1) / factor is 1.
  static_assert(kFieldPrime - 1 == 16 * 9 * 5 * 7 * 13);
  EXPECT_EQ(field_power(Fq{kFieldBase}, kFieldPrime - 1), Fq{1});
  for (u32 factor : {2, 3, 5, 7, 13})
    EXPECT_NE(field_power(Fq{kFieldBase}, (kFieldPrime - 1) / factor), Fq{1}) << factor;
}

TEST(Field, OperationsAgreeWithWideIntegers) {
  const u32 values[] = {0, 1, 2, 17, 32760, 32761, 65519, 65520};
  for (u32 a : values) {
    EXPECT_EQ(Fq::of(Fq{a}.centred()), Fq{a});
    EXPECT_LE(std::abs(Fq{a}.centred()), i32(kFieldPrime / 2));
    EXPECT_EQ(field_power(Fq{a}, kFieldPrime - 2) * Fq{a}, Fq{a != 0});
    for (u32 b : values) {
      EXPECT_EQ((Fq{a} + Fq{b}).value, (u64(a) + b) % kFieldPrime);
      EXPECT_EQ((Fq{a} - Fq{b}).value, (u64(a) + kFieldPrime - b) % kFieldPrime);
      EXPECT_EQ((Fq{a} * Fq{b}).value, u64(a) * b % kFieldPrime);
    }
  }
}

// ---- inputs and hash

TEST(Inputs, AreTheRecordedBits) {
  EXPECT_EQ(std::bit_cast<u32>(input_value(0, 0, 0, 1)), 0xbf3f8848u);
  EXPECT_EQ(std::bit_cast<u32>(input_value(0, 0, 1, 1)), 0x3ed293b0u);
  EXPECT_EQ(std::bit_cast<u32>(input_value(1, 0, 0, 1)), 0xbe822a40u);
  EXPECT_EQ(std::bit_cast<u32>(input_value(0, 1, 0, 1)), 0xbfce4350u);
  EXPECT_EQ(std::bit_cast<u32>(input_value(42, 2, 1ull << 40, 0.3)), 0xbe1f51e6u);
  const auto hash = [](Dtype dtype) {
    std::vector<u32> x(1000);
    fill(x.data(), dtype, 1000, 42, 3, 0.5);
    return hash_hex(hash_elements(dtype, x.data(), 1000));
  };
  EXPECT_EQ(hash(Dtype::f32), "ea5f0089baff56ac");
  EXPECT_EQ(hash(Dtype::f16), "b53225cdf9b430e1");
  EXPECT_EQ(hash(Dtype::bf16), "6e688a7b09ee36eb");
  EXPECT_EQ(hash(Dtype::field), "60ce080f35550927");
}

TEST(Inputs, AreAboutNormalAndIndependent) {
  constexpr int kCount = 1 << 19;
  const double sigma = 1 / std::sqrt(double(kCount));  // of a mean of kCount such numbers
  double sum = 0, square = 0, fourth = 0, next = 0, other_tensor = 0, other_seed = 0, beyond = 0;
  float before = 0;
  for (int i = 0; i < kCount; ++i) {
    const float x = input_value(5, 1, i, 1);
    sum += x;
    square += x * x;
    fourth += double(x) * x * x * x;
    next += x * before;
    other_tensor += x * input_value(5, 2, i, 1);
    other_seed += x * input_value(6, 1, i, 1);
    beyond += std::fabs(x) > 2;
    before = x;
  }
  EXPECT_NEAR(sum / kCount, 0, 5 * sigma);
  EXPECT_NEAR(square / kCount, 1, 5 * 1.42 * sigma);
  EXPECT_NEAR(fourth / kCount, 2.9, 0.1);  // 3 - 1.2 / 12 pieces
  EXPECT_NEAR(beyond / kCount, 0.0455, 0.003);
  EXPECT_NEAR(next / kCount, 0, 5 * sigma);
  EXPECT_NEAR(other_tensor / kCount, 0, 5 * sigma);
  EXPECT_NEAR(other_seed / kCount, 0, 5 * sigma);
  EXPECT_EQ(input_value(5, 1, 9, 0.25), input_value(5, 1, 9, 1) / 4);
}

TEST(Inputs, FillRoundsInputValueAndWidenReadsItBack) {
  constexpr int kCount = 500;
  for (Dtype dtype : {Dtype::f32, Dtype::f16, Dtype::bf16}) {
    std::vector<u8> bytes(kCount * element_size(dtype) + 1, 0xa5);
    fill(bytes.data(), dtype, kCount, 3, 4, 1e-3);
    EXPECT_EQ(bytes.back(), 0xa5);
    const std::vector<double> wide = widen_all(dtype, bytes.data(), kCount);
    for (int i = 0; i < kCount; ++i)
      ASSERT_EQ(wide[i], round_to(dtype, input_value(3, 4, i, 1e-3))) << i;
  }
}

TEST(Inputs, FieldElementsAreTheSmallIntegersUniformly) {
  constexpr int kCount = 90000;
  const auto x = random_tensor<Fq>(Dtype::field, kCount, 0);
  int seen[9] = {};
  for (const Fq& e : x) {
    ASSERT_LT(e.value, kFieldPrime);
    ASSERT_LE(std::abs(e.centred()), 4);
    ++seen[e.centred() + 4];
  }
  for (int n : seen) EXPECT_NEAR(n, kCount / 9, 500);
  EXPECT_EQ(widen(Dtype::field, x.data(), 1), x[1].centred());
  const Fq hidden{Fq::kHidden};
  EXPECT_EQ(widen(Dtype::field, &hidden, 0), -kInf);
}

TEST(Mix64, EveryInputBitReachesEveryOutputBit) {
  constexpr int kSamples = 2000;
  int least = kSamples, most = 0;
  for (int in = 0; in < 64; ++in) {
    int flips[64] = {};
    for (int n = 0; n < kSamples; ++n) {
      // Counters, as the inputs use it: the hard case for a mixer.
      const u64 change = mix64(n) ^ mix64(u64(n) ^ (u64(1) << in));
      for (int out = 0; out < 64; ++out) flips[out] += (change >> out) & 1;
    }
    least = std::min(least, *std::min_element(flips, flips + 64));
    most = std::max(most, *std::max_element(flips, flips + 64));
  }
  EXPECT_GT(least, 0.4 * kSamples);
  EXPECT_LT(most, 0.6 * kSamples);
}

TEST(Hash, SeesEveryBitButNotTheKindOfNan) {
  for (Dtype dtype : {Dtype::f32, Dtype::f16, Dtype::bf16, Dtype::field}) {
    const int size = element_size(dtype);
    std::vector<u8> bytes(5 * size);
    fill(bytes.data(), dtype, 5, 4, 2);
    ASSERT_NE(widen(dtype, bytes.data(), 0), widen(dtype, bytes.data(), 1));
    const u64 hash = hash_elements(dtype, bytes.data(), 5);
    for (int bit = 0; bit < 8 * 5 * size; ++bit) {
      std::vector<u8> changed = bytes;
      changed[bit / 8] ^= u8(1 << bit % 8);
      EXPECT_NE(hash_elements(dtype, changed.data(), 5), hash) << bit;
    }
    std::vector<u8> swapped = bytes;
    std::swap_ranges(swapped.begin(), swapped.begin() + size, swapped.begin() + size);
    EXPECT_NE(hash_elements(dtype, swapped.data(), 5), hash);
    EXPECT_NE(hash_elements(dtype, bytes.data(), 4), hash);
  }
  const auto f32_hash = [](u32 x) { return hash_elements(Dtype::f32, &x, 1); };
  EXPECT_EQ(f32_hash(0x7fc00000), f32_hash(0xff800001));
  EXPECT_EQ(f32_hash(0x7fc00000), f32_hash(0x7fffffff));
  EXPECT_NE(f32_hash(0x7f800000), f32_hash(0x7fc00000));  // inf is no NaN
  EXPECT_NE(f32_hash(0x7f800000), f32_hash(0xff800000));
  EXPECT_NE(f32_hash(0), f32_hash(0x80000000));
  for (Dtype dtype : {Dtype::f16, Dtype::bf16}) {
    const auto hash = [dtype](u16 x) { return hash_elements(dtype, &x, 1); };
    const u16 infinity = dtype == Dtype::f16 ? 0x7c00 : 0x7f80;
    EXPECT_EQ(hash(0x7fff), hash(0xffff));
    EXPECT_EQ(hash(0x7fff), hash(infinity + 1));
    EXPECT_NE(hash(0x7fff), hash(infinity));
    EXPECT_NE(hash(infinity - 1), hash(infinity));
  }
  EXPECT_EQ(hash_hex(0x0123456789abcdefu), "0123456789abcdef");
}

// ---- attention in float64

TEST(Visible, IsTheBandAndDoesNotOverflow) {
  EXPECT_TRUE(visible({}, 0, 6, 7));
  EXPECT_FALSE(visible({}, 0, 7, 7));
  EXPECT_FALSE(visible({}, 0, -1, 7));
  const Band window{2, 1, 0};
  for (std::int64_t i = 0; i < 9; ++i)
    for (std::int64_t j = 0; j < 9; ++j)
      EXPECT_EQ(visible(window, i, j, 8), j >= i - 2 && j <= i + 1 && j < 8) << i << " " << j;
  EXPECT_TRUE(visible(Band{-1, 3, 0}, 4, 5, 9));  // a band beside the diagonal
  EXPECT_FALSE(visible(Band{-1, 3, 0}, 4, 4, 9));

  constexpr std::int64_t kBig = (std::int64_t(1) << 62) - 1;
  EXPECT_TRUE(visible(causal(), kBig, 0, 1));
  EXPECT_TRUE(visible(causal(kBig), kBig, kBig - 1, kBig));
  EXPECT_TRUE(visible(causal(-kBig), kBig, 0, 1));
  EXPECT_FALSE(visible(causal(-kBig), kBig - 1, 0, 1));
  EXPECT_FALSE(visible(causal(-kBig), 0, kBig, kBig + 1));
  EXPECT_FALSE(visible(Band{0, 0, kBig}, kBig, 0, 1));
  EXPECT_TRUE(visible(causal(3'000'000'000), 0, 3'000'000'000, 4'000'000'000));
  EXPECT_FALSE(visible(causal(3'000'000'000), 0, 3'000'000'001, 4'000'000'000));
}

// Q = 0 and V = the unit matrix: row i of O is uniform over the keys that i sees, so O is the mask.
TEST(AttentionF64, BothCausalCorners) {
  struct Lengths {
    std::int64_t q_len, k_len;
  };
  for (const auto [q_len, k_len] : {Lengths{2, 5}, {5, 2}, {1, 16}, {4, 9}})
    for (const std::int64_t shift : {std::int64_t(0), k_len - q_len}) {
      Problem p{.q_len = q_len, .k_len = k_len, .head_dim = 16, .band = causal(shift)};
      std::vector<double> q(q_len * 16, 0), k(k_len * 16, 1), v(k_len * 16, 0);
      for (std::int64_t j = 0; j < k_len; ++j) v[j * 16 + j] = 1;
      const Result result = attention_f64(p, q, k, v);
      for (std::int64_t i = 0; i < q_len; ++i) {
        const std::int64_t keys = std::clamp<std::int64_t>(i + shift + 1, 0, k_len);
        EXPECT_DOUBLE_EQ(result.lse[i], std::log(double(keys)));  // -inf for no key
        for (std::int64_t j = 0; j < 16; ++j)
          EXPECT_DOUBLE_EQ(result.o[i * 16 + j], j < keys ? 1. / keys : 0.)
              << q_len << "x" << k_len << " shift " << shift << " row " << i << " key " << j;
      }
    }
}

TEST(AttentionF64, RowsAndProblemsWithoutKeys) {
  // Bottom-right causal (5, 2): queries 0 .. 2 see nothing. V and K full of NaN must not matter
  // there.
  Problem p{.q_len = 5, .k_len = 2, .head_dim = 4, .band = causal(-3)};
  Result r = attention_f64(p, std::vector<double>(20, 1), std::vector<double>(8, kNan),
                           std::vector<double>(8, kNan));
  for (int i = 0; i < 5; ++i) {
    EXPECT_TRUE(i < 3 ? r.lse[i] == -kInf : std::isnan(r.lse[i])) << i;
    EXPECT_TRUE(i < 3 ? r.o[i * 4] == 0 : std::isnan(r.o[i * 4])) << i;
  }
  p = {.q_len = 5, .k_len = 0, .head_dim = 4};
  r = attention_f64(p, std::vector<double>(20, 1), {}, {});
  EXPECT_EQ(r.o, std::vector<double>(20, 0));
  EXPECT_EQ(r.lse, std::vector<double>(5, -kInf));
  const std::vector<double> seven(7 * 4, 1);
  EXPECT_TRUE(attention_f64({.q_len = 0, .k_len = 7, .head_dim = 4}, {}, seven, seven).o.empty());
  EXPECT_TRUE(
      attention_f64({.batch = 0, .q_len = 5, .k_len = 7, .head_dim = 4}, {}, {}, {}).lse.empty());
  EXPECT_TRUE(
      attention_f64({.heads = 0, .heads_kv = 0, .q_len = 5, .k_len = 7, .head_dim = 4}, {}, {}, {})
          .lse.empty());
}

TEST(AttentionF64, VeryNegativeScores) {
  Problem p{.q_len = 1, .k_len = 64, .head_dim = 64, .scale = 0.125};
  const std::vector<double> q(64, 1), v = random_values(Dtype::bf16, 64 * 64, 2);
  std::vector<double> k(64 * 64, -1000);
  Result r = attention_f64(p, q, k, v);
  EXPECT_DOUBLE_EQ(r.lse[0], -8000 + std::log(64.));
  double mean = 0;
  for (int j = 0; j < 64; ++j) mean += v[j * 64 + 5] / 64;
  EXPECT_NEAR(r.o[5], mean, 1e-15);

  std::fill(k.begin(), k.begin() + 64, -900.);
  r = attention_f64(p, q, k, v);
  EXPECT_EQ(r.lse[0], -7200);
  EXPECT_TRUE(std::equal(r.o.begin(), r.o.end(), v.begin()));
}

TEST(AttentionF64, LseIsNaturalAndScaled) {
  const std::vector<double> ones(8 * 2, 1);
  Problem p{.q_len = 1, .k_len = 8, .head_dim = 2};
  EXPECT_DOUBLE_EQ(attention_f64(p, {0, 0}, ones, ones).lse[0], 2.0794415416798357);
  p = {.q_len = 1, .k_len = 1, .head_dim = 2, .scale = 0.3};
  const Result r = attention_f64(p, {2, 3}, {5, 7}, {-4, 9});
  EXPECT_DOUBLE_EQ(r.lse[0], 0.3 * 31);
  EXPECT_EQ(r.o, (std::vector<double>{-4, 9}));
  EXPECT_EQ(r.abs_pv, (std::vector<double>{4, 9}));
}

TEST(AttentionF64, TwoKeysByHand) {
  // Scores log 3 and 0: P = (3/4, 1/4).
  const Problem p{.q_len = 1, .k_len = 2, .head_dim = 1, .scale = std::log(3.)};
  const Result r = attention_f64(p, {1}, {1, 0}, {8, -4});
  EXPECT_DOUBLE_EQ(r.o[0], 5);
  EXPECT_DOUBLE_EQ(r.abs_pv[0], 7);
  EXPECT_DOUBLE_EQ(r.lse[0], std::log(4.));
}

TEST(AttentionF64, QueryHeadsShareKeyHeads) {
  const Problem grouped{
      .batch = 2, .heads = 6, .heads_kv = 2, .q_len = 3, .k_len = 4, .head_dim = 5};
  Problem full = grouped;
  full.heads_kv = 6;
  const auto q = random_values(Dtype::f32, 2 * 6 * 3 * 5, 0);
  const auto k = random_values(Dtype::f32, 2 * 2 * 4 * 5, 1);
  const auto v = random_values(Dtype::f32, 2 * 2 * 4 * 5, 2);
  std::vector<double> k_full, v_full;
  for (int b = 0; b < 2; ++b)
    for (int h = 0; h < 6; ++h) {
      const int from = (b * 2 + h / 3) * 20;
      k_full.insert(k_full.end(), k.begin() + from, k.begin() + from + 20);
      v_full.insert(v_full.end(), v.begin() + from, v.begin() + from + 20);
    }
  EXPECT_EQ(attention_f64(grouped, q, k, v).o, attention_f64(full, q, k_full, v_full).o);
  EXPECT_THROW(attention_f64({.heads = 3, .heads_kv = 2}, {}, {}, {}), std::invalid_argument);
  EXPECT_THROW(attention_f64({.q_len = 1, .k_len = 1, .head_dim = 1}, {1}, {1}, {1, 2}),
               std::invalid_argument);
}

// A non-finite value goes to the rows that see it and to no others; -inf scores have weight 0.
TEST(AttentionF64, NonFiniteValuesFollowTheFormula) {
  const Problem p{.q_len = 4, .k_len = 4, .head_dim = 3, .band = causal()};
  const auto q = random_values(Dtype::f32, 12, 0), k = random_values(Dtype::f32, 12, 1),
             v = random_values(Dtype::f32, 12, 2);
  const Result clean = attention_f64(p, q, k, v);
  const auto with = [](std::vector<double> x, int at, double value) {
    x[at] = value;
    return x;
  };
  const Result bad_q = attention_f64(p, with(q, 1 * 3 + 2, kNan), k, v);
  const Result bad_k = attention_f64(p, q, with(k, 2 * 3 + 1, kNan), v);
  const Result bad_v = attention_f64(p, q, k, with(v, 2 * 3 + 1, kNan));
  const Result inf_v = attention_f64(p, q, k, with(v, 2 * 3 + 1, -kInf));
  for (int i = 0; i < 4; ++i)
    for (int d = 0; d < 3; ++d) {
      const int x = i * 3 + d;
      EXPECT_TRUE(i == 1 ? std::isnan(bad_q.o[x]) : bad_q.o[x] == clean.o[x]) << x;
      EXPECT_TRUE(i >= 2 ? std::isnan(bad_k.o[x]) : bad_k.o[x] == clean.o[x]) << x;
      EXPECT_TRUE(i >= 2 && d == 1 ? std::isnan(bad_v.o[x]) : bad_v.o[x] == clean.o[x]) << x;
      EXPECT_TRUE(i >= 2 && d == 1 ? inf_v.o[x] == -kInf : inf_v.o[x] == clean.o[x]) << x;
      EXPECT_EQ(std::isnan(bad_q.lse[i]), i == 1);
      EXPECT_EQ(std::isnan(bad_k.lse[i]), i >= 2);
      EXPECT_EQ(bad_v.lse[i], clean.lse[i]);
    }
  const Problem one{.q_len = 1, .k_len = 2, .head_dim = 1};
  EXPECT_EQ(attention_f64(one, {1}, {-kInf, 3}, {5, 6}).o[0], 6);
  EXPECT_EQ(attention_f64(one, {1}, {-kInf, 3}, {5, 6}).lse[0], 3);
  EXPECT_TRUE(std::isnan(attention_f64(one, {1}, {kInf, 3}, {5, 6}).o[0]));
}

// ---- samples

TEST(Sample, RowsAreDifferentAndSpread) {
  for (const std::int64_t q_len : {1, 5, 63, 64, 1000})
    for (const std::int64_t heads : {1, 8, 100}) {
      const Problem p{.batch = 2, .heads = heads, .heads_kv = heads, .q_len = q_len};
      const auto rows = sample_rows(p, 64);
      const std::int64_t all = 2 * heads * q_len;
      ASSERT_EQ(std::int64_t(rows.size()), std::min<std::int64_t>(64, all));
      std::vector<int> of_head(std::size_t(2 * heads));
      std::int64_t before = -1, low = 0;
      for (const SampleRow& r : rows) {
        EXPECT_TRUE(0 <= r.query && r.query < q_len);
        EXPECT_GT(r.head * q_len + r.query, before);
        before = r.head * q_len + r.query;
        of_head.at(std::size_t(r.head))++;
        low += 2 * r.query < q_len;
      }
      EXPECT_EQ(rows.front().head + rows.front().query, 0);
      EXPECT_EQ(before, all - 1);
      if (2 * heads <= 64) {
        EXPECT_GE(*std::min_element(of_head.begin(), of_head.end()), 1);
      }
      if (all > 64 && q_len > 1) {
        EXPECT_TRUE(16 <= low && low <= 48) << q_len << " " << heads;
      }
    }
  EXPECT_TRUE(sample_rows({.q_len = 0}, 64).empty());
}

TEST(Sample, HasTheRowsOfTheWholeResult) {
  for (const Dtype dtype : {Dtype::f32, Dtype::f16, Dtype::bf16})
    for (const std::int64_t shift : {-3, 0, 5}) {
      const Problem p{.batch = 2,
                      .heads = 4,
                      .heads_kv = 2,
                      .q_len = 9,
                      .k_len = 11,
                      .head_dim = 6,
                      .scale = 0.4,
                      .band = causal(shift)};
      const auto tensor = [&](std::int64_t rows, std::uint32_t number) {
        std::vector<char> x(std::size_t(rows * 6 * element_size(dtype)));
        fill(x.data(), dtype, rows * 6, 3, number);
        return x;
      };
      const auto q = tensor(p.q_rows(), 0), k = tensor(p.k_rows(), 1), v = tensor(p.k_rows(), 2);
      const auto wide = [&](const std::vector<char>& x) {
        return widen_all(dtype, x.data(), std::int64_t(x.size()) / element_size(dtype));
      };
      const Result whole = attention_f64(p, wide(q), wide(k), wide(v));
      const auto tolerance = forward_tolerance(p, dtype, wide(q), wide(k), wide(v), whole);
      const double of_lse = lse_tolerance(p, wide(q), wide(k), whole);
      const auto rows = sample_rows(p, 20);
      const SampledResult some = attention_of_rows(p, dtype, q.data(), k.data(), v.data(), rows);
      ASSERT_EQ(some.o.size(), rows.size() * 6);
      ASSERT_EQ(some.lse.size(), rows.size());
      for (std::size_t r = 0; r < rows.size(); ++r) {
        const auto row = std::size_t(rows[r].head * 9 + rows[r].query);
        EXPECT_EQ(some.lse[r], whole.lse[row]);
        EXPECT_LE(some.tolerance_lse[r], of_lse);
        EXPECT_GT(some.tolerance_lse[r], 0);
        for (std::size_t d = 0; d < 6; ++d) {
          EXPECT_EQ(some.o[r * 6 + d], whole.o[row * 6 + d]);
          EXPECT_EQ(some.abs_pv[r * 6 + d], whole.abs_pv[row * 6 + d]);
          EXPECT_EQ(some.tolerance_o[r * 6 + d], tolerance[row * 6 + d]);
        }
      }
    }
}

// ---- comparisons and tolerances

TEST(Compare, PassesWithinAndFailsBeyondTheTolerance) {
  const Comparison c = compare({1, 2.5, 3}, {1, 2, 3.25}, {0.1, 1, 0.3});
  EXPECT_TRUE(c.pass);
  EXPECT_DOUBLE_EQ(c.max_abs, 0.5);
  EXPECT_DOUBLE_EQ(c.max_ratio, 0.25 / 0.3);  // the worst by ratio, not by size
  EXPECT_EQ(c.worst_index, 2);
  EXPECT_EQ(c.tolerance, 0.3);
  EXPECT_EQ(c.nan_count, 0);
  EXPECT_TRUE(compare({1.5}, {1}, 0.5).pass);
  EXPECT_FALSE(compare({1.5}, {1}, 0.499).pass);
  EXPECT_TRUE(compare({2}, {2}, 0.).pass);
  EXPECT_FALSE(compare({2}, {2 + 1e-15}, 0.).pass);
  EXPECT_TRUE(compare({}, {}, 0.).pass);
  EXPECT_EQ(compare({}, {}, 0.).worst_index, -1);
  EXPECT_THROW(compare({1}, {1, 2}, 0.), std::invalid_argument);
}

TEST(Compare, NonFiniteValuesAgreeOnlyWithThemselves) {
  const double values[] = {kNan, kInf, -kInf, 1};
  for (int a = 0; a < 4; ++a)
    for (int e = 0; e < 4; ++e)
      for (double tolerance : {0., 1e300, kInf, kNan}) {
        const Comparison c = compare({0, values[a]}, {0, values[e]}, tolerance);
        EXPECT_EQ(c.pass, a == e) << values[a] << " " << values[e] << " " << tolerance;
        EXPECT_EQ(c.nan_count, a == 0 && e != 0);
        EXPECT_EQ(c.worst_index, a == e ? 0 : 1);
        EXPECT_EQ(c.max_ratio, a == e ? 0 : kInf);
        EXPECT_EQ(c.max_abs, a == e ? 0 : kInf);
      }
  EXPECT_FALSE(compare({1}, {2}, kInf).pass);
  EXPECT_FALSE(compare({1}, {2}, kNan).pass);
}

TEST(Tolerance, IsTheFormulaAndIgnoresNonFiniteInputs) {
  const Problem p{.q_len = 1, .k_len = 2, .head_dim = 2, .scale = -0.5};
  const std::vector<double> q = {0, 0}, k = {1, 2, 3, -4}, v = {8, -6, 2, 1};
  const Result r = attention_f64(p, q, k, v);  // P = (1/2, 1/2)
  const auto bf16 = forward_tolerance(p, Dtype::bf16, {3, 1}, k, v, r);
  EXPECT_DOUBLE_EQ(bf16[0], 2 * 0x1p-8 * 5 + 0x1p-22 * (2 * 0.5 * 3 * 4 + 4) * 8);
  EXPECT_DOUBLE_EQ(bf16[1], 2 * 0x1p-8 * 3.5 + 0x1p-22 * (2 * 0.5 * 3 * 4 + 4) * 8);
  const auto f16 = forward_tolerance(p, Dtype::f16, {-kInf, kNan}, k, v, r);
  EXPECT_DOUBLE_EQ(f16[0], 2 * 0x1p-11 * 5 + 0x1p-22 * 4 * 8 + 0x1p-25 * (1 + 5));
  EXPECT_DOUBLE_EQ(lse_tolerance(p, {3, 1}, k, r),
                   0x1p-24 * (4 * 2 * 0.5 * 3 * 4 + 1 + 4 + 4 * 2 * std::log(2.)));
  EXPECT_THROW(forward_tolerance(p, Dtype::field, q, k, v, r), std::invalid_argument);
}

// The bounds are of use only if they see one forgotten key among a thousand.
TEST(Tolerance, SeesAMissingKey) {
  Problem p{.q_len = 4, .k_len = 1024, .head_dim = 64, .scale = 0.125};
  const auto q = random_values(Dtype::f16, 4 * 64, 0), k = random_values(Dtype::f16, 1024 * 64, 1),
             v = random_values(Dtype::f16, 1024 * 64, 2);
  const Result all = attention_f64(p, q, k, v);
  const double lse = lse_tolerance(p, q, k, all);
  const auto o = forward_tolerance(p, Dtype::f16, q, k, v, all);
  p.band.right = 1022;
  const Result missing = attention_f64(p, q, k, v);  // of query 0 only
  EXPECT_FALSE(compare(missing.lse, all.lse, lse).pass);
  EXPECT_FALSE(compare(missing.o, all.o, o).pass);
}

// ---- the tiled loop and plain attention

TEST(FlashAttention2, AgreesWithFloat64OnEveryTiling) {
  struct Tile {
    std::int64_t q, k;
  };
  const Problem problems[] = {
      {.batch = 2, .heads = 2, .heads_kv = 2, .q_len = 33, .k_len = 33, .head_dim = 16},
      {.heads = 4, .heads_kv = 2, .q_len = 17, .k_len = 65, .head_dim = 7, .band = causal()},
      {.heads = 3,
       .heads_kv = 1,
       .q_len = 65,
       .k_len = 17,
       .head_dim = 32,
       .band = causal(17 - 65)},
      {.q_len = 40, .k_len = 40, .head_dim = 8, .band = {5, 3, 0}},
      {.q_len = 40, .k_len = 70, .head_dim = 8, .band = {4, -2, 20}},
      {.q_len = 1, .k_len = 300, .head_dim = 64, .scale = 0.125},
      {.q_len = 5, .k_len = 0, .head_dim = 4},
      {.q_len = 0, .k_len = 5, .head_dim = 4},
  };
  for (const Problem& p : problems) {
    const auto q = random_values(Dtype::f32, p.q_rows() * p.head_dim, 0);
    const auto k = random_values(Dtype::f32, p.k_rows() * p.head_dim, 1);
    const auto v = random_values(Dtype::f32, p.k_rows() * p.head_dim, 2);
    const Result expected = attention_f64(p, q, k, v);
    const auto tolerance = forward_tolerance(p, Dtype::f32, q, k, v, expected);
    const double lse = lse_tolerance(p, q, k, expected);
    for (const Tile tile : {Tile{1, 1}, {16, 16}, {16, 5}, {7, 32}, {64, 64}, {128, 1}, {3, 512}}) {
      const auto actual = flash_attention2(p, narrow(q), narrow(k), narrow(v), tile.q, tile.k);
      const Comparison o = compare(widened(actual.o), expected.o, tolerance);
      const Comparison l = compare(widened(actual.lse), expected.lse, lse);
      EXPECT_TRUE(o.pass && l.pass) << p.q_len << "x" << p.k_len << " tile " << tile.q << "x"
                                    << tile.k << ": O " << o.max_ratio << " at " << o.worst_index
                                    << ", LSE " << l.max_ratio << " at " << l.worst_index;
    }
  }
  EXPECT_THROW(flash_attention2({}, {}, {}, {}, 0, 1), std::invalid_argument);
}

// Scores that fall by 30 a tile, then rise: weights of earlier tiles vanish, and the other way
// round.
TEST(FlashAttention2, RescalesWhenTheMaximumJumps) {
  const Problem p{.q_len = 1, .k_len = 80, .head_dim = 1};
  std::vector<double> k(80), v = random_values(Dtype::f32, 80, 2);
  for (int j = 0; j < 80; ++j) k[j] = -30. * (j < 60 ? j / 4 : 75 - j);
  const Result expected = attention_f64(p, {1}, k, v);
  for (std::int64_t block_k : {1, 4, 16, 80}) {
    const auto actual = flash_attention2(p, {1}, narrow(k), narrow(v), 1, block_k);
    EXPECT_TRUE(compare(widened(actual.o), expected.o,
                        forward_tolerance(p, Dtype::f32, {1}, k, v, expected))
                    .pass);
    EXPECT_NEAR(actual.lse[0], expected.lse[0], 1e-4);
  }
}

TEST(FlashAttention2, NanReachesTheRowsThatSeeItAndNoOthers) {
  const Problem p{.q_len = 9, .k_len = 9, .head_dim = 4, .band = {3, 0, 0}};
  const auto q = random_values(Dtype::f32, 36, 0), v = random_values(Dtype::f32, 36, 2);
  auto k = random_values(Dtype::f32, 36, 1), bad_v = v;
  const auto clean = flash_attention2(p, narrow(q), narrow(k), narrow(v), 4, 4);
  bad_v[2 * 4 + 1] = kNan;
  const auto of_v = flash_attention2(p, narrow(q), narrow(k), narrow(bad_v), 4, 4);
  k[2 * 4 + 1] = kNan;
  const auto of_k = flash_attention2(p, narrow(q), narrow(k), narrow(v), 4, 4);
  for (int i = 0; i < 9; ++i) {
    const bool sees = i >= 2 && i <= 5;
    EXPECT_TRUE(sees ? std::isnan(of_k.lse[i]) : of_k.lse[i] == clean.lse[i]) << i;
    EXPECT_EQ(of_v.lse[i], clean.lse[i]);
    for (int d = 0; d < 4; ++d) {
      const int x = i * 4 + d;
      EXPECT_TRUE(sees ? std::isnan(of_k.o[x]) : of_k.o[x] == clean.o[x]) << x;
      EXPECT_TRUE(sees && d == 1 ? std::isnan(of_v.o[x]) : of_v.o[x] == clean.o[x]) << x;
    }
  }
  // A row that sees only that key: its maximum is no number, so it is not a row without keys.
  Problem diagonal = p;
  diagonal.band = {0, 0, 0};
  const auto alone = flash_attention2(diagonal, narrow(q), narrow(k), narrow(v), 4, 4);
  EXPECT_TRUE(std::isnan(alone.o[2 * 4]) && std::isnan(alone.lse[2]));
}

double max_error(const std::vector<double>& actual, const std::vector<double>& expected) {
  return compare(actual, expected, 1.).max_abs;
}

TEST(PlainAttention, IsRoundedToStorageAndAsFarOffAsThatAllows) {
  const Problem p{.heads = 2,
                  .heads_kv = 1,
                  .q_len = 70,
                  .k_len = 90,
                  .head_dim = 32,
                  .scale = 1 / std::sqrt(32.),
                  .band = causal(5)};
  for (Dtype dtype : {Dtype::f32, Dtype::f16, Dtype::bf16}) {
    const double u = dtype == Dtype::f32 ? 0x1p-24 : dtype == Dtype::f16 ? 0x1p-11 : 0x1p-8;
    const auto q = random_values(dtype, 2 * 70 * 32, 0), k = random_values(dtype, 90 * 32, 1),
               v = random_values(dtype, 90 * 32, 2);
    const Result expected = attention_f64(p, q, k, v);
    const PlainResult plain = plain_attention(p, dtype, q, k, v);
    for (double o : plain.o) ASSERT_EQ(round_to(dtype, float(o)), o);
    // A rounded score is off by up to u |S| and |S| may be 8 here: so 10 u or so, and not without
    // error.
    EXPECT_LT(max_error(plain.o, expected.o), 10 * u);
    EXPECT_GT(max_error(plain.o, expected.o), u / 4);
    EXPECT_LT(max_error(plain.lse, expected.lse), 10 * u);
    const auto tiled = flash_attention2(p, narrow(q), narrow(k), narrow(v), 16, 16);
    EXPECT_LE(max_error(widened(tiled.o), expected.o), 2 * max_error(plain.o, expected.o));
  }
}

TEST(PlainAttention, RoundsScoresProbabilitiesAndOutput) {
  // 1 + 2^-8 is a tie in bf16: the score 257/256 becomes 1, so both keys weigh the same.
  const Problem p{.q_len = 1, .k_len = 2, .head_dim = 2};
  const PlainResult r = plain_attention(p, Dtype::bf16, {1, 1}, {1, 0x1p-8, 1, 0}, {2, 1, 4, 0});
  EXPECT_EQ(r.o, (std::vector<double>{3, 0.5}));
  EXPECT_EQ(r.lse[0], 1 + std::log(2.f));
  // P = 1/3 becomes 171/512 in bf16, so O = 513/512 rounds to 1,
  // and 86 * 171/512 = 28.723 to 28.75, where 86/3 would round to 28.625.
  const Problem three{.q_len = 1, .k_len = 3, .head_dim = 1};
  EXPECT_EQ(plain_attention(three, Dtype::bf16, {0}, {1, 1, 1}, {1, 1, 1}).o[0], 1);
  EXPECT_EQ(plain_attention(three, Dtype::bf16, {0}, {1, 1, 1}, {256, -85, -85}).o[0], 28.75);
  const Problem empty{.q_len = 2, .k_len = 1, .head_dim = 1, .band = causal(-1)};
  const PlainResult rows = plain_attention(empty, Dtype::f16, {1, 1}, {3}, {5});
  EXPECT_EQ(rows.o, (std::vector<double>{0, 5}));
  EXPECT_EQ(rows.lse, (std::vector<double>{-kInf, 3}));
  EXPECT_THROW(plain_attention(empty, Dtype::field, {1, 1}, {3}, {5}), std::invalid_argument);
}

// ---- attention in the field

TEST(AttentionField, TinyCasesByHand) {
  // Scores 1 and -1: weights 17 and 1/17, so l = 290/17, and O = (17 * 3 + 5/17) / l = 872/290.
  const Problem two{.q_len = 1, .k_len = 2, .head_dim = 1};
  const FieldResult r = attention_field(two, {Fq::of(1)}, {Fq::of(1), Fq::of(-1)},
                                        {Fq::of(3), Fq::of(5)});
  EXPECT_EQ(r.lse[0] * Fq{17}, Fq{290});
  EXPECT_EQ(r.o[0] * Fq{290}, Fq{872});

  // One key: O = V whatever the score, LSE = 17^s. 17^2 = 289, 17^-2 = its inverse.
  const Problem one{.q_len = 1, .k_len = 1, .head_dim = 2};
  for (int s : {2, -2}) {
    const FieldResult single = attention_field(one, {Fq::of(s), Fq::of(1)}, {Fq::of(1), Fq::of(0)},
                                               {Fq::of(-3), Fq::of(7)});
    EXPECT_EQ(single.o, (std::vector<Fq>{Fq::of(-3), Fq::of(7)}));
    EXPECT_EQ(s > 0 ? single.lse[0] : single.lse[0] * Fq{289} * Fq{289}, Fq{289});
  }

  // Row 0 sees no key.
  const Problem empty{.q_len = 2, .k_len = 1, .head_dim = 1, .band = causal(-1)};
  const FieldResult rows = attention_field(empty, {Fq{1}, Fq{1}}, {Fq{0}}, {Fq{9}});
  EXPECT_EQ(rows.o, (std::vector<Fq>{Fq{0}, Fq{9}}));
  EXPECT_EQ(rows.lse, (std::vector<Fq>{Fq{0}, Fq{1}}));
}

// Subtracting any maximum first is the same algebra, which is what makes tilings comparable with
// ==.
TEST(AttentionField, EqualsTheOnlineFormWithRescaling) {
  const Problem p{
      .heads = 2, .heads_kv = 1, .q_len = 6, .k_len = 23, .head_dim = 5, .band = causal(9)};
  const auto q = random_tensor<Fq>(Dtype::field, 2 * 6 * 5, 0);
  const auto k = random_tensor<Fq>(Dtype::field, 23 * 5, 1);
  const auto v = random_tensor<Fq>(Dtype::field, 23 * 5, 2);
  const FieldResult expected = attention_field(p, q, k, v);
  const auto power = [](int s) {
    return field_power(Fq{kFieldBase}, u32((s + 10 * 65520) % 65520));
  };
  for (int row = 0; row < 12; ++row) {
    int m = -1000;
    Fq l{0}, o[5] = {};
    for (int j = 0; j <= std::min(row % 6 + 9, 22); ++j) {
      int s = 0;
      for (int d = 0; d < 5; ++d) s += q[row * 5 + d].centred() * k[j * 5 + d].centred();
      const int m_new = std::max(m, s);
      const Fq rescale = power(m - m_new), weight = power(s - m_new);
      l = l * rescale + weight;
      for (int d = 0; d < 5; ++d) o[d] = o[d] * rescale + weight * v[j * 5 + d];
      m = m_new;
    }
    EXPECT_EQ(expected.lse[row], l * power(m)) << row;
    for (int d = 0; d < 5; ++d) EXPECT_EQ(expected.o[row * 5 + d] * l, o[d]) << row;
  }
}

}  // namespace
}  // namespace tessera
