// SPDX-License-Identifier: Apache-2.0
// How warps of a block take turns: in any order between barriers, never past one.
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "sim/random.h"
#include "tests/sim/run_kernel.h"

namespace tessera::sim {
namespace {

void expect_silent(const Outcome& o) {
  EXPECT_EQ(o.error, "");
  for (const Finding& f : o.findings) ADD_FAILURE() << f.check << " " << f.message;
}

std::vector<int> start_order(int warps, u64 seed) {
  std::vector<int> order;
  expect_silent(
      run_kernel({.warps = warps, .order_seed = seed}, [&] { order.push_back(warp_id()); }));
  return order;
}

TEST(Scheduler, SeedsPermuteTheWarps) {
  for (int warps : {1, 2, 4, 8, 32}) {
    std::set<int> first;
    std::set<std::vector<int>> orders;
    for (u64 seed = 0; seed < 300; seed++) {
      const std::vector<int> order = start_order(warps, seed);
      EXPECT_EQ(order, start_order(warps, seed));  // reproducible
      std::vector<int> sorted = order;
      std::sort(sorted.begin(), sorted.end());
      for (int i = 0; i < warps; i++) ASSERT_EQ(sorted[std::size_t(i)], i);
      if (seed == 0) {
        EXPECT_EQ(order, sorted);
      }
      first.insert(order[0]);
      orders.insert(order);
    }
    EXPECT_EQ(first.size(), std::size_t(warps));  // each warp has been first
    EXPECT_GE(orders.size(), std::size_t(warps <= 2 ? warps : 24));
  }
}

// Blocks of one launch have orders of their own.
TEST(Scheduler, OrdersDifferFromBlockToBlock) {
  std::vector<std::vector<int>> order(40);
  expect_silent(run_kernel({.warps = 4, .blocks = 40, .order_seed = 5},
                           [&] { order[block_index()].push_back(warp_id()); }));
  EXPECT_GT(std::set<std::vector<int>>(order.begin(), order.end()).size(), 10u);
}

TEST(Scheduler, NobodyPassesABarrierEarly) {
  constexpr int kRounds = 50;
  for (int warps : {1, 2, 3, 8, 32})
    for (u64 seed = 0; seed < 10; seed++) {
      std::vector<int> arrived(kRounds);
      const Outcome o = run_kernel({.warps = warps, .order_seed = seed}, [&] {
        for (std::size_t r = 0; r < kRounds; r++) {
          arrived[r]++;
          barrier();
          EXPECT_EQ(arrived[r], warps);
        }
      });
      expect_silent(o);
      EXPECT_EQ(o.counters.barriers, u64(kRounds));
    }
}

TEST(Scheduler, NamedBarriersHoldTheirOwnWarps) {
  for (u64 seed = 0; seed < 20; seed++) {
    int arrived[3] = {}, early[3] = {};
    const Outcome o = run_kernel({.warps = 6, .checks = true, .order_seed = seed}, [&] {
      const int group = warp_id() % 3, rounds = 3 + 4 * group;  // groups meet 3, 7 and 11 times
      for (int r = 1; r <= rounds; r++) {
        arrived[group]++;
        barrier(1 + group, 2);
        early[group] += arrived[group] < 2 * r;
      }
      barrier();
    });
    expect_silent(o);
    for (int g = 0; g < 3; g++) {
      EXPECT_EQ(early[g], 0);
      EXPECT_EQ(arrived[g], 2 * (3 + 4 * g));
    }
    EXPECT_EQ(o.counters.barriers, u64(3 + 7 + 11 + 1));
  }
}

// A producer warp and three consumers, as a warp-specialised kernel has them: slots are handed over
// by a full and an empty barrier, at which they meet from different lines. The data passes, and the
// happens-before of named barriers covers it.
TEST(Scheduler, ProducerAndConsumers) {
  for (u64 seed = 0; seed < 20; seed++) {
    u32 sum[4] = {};
    const Outcome o = run_kernel(
        {.warps = 4, .shared_bytes = 256, .checks = true, .order_seed = seed}, [&] {
          tessera::name_shared("slots", 0, 256, 2, 32, 4);
          const Lanes<u32> lane_address = Lanes<u32>(lane_id() * 4);
          for (int step = 0; step < 10; step++) {
            const int full = 1 + step % 2,
                      empty = 3 + (step + 1) % 2;  // empty: the slot of the step before
            const Lanes<u32> address = lane_address + Lanes<u32>(u32(128 * (step % 2)));
            if (warp_id() == 0) {
              st_shared(address, Lanes<u32>(u32(step + 1)));
              barrier(full, 4);
              if (step > 0) barrier(empty, 4);
            } else {
              barrier(full, 4);
              if (step > 0) barrier(empty, 4);
              Lanes<u32> x;
              ld_shared(x, address);
              sum[warp_id()] += x.v[7];
            }
          }
        });
    expect_silent(o);
    for (int w = 1; w < 4; w++) EXPECT_EQ(sum[w], 55u);
  }
}

// A kernel whose warps exchange data gives the same result in every order, with checks and without.
TEST(Scheduler, ResultsDoNotDependOnTheOrder) {
  std::vector<u32> expected;
  for (bool checks : {false, true})
    for (u64 seed = 0; seed < 12; seed++) {
      std::vector<u32> out(8 * 32 * 5);
      const Outcome o = run_kernel(
          {.warps = 8,
           .blocks = 5,
           .shared_bytes = 1024,
           .checks = checks,
           .order_seed = seed,
           .tensors = {vector("out", out.data(), i64(out.size()), Role::output)}},
          [&] {
            tessera::name_shared("S", 0, 1024, 8, 32, 4);
            const auto at_warp = [](int w) {
              return Lanes<u32>(lane_id() * 4 + Lanes<i32>(128 * w));
            };
            Lanes<u32> x = Lanes<u32>(lane_id()) + Lanes<u32>(u32(warp_id() * 77) + block_index());
            for (int r = 0; r < 6; r++) {
              st_shared(at_warp(warp_id()), x);
              barrier();
              Lanes<u32> y;
              ld_shared(y, at_warp((warp_id() + 1 + r) % 8));
              x = x * Lanes<u32>(3u) + shuffle_xor(y, r + 1);
              barrier();
            }
            const Lanes<i64> place = Lanes<i64>(
                lane_id() + Lanes<i32>(32 * (warp_id() + 8 * i32(block_index()))));
            st_global(out.data() + place, x, Lanes<bool>(true));
          });
      expect_silent(o);
      if (expected.empty()) expected = out;
      EXPECT_EQ(out, expected) << "seed " << seed;
    }
}

TEST(Scheduler, AFullBlockOfThirtyTwoWarps) {
  u32 total = 0;
  const Outcome o = run_kernel({.warps = 32, .shared_bytes = 4096, .checks = true, .order_seed = 3},
                               [&] {
                                 tessera::name_shared("S", 0, 4096, 32, 32, 4);
                                 st_shared(Lanes<u32>(lane_id() * 4 + Lanes<i32>(128 * warp_id())),
                                           Lanes<u32>(u32(warp_id())));
                                 barrier();
                                 if (warp_id() == 31) {
                                   Lanes<u32> column;
                                   ld_shared(column, Lanes<u32>(lane_id() * 128));
                                   for (u32 x : column.v) total += x;
                                 }
                               });
  expect_silent(o);
  EXPECT_EQ(total, 31u * 32 / 2);
}

}  // namespace
}  // namespace tessera::sim
