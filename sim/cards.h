// SPDX-License-Identifier: Apache-2.0
// The cards that the emulator models: launch limits and tensor-core arithmetic, as data.
#pragma once
#include <string_view>

#include "kernels/warp/types.h"

namespace tessera::sim {

// How one tensor-core step rounds (MMA-Sim, arXiv 2511.10909; Fasi et al. 2021): the terms of
// `terms` products and c are cut toward zero to a multiple of 2^(E - fraction_bits), E the largest
// exponent among them, added exactly, and the sum is cut to fp32. An instruction with more products
// takes several steps.
struct MmaRule {
  int terms = 8;
  int fraction_bits = 24;
};

struct Card {
  std::string_view name;
  Arch arch;  // the newest code it runs
  int multiprocessors;
  i64 shared_per_block;  // bytes, with opt-in
  int threads_per_block;
  i64 grid_x;  // blocks; grids are one-dimensional here
  MmaRule mma;
  bool measured;  // bits were compared with the real card
};

// Limits: CUDA programming guide, technical specifications per compute capability.
constexpr Card kCards[] = {
    {"t4", Arch::sm_75, 40, 64 * 1024, 1024, 2147483647, {8, 24}, false},
    {"rtx4070", Arch::sm_89, 46, 99 * 1024, 1024, 2147483647, {8, 24}, false},
    {"h200", Arch::sm_90, 132, 227 * 1024, 1024, 2147483647, {16, 25}, true},
};

}  // namespace tessera::sim
