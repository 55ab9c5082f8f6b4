// SPDX-License-Identifier: Apache-2.0
#include "sim/exp2.h"

#include <cstdint>
#include <cstring>

namespace tessera::sim {

// In double: x = n + f, |f| <= 1/2, 2^f = sum of (f ln 2)^k / k! up to k = 13 (relative error
// 2e-17), then one rounding to float. Compared with exp2l over all floats (tests/sim/exp2_test.cc).
void exp2_rounded(const float* x, float* y) {
  constexpr double kLn2 = 0x1.62e42fefa39efp-1;
  constexpr double kRound = 0x1.8p52;
  for (int i = 0; i < 32; i++) {
    const float clamped = x[i] < -200.0f ? -200.0f : x[i] > 200.0f ? 200.0f : x[i];  // NaN stays
    const double v = double(clamped), t = v + kRound, f = (v - (t - kRound)) * kLn2;
    double p = 1.0 / 6227020800.0;
    p = p * f + 1.0 / 479001600.0;
    p = p * f + 1.0 / 39916800.0;
    p = p * f + 1.0 / 3628800.0;
    p = p * f + 1.0 / 362880.0;
    p = p * f + 1.0 / 40320.0;
    p = p * f + 1.0 / 5040.0;
    p = p * f + 1.0 / 720.0;
    p = p * f + 1.0 / 120.0;
    p = p * f + 1.0 / 24.0;
    p = p * f + 1.0 / 6.0;
    p = p * f + 1.0 / 2.0;
    p = p * f + 1.0;
    const double step = p * f, sum = 1.0 + step, lost = step - (sum - 1.0);
    std::uint64_t tb, pb;
    std::memcpy(&tb, &t, 8), std::memcpy(&pb, &sum, 8);
    // Two floats have a power within 2^-53 of the middle between two results: what the sum lost
    // decides.
    if ((pb & 1) == 0) pb += lost > 0 ? 1 : lost < 0 ? -1 : 0;
    pb += tb << 52;  // n into the exponent
    double scaled;
    std::memcpy(&scaled, &pb, 8);
    const float r = float(scaled);
    y[i] = x[i] != x[i] ? x[i] : r < 0x1p-126f ? 0.0f : r;
  }
}

}  // namespace tessera::sim
