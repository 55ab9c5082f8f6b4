// SPDX-License-Identifier: Apache-2.0
// Instructions on registers: selection, maximum, shuffles, conversions, poison, IEEE arithmetic.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "sim/random.h"
#include "tests/sim/run_kernel.h"

namespace tessera {
namespace {

using sim::lanes_of;
using sim::mask_of;
using sim::run_kernel;

constexpr float kInf = std::numeric_limits<float>::infinity();
float from_bits(u32 x) { return std::bit_cast<float>(x); }
u32 to_bits(float x) { return std::bit_cast<u32>(x); }

// Both signs of every kind of number, with the places where fp16 and bf16 round to something else.
std::vector<float> interesting() {
  std::vector<float> x{
      0.0f,      1.0f,      1.5f,      0x1p-126f,  0x1p-149f,  0x1.fffffcp-127f, 0x1.fffffep127f,
      kInf,      65504.0f,  65519.0f,  65520.0f,   0x1p-24f,   0x1p-25f,         0x1.000002p-25f,
      0x1.01p0f, 0x1.02p0f, 0x1.03p0f, 0x1.002p0f, 0x1.006p0f, 0x1.ffep-15f,     0x1.fffp-15f};
  for (u32 nan : {0x7fc00000u, 0x7f800001u, 0x7fffffffu, 0x7fc01234u}) x.push_back(from_bits(nan));
  for (std::size_t i = 0, n = x.size(); i < n; i++)
    x.push_back(from_bits(to_bits(x[i]) ^ 0x80000000u));
  return x;
}

TEST(Registers, WhoAndWhere) {
  const Lanes<i32> lane = lane_id();
  for (int i = 0; i < 32; i++) EXPECT_EQ(lane.v[i], i);
  std::vector<int> warp(6, -1);
  run_kernel({.warps = 3, .blocks = 2},
             [&] { warp[std::size_t(block_index() * 3 + u32(warp_id()))] = warp_id(); });
  EXPECT_EQ(warp, (std::vector<int>{0, 1, 2, 0, 1, 2}));
}

TEST(Registers, Select) {
  const Lanes<bool> m = mask_of([](int i) { return i % 3 == 0; });
  const auto a = lanes_of<i32>([](int i) { return i; }),
             b = lanes_of<i32>([](int i) { return -i; });
  const Lanes<i32> both = select(m, a, b), left = select(m, i32(7), b), right = select(m, a, 9);
  for (int i = 0; i < 32; i++) {
    EXPECT_EQ(both.v[i], i % 3 == 0 ? i : -i);
    EXPECT_EQ(left.v[i], i % 3 == 0 ? 7 : -i);
    EXPECT_EQ(right.v[i], i % 3 == 0 ? i : 9);
  }
}

TEST(Registers, MasksAreAllBitsOrNone) {
  const auto a = lanes_of<i32>([](int i) { return i - 5; });
  const Lanes<bool> less = a < Lanes<i32>(3), even = (a & Lanes<i32>(1)) == Lanes<i32>(0);
  const Lanes<bool> all[] = {less & even, less | even, less ^ even, !less, Lanes<bool>(true)};
  for (int i = 0; i < 32; i++) {
    const bool l = i - 5 < 3, e = (i - 5) % 2 == 0;
    const bool expected[] = {l && e, l || e, l != e, !l, true};
    for (int k = 0; k < 5; k++) EXPECT_EQ(all[k].v[i], expected[k] ? -1 : 0) << i << " " << k;
  }
}

// PTX max.f32: a NaN loses against a number, two NaNs give NaN, and +0 is larger than -0. C++'s
// std::max and x86's maxps do neither.
TEST(Registers, MaxAsInPtx) {
  for (float x : interesting())
    for (float y : interesting()) {
      const float r = max(Lanes<float>(x), Lanes<float>(y)).v[17];
      if (std::isnan(x) && std::isnan(y)) {
        EXPECT_TRUE(std::isnan(r));
        continue;
      }
      float expected;
      if (std::isnan(x) || std::isnan(y))
        expected = std::isnan(x) ? y : x;
      else if (x == y)
        expected = std::signbit(x) ? y : x;
      else
        expected = x < y ? y : x;
      EXPECT_EQ(to_bits(r), to_bits(expected)) << x << " " << y;
    }
}

TEST(Registers, Shuffles) {
  const auto x = lanes_of<u32>([](int i) { return 1000 + i; });
  for (int mask = 0; mask < 32; mask++) {
    const Lanes<u32> r = shuffle_xor(x, mask);
    for (int i = 0; i < 32; i++) ASSERT_EQ(r.v[i], u32(1000 + (i ^ mask)));
  }
  for (u64 seed = 0; seed < 50; seed++) {  // sources count modulo 32, as in shfl.idx
    const auto from = lanes_of<i32>([&](int i) { return int(sim::mix(seed, u64(i)) % 97) - 30; });
    const Lanes<float> r = shuffle(lanes_of<float>([](int i) { return i; }), from);
    for (int i = 0; i < 32; i++) ASSERT_EQ(r.v[i], float(u32(from.v[i]) % 32));
  }
}

TEST(Registers, WarpAny) {
  EXPECT_FALSE(warp_any(Lanes<bool>(false)));
  EXPECT_TRUE(warp_any(Lanes<bool>(true)));
  for (int lane = 0; lane < 32; lane++)
    EXPECT_TRUE(warp_any(mask_of([&](int i) { return i == lane; })));
}

TEST(Registers, PoisonIsNanInEveryType) {
  Lanes<float> f(1.0f);
  Lanes<u32> u(1u);
  poison(f), poison(u);
  for (int i = 0; i < 32; i++) {
    EXPECT_TRUE(std::isnan(f.v[i]));
    for (u16 half : {u16(u.v[i]), u16(u.v[i] >> 16)}) {
      EXPECT_TRUE(std::isnan(from_bits(f16_to_f32_bits(half))));
      EXPECT_TRUE(std::isnan(from_bits(bf16_to_f32_bits(half))));
    }
  }
}

TEST(Registers, Apply) {
  const auto r = apply([](i32 a, float b) { return double(a) + b; }, lane_id(), Lanes<float>(0.5f));
  for (int i = 0; i < 32; i++) EXPECT_EQ(r.v[i], i + 0.5);
}

// ---- arithmetic

TEST(Arithmetic, FmaRoundsOnce) {
  for (u64 n = 0; n < 20000; n++) {
    float x[3];
    for (u64 k = 0; k < 3; k++) x[k] = from_bits(u32(sim::mix(n, k)));
    const float r = fma(Lanes<float>(x[0]), Lanes<float>(x[1]), Lanes<float>(x[2])).v[n % 32];
    const float expected = std::fma(x[0], x[1], x[2]);
    if (std::isnan(expected))
      ASSERT_TRUE(std::isnan(r));
    else
      ASSERT_EQ(to_bits(r), to_bits(expected)) << x[0] << " " << x[1] << " " << x[2];
  }
  // 1 + 2^-12 squared, less its rounded self: what a fused operation keeps.
  const Lanes<float> a(0x1.001p0f);
  EXPECT_EQ(fma(a, a, Lanes<float>(-0x1.002p0f)).v[0], 0x1p-24f);
}

// A build that contracts a*b+c has other bits than the GPU's (--fmad=false), and hides it when both
// contract. Fails without -ffp-contract=off wherever the ISA has fma.
TEST(Arithmetic, NothingIsContracted) {
  volatile float a = 0x1.001p0f, c = -0x1.002p0f;
  const Lanes<float> la(a), lc(c);
  EXPECT_EQ((la * la + lc).v[5], 0.0f);
  EXPECT_EQ((lc + la * la).v[5], 0.0f);
  EXPECT_EQ((la * la - Lanes<float>(-c)).v[5], 0.0f);
  const float x = a, z = c;
  EXPECT_EQ(x * x + z, 0.0f);
  volatile double d = 1 + 0x1p-27, e = -(1 + 0x1p-26);
  const double y = d, w = e;
  EXPECT_EQ(y * y + w, 0.0);
}

TEST(Arithmetic, TheReciprocalIsCorrectlyRounded) {
  for (u64 n = 0; n < 20000; n++) {
    const auto draw = [&](u64 salt) {  // 2^-40 to 2^40, either sign
      return from_bits((u32(sim::mix(n, salt)) & 0x807fffffu) | u32(87 + sim::mix(n, salt + 1) % 81)
                                                                    << 23);
    };
    const float y = draw(20);
    // Rounding twice is harmless: 53 >= 2 * 24 + 2.
    ASSERT_EQ(to_bits(reciprocal_normal(Lanes<float>(y)).v[n % 32]), to_bits(float(1 / double(y))));
  }
  for (float nan : interesting()) {
    if (std::isnan(nan)) {
      EXPECT_TRUE(std::isnan(reciprocal_normal(Lanes<float>(nan)).v[0]));
    }
  }
}

// ---- conversions

// What a 16-bit pattern means, without shifting one format's bits into another's.
double value_of(u16 h, int mantissa_bits, int bias) {
  const int exponent = (h & 0x7fff) >> mantissa_bits, m = h & ((1 << mantissa_bits) - 1);
  const double x = exponent ? std::ldexp(m + (1 << mantissa_bits), exponent - bias - mantissa_bits)
                            : std::ldexp(m, 1 - bias - mantissa_bits);
  return h & 0x8000 ? -x : x;
}

template <class T>
void expect_every_pattern(int mantissa_bits, int bias, u16 inf) {
  for (u32 first = 0; first < 0x10000; first += 32) {
    Lanes<T> h;
    for (int i = 0; i < 32; i++) h.v[i] = T{u16(first + u32(i))};
    const Lanes<float> wide = widen(h);
    const Lanes<T> back = narrow<T>(wide);
    const Lanes<u32> packed = pack<T>(wide, shuffle_xor(wide, 1));
    for (int i = 0; i < 32; i++) {
      const u16 x = h.v[i].bits, magnitude = x & 0x7fff;
      const u32 scalar = std::is_same_v<T, f16> ? f16_to_f32_bits(x) : bf16_to_f32_bits(x);
      ASSERT_EQ(to_bits(wide.v[i]), scalar) << x;
      if (magnitude > inf) {
        ASSERT_TRUE(std::isnan(wide.v[i])) << x;
        ASSERT_EQ(back.v[i].bits, 0x7fff) << x;
        continue;
      }
      if (magnitude == inf)
        ASSERT_EQ(wide.v[i], x & 0x8000 ? -kInf : kInf);
      else
        ASSERT_EQ(double(wide.v[i]), value_of(x, mantissa_bits, bias)) << x;
      ASSERT_EQ(std::signbit(wide.v[i]), (x & 0x8000) != 0) << x;
      ASSERT_EQ(back.v[i].bits, x);
      ASSERT_EQ(packed.v[i] & 0xffff, x);
      const u16 other = u16(x ^ 1);
      ASSERT_EQ(packed.v[i] >> 16, (other & 0x7fff) > inf ? 0x7fff : other);
    }
  }
}
TEST(Conversions, EveryF16Pattern) { expect_every_pattern<f16>(10, 15, 0x7c00); }
TEST(Conversions, EveryBf16Pattern) { expect_every_pattern<bf16>(7, 127, 0x7f80); }

TEST(Conversions, NarrowRoundsToNearestEven) {  // all 2^32 inputs: conversion_test.cc
  const auto narrowed = [](float x) {
    return std::pair(narrow<f16>(Lanes<float>(x)).v[9].bits,
                     narrow<bf16>(Lanes<float>(x)).v[9].bits);
  };
  EXPECT_EQ(narrowed(0x1.002p0f), std::pair(u16(0x3c00), u16(0x3f80)));  // fp16: tie, to even
  EXPECT_EQ(narrowed(0x1.006p0f), std::pair(u16(0x3c02), u16(0x3f80)));  // fp16: tie, to even
  EXPECT_EQ(narrowed(0x1.002002p0f), std::pair(u16(0x3c01), u16(0x3f80)));
  EXPECT_EQ(narrowed(0x1.01p0f).second, 0x3f80);  // bf16: tie, to even. Truncation agrees here
  EXPECT_EQ(narrowed(0x1.03p0f).second, 0x3f82);  // and not here
  EXPECT_EQ(narrowed(0x1.010002p0f).second, 0x3f81);
  EXPECT_EQ(narrowed(65519.996f).first, 0x7bff);
  EXPECT_EQ(narrowed(65520.0f).first, 0x7c00);
  EXPECT_EQ(narrowed(0x1p-25f).first, 0);  // tie between 0 and the smallest subnormal
  EXPECT_EQ(narrowed(0x1.000002p-25f).first, 1);
  EXPECT_EQ(narrowed(0x1.8p-24f).first, 2);
  EXPECT_EQ(narrowed(0x1.fffffep127f), std::pair(u16(0x7c00), u16(0x7f80)));
  EXPECT_EQ(narrowed(-0.0f), std::pair(u16(0x8000), u16(0x8000)));
  for (float x : interesting()) {
    EXPECT_EQ(narrowed(x), std::pair(f32_to_f16_bits(to_bits(x)), f32_to_bf16_bits(to_bits(x))))
        << x;
    if (std::isnan(x)) {
      EXPECT_EQ(narrowed(x), std::pair(u16(0x7fff), u16(0x7fff)));
    }
    EXPECT_EQ(to_bits(narrow<float>(Lanes<float>(x)).v[0]), to_bits(x));
  }
}

}  // namespace
}  // namespace tessera
