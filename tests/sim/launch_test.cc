// SPDX-License-Identifier: Apache-2.0
// Launches: limits of the card, every block once, host threads.
#include "sim/launch.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "sim/instance.h"
#include "tests/sim/run_kernel.h"

namespace tessera::sim {
namespace {

// A kernel as the tables have them: a struct with its configuration.
struct SumArgs {
  const float* x;
  float* y;
  i32 blocks;
};
struct BlockSum {
  using Args = SumArgs;
  static constexpr Config kConfig{.arch = Arch::sm_89, .warps = 2};
  static constexpr int kSharedBytes = 256;
  static i64 grid(const Args& p) { return p.blocks; }
  static TESSERA_FN void run(const Args& p) {
    tessera::name_shared("partial", shared_base(), 256, 2, 32, 4);
    const Lanes<i64> place = Lanes<i64>(lane_id() +
                                        Lanes<i32>(32 * warp_id() + 64 * i32(block_index())));
    Lanes<float> x = ld_global(p.x + place, Lanes<bool>(true), 0.0f);
    for (int d = 1; d < 32; d *= 2) x = x + shuffle_xor(x, d);
    st_shared(Lanes<u32>(lane_id() * 4 + Lanes<i32>(128 * warp_id())), x);
    barrier();
    Lanes<float> other;
    ld_shared(other, Lanes<u32>(lane_id() * 4 + Lanes<i32>(128 * (1 - warp_id()))));
    const Lanes<bool> first = (lane_id() == Lanes<i32>(0)) & Lanes<bool>(warp_id() == 0);
    st_global(p.y + Lanes<i64>(i64(block_index())), x + other, first);
  }
};

TEST(Launch, AKernelFromATable) {
  const Instance instance = make_instance<BlockSum>("block_sum");
  EXPECT_EQ(instance.threads, 64);
  EXPECT_EQ(instance.shared_bytes, 256);
  std::vector<float> x(64 * 9), y(9, -1);
  for (std::size_t i = 0; i < x.size(); i++) x[i] = float(i);
  const SumArgs args{x.data(), y.data(), 9};
  for (int threads = 1; threads <= 8; threads++) {
    const RunOptions run{.checks = true,
                         .threads = threads,
                         .order_seed = u64(threads),
                         .tensors = {vector("x", x.data(), i64(x.size()), Role::input),
                                     vector("y", y.data(), 9, Role::output)}};
    const Outcome o = launch(instance, launch_of(run, &args));
    EXPECT_EQ(o.error, "");
    EXPECT_TRUE(o.findings.empty());
    EXPECT_EQ(o.counters.blocks, 9u);
    EXPECT_EQ(o.counters.global_load_bytes, x.size() * 4);
    EXPECT_EQ(o.counters.global_store_bytes, 9u * 4);
    EXPECT_GE(o.seconds, 0);
    for (int b = 0; b < 9; b++) EXPECT_EQ(y[std::size_t(b)], 64.0f * 64 * float(b) + 63 * 32);
    std::fill(y.begin(), y.end(), -1.0f);
  }
}

// ---- limits: refused with a message that names the limit, before anything runs

struct Nothing {
  static inline std::atomic<int> runs{0};
};
Outcome launch_with(const Card& card, int threads, int shared_bytes, i64 blocks) {
  static i64 grid;
  grid = blocks;
  const Instance instance{"empty", threads, shared_bytes, [](const void*) { return grid; },
                          [](const void*) {
                            if (++Nothing::runs > 100) std::abort();  // it was not refused
                          }};
  Nothing::runs = 0;
  return launch(instance, launch_of({.card = card}, nullptr));
}
void expect_refused(const Outcome& o, const std::vector<std::string>& parts) {
  for (const std::string& part : parts)
    EXPECT_NE(o.error.find(part), std::string::npos) << o.error << " lacks " << part;
  EXPECT_EQ(Nothing::runs, 0);
  EXPECT_EQ(o.counters.blocks, 0u);
}

class Limits : public ::testing::TestWithParam<Card> {};
INSTANTIATE_TEST_SUITE_P(Cards, Limits, ::testing::ValuesIn(kCards),
                         [](const auto& info) { return std::string(info.param.name); });

TEST_P(Limits, SharedMemory) {
  const Card& card = GetParam();
  const int limit = int(card.shared_per_block);
  EXPECT_EQ(launch_with(card, 32, limit, 1).error, "");
  EXPECT_EQ(Nothing::runs, 1);
  expect_refused(launch_with(card, 32, limit + 1, 1),
                 {"empty", std::string(card.name), "shared memory", std::to_string(limit + 1),
                  "limit", std::to_string(limit)});
}
TEST_P(Limits, Threads) {
  const Card& card = GetParam();
  EXPECT_EQ(launch_with(card, 1024, 0, 1).error, "");
  EXPECT_EQ(Nothing::runs, 32);
  expect_refused(launch_with(card, 1056, 0, 1),
                 {"empty", std::string(card.name), "1056 threads", "limit is 1024"});
}
TEST_P(Limits, Grid) {
  const Card& card = GetParam();
  expect_refused(launch_with(card, 32, 0, i64(1) << 31),
                 {"empty", std::string(card.name), "2147483648 blocks", "limit is 2147483647"});
  const Instance instance{"empty", 32, 0, nullptr, nullptr};
  EXPECT_EQ(broken_limit(instance, card, 2147483647), "");
}
TEST(Limits, AreThoseOfTheCards) {  // CUDA programming guide, 64, 99 and 227 KB
  EXPECT_EQ(kCards[0].shared_per_block, 65536);
  EXPECT_EQ(kCards[1].shared_per_block, 101376);
  EXPECT_EQ(kCards[2].shared_per_block, 232448);
}

TEST(Launch, NoBlocksIsNoError) {
  const Outcome o = launch_with(kCards[1], 32, 1024, 0);
  EXPECT_EQ(o.error, "");
  EXPECT_EQ(Nothing::runs, 0);
  EXPECT_EQ(o.counters.blocks, 0u);
}

// ---- blocks

TEST(Launch, EveryBlockOnceInEveryOrder) {
  std::vector<i64> sizes{256, 1000, 1024, 4096, 5040, 65537};
  for (i64 n = 1; n <= 70; n++) sizes.push_back(n);
  for (const i64 n : sizes) {
    std::set<std::vector<u32>> orders;
    for (u64 seed = 0; seed < (n > 1100 ? 4u : 12u); seed++) {
      std::vector<u32> order;
      run_kernel({.blocks = n, .order_seed = seed}, [&] { order.push_back(block_index()); });
      std::vector<u8> seen(std::size_t(n), 0);
      for (const u32 b : order) {
        ASSERT_LT(b, n);
        seen[b]++;
      }
      for (const u8 s : seen) ASSERT_EQ(s, 1) << n << " blocks, seed " << seed;
      if (seed == 0) {
        for (i64 i = 0; i < n; i++) ASSERT_EQ(order[std::size_t(i)], u32(i));
      }
      orders.insert(order);
    }
    if (n > 20) {
      EXPECT_GT(orders.size(), 2u) << n;
    }
  }
}

TEST(Launch, EveryBlockOnceOnEveryNumberOfThreads) {
  for (int threads = 1; threads <= 8; threads++)
    for (const i64 n : {1, 3, 8, 500}) {
      std::vector<std::atomic<int>> seen(static_cast<std::size_t>(n));
      const Outcome o = run_kernel({.blocks = n, .threads = threads, .order_seed = u64(threads)},
                                   [&] { seen[block_index()]++; });
      for (const auto& s : seen) ASSERT_EQ(s, 1);
      EXPECT_EQ(o.counters.blocks, u64(n));
    }
}

// As many blocks at once as threads: each waits, for a while, until all are there.
TEST(Launch, ThreadsRunAtTheSameTime) {
  for (int threads : {2, 4, 8}) {
    std::atomic<int> inside{0};
    std::mutex mutex;
    std::set<std::thread::id> ids;
    run_kernel({.blocks = threads, .threads = threads}, [&] {
      {
        const std::lock_guard<std::mutex> lock(mutex);
        ids.insert(std::this_thread::get_id());
      }
      inside++;
      const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
      while (inside < threads && std::chrono::steady_clock::now() < end) std::this_thread::yield();
    });
    EXPECT_EQ(inside, threads);
    EXPECT_EQ(ids.size(), std::size_t(threads));
  }
}

// What a block leaves in shared memory is gone for the next one.
TEST(Launch, SharedMemoryStartsAsPoison) {
  std::vector<u32> found;
  run_kernel({.blocks = 5, .shared_bytes = 128}, [&] {
    tessera::name_shared("S", 0, 128, 1, 32, 4);
    Lanes<u32> x;
    ld_shared(x, Lanes<u32>(lane_id() * 4));
    found.push_back(x.v[9]);
    st_shared(Lanes<u32>(lane_id() * 4), Lanes<u32>(1u));
  });
  EXPECT_EQ(found, std::vector<u32>(5, kPoisonBits));
}

}  // namespace
}  // namespace tessera::sim
