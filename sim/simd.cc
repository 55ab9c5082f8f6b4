// SPDX-License-Identifier: Apache-2.0
// What plain loops do not turn into vector code.
#define HWY_COMPILE_ONLY_STATIC
#include <hwy/highway.h>

#include "sim/memory.h"

namespace tessera::sim {
namespace hn = hwy::HWY_NAMESPACE;

void transpose_8x8(const u16* m, u32* out) {
  const hn::Full128<u16> d;
  const hn::Full128<u32> d32;
  const hn::Full128<u64> d64;
  using V = hn::Vec<hn::Full128<u16>>;
  V row[8], pairs[8], quads[8];
  for (int i = 0; i < 8; i++) row[i] = hn::Load(d, m + 8 * i);
  for (int i = 0; i < 4; i++) {  // rows 2i, 2i + 1 interleaved: columns 0-3, columns 4-7
    pairs[i] = hn::InterleaveLower(d, row[2 * i], row[2 * i + 1]);
    pairs[4 + i] = hn::InterleaveUpper(d, row[2 * i], row[2 * i + 1]);
  }
  for (int h = 0; h < 2; h++)
    for (int i = 0; i < 2; i++) {
      const auto a = hn::BitCast(d32, pairs[4 * h + 2 * i]),
                 b = hn::BitCast(d32, pairs[4 * h + 2 * i + 1]);
      quads[4 * h + i] = hn::BitCast(d, hn::InterleaveLower(d32, a, b));
      quads[4 * h + 2 + i] = hn::BitCast(d, hn::InterleaveUpper(d32, a, b));
    }
  for (int i = 0; i < 4; i++) {
    const auto a = hn::BitCast(d64, quads[2 * i]), b = hn::BitCast(d64, quads[2 * i + 1]);
    hn::Store(hn::BitCast(d32, hn::InterleaveLower(d64, a, b)), d32, out + 8 * i);
    hn::Store(hn::BitCast(d32, hn::InterleaveUpper(d64, a, b)), d32, out + 8 * i + 4);
  }
}

namespace {

// N fp32 values to fp16, to nearest even, each in a u32. Highway 1.0.3 truncates below AVX2, and
// its NaN keeps a payload.
template <class D32>
hn::Vec<D32> narrow(D32 d, hn::Vec<hn::Rebind<float, D32>> v) {
  const hn::Rebind<float, D32> df;
  const auto x = hn::BitCast(d, v), a = hn::And(x, hn::Set(d, 0x7fffffffu));
#if HWY_TARGET <= HWY_AVX2
  const hn::Rebind<hwy::float16_t, D32> dh;
  const hn::Rebind<u16, D32> dh16;
  auto r = hn::PromoteTo(d, hn::BitCast(dh16, hn::DemoteTo(dh, v)));
  (void)df;
#else
  // Below 2^-14 an fp32 addition of 0.5 rounds to units of 2^-24, to nearest even.
  const auto small = hn::Sub(hn::BitCast(d, hn::Add(hn::BitCast(df, a), hn::Set(df, 0.5f))),
                             hn::Set(d, 0x3f000000u));
  const auto odd = hn::And(hn::ShiftRight<13>(a), hn::Set(d, 1u));
  const auto normal = hn::ShiftRight<13>(
      hn::Add(hn::Add(hn::Sub(a, hn::Set(d, 0x38000000u)), hn::Set(d, 0xfffu)), odd));
  const auto inf = hn::Set(d, 0x7c00u);
  auto r = hn::IfThenElse(hn::Lt(a, hn::Set(d, 0x38800000u)), small, normal);
  r = hn::IfThenElse(hn::Gt(a, hn::Set(d, 0x477fefffu)), inf, r);
  r = hn::Or(r, hn::And(hn::ShiftRight<16>(x), hn::Set(d, 0x8000u)));
#endif
  return hn::IfThenElse(hn::Gt(a, hn::Set(d, 0x7f800000u)), hn::Set(d, 0x7fffu), r);
}

}  // namespace

void f32_to_f16(const float* in, u32* out) {
  const hn::CappedTag<u32, 32> d;
  const hn::Rebind<float, decltype(d)> df;
  for (std::size_t i = 0; i < 32; i += hn::Lanes(d))
    hn::StoreU(narrow(d, hn::LoadU(df, in + i)), d, out + i);
}
void pack_f16(const float* lo, const float* hi, u32* out) {
  const hn::CappedTag<u32, 32> d;
  const hn::Rebind<float, decltype(d)> df;
  for (std::size_t i = 0; i < 32; i += hn::Lanes(d))
    hn::StoreU(hn::Or(narrow(d, hn::LoadU(df, lo + i)),
                      hn::ShiftLeft<16>(narrow(d, hn::LoadU(df, hi + i)))),
               d, out + i);
}

}  // namespace tessera::sim
