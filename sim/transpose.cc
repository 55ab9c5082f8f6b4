// SPDX-License-Identifier: Apache-2.0
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

}  // namespace tessera::sim
