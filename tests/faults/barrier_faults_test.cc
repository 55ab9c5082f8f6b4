// SPDX-License-Identifier: Apache-2.0
// Barriers that are not met: reported, with where every warp is, and without a hang.
#include "tests/faults/verdict.h"

namespace tessera::faults {
namespace {

const std::string kFile = "barrier_faults_test.cc";

TEST(Barrier, Clean) {
  expect_silence({.warps = 4, .blocks = 3}, [] {
    barrier();
    barrier(1 + warp_id() / 2, 2);
    barrier();
  });
}
TEST(Barrier, OneWarpSkipsIt) {
  Line line;
  const auto body = [&] {
    if (warp_id() != 2) barrier(line.note());
  };
  const auto o = expect_verdict({.warps = 4}, body, {"barrier"});
  const std::string waits = " waits at barrier 0 for 4 warps (" + line.at(kFile) + ")";
  expect_message(o, "barrier",
                 {"test_kernel: block 0", line.at(kFile), "warp 0" + waits, "warp 1" + waits,
                  "warp 2 has returned", "warp 3" + waits});
  // A hang is reported without checks as well: the launch could not go on.
  const auto unchecked = run_kernel({.warps = 4}, body);
  ASSERT_EQ(unchecked.findings.size(), 1u);
  EXPECT_EQ(unchecked.findings[0].check, "barrier");
}
// Other blocks run on, and the block after the stuck one starts with warps that are free.
TEST(Barrier, AStuckBlockStopsNobodyElse) {
  Line line;
  std::atomic<int> finished[8] = {};
  const auto body = [&] {
    if (block_index() != 3 || warp_id() != 0) barrier(line.note());
    finished[block_index()]++;
  };
  const auto o = expect_verdict({.warps = 2, .blocks = 8}, body, {"barrier"});
  expect_message(o, "barrier", {"block 3", "warp 0 has returned", "warp 1 waits"});
  constexpr int kLaunches = 10 * 3;
  for (int b = 0; b < 8; b++) EXPECT_EQ(finished[b], b == 3 ? kLaunches : 2 * kLaunches);
}
TEST(Barrier, WarpsAtDifferentLines) {
  Line a, b;
  const auto body = [&] {
    if (warp_id() == 1)
      barrier(b.note());
    else
      barrier(a.note());
  };
  const auto o = expect_verdict({.warps = 2}, body, {"barrier"});
  expect_message(
      o, "barrier",
      {"block 0, warp 1, " + b.at(kFile), "warp 0 meets the block's barrier at " + a.at(kFile)});
  expect_both_lines({.warps = 2}, body, "barrier", kFile, a, b);
}
// One trip more in a loop of one warp.
TEST(Barrier, WarpsInDifferentTrips) {
  Line loop, after;
  const auto o = expect_verdict({.warps = 2},
                                [&] {
                                  for (int i = 0; i < 3 + warp_id(); i++) barrier(loop.note());
                                  barrier(after.note());
                                },
                                {"barrier"});
  expect_message(o, "barrier", {loop.at(kFile), after.at(kFile)});
}
TEST(Barrier, NamedBarrierForTooMany) {
  Line line;
  const auto o = expect_verdict({.warps = 3},
                                [&] {
                                  if (warp_id() < 2) barrier(5, 3, line.note());
                                },
                                {"barrier"});
  expect_message(
      o, "barrier",
      {"warp 0 waits at barrier 5 for 3 warps (" + line.at(kFile) + ")", "warp 2 has returned"});
}
// One warp waits for two, the other for three: whether that goes on depends on who comes last.
TEST(Barrier, WarpsDisagreeOnTheCount) {
  Line two, three;
  const auto body = [&] {
    if (warp_id() == 0)
      barrier(1, 2, two.note());
    else
      barrier(1, 3, three.note());
  };
  const auto o = expect_verdict({.warps = 2}, body, {"barrier"});
  expect_message(
      o, "barrier",
      {"warp 1, " + three.at(kFile),
       "barrier 1 for 3 warps, and warp 0 waits at barrier 1 for 2 warps (" + two.at(kFile) + ")"});
  expect_both_lines({.warps = 2}, body, "barrier", kFile, two, three);
}
// A count that is too small lets warps pass: what they then do is a race.
TEST(Barrier, NamedBarrierForTooFew) {
  Line write, read;
  const auto body = [&](int count) {
    return [&, count] {
      name_shared("S", 0, 128, 1, 32, 4);
      if (warp_id() == 0) at(write.note()), st_shared(Lanes<u32>(lane_id() * 4), Lanes<u32>(1u));
      barrier(1, count);
      Lanes<u32> x;
      if (warp_id() == 1) at(read.note()), ld_shared(x, Lanes<u32>(lane_id() * 4));
    };
  };
  expect_silence({.warps = 2, .shared_bytes = 128}, body(2));
  expect_verdict({.warps = 2, .shared_bytes = 128}, body(1), {"races"});
  expect_both_lines({.warps = 2, .shared_bytes = 128}, body(1), "races", kFile, write, read);
}
TEST(Barrier, DifferentIds) {
  const auto o = expect_verdict({.warps = 2}, [] { barrier(1 + warp_id(), 2); }, {"barrier"});
  expect_message(
      o, "barrier",
      {"warp 0 waits at barrier 1 for 2 warps", "warp 1 waits at barrier 2 for 2 warps"});
}

// ---- findings as a whole

TEST(Findings, TheFirstOfALineIsDescribedAndTheRestCounted) {
  Line line;
  const auto o = expect_verdict({.warps = 2, .blocks = 6, .shared_bytes = 128},
                                [&] {
                                  name_shared("S", 0, 128, 1, 32, 4);
                                  if (warp_id() == 0 || block_index() < 2) return;
                                  Lanes<u32> x;
                                  at(line.note()), ld_shared(x, Lanes<u32>(lane_id() * 4));
                                },
                                {"uninit"});
  ASSERT_EQ(o.findings.size(), 1u);
  EXPECT_EQ(o.findings[0].count, 4u * 32);
  expect_message(
      o, "uninit",
      {"test_kernel: block 2, warp 1, lane 0, " + line.at(kFile) + ": shared tile S(0, 0)",
       ". Repeat: again"});
}
// The same description whatever ran first.
TEST(Findings, DescriptionsDoNotDependOnTheOrder) {
  const auto body = [] {
    name_shared("S", 0, 128, 1, 32, 4);
    Lanes<u32> x;
    at(Site::here()), ld_shared(x, Lanes<u32>(lane_id() * 4));
  };
  std::string first;
  for (u64 seed = 0; seed < 10; seed++)
    for (int threads : {1, 3}) {
      const auto o = run_kernel({.warps = 4,
                                 .blocks = 9,
                                 .shared_bytes = 128,
                                 .checks = true,
                                 .threads = threads,
                                 .order_seed = seed},
                                body);
      ASSERT_EQ(o.findings.size(), 1u);
      if (first.empty()) first = o.findings[0].message;
      EXPECT_EQ(o.findings[0].message, first);
      EXPECT_EQ(o.findings[0].count, 4u * 9 * 32);
    }
}

}  // namespace
}  // namespace tessera::faults
