// SPDX-License-Identifier: Apache-2.0
// The hash by which results are compared across machines, and the mixer that it shares with the
// test inputs.
#pragma once
#include <cstdint>
#include <string>

#include "kernels/warp/types.h"

namespace tessera {

// A bijection of 64-bit words in which every input bit reaches every output bit (the test measures
// it). The multipliers are the fractional digits of sqrt(2) and sqrt(3), both odd.
constexpr std::uint64_t mix64(std::uint64_t x) {
  x ^= x >> 32;
  x *= 0x6a09e667f3bcc909u;
  x ^= x >> 29;
  x *= 0xbb67ae8584caa73bu;
  return x ^ (x >> 32);
}

// Depends on the type, the count, and the order and bits of the elements. Every NaN counts as one
// pattern, since targets differ in NaN payloads; -0 and +0 differ. Each step is a bijection of the
// state, so a change to a single element always changes the result.
std::uint64_t hash_elements(Dtype dtype, const void* data, std::int64_t count);

std::string hash_hex(std::uint64_t hash);  // 16 lower-case digits

}  // namespace tessera
