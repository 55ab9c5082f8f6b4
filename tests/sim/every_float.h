// SPDX-License-Identifier: Apache-2.0
// Tests over all 2^32 inputs, or over every step-th of them, on all cores.
#pragma once
#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

#include "kernels/warp/types.h"

namespace tessera::sim {

// f(first) -> Result for the 32 bit patterns first, first + step, ... first + 31 step; results are
// merged with +=. A sample takes every step-th pattern, an odd step meeting all low bits.
template <class Result, class F>
Result for_patterns(u64 step, F f) {
  constexpr u64 kAll = u64(1) << 32, kPiece = u64(1) << 13;  // of 32 patterns
  const u64 groups = (kAll / step + 31) / 32;
  std::atomic<u64> next{0};
  const std::size_t threads = std::max(1u, std::thread::hardware_concurrency());
  std::vector<Result> part(threads);
  std::vector<std::thread> pool;
  for (std::size_t t = 0; t < threads; t++)
    pool.emplace_back([&, t] {
      Result mine{};
      for (u64 g; (g = next.fetch_add(kPiece)) < groups;)
        for (u64 i = g; i < std::min(groups, g + kPiece); i++)
          f(u32(i * 32 * step), u32(step), mine);
      part[t] = mine;
    });
  for (std::thread& t : pool) t.join();
  Result all{};
  for (const Result& r : part) all += r;
  return all;
}

}  // namespace tessera::sim
