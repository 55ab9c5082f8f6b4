// SPDX-License-Identifier: Apache-2.0
// Tensor-core arithmetic: D = A B + C for one warp, fragments as kernels/tile/fragment.h lays them
// out. c: 4 registers of 32 lanes, in place; a: 2 (K = 8) or 4 (K = 16) registers; b: 1 or 2. All
// of them 64-byte aligned, as Lanes are.
#pragma once
#include "sim/block.h"

namespace tessera::sim {

enum class MmaMode {
  exact,   // the card's rule
  fma,     // a chain of fp32 FMA over k
  scalar,  // the card's rule in plain integers, one output at a time: the reference for `exact`
};

// K: 8 or 16. bf16 has no K = 8 here.
MmaFunction mma_function(bool is_bf16, int k, MmaMode mode, const MmaRule& rule);

// One step of the rule for one output: c + sum of a[i] b[i], n at most rule.terms, 16-bit patterns.
float mma_step_scalar(float c, const u16* a, const u16* b, int n, bool is_bf16, int fraction_bits);

}  // namespace tessera::sim
