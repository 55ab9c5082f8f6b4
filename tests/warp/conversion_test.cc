// SPDX-License-Identifier: Apache-2.0
// fp32 -> fp16 and bf16 over all 2^32 inputs: the vector body, the scalar rule of types.h, and the
// nearest even value found without either. Highway 1.0.3's conversions fail this: they truncate.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>

#if defined(__F16C__)
#include <immintrin.h>
#endif

#include "kernels/warp/warp.h"
#include "tests/sim/every_float.h"

namespace tessera {
namespace {

struct Wrong {
  u64 vector = 0, scalar = 0;
  u32 example = 0;
  Wrong& operator+=(const Wrong& o) {
    if (o.vector + o.scalar) example = o.example;
    vector += o.vector, scalar += o.scalar;
    return *this;
  }
};

bool is_nan(u32 x) { return (x & 0x7fffffffu) > 0x7f800000u; }

// The nearer of the two bf16 numbers around x; at a tie the one with an even last bit. Past the
// largest number stands 2^128, which is written as infinity.
u16 nearest_bf16(u32 x) {
  if ((x & 0x7fffffffu) == 0x7f800000u) return u16(x >> 16);
  const u32 below = (x & 0x7fffffffu) >> 16, above = below + 1;
  const auto value = [](u32 h) {
    return h == 0x7f80u ? 0x1p128 : double(std::bit_cast<float>(h << 16));
  };
  const double at = std::bit_cast<float>(x & 0x7fffffffu), down = at - value(below),
               up = value(above) - at;
  const u32 magnitude = down < up || (down == up && below % 2 == 0) ? below : above;
  return u16(magnitude | (x >> 16 & 0x8000u));
}
// The processor's own conversion where it has one. Elsewhere: scaled so that the kept bits are
// whole.
u16 nearest_f16(u32 x) {
#if defined(__F16C__)
  return u16(_cvtss_sh(std::bit_cast<float>(x), _MM_FROUND_TO_NEAREST_INT));
#else
  const double at = std::bit_cast<float>(x & 0x7fffffffu);
  const u16 sign = u16(x >> 16 & 0x8000u);
  if (at >= 65520) return u16(sign | 0x7c00u);
  const int e = at < 0x1p-14 ? -14 : std::ilogb(at);
  const auto units = u32(std::nearbyint(std::ldexp(at, 10 - e)));  // 1024..2048 above 2^-14
  return u16(sign | (units + (u32(e + 14) << 10)));
#endif
}

template <class T>
Wrong compare() {
  constexpr bool kIsBf16 = std::is_same_v<T, bf16>;
  return sim::for_patterns<Wrong>(1, [](u32 first, u32 step, Wrong& wrong) {
    Lanes<u32> x;
    for (u32 i = 0; i < 32; i++) x.v[i] = first + i * step;
    const Lanes<u32> got = narrow_bits<T>(bits_to_float(x));
    for (int i = 0; i < 32; i++) {
      const u16 scalar = kIsBf16 ? f32_to_bf16_bits(x.v[i]) : f32_to_f16_bits(x.v[i]);
      const u16 oracle = is_nan(x.v[i]) ? u16(0x7fff)
                         : kIsBf16      ? nearest_bf16(x.v[i])
                                        : nearest_f16(x.v[i]);
      if (got.v[i] == scalar && scalar == oracle) continue;
      wrong.vector += got.v[i] != oracle, wrong.scalar += scalar != oracle, wrong.example = x.v[i];
    }
  });
}

TEST(Conversion, EveryFloatToF16) {
  const Wrong wrong = compare<f16>();
  EXPECT_EQ(wrong.vector, 0u) << std::hex << wrong.example;
  EXPECT_EQ(wrong.scalar, 0u) << std::hex << wrong.example;
}
TEST(Conversion, EveryFloatToBf16) {
  const Wrong wrong = compare<bf16>();
  EXPECT_EQ(wrong.vector, 0u) << std::hex << wrong.example;
  EXPECT_EQ(wrong.scalar, 0u) << std::hex << wrong.example;
}

}  // namespace
}  // namespace tessera
