// SPDX-License-Identifier: Apache-2.0
// exp2 and log2 with the same bits on every target: IEEE add, multiply, fma and divide, nothing
// else.
#pragma once
#include "kernels/warp/warp.h"

namespace tessera {

constexpr float kInfinity = __builtin_huge_valf();
constexpr float kLn2 = 0x1.62e430p-1f;

// 2^x, below 0.8 ulp for -126 <= x < 128; 0 below, +inf above, NaN stays NaN. x = n + f, |f| <=
// 1/2, by adding and taking away 1.5 * 2^23; 2^f by a polynomial of degree 6, its coefficients
// chosen for the smallest error after rounding; n into the exponent. The bits of a NaN must not
// meet the integer add.
TESSERA_FN Lanes<float> exp2_soft(const Lanes<float>& x) {
  constexpr float kRound = 12582912.0f;
  const Lanes<float> t = x + Lanes<float>(kRound);
  const Lanes<float> f = x - (t - Lanes<float>(kRound));
  Lanes<float> p = 0x1.4e2342p-13f;
  p = fma(p, f, 0x1.5faff6p-10f);
  p = fma(p, f, 0x1.3b1bap-7f);
  p = fma(p, f, 0x1.c6addcp-5f);
  p = fma(p, f, 0x1.ebfbf8p-3f);
  p = fma(p, f, 0x1.62e432p-1f);
  p = fma(p, f, 1.0f);
  Lanes<float> y = bits_to_float(float_to_bits(p) + (float_to_bits(t) << Lanes<u32>(23u)));
  y = select(x < Lanes<float>(-126.0f), Lanes<float>(0.0f), y);
  y = select(x >= Lanes<float>(128.0f), Lanes<float>(kInfinity), y);
  return select(x != x, x, y);
}

template <Exp2 Mode>
TESSERA_FN Lanes<float> exp2(const Lanes<float>& x) {
  count_exp2();
  if constexpr (Mode == Exp2::of_launch)
    return exp2_of_launch(x);
  else if constexpr (Mode == Exp2::hardware)
    return ex2(x);
  else
    return exp2_soft(x);
}

// log2(x) for x >= 0, below 1 ulp; -inf at 0, NaN below 0, NaN and +inf stay. x = 2^e m with m in
// [sqrt(1/2), sqrt(2)), f = m - 1, and log2(m) = f / ln 2 + f^2 q(f) with q of degree 8.
TESSERA_FN Lanes<float> log2_soft(const Lanes<float>& x) {
  const Lanes<bool> tiny = x < Lanes<float>(0x1p-126f);
  const Lanes<float> normal = select(tiny, x * Lanes<float>(0x1p23f), x);
  const Lanes<u32> bits = float_to_bits(normal);
  const Lanes<i32> e = Lanes<i32>(bits - Lanes<u32>(0x3f3504f3u)) >> Lanes<i32>(23);
  const Lanes<float> m = bits_to_float(bits - (Lanes<u32>(e) << Lanes<u32>(23u)));
  const Lanes<float> f = m - Lanes<float>(1.0f);  // exact
  Lanes<float> q = -0x1.c227d6p-4f;
  q = fma(q, f, 0x1.7d4dp-3f);
  q = fma(q, f, -0x1.874f48p-3f);
  q = fma(q, f, 0x1.a30fb8p-3f);
  q = fma(q, f, -0x1.eac2f6p-3f);
  q = fma(q, f, 0x1.277e3cp-2f);
  q = fma(q, f, -0x1.715a4ap-2f);
  q = fma(q, f, 0x1.ec7092p-2f);
  q = fma(q, f, -0x1.71547p-1f);
  // What the leading product and the sum with e lose goes back in: 1 / ln 2 has two parts.
  const Lanes<float> lead = f * Lanes<float>(kLog2E);
  Lanes<float> rest = fma(f, Lanes<float>(kLog2E), Lanes<float>(0.0f) - lead);
  rest = fma(f * f, q, fma(f, Lanes<float>(0x1.4ae0cp-26f), rest));
  const Lanes<float> whole = Lanes<float>(e - select(tiny, Lanes<i32>(23), Lanes<i32>(0)));
  const Lanes<float> sum = whole + lead;
  const Lanes<float> y = sum + ((lead - (sum - whole)) + rest);
  Lanes<float> r = select(x == Lanes<float>(0.0f), Lanes<float>(-kInfinity), y);
  r = select((x == Lanes<float>(kInfinity)) | (x != x), x, r);
  return select(x < Lanes<float>(0.0f), bits_to_float(Lanes<u32>(0x7fffffffu)), r);
}

// Natural exponential and logarithm.
template <Exp2 Mode>
TESSERA_FN Lanes<float> exp(const Lanes<float>& x) {
  return exp2<Mode>(x * Lanes<float>(kLog2E));
}
TESSERA_FN Lanes<float> log_soft(const Lanes<float>& x) {
  return log2_soft(x) * Lanes<float>(kLn2);
}

}  // namespace tessera
