// SPDX-License-Identifier: Apache-2.0
// Plain types that kernels, emulator and host share. No lane, no target: this header is
// self-contained.
#pragma once
#include <cstdint>

#if defined(__CUDACC__)
#define TESSERA_HD __host__ __device__
#else
#define TESSERA_HD
#endif

namespace tessera {

using u8 = std::uint8_t;
using u16 = std::uint16_t;
using u32 = std::uint32_t;
using u64 = std::uint64_t;
using i32 = std::int32_t;
using i64 = std::int64_t;

constexpr float kLog2E = 0x1.715476p+0f;
TESSERA_HD constexpr i32 ceil_div(i32 a, i32 b) { return (a + b - 1) / b; }

// Storage types. They are bits and nothing else: no operator can touch a 16-bit pattern as if it
// were a number (Triton's interpreter once multiplied bf16 patterns as integers, triton-lang/triton
// #11584).
struct f16 {
  u16 bits;  // IEEE binary16
};
struct bf16 {
  u16 bits;  // upper half of an IEEE binary32
};

// The finite field of kFieldPrime elements: attention on it is exact, so every tiling, order and
// rescaling must give results that are equal with ==. A score stands for a small signed integer
// (its centred residue); exp(x) is kFieldBase^x; kHidden stands for -inf, whose weight is 0.
constexpr u32 kFieldPrime = 65521;  // the largest 16-bit prime: a product fits in 32 bits
constexpr u32 kFieldBase = 17;      // a primitive root of kFieldPrime
struct Fq {
  static constexpr u32 kHidden = 0xffffffffu;
  u32 value;

  TESSERA_HD friend constexpr Fq operator+(Fq a, Fq b) {
    return Fq{(a.value + b.value) % kFieldPrime};
  }
  TESSERA_HD friend constexpr Fq operator-(Fq a, Fq b) {
    return Fq{(a.value + kFieldPrime - b.value) % kFieldPrime};
  }
  TESSERA_HD friend constexpr Fq operator*(Fq a, Fq b) {
    return Fq{a.value * b.value % kFieldPrime};
  }
  TESSERA_HD friend constexpr bool operator==(Fq a, Fq b) { return a.value == b.value; }
  TESSERA_HD friend constexpr bool operator!=(Fq a, Fq b) { return a.value != b.value; }

  // The integer in (-p/2, p/2) that the residue stands for.
  TESSERA_HD constexpr i32 centred() const {
    return value > kFieldPrime / 2 ? i32(value) - i32(kFieldPrime) : i32(value);
  }
  TESSERA_HD static constexpr Fq of(i32 x) {
    const i32 r = x % i32(kFieldPrime);
    return Fq{u32(r < 0 ? r + i32(kFieldPrime) : r)};
  }
};
// base^exponent; 0^0 is 1.
TESSERA_HD constexpr Fq field_power(Fq base, u32 exponent) {
  Fq r{1};
  for (; exponent; exponent >>= 1, base = base * base)
    if (exponent & 1) r = r * base;
  return r;
}

// ---- conversions, as bits. One nearest-even rule for every target and ISA level (a NaN becomes
// 0x7fff, as the GPU's cvt.rn makes it); Highway 1.0.3's own conversions truncate.
TESSERA_HD constexpr u16 f32_to_bf16_bits(u32 x) {
  return (x & 0x7fffffffu) > 0x7f800000u ? u16(0x7fff) : u16((x + 0x7fffu + ((x >> 16) & 1)) >> 16);
}
TESSERA_HD constexpr u32 bf16_to_f32_bits(u16 h) { return u32(h) << 16; }

TESSERA_HD constexpr u16 f32_to_f16_bits(u32 x) {
  const u32 sign = (x >> 16) & 0x8000u, a = x & 0x7fffffffu;
  if (a > 0x7f800000u) return u16(0x7fff);
  if (a >= 0x477ff000u) return u16(sign | 0x7c00u);  // 65520 and up round to inf
  if (a < 0x38800000u) {                             // below 2^-14: units of 2^-24
    const u32 e = a >> 23;
    if (e < 102) return u16(sign);  // at most 2^-25, which ties to 0, or less
    const u32 m = (a & 0x7fffffu) | 0x800000u, drop = 126 - e;  // 14..24 bits leave
    const u32 half = 1u << (drop - 1), rest = m & ((1u << drop) - 1);
    const u32 q = m >> drop;
    return u16(sign | (q + (rest > half || (rest == half && (q & 1)))));
  }
  return u16(sign | ((a - 0x38000000u + 0xfffu + ((a >> 13) & 1)) >> 13));
}
TESSERA_HD constexpr u32 f16_to_f32_bits(u16 h) {
  const u32 sign = u32(h & 0x8000u) << 16, e = (h >> 10) & 31u;
  u32 m = h & 0x3ffu;
  if (e == 31) return sign | 0x7f800000u | (m << 13);
  if (e) return sign | ((e + 112) << 23) | (m << 13);
  if (!m) return sign;
  u32 k = 113;  // a subnormal: shift its leading one up to the implicit place
  while (!(m & 0x400u)) m <<= 1, --k;
  return sign | (k << 23) | ((m & 0x3ffu) << 13);
}

// ---- what a launch is about
enum class Arch { sm_75 = 75, sm_89 = 89, sm_90 = 90 };  // whose code
enum class Dtype { f32, f16, bf16, field };
// 2^x by a polynomial on FMA, the same bits everywhere; or by ex2.approx. The emulator compiles a
// kernel once for both: there the launch chooses.
enum class Exp2 { soft, hardware, of_launch };

// A band of visible keys: key j is visible to query i when
//   -left <= j - (i + shift) <= right  and  j < k_len.
// kUnlimited in left or right drops that side. Causal is right = 0.
struct Band {
  static constexpr i64 kUnlimited = i64(1) << 62;
  i64 left = kUnlimited, right = kUnlimited, shift = 0;

  // The band as query i sees keys i - key_left() .. i + key_right(). Lengths are at most 2^30, so
  // that limits cut to +-2^30 mean the same and fit in 32 bits.
  constexpr i32 key_left() const { return cut(left - shift); }
  constexpr i32 key_right() const { return cut(right + shift); }

 private:
  static constexpr i32 cut(i64 x) {
    constexpr i64 kLimit = i64(1) << 30;
    return i32(x < -kLimit ? -kLimit : x > kLimit ? kLimit : x);
  }
};

struct TilePosition {
  int row, col;
};
// What lies `offset` bytes behind the first element of a (rows, cols) tile of `element` bytes each.
using PositionOf = TilePosition (*)(int rows, int cols, int element, u32 offset);

// Strides in elements of one (batch, heads, rows, head_dim) tensor, innermost stride 1. 0 is
// allowed.
struct Strides {
  i64 batch = 0, head = 0, row = 0;
};

// What an attention kernel is launched with. Pointers are to element (0, 0, 0, 0).
struct AttentionArgs {
  const void *q = nullptr, *k = nullptr, *v = nullptr;
  void* o = nullptr;
  void* lse = nullptr;  // (batch, heads, q_len) contiguous; fp32, field: u32
  Strides q_stride, k_stride, v_stride, o_stride;
  i32 batch = 0, heads = 0, heads_kv = 0;  // query head h reads key head h / (heads / heads_kv)
  i32 q_len = 0, k_len = 0, head_dim = 0;
  i32 key_left = 0, key_right = 0;  // query i sees keys i - key_left .. i + key_right (Band)
  float scale = 0;
  // For kernels that fold the scale into the exponential: its magnitude (1 where it is 0; its sign
  // belongs to Q) and that times log2 e.
  float magnitude = 1, magnitude_log2e = 1;

  void set_scale(float x) {
    constexpr float kMost = 0x1.6p+127f;  // kMost log2 e is finite
    scale = x;
    magnitude = x < 0 ? -x : x > 0 ? x : 1;
    magnitude_log2e = (magnitude < kMost ? magnitude : kMost) * kLog2E;
  }
};

struct MatmulArgs {  // C (m, n) = A (m, k) . B (k, n), rows contiguous
  const void *a = nullptr, *b = nullptr;
  void* c = nullptr;
  i64 a_row = 0, b_row = 0, c_row = 0;  // row strides in elements
  i32 m = 0, n = 0, k = 0;
};

struct WeightedSumArgs {  // y (rows) = X (rows, cols) . w (cols)
  const void *x = nullptr, *w = nullptr;
  void* y = nullptr;
  i64 x_row = 0;
  i32 rows = 0, cols = 0;
};

}  // namespace tessera
