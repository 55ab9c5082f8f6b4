// SPDX-License-Identifier: Apache-2.0
#include "sim/fiber.h"

#include <gtest/gtest.h>

#include <cstring>
#include <thread>
#include <vector>

namespace tessera::sim {
namespace {

struct Counter {
  Fiber fiber;
  int steps = 0, limit = 0;
  double sum = 0;
  const void* local = nullptr;
};
void count(void* p) {
  Counter& c = *static_cast<Counter*>(p);
  volatile int mine = 0;  // lives on the fiber's stack from switch to switch
  c.local = const_cast<const int*>(&mine);
  double sum = 0;
  for (int i = 0; i < c.limit; i++) {
    mine = mine + 1;
    sum += 0.5 * i;
    c.steps = mine;
    c.fiber.suspend();
  }
  c.sum = sum;
}

TEST(Fiber, ResumesWhereItSuspended) {
  Counter c;
  c.limit = 3;
  c.fiber.start(count, &c);
  for (int i = 1; i <= 3; i++) {
    EXPECT_TRUE(c.fiber.resume());
    EXPECT_EQ(c.steps, i);
  }
  EXPECT_FALSE(c.fiber.resume());
  EXPECT_EQ(c.sum, 1.5);
}

TEST(Fiber, ManySwitchesBetweenMany) {
  constexpr int kFibers = 32, kSwitches = 20000;
  std::vector<Counter> all(kFibers);
  for (int i = 0; i < kFibers; i++) {
    all[std::size_t(i)].limit = kSwitches + i;
    all[std::size_t(i)].fiber.start(count, &all[std::size_t(i)]);
  }
  int running = kFibers;
  while (running) {
    running = 0;
    for (Counter& c : all)
      if (c.steps < c.limit || c.sum == 0) running += c.fiber.resume();
  }
  for (const Counter& c : all) {
    EXPECT_EQ(c.steps, c.limit);
    EXPECT_EQ(c.sum, 0.25 * c.limit * (c.limit - 1.0));
  }
}

TEST(Fiber, KeepsItsStackFromRunToRun) {
  Counter c;
  const void* first = nullptr;
  for (int run = 0; run < 1000; run++) {
    c.limit = run % 3, c.steps = 0;
    c.fiber.start(count, &c);
    while (c.fiber.resume()) {
    }
    EXPECT_EQ(c.steps, c.limit);
    if (run == 0) first = c.local;
    EXPECT_EQ(c.local, first);
  }
}

// Kernels keep their register tiles on the stack.
template <std::size_t Bytes = 8192>
__attribute__((noinline)) int use_stack(Counter& c, int depth) {
  volatile char block[Bytes];
  std::memset(const_cast<char*>(block), depth, sizeof block);
  if (depth % 16 == 0) c.fiber.suspend();
  const int below = depth ? use_stack<Bytes>(c, depth - 1) : 0;
  return below + block[depth];
}
TEST(Fiber, DeepStacks) {
  Counter c;
  c.fiber.start(
      [](void* p) { static_cast<Counter*>(p)->steps = use_stack(*static_cast<Counter*>(p), 50); },
      &c);
  int switches = 0;
  while (c.fiber.resume()) switches++;
  EXPECT_EQ(switches, 4);
  EXPECT_EQ(c.steps, 50 * 51 / 2);
}
// As after a deadlock. Under AddressSanitizer the new run's frames lie across the red zones that
// the abandoned one has left.
TEST(Fiber, AnAbandonedRunStartsAnew) {
  Counter c;
  c.fiber.start([](void* p) { use_stack<500>(*static_cast<Counter*>(p), 100); }, &c);
  for (int i = 0; i < 7; i++) EXPECT_TRUE(c.fiber.resume());  // down to depth 0
  c.fiber.start(
      [](void* p) { static_cast<Counter*>(p)->steps = use_stack(*static_cast<Counter*>(p), 10); },
      &c);
  EXPECT_TRUE(c.fiber.resume());
  EXPECT_FALSE(c.fiber.resume());
  EXPECT_EQ(c.steps, 10 * 11 / 2);
}
// ThreadSanitizer keeps a call stack of its own, which overflows if it is not told of the switches.
TEST(Fiber, ManyAbandonedRuns) {
  Counter c;
  for (int run = 0; run < 2000; run++) {
    c.fiber.start([](void* p) { use_stack<64>(*static_cast<Counter*>(p), 63); }, &c);
    for (int i = 0; i < 4; i++) ASSERT_TRUE(c.fiber.resume());
  }
}
TEST(FiberDeathTest, AnOverflowFaults) {
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_DEATH(
      {
        Counter c;
        c.fiber.start(
            [](void* p) {
              static_cast<Counter*>(p)->steps = use_stack(*static_cast<Counter*>(p), 100);
            },
            &c);
        while (c.fiber.resume()) {
        }
      },
      "");
}

TEST(Fiber, OnSeveralThreadsAtOnce) {
  std::vector<std::thread> threads;
  std::vector<double> sums(4);
  for (std::size_t t = 0; t < sums.size(); t++)
    threads.emplace_back([&, t] {
      Counter c;
      c.limit = 5000;
      c.fiber.start(count, &c);
      while (c.fiber.resume()) {
      }
      sums[t] = c.sum;
    });
  for (std::thread& t : threads) t.join();
  for (double s : sums) EXPECT_EQ(s, 0.25 * 5000 * 4999);
}

}  // namespace
}  // namespace tessera::sim
