// SPDX-License-Identifier: Apache-2.0
// Compiled once an ISA level: Highway must have picked that level's instructions. With
// -march=x86-64-v3 alone it falls back to SSSE3 (google/highway #606), which gives the same bits at
// a third of the speed, so that nothing else would notice.
#define HWY_COMPILE_ONLY_STATIC
#include <hwy/highway.h>

static_assert(HWY_TARGET == TESSERA_EXPECTED_TARGET,
              "the flags of this level do not select its vectors");
