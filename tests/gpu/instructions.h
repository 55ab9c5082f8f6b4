// SPDX-License-Identifier: Apache-2.0
// Single operations over whole input spaces, reduced to a checksum that does not depend on order:
// computed on a GPU, recorded, and recomputed from the emulator's instructions.
#pragma once
#include "kernels/warp/types.h"

namespace tessera::testing {

TESSERA_HD constexpr u64 mix64(u64 a, u64 b) {
  u64 x = a * 0x9e3779b97f4a7c15u + b * 0xd1b54a32d192ed03u + 0x2545f4914f6cdd1du;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}
TESSERA_HD constexpr u32 canonical_f32(u32 x) {
  return (x & 0x7fffffffu) > 0x7f800000u ? 0x7fffffffu : x;
}
// One term of a checksum.
TESSERA_HD constexpr u64 term(u64 input, u32 output) { return mix64(input, canonical_f32(output)); }

enum class Function { exp2_soft, log2_soft, narrow_f16, narrow_bf16, reciprocal_normal };
constexpr const char* kFunctionNames[] = {"exp2_soft", "log2_soft", "narrow_f16", "narrow_bf16",
                                          "reciprocal_normal"};
// reciprocal_normal promises nothing outside 2^-100 .. 2^100.
TESSERA_HD constexpr bool in_domain(Function f, u32 x) {
  const u32 e = (x >> 23) & 255;
  return f != Function::reciprocal_normal || (e >= 27 && e < 227);
}

// A sixteenth of all inputs, in runs of 4096 spread over everything: what CI recomputes on every
// commit.
TESSERA_HD constexpr bool in_sample(u32 x) { return mix64(x >> 12, 7) % 16 == 0; }

// Fragments of mma number n: random bits (NaN, inf, subnormals and overflow among them), or numbers
// near 1.
TESSERA_HD constexpr u32 mma_input(u64 n, int reg, int lane, bool is_bf16) {
  const u32 bits = u32(mix64(n * 16 + u64(reg), u64(lane)));
  if (n % 2) return bits;
  // exponents within 2^-8 .. 2^7
  const u32 mask = is_bf16 ? 0x807f807fu : 0x83ff83ffu, shift = is_bf16 ? 7 : 10,
            bias = is_bf16 ? 119 : 7;
  const u32 lo = bias + ((bits >> 7) & 15), hi = bias + ((bits >> 24) & 15);
  return (bits & mask) | lo << shift | hi << (shift + 16);
}
TESSERA_HD constexpr u32 mma_c(u64 n, int reg, int lane) {
  const u32 bits = u32(mix64(n * 16 + 8 + u64(reg), u64(lane)));
  return n % 2 ? bits : (bits & 0x807fffffu) | (119 + ((bits >> 24) & 15)) << 23;
}
constexpr u64 kMmaCount = 1 << 15;

// The GPU's side (instructions.cu).
u64 function_on_gpu(Function f, bool sample);  // over its domain, all of it or the sample
u64 mma_on_gpu(bool is_bf16, int k);           // over kMmaCount instructions

}  // namespace tessera::testing
