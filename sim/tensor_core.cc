// SPDX-License-Identifier: Apache-2.0
// The exact rule in vectors. For each output, E is the largest exponent of its terms (an exponent
// of a product is the sum of its factors' exponents; subnormals keep the smallest one). Every term
// is scaled by 2^(F - E) and cut to an integer by a truncating conversion: products of 16-bit types
// are exact in fp32, so that is four vector operations a term. The integers are added exactly and
// the sum is cut to 24 bits. Outside the range where fp32 can do this (|E| > 100, inf, NaN, a sum
// beyond int32) one instruction takes the scalar path, which has no limits.
#include "sim/tensor_core.h"

#define HWY_COMPILE_ONLY_STATIC
#include <hwy/highway.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>

namespace tessera::sim {
namespace hn = hwy::HWY_NAMESPACE;

// A lambda that is called more than once stays a call otherwise, with its vectors in memory.
#define TESSERA_INLINE_LAMBDA __attribute__((always_inline))

namespace {

// ---- scalar

struct Format {  // of a 16-bit type
  int exponent_bits, fraction_bits;
  int bias() const { return (1 << (exponent_bits - 1)) - 1; }
};
constexpr Format kF16{5, 10}, kBf16{8, 7};

float canonical_nan() { return __builtin_bit_cast(float, 0x7fffffffu); }

}  // namespace

float mma_step_scalar(float c, const u16* a, const u16* b, int n, bool is_bf16, int fraction_bits) {
  const Format f = is_bf16 ? kBf16 : kF16;
  const int mask = (1 << f.exponent_bits) - 1;
  struct Term {
    bool negative;
    u64 significand;  // value = significand * 2^(exponent - point)
    int exponent, point;
  };
  Term terms[17];
  int count = 0;
  bool special = false;
  float special_sum = 0;
  const auto to_float = [&](u16 h) {
    return __builtin_bit_cast(float, is_bf16 ? bf16_to_f32_bits(h) : f16_to_f32_bits(h));
  };
  for (int i = 0; i < n; i++) {
    const int ea = a[i] >> f.fraction_bits & mask, eb = b[i] >> f.fraction_bits & mask;
    if (ea == mask || eb == mask) special = true, special_sum += to_float(a[i]) * to_float(b[i]);
    const auto significand = [&](u16 h, int e) {
      return u64(h & ((1 << f.fraction_bits) - 1)) | (e ? u64(1) << f.fraction_bits : 0);
    };
    terms[count++] = {((a[i] ^ b[i]) & 0x8000) != 0, significand(a[i], ea) * significand(b[i], eb),
                      std::max(ea, 1) + std::max(eb, 1) - 2 * f.bias(), 2 * f.fraction_bits};
  }
  const u32 cb = __builtin_bit_cast(u32, c);
  const int ec = cb >> 23 & 255;
  if (ec == 255) special = true, special_sum += c;
  if (special) return std::isnan(special_sum) ? canonical_nan() : special_sum;
  terms[count++] = {(cb >> 31) != 0, (cb & 0x7fffffu) | (ec ? 0x800000u : 0), std::max(ec, 1) - 127,
                    23};

  bool any = false;
  int top = 0;  // E
  for (int i = 0; i < count; i++)
    if (terms[i].significand)
      top = any ? std::max(top, terms[i].exponent) : terms[i].exponent, any = true;
  if (!any) return 0.0f;
  i64 sum = 0;  // in units of 2^(E - F)
  for (int i = 0; i < count; i++) {
    if (!terms[i].significand) continue;  // a zero's exponent may be far above E
    const int shift = terms[i].exponent - terms[i].point - (top - fraction_bits);
    const u64 cut = shift >= 0    ? terms[i].significand << shift
                    : shift < -63 ? 0
                                  : terms[i].significand >> -shift;
    sum += terms[i].negative ? -i64(cut) : i64(cut);
  }
  if (sum == 0) return 0.0f;
  u64 magnitude = u64(std::llabs(sum));
  int unit = top - fraction_bits;
  const int bits = 64 - __builtin_clzll(magnitude);
  const int drop = std::max(bits - 24, -149 - unit);  // to 24 bits, or to what a subnormal keeps
  if (drop >= 64) return 0.0f;
  if (drop > 0) magnitude >>= drop, unit += drop;
  const float r = float(std::ldexp(double(magnitude), unit));  // exact, or inf
  return sum < 0 ? -r : r;
}

namespace {

// A and B as matrices of 16-bit patterns, from fragments.
template <int K>
void unpack(const u32* a, const u32* b, u16 (&am)[16][K], u16 (&bm)[8][K]) {
  for (int lane = 0; lane < 32; lane++) {
    const int g = lane / 4, t = lane % 4;
    for (int s = 0; s < K / 8; s++)
      for (int half = 0; half < 2; half++) {
        for (int h = 0; h < 2; h++)
          am[g + 8 * h][8 * s + 2 * t + half] = u16(a[32 * (2 * s + h) + lane] >> (16 * half));
        bm[g][8 * s + 2 * t + half] = u16(b[32 * s + lane] >> (16 * half));
      }
  }
}

template <bool IsBf16, int K>
__attribute__((noinline)) void mma_scalar(float* c, const u32* a, const u32* b, MmaState& state) {
  const MmaRule& rule = state.rule;
  u16 am[16][K], bm[8][K];
  unpack<K>(a, b, am, bm);
  const int terms = std::min(K, rule.terms);
  for (int lane = 0; lane < 32; lane++)
    for (int i = 0; i < 4; i++) {
      const int row = lane / 4 + 8 * (i / 2), col = lane % 4 * 2 + i % 2;
      float& x = c[32 * i + lane];
      for (int k = 0; k < K; k += terms)
        x = mma_step_scalar(x, &am[row][k], &bm[col][k], terms, IsBf16, rule.fraction_bits);
    }
}

// ---- vectors of N lanes, N at most 16; a register is 32 / N of them

using DF = hn::CappedTag<float, 16>;
using DU = hn::RebindToUnsigned<DF>;
using DI = hn::RebindToSigned<DF>;
using DI16 = hn::Repartition<int16_t, DF>;
using DU16 = hn::Repartition<uint16_t, DF>;
using VF = hn::Vec<DF>;
using VU = hn::Vec<DU>;
using VI = hn::Vec<DI>;
constexpr DF df;
constexpr DU du;
constexpr DI di;
constexpr DI16 di16;
constexpr DU16 du16;
constexpr int N = int(HWY_MIN(HWY_LANES(float), 16));
static_assert(N == 4 || N == 8 || N == 16);

// Highway's conversions mind values beyond int32, which costs as much as the product they serve;
// ours are in range by construction, or the result is thrown away.
HWY_INLINE VI truncate(VF x) {
#if HWY_TARGET <= HWY_AVX3
  return VI{_mm512_cvttps_epi32(x.raw)};
#elif HWY_TARGET == HWY_AVX2
  return VI{_mm256_cvttps_epi32(x.raw)};
#elif HWY_TARGET <= HWY_SSSE3
  return VI{_mm_cvttps_epi32(x.raw)};
#else
  return hn::ConvertTo(di, x);
#endif
}
// An integer to fp32, toward zero: where the conversion rounded away from zero, step back by one.
HWY_INLINE VF to_float_truncating(VI s) {
#if HWY_TARGET <= HWY_AVX3
  return VF{_mm512_cvt_roundepi32_ps(s.raw, _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC)};
#else
  const VI magnitude = hn::Abs(s);
  const VF rounded = hn::ConvertTo(df, magnitude);
  const VI over = hn::VecFromMask(di, hn::Gt(truncate(rounded), magnitude));  // -1 where too large
  const VI bits = hn::Add(hn::BitCast(di, rounded), over);
  return hn::BitCast(df, hn::Or(bits, hn::And(s, hn::Set(di, int32_t(0x80000000u)))));
#endif
}

// Half e (0 low, 1 high) of packed pairs, widened to fp32. fp16 inf and NaN come out finite and
// wrong: who may meet them has looked at the exponents before.
template <bool IsBf16, int E>
HWY_INLINE VF widen(VU x) {
  if constexpr (IsBf16) {
    if constexpr (E == 0)
      return hn::BitCast(df, hn::ShiftLeft<16>(x));
    else
      return hn::BitCast(df, hn::And(x, hn::Set(du, 0xffff0000u)));
  } else {
#if HWY_TARGET <= HWY_AVX3
    return VF{
        _mm512_cvtph_ps(_mm512_cvtepi32_epi16(E == 0 ? x.raw : _mm512_srli_epi32(x.raw, 16)))};
#else
    const VU h = E == 0 ? hn::ShiftLeft<16>(x) : x;  // in the upper half
    const VU sign = hn::And(h, hn::Set(du, 0x80000000u));
    const VU magnitude = hn::ShiftRight<3>(hn::And(h, hn::Set(du, 0x7fff0000u)));
    const VF m = hn::Mul(hn::BitCast(df, magnitude),
                         hn::Set(df, 0x1p112f));  // moves the bias from 15 to 127
    return hn::BitCast(df, hn::Or(hn::BitCast(du, m), sign));
#endif
  }
}
// fp16 inf and NaN as well: the fma chain follows IEEE.
template <bool IsBf16, int E>
HWY_INLINE VF widen_all(VU x) {
  VF w = widen<IsBf16, E>(x);
  if constexpr (!IsBf16 && HWY_TARGET > HWY_AVX3) {
    const VU bits = hn::BitCast(du, w);
    const VU magnitude = hn::And(bits, hn::Set(du, 0x7fffffffu));
    const auto special = hn::Ge(hn::BitCast(df, magnitude), hn::Set(df, 0x1p16f));
    w = hn::IfThenElse(special, hn::BitCast(df, hn::Or(bits, hn::Set(du, 0x7f800000u))), w);
  }
  return w;
}

// Leaves *p in memory, where a broadcasting load is one operation; compilers would rather keep it
// in registers that they do not have, and shuffle.
HWY_INLINE void keep_in_memory(const void* p) { asm volatile("" : : "r"(p) : "memory"); }

// B, turned so that the four lanes of every row find their columns: out holds, for k pair after k
// pair and column parity after column parity, the packed pairs of columns parity, parity + 2,
// parity + 4, parity + 6. It stays in registers: narrow stores under wide loads would stall every
// instruction for its predecessor.
using D128 = hn::Full128<u32>;
using V128 = hn::Vec<D128>;
HWY_INLINE VU join(const V128* q) {  // N / 4 of them
#if HWY_MAX_BYTES >= 64
  const hn::FixedTag<u32, 8> half;
  return hn::Combine(du, hn::Combine(half, q[3], q[2]), hn::Combine(half, q[1], q[0]));
#elif HWY_MAX_BYTES >= 32
  return hn::Combine(du, q[1], q[0]);
#else
  return q[0];
#endif
}
template <int K>
HWY_INLINE void turn_b(const u32* b, VU (&out)[K / 2 * 8 / N]) {
  const D128 d;
  const hn::Full128<u64> d64;
  V128 q[K / 2 * 2];  // [k pair][parity]
  for (int s = 0; s < K / 8; s++)
    for (int p = 0; p < 2; p++) {  // a 4x4 transpose of rows p, p + 2, p + 4, p + 6 of 4 lanes each
      const u32* from = b + 32 * s + 4 * p;
      const V128 r0 = hn::Load(d, from), r1 = hn::Load(d, from + 8), r2 = hn::Load(d, from + 16),
                 r3 = hn::Load(d, from + 24);
      const auto a = hn::BitCast(d64, hn::InterleaveLower(d, r0, r1)),
                 c = hn::BitCast(d64, hn::InterleaveLower(d, r2, r3));
      const auto e = hn::BitCast(d64, hn::InterleaveUpper(d, r0, r1)),
                 g = hn::BitCast(d64, hn::InterleaveUpper(d, r2, r3));
      q[8 * s + p] = hn::BitCast(d, hn::InterleaveLower(d64, a, c));
      q[8 * s + 2 + p] = hn::BitCast(d, hn::InterleaveUpper(d64, a, c));
      q[8 * s + 4 + p] = hn::BitCast(d, hn::InterleaveLower(d64, e, g));
      q[8 * s + 6 + p] = hn::BitCast(d, hn::InterleaveUpper(d64, e, g));
    }
  for (int i = 0; i < K / 2 * 8 / N; i++) out[i] = join(q + i * (N / 4));
}

HWY_INLINE VF multiply_add(VF a, VF b, VF c) {
#if HWY_TARGET >= HWY_SSE4  // Highway's MulAdd rounds twice there
  alignas(64) float x[N], y[N], z[N];
  hn::Store(a, df, x), hn::Store(b, df, y), hn::Store(c, df, z);
  for (int i = 0; i < N; i++) z[i] = __builtin_fmaf(x[i], y[i], z[i]);
  return hn::Load(df, z);
#else
  return hn::MulAdd(a, b, c);
#endif
}

// Exponents of packed 16-bit patterns, two a lane: zero far below everything, inf and NaN far
// above.
constexpr int kZeroExponent = -1000, kSpecialExponent = 2000;
template <bool IsBf16>
HWY_INLINE VI exponents(VU packed) {
  constexpr int kShift = IsBf16 ? 7 : 10, kMask = IsBf16 ? 255 : 31, kBias = IsBf16 ? 127 : 15;
  const auto x = hn::BitCast(du16, packed);
  const auto field = hn::BitCast(di16, hn::And(hn::ShiftRight<kShift>(x), hn::Set(du16, kMask)));
  auto e = hn::Sub(hn::Max(field, hn::Set(di16, 1)), hn::Set(di16, kBias));
  const auto zero = hn::Eq(hn::And(hn::BitCast(di16, x), hn::Set(di16, 0x7fff)), hn::Zero(di16));
  e = hn::IfThenElse(zero, hn::Set(di16, kZeroExponent), e);
  e = hn::IfThenElse(hn::Eq(field, hn::Set(di16, kMask)), hn::Set(di16, kSpecialExponent), e);
  return hn::BitCast(di, e);
}
HWY_INLINE VI exponent_of_c(VF c) {  // inf and NaN: 128, out of the vector code's range by itself
  const VI magnitude = hn::BitCast(di, hn::Abs(c));
  const VI e = hn::Sub(hn::Max(hn::ShiftRight<23>(magnitude), hn::Set(di, 1)), hn::Set(di, 127));
  return hn::IfThenElse(hn::Eq(magnitude, hn::Zero(di)), hn::Set(di, kZeroExponent), e);
}
HWY_INLINE VI max_pair(VI m) {  // of the two 16-bit halves of each lane
  return hn::Max(hn::ShiftRight<16>(m), hn::ShiftRight<16>(hn::ShiftLeft<16>(m)));
}
HWY_INLINE VF power_of_two(VI e) {
  return hn::BitCast(df, hn::ShiftLeft<23>(hn::Add(e, hn::Set(di, 127))));
}
// ---- operands

enum class For { fma, exact };
template <bool IsBf16, int K, For Use>
constexpr int kKind = 1 + IsBf16 + 2 * (K == 16) + 4 * (Use == For::exact);

template <int Words>
HWY_INLINE bool equal(const u32* x, const u32* y) {
  VU differ = hn::Zero(du);
  for (int i = 0; i < Words; i += N)
    differ = hn::Or(differ, hn::Xor(hn::Load(du, x + i), hn::Load(du, y + i)));
  return hn::AllTrue(du, hn::Eq(differ, hn::Zero(du)));
}
template <bool IsBf16, For Use, int E>
HWY_INLINE VF widen_for(VU x) {
  if constexpr (Use == For::fma)
    return widen_all<IsBf16, E>(x);
  else
    return widen<IsBf16, E>(x);
}

// A: each value over its row's four lanes, so that a term of the sum is a load.
template <bool IsBf16, int K, For Use>
HWY_INLINE const MmaOperandA& operand_a(MmaState& state, const u32* bits) {
  MmaOperandA& m = state.a[reinterpret_cast<std::uintptr_t>(bits) / sizeof m.bits % 2];
  constexpr int kWords = 8 * K;
  if (m.kind == kKind<IsBf16, K, Use> && equal<kWords>(m.bits, bits)) return m;
  m.kind = kKind<IsBf16, K, Use>;
  std::memcpy(m.bits, bits, kWords * sizeof(u32));
  for (int r = 0; r < K / 4; r++)  // register 2 s + h: k pairs 4 s .. 4 s + 3 of rows g + 8 h
    for (int lane0 = 0; lane0 < 32; lane0 += N) {
      const VU x = hn::Load(du, bits + 32 * r + lane0);
      const auto spread = [&](auto d, auto v, auto* to) TESSERA_INLINE_LAMBDA {
        constexpr std::size_t kPair = 2 * 32;
        hn::Store(hn::Broadcast<0>(v), d, to);
        hn::Store(hn::Broadcast<1>(v), d, to + kPair);
        hn::Store(hn::Broadcast<2>(v), d, to + 2 * kPair);
        hn::Store(hn::Broadcast<3>(v), d, to + 3 * kPair);
      };
      spread(df, widen_for<IsBf16, Use, 0>(x), &m.value[0][r / 2 * 4][r % 2][lane0]);
      spread(df, widen_for<IsBf16, Use, 1>(x), &m.value[1][r / 2 * 4][r % 2][lane0]);
      if constexpr (Use == For::exact)
        spread(di, exponents<IsBf16>(x), &m.exponent[r / 2 * 4][r % 2][lane0]);
    }
  return m;
}
template <bool IsBf16, int K, For Use>
HWY_INLINE const MmaOperandB& operand_b(MmaState& state, const u32* bits) {
  MmaOperandB& m = state.b;
  constexpr int kWords = 4 * K;
  if (m.kind == kKind<IsBf16, K, Use> && equal<kWords>(m.bits, bits)) return m;
  m.kind = kKind<IsBf16, K, Use>;
  std::memcpy(m.bits, bits, kWords * sizeof(u32));
  VU turned[K / 2 * 8 / N];
  turn_b<K>(bits, turned);
  for (int i = 0; i < K / 2 * 8; i += N) {
    const VU x = turned[i / N];
    hn::Store(widen_for<IsBf16, Use, 0>(x), df, &m.value[0][0][0][0] + i);
    hn::Store(widen_for<IsBf16, Use, 1>(x), df, &m.value[1][0][0][0] + i);
    if constexpr (Use == For::exact) hn::Store(exponents<IsBf16>(x), di, &m.exponent[0][0][0] + i);
  }
  keep_in_memory(&m);
  return m;
}

// ---- the two arithmetics

template <bool IsBf16, int K>
void mma_fma(float* c, const u32* ra, const u32* rb, MmaState& state) {
  const MmaOperandA& a = operand_a<IsBf16, K, For::fma>(state, ra);
  const MmaOperandB& b = operand_b<IsBf16, K, For::fma>(state, rb);
  constexpr int kChunks = 32 / N < 2 ? 32 / N : 2;  // at once: their chains of sums overlap
  for (int lane0 = 0; lane0 < 32; lane0 += kChunks * N) {
    VF x[kChunks][4];
    for (int l = 0; l < kChunks; l++)
      for (int i = 0; i < 4; i++) x[l][i] = hn::Load(df, c + 32 * i + lane0 + l * N);
    for (int pair = 0; pair < K / 2; pair++)
      for (int half = 0; half < 2; half++) {
        const VF even = hn::LoadDup128(df, b.value[half][pair][0]),
                 odd = hn::LoadDup128(df, b.value[half][pair][1]);
        for (int l = 0; l < kChunks; l++) {
          const VF top = hn::Load(df, a.value[half][pair][0] + lane0 + l * N),
                   bottom = hn::Load(df, a.value[half][pair][1] + lane0 + l * N);
          x[l][0] = multiply_add(top, even, x[l][0]), x[l][1] = multiply_add(top, odd, x[l][1]);
          x[l][2] = multiply_add(bottom, even, x[l][2]);
          x[l][3] = multiply_add(bottom, odd, x[l][3]);
        }
      }
    for (int l = 0; l < kChunks; l++)
      for (int i = 0; i < 4; i++) hn::Store(x[l][i], df, c + 32 * i + lane0 + l * N);
  }
}

template <bool IsBf16, int K, int Terms, int F>
void mma_exact(float* c, const u32* ra, const u32* rb, MmaState& state) {
  constexpr int kTerms = Terms < K ? Terms : K;  // products of one step
  const MmaOperandA& a = operand_a<IsBf16, K, For::exact>(state, ra);
  const MmaOperandB& b = operand_b<IsBf16, K, For::exact>(state, rb);
  alignas(64) float result[4 * 32];
  VI highest = hn::Zero(di), overflow = hn::Zero(di);
  VU lowest = hn::Set(du, 1000u);  // of E + 600; all zero (-1000 and less) wraps to a large number
  for (int lane0 = 0; lane0 < 32; lane0 += N) {
    VF x[4];
    for (int i = 0; i < 4; i++) x[i] = hn::Load(df, c + 32 * i + lane0);
    for (int s0 = 0; s0 < K / 8; s0 += kTerms / 8) {
      // E of the four outputs, 16-bit pairs (k even, k odd) side by side
      VI m[4];
      for (int i = 0; i < 4; i++) m[i] = hn::BitCast(di, hn::Set(di16, -3000));
      for (int pair = 4 * s0; pair < 4 * s0 + kTerms / 2; pair++) {
        const VI even = hn::LoadDup128(di, b.exponent[pair][0]),
                 odd = hn::LoadDup128(di, b.exponent[pair][1]);
        const VI top = hn::Load(di, a.exponent[pair][0] + lane0),
                 bottom = hn::Load(di, a.exponent[pair][1] + lane0);
        const auto raise = [](VI& m, VI p, VI q) TESSERA_INLINE_LAMBDA {
          m = hn::BitCast(di, hn::Max(hn::BitCast(di16, m),
                                      hn::Add(hn::BitCast(di16, p), hn::BitCast(di16, q))));
        };
        raise(m[0], top, even), raise(m[1], top, odd), raise(m[2], bottom, even),
            raise(m[3], bottom, odd);
      }
      VI e[4], sum[4];
      VF scale[4];
      for (int i = 0; i < 4; i++) {
        e[i] = hn::Max(max_pair(m[i]), exponent_of_c(x[i]));
        highest = hn::Max(highest, e[i]);
        lowest = hn::Min(lowest, hn::BitCast(du, hn::Add(e[i], hn::Set(di, 600))));
        e[i] = hn::Max(e[i], hn::Set(di, -100));  // nothing but zeros: any scale gives +0
        scale[i] = power_of_two(hn::Sub(hn::Set(di, F), e[i]));
        sum[i] = hn::Zero(di);
      }
      for (int half = 0; half < 2; half++)
        for (int pair = 4 * s0; pair < 4 * s0 + kTerms / 2; pair++) {
          const VF even = hn::LoadDup128(df, b.value[half][pair][0]),
                   odd = hn::LoadDup128(df, b.value[half][pair][1]);
          const VF top = hn::Load(df, a.value[half][pair][0] + lane0),
                   bottom = hn::Load(df, a.value[half][pair][1] + lane0);
          const auto add = [](VI& s, VF p, VF q, VF scale) TESSERA_INLINE_LAMBDA {
            s = hn::Add(s, truncate(hn::Mul(hn::Mul(p, q), scale)));
          };
          add(sum[0], top, even, scale[0]), add(sum[1], top, odd, scale[1]);
          add(sum[2], bottom, even, scale[2]), add(sum[3], bottom, odd, scale[3]);
        }
      for (int i = 0; i < 4; i++) {
        // 16 products of magnitude below (2 - 2^-10)^2 2^25 fit in int32; with c the sum may not.
        const VI ci = truncate(hn::Mul(x[i], scale[i])), total = hn::Add(sum[i], ci);
        if constexpr (kTerms * 4 > 32 && F > 24)
          overflow = hn::Or(overflow, hn::AndNot(hn::Xor(sum[i], ci), hn::Xor(sum[i], total)));
        x[i] = hn::Mul(to_float_truncating(total), power_of_two(hn::Sub(e[i], hn::Set(di, F))));
      }
    }
    for (int i = 0; i < 4; i++) hn::Store(x[i], df, result + 32 * i + lane0);
  }
  const auto bad = hn::Or(hn::Or(hn::Gt(highest, hn::Set(di, 100)), hn::Lt(overflow, hn::Zero(di))),
                          hn::RebindMask(di, hn::Lt(lowest, hn::Set(du, 500u))));
  if (HWY_UNLIKELY(!hn::AllFalse(di, bad))) return mma_scalar<IsBf16, K>(c, ra, rb, state);
  std::memcpy(c, result, sizeof result);
}

template <bool IsBf16, int K>
MmaFunction choose(MmaMode mode, const MmaRule& rule) {
  if (mode == MmaMode::fma) return mma_fma<IsBf16, K>;
  if (mode == MmaMode::exact) {
    if (rule.terms == 8 && rule.fraction_bits == 24) return mma_exact<IsBf16, K, 8, 24>;
    if (rule.terms == 16 && rule.fraction_bits == 25) return mma_exact<IsBf16, K, 16, 25>;
  }
  return mma_scalar<IsBf16, K>;  // a rule without vector code
}

}  // namespace

MmaFunction mma_function(bool is_bf16, int k, MmaMode mode, const MmaRule& rule) {
  if (k == 8) return is_bf16 ? nullptr : choose<false, 8>(mode, rule);
  return is_bf16 ? choose<true, 16>(mode, rule) : choose<false, 16>(mode, rule);
}

}  // namespace tessera::sim
