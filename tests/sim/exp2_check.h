// SPDX-License-Identifier: Apache-2.0
// exp2_rounded against exp2l: what emulator_test (a sample) and exp2_test.cc (everything) share.
#pragma once
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

#include "sim/exp2.h"
#include "tests/sim/every_float.h"

namespace tessera::sim {

// 2^x rounded to the nearest float, below 2^-126 zero. In double where that decides the rounding,
// in long double where double is too near the middle of two floats.
inline float exp2_oracle(float x) {
  const double y = std::fabs(x) < 0x1p-40f ? 1 + double(x) : std::exp2(double(x));
  const double slack = y * 0x1p-50;
  float r = float(y);
  if (float(y - slack) != float(y + slack)) r = float(exp2l(static_cast<long double>(x)));
  return r < 0x1p-126f ? 0.0f : r;
}

struct Exp2Errors {
  u64 inputs = 0, wrong = 0;
  float at = 0;
  Exp2Errors& operator+=(const Exp2Errors& o) {
    inputs += o.inputs, wrong += o.wrong;
    if (o.wrong) at = o.at;
    return *this;
  }
};

inline void expect_correctly_rounded(u64 step) {
  const auto errors = for_patterns<Exp2Errors>(step, [](u32 first, u32 step, Exp2Errors& e) {
    float x[32], y[32];
    for (u32 i = 0; i < 32; i++) x[i] = std::bit_cast<float>(first + i * step);
    exp2_rounded(x, y);
    for (int i = 0; i < 32; i++) {
      bool right;
      if (std::isnan(x[i]))
        right = std::isnan(y[i]);
      else if (x[i] < -127 || x[i] >= 128)
        right = y[i] == (x[i] < 0 ? 0.0f : std::numeric_limits<float>::infinity()) &&
                !std::signbit(y[i]);
      else
        right = std::bit_cast<u32>(y[i]) == std::bit_cast<u32>(exp2_oracle(x[i]));
      if (!right) e.wrong++, e.at = x[i];
    }
    e.inputs += 32;
  });
  EXPECT_EQ(errors.wrong, 0u) << "of " << errors.inputs << ", the last at " << std::hexfloat
                              << errors.at;
  EXPECT_GE(errors.inputs, (u64(1) << 32) / step);
}

}  // namespace tessera::sim
