// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "kernels/warp/types.h"

namespace tessera::sim {

// A 64-bit hash of two words (the finaliser of splitmix64, S. Vigna): for orders of blocks and
// warps.
constexpr u64 mix(u64 a, u64 b) {
  u64 x = a + b * 0x9e3779b97f4a7c15u + 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

}  // namespace tessera::sim
