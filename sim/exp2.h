// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace tessera::sim {

// 2^x rounded to the nearest float, for 32 lanes; results below 2^-126 are 0 (ftz), NaN stays NaN.
void exp2_rounded(const float* x, float* y);
void exp2_polynomial(const float* x, float* y);  // kernels/tile/math.h: exp2_soft

}  // namespace tessera::sim
