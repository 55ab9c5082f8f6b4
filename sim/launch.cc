// SPDX-License-Identifier: Apache-2.0
#include "sim/launch.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <exception>
#include <memory>
#include <mutex>
#include <new>
#include <numeric>
#include <system_error>
#include <thread>

#include "sim/checker.h"
#include "sim/exp2.h"
#include "sim/random.h"

namespace tessera::sim {

namespace {

// An order of the blocks: i -> (i * step + first) mod blocks, step coprime to blocks.
struct BlockOrder {
  i64 blocks, step = 1, first = 0;
  BlockOrder(i64 n, u64 seed) : blocks(n) {
    if (!seed || n < 2) return;
    first = i64(mix(seed, 0) % u64(n));
    for (u64 k = 1; std::gcd(step = i64(mix(seed, k) % u64(n)), n) != 1; k++) {
    }
  }
  i64 operator[](i64 i) const { return i64((__int128(i) * step + first) % blocks); }
};

void add(Counters& to, const Counters& c) {
  to.mma += c.mma, to.fma += c.fma, to.exp2 += c.exp2;
  to.global_load_bytes += c.global_load_bytes, to.global_store_bytes += c.global_store_bytes;
  to.global_sectors += c.global_sectors, to.global_sectors_ideal += c.global_sectors_ideal;
  to.shared_wavefronts += c.shared_wavefronts,
      to.shared_wavefronts_ideal += c.shared_wavefronts_ideal;
  to.barriers += c.barriers;
  to.tiles_skipped += c.tiles_skipped, to.tiles_full += c.tiles_full,
      to.tiles_masked += c.tiles_masked;
  to.shared_bytes = std::max(to.shared_bytes, c.shared_bytes);
  to.blocks += c.blocks;
}

}  // namespace

std::string broken_limit(const Instance& instance, const Card& card, i64 blocks) {
  const std::string name = std::string(instance.key) + " on " + std::string(card.name) + ": ";
  if (instance.shared_bytes > card.shared_per_block)
    return name + "shared memory of " + std::to_string(instance.shared_bytes) +
           " bytes a block, the limit is " + std::to_string(card.shared_per_block);
  if (instance.threads > card.threads_per_block)
    return name + std::to_string(instance.threads) + " threads a block, the limit is " +
           std::to_string(card.threads_per_block);
  if (blocks > card.grid_x)
    return name + std::to_string(blocks) + " blocks, the limit is " + std::to_string(card.grid_x);
  return "";
}

Outcome launch(const Instance& instance, const Launch& l) {
  Outcome out;
  const i64 blocks = instance.grid(l.args);
  out.error = broken_limit(instance, l.card, blocks);
  if (!out.error.empty()) return out;

  Findings findings(instance.key, l.repeat);
  std::unique_ptr<GlobalShadow> shadow;
  if (l.checks) shadow = std::make_unique<GlobalShadow>(l.tensors, findings);
  const BlockOrder order(blocks, l.order_seed);
  std::atomic<i64> next{0};
  std::mutex mutex;

  const auto worker = [&] {
    try {
      Block b;
      b.blocks = blocks, b.warps = instance.threads / 32;
      b.shared_size = u32(instance.shared_bytes);
      b.exp2 = l.exp2 == Exp2::hardware ? exp2_rounded : exp2_polynomial;
      b.mma_rule = l.card.mma;
      b.mma[0][0] = mma_function(false, 8, l.numerics, l.card.mma);
      b.mma[0][1] = mma_function(false, 16, l.numerics, l.card.mma);
      b.mma[1][1] = mma_function(true, 16, l.numerics, l.card.mma);
      b.warp.resize(std::size_t(b.warps));
      b.findings = &findings;
      const std::size_t bytes = (b.shared_size + Checker::kSpareBytes + 1023) / 1024 * 1024;
      const std::unique_ptr<char, decltype(&std::free)> arena(
          static_cast<char*>(std::aligned_alloc(1024, bytes)), std::free);
      if (!arena) throw std::bad_alloc();
      b.shared = arena.get();
      std::unique_ptr<Checker> checker;
      if (l.checks) checker = std::make_unique<Checker>(*shadow, findings);
      b.checker = checker.get();
      for (i64 i; (i = next.fetch_add(1)) < blocks;) {
        b.index = order[i];
        std::fill_n(reinterpret_cast<u32*>(b.shared), bytes / 4,
                    kPoisonBits);  // the last block's is gone
        run_block(b, instance.entry, l.args, l.order_seed);
        b.counters.blocks++;
      }
      const std::lock_guard<std::mutex> lock(mutex);
      add(out.counters, b.counters);
    } catch (const std::exception& e) {
      const std::lock_guard<std::mutex> lock(mutex);
      out.error = e.what();
    }
  };
  const auto begin = std::chrono::steady_clock::now();
  std::vector<std::thread> pool;
  try {
    for (int i = 1; i < std::min<i64>(l.threads, blocks); i++) pool.emplace_back(worker);
  } catch (const std::system_error&) {
    // No more threads to be had: those there are give the same bits.
  }
  worker();
  for (std::thread& t : pool) t.join();
  out.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  if (shadow) shadow->finish();
  out.findings = findings.take();
  return out;
}

}  // namespace tessera::sim
