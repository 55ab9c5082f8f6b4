// SPDX-License-Identifier: Apache-2.0
// exp2 and log2 against an oracle, over all patterns or a sample: what math_test.cc (quick) and
// math_exhaustive_test.cc (slow) share.
#pragma once
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <string>

#include "kernels/tile/math.h"
#include "tests/sim/every_float.h"

namespace tessera {

// Bounds over all 2^32 inputs, in units in the last place of the exact result. The contract is 1.
constexpr double kExp2Bound = 0.8;   // measured: 0.797
constexpr double kLog2Bound = 0.99;  // measured: 0.986

// How far `got` is from `exact`, in units in the last place of a float there.
inline double ulps(float got, double exact) {
  const int e = std::max(std::ilogb(exact), -126);
  return std::fabs(double(got) - exact) * std::ldexp(1.0, 23 - e);
}

struct Errors {
  u64 inputs = 0, measured = 0, wrong = 0;  // wrong: special values
  double worst = 0;
  float worst_at = 0, wrong_at = 0;
  void error(double e, float at) {
    measured++;
    if (!(e <= worst)) worst = e, worst_at = at;  // a NaN error stays
  }
  void expect(bool ok, float at) {
    if (!ok) wrong++, wrong_at = at;
  }
  Errors& operator+=(const Errors& o) {
    inputs += o.inputs, measured += o.measured, wrong += o.wrong;
    if (!(o.worst <= worst)) worst = o.worst, worst_at = o.worst_at;
    if (o.wrong) wrong_at = o.wrong_at;
    return *this;
  }
};

// f(x, y, errors) judges y, the function at x.
template <class Function, class Judge>
Errors judge_patterns(u64 step, Function function, Judge judge) {
  return sim::for_patterns<Errors>(step, [&](u32 first, u32 step, Errors& errors) {
    Lanes<u32> bits;
    for (u32 i = 0; i < 32; i++) bits.v[i] = first + i * step;
    const Lanes<float> x = bits_to_float(bits), y = function(x);
    for (int i = 0; i < 32; i++) judge(x.v[i], y.v[i], errors);
    errors.inputs += 32;
  });
}

// 2^x in double, within 2^-40 of it: near 0, where most floats are, from the series.
inline double exp2_in_double(float x) {
  if (std::fabs(x) < 0x1p-22f) return 1 + double(x) * 0.69314718055994530942;
  return std::exp2(double(x));
}

inline Errors exp2_soft_errors(u64 step) {
  return judge_patterns(
      step, [](const Lanes<float>& x) { return exp2_soft(x); },
      [](float x, float y, Errors& e) {
        if (std::isnan(x))
          e.expect(std::isnan(y), x);
        else if (x < -126)
          e.expect(std::bit_cast<u32>(y) == 0, x);
        else if (x >= 128)
          e.expect(y == std::numeric_limits<float>::infinity(), x);
        else
          e.error(ulps(y, exp2_in_double(x)), x);
      });
}

inline Errors log2_soft_errors(u64 step) {
  return judge_patterns(
      step, [](const Lanes<float>& x) { return log2_soft(x); },
      [](float x, float y, Errors& e) {
        if (std::isnan(x) || x < 0)
          e.expect(std::isnan(y), x);
        else if (x == 0)
          e.expect(y == -std::numeric_limits<float>::infinity(), x);
        else if (std::isinf(x))
          e.expect(y == x, x);
        else if (x == 1)
          e.expect(std::bit_cast<u32>(y) == 0, x);
        else
          e.error(ulps(y, std::log2(double(x))), x);
      });
}

inline void expect_within(const Errors& e, double bound) {
  EXPECT_EQ(e.wrong, 0u) << "a special value, the last at " << std::hexfloat << e.wrong_at;
  EXPECT_LE(e.worst, bound) << "at " << std::hexfloat << e.worst_at;
  EXPECT_GT(e.measured, e.inputs / 8);
  ::testing::Test::RecordProperty("worst_ulp", std::to_string(e.worst));
}

}  // namespace tessera
