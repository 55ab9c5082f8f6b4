// SPDX-License-Identifier: Apache-2.0
// Faults in the use of shared memory: bounds, uninit, races, async. Each beside its clean kernel.
#include "kernels/tile/dot.h"
#include "kernels/tile/global.h"
#include "tests/faults/verdict.h"

namespace tessera::faults {
namespace {

const std::string kFile = "shared_faults_test.cc";
using Words = SharedTile<float, 32, 32>;

Words words() { return SharedMemory().tile<Words>("S"); }
RunOptions warps(int n) { return {.warps = n, .shared_bytes = Words::kBytes}; }
// Row `row`, one column a lane.
Lanes<u32> row_address(int row) { return words().address_of(Lanes<i32>(row), lane_id()); }
void write_row(int row) { st_shared(row_address(row), Lanes<float>(1.0f)); }
Lanes<float> read_row(int row) {
  Lanes<float> x;
  ld_shared(x, row_address(row));
  return x;
}

// ---- bounds

TEST(Bounds, SharedAccessOutsideEveryTile) {
  Line line;
  const auto o = expect_verdict(
      {.warps = 1, .shared_bytes = 8192},
      [&] {
        words();
        at(line.note());
        // Lane 30 and 31 pass the tile's end; the block has memory there, and no tile.
        st_shared(Lanes<u32>(lane_id() * 4) + Lanes<u32>(u32(Words::kBytes - 120)),
                  Lanes<float>(0.0f));
      },
      {"bounds"});
  expect_message(
      o, "bounds",
      {"test_kernel: block 0, warp 0, lane 30, " + line.at(kFile),
       "write of 4 bytes at shared address 4096", "outside every shared tile", "Repeat: again"});
  EXPECT_EQ(o.findings[0].count, 2u);
}
TEST(Bounds, SharedAccessOutsideTheBlock) {
  Line line;
  const auto o = expect_verdict(warps(2),
                                [&] {
                                  words();
                                  if (warp_id() != 1) return;
                                  at(line.note());
                                  Lanes<u32> x[4];
                                  ld_shared(x, Lanes<u32>(lane_id() * 16) + Lanes<u32>(1u << 20));
                                },
                                {"bounds"});
  expect_message(
      o, "bounds",
      {"warp 1, lane 0, " + line.at(kFile), "read of 16 bytes at shared address 1048576"});
}
TEST(Bounds, MisalignedSharedAccess) {
  Line line;
  const auto o = expect_verdict(
      warps(1),
      [&] {
        words();
        at(line.note());
        const auto address = lanes_of<u32>([](int i) { return 8 * i + (i == 6 ? 4 : 0); });
        Lanes<float> x[2];
        for (int r = 0; r < 32; r++) write_row(r);
        warp_sync();
        at(line.note());
        ld_shared(x, address);
      },
      {"bounds"});
  expect_message(
      o, "bounds",
      {"lane 6, " + line.at(kFile), "read of 8 bytes at shared address 52, which is not aligned"});
  EXPECT_EQ(o.findings[0].count, 1u);
}
TEST(Bounds, ACopyToNowhere) {
  alignas(16) static char source[512] = {};
  Line line;
  RunOptions run = warps(1);
  run.tensors = {vector("X", source, 512, Role::input)};
  const auto o = expect_verdict(
      run,
      [&] {
        words();
        at(line.note());
        cp_async(Lanes<u32>(lane_id() * 16) + Lanes<u32>(4096u - 256u),
                 static_cast<const char*>(source) + Lanes<i64>(lane_id() * 16), Lanes<i32>(16));
        cp_async_commit();
        cp_async_wait<0>();
      },
      {"bounds"});
  expect_message(o, "bounds",
                 {"lane 16, " + line.at(kFile), "cp.async of 16 bytes at shared address 4096"});
}

// ---- uninit

TEST(Uninit, SharedMemoryNobodyWrote) {
  Line line;
  const auto body = [&](int written) {
    return [&, written] {
      for (int r = 0; r < written; r++) write_row(r);
      barrier();
      at(line.note());
      read_row(3);
    };
  };
  expect_silence(warps(1), body(4));
  const auto o = expect_verdict(warps(1), body(3), {"uninit"});
  expect_message(o, "uninit",
                 {"block 0, warp 0, lane 0, " + line.at(kFile),
                  "shared tile S(3, 0) is read and nobody has written it"});
  EXPECT_EQ(o.findings[0].count, 32u);
}
// One column of one row: the message names the element, through the swizzle.
TEST(Uninit, NamesTheElement) {
  Line line;
  const auto o = expect_verdict(
      warps(1),
      [&] {
        const auto address = lanes_of<u32>(
            [&](int i) { return words().address_of(Lanes<i32>(21), Lanes<i32>(i)).v[0]; });
        st_shared(select(lane_id() == Lanes<i32>(13), address ^ Lanes<u32>(4u), address),
                  Lanes<float>(0.0f));
        warp_sync();
        at(line.note());
        read_row(21);
      },
      {"uninit", "races"});  // lanes 12 and 13 write one word
  expect_message(o, "uninit", {"lane 13, " + line.at(kFile), "S(21, 13)"});
  expect_message(o, "races", {"S(21, 12)", "lane 13", "the write of warp 0, lane 12"});
}
// Copying 16 rows a step and stepping on by 8, or copying 8 rows a step and stepping on by 16.
template <int RowsPerCopy, int Step>
void copy_in_steps(Line& copy, Line& read, const float* x) {
  const Words tile = words();
  for (int row = 0; row < 32; row += Step) {
    at(copy.note());
    for (int r = row; r < row + RowsPerCopy; r += 4) {
      const Lanes<i32> to = (lane_id() >> 3) + Lanes<i32>(r), chunk = lane_id() & Lanes<i32>(7);
      cp_async(tile.at(to, chunk),
               reinterpret_cast<const char*>(x) + Lanes<i64>(to * 128 + chunk * 16),
               Lanes<i32>(16));
    }
  }
  cp_async_commit();
  cp_async_wait<0>();
  barrier();
  at(read.note());
  for (int r = 0; r < 32; r++) read_row(r);
}
TEST(Uninit, ACopySteppedWrongly) {
  alignas(16) static float x[32 * 32] = {};
  Line copy, read;
  RunOptions run = warps(1);
  run.tensors = {matrix("X", x, 32, 32, 32, Role::input)};
  expect_silence(run, [&] { copy_in_steps<16, 16>(copy, read, x); });
  const auto o = expect_verdict(run, [&] { copy_in_steps<8, 16>(copy, read, x); }, {"uninit"});
  expect_message(o, "uninit", {"lane 0, " + read.at(kFile), "S(8, 0)"});
  EXPECT_EQ(o.findings[0].count, 16u * 32);
}

// ---- races between warps

struct Pair {
  Line first, second;
};
// Warp 1 does one thing, warp 0 another, with or without a barrier between. Row 5 is initialised.
// In ascending order warp 1 comes last to that barrier, and so goes on first.
template <class A, class B>
auto unordered(Pair& lines, bool with_barrier, A a, B b) {
  return [&lines, with_barrier, a, b] {
    if (warp_id() == 0) write_row(5);
    barrier();
    if (warp_id() == 1) at(lines.first.note()), a();
    if (with_barrier) barrier();
    if (warp_id() == 0) at(lines.second.note()), b();
  };
}
const auto write5 = [] { write_row(5); };
const auto read5 = [] { read_row(5); };

TEST(Races, ReadAfterWrite) {
  Pair lines;
  expect_silence(warps(2), unordered(lines, true, write5, read5));
  const auto racy = unordered(lines, false, write5, read5);
  const auto o = expect_verdict(warps(2), racy, {"races"});
  expect_message(o, "races",
                 {"warp 0, lane 0, " + lines.second.at(kFile),
                  "shared tile S(5, 0) is read, and no barrier orders it after the write of warp "
                  "1, lane 0 at " +
                      lines.first.at(kFile)});
  EXPECT_EQ(o.findings[0].count, 32u);
  expect_both_lines(warps(2), racy, "races", kFile, lines.first, lines.second);
}
TEST(Races, WriteAfterRead) {
  Pair lines;
  expect_silence(warps(2), unordered(lines, true, read5, write5));
  const auto racy = unordered(lines, false, read5, write5);
  const auto o = expect_verdict(warps(2), racy, {"races"});
  expect_message(o, "races",
                 {"warp 0, lane 0, " + lines.second.at(kFile),
                  "S(5, 0) is written, and no barrier orders it after the read of warp 1 at " +
                      lines.first.at(kFile)});
  expect_both_lines(warps(2), racy, "races", kFile, lines.first, lines.second);
}
TEST(Races, WriteAfterWrite) {
  Pair lines;
  expect_silence(warps(2), unordered(lines, true, write5, write5));
  const auto racy = unordered(lines, false, write5, write5);
  const auto o = expect_verdict(warps(2), racy, {"races"});
  expect_message(
      o, "races",
      {"warp 0, lane 0, " + lines.second.at(kFile),
       "S(5, 0) is written, and no barrier orders it after the write of warp 1, lane 0 at " +
           lines.first.at(kFile)});
  expect_both_lines(warps(2), racy, "races", kFile, lines.first, lines.second);
}
TEST(Races, ReadersDoNotRace) {
  Pair lines;
  expect_silence(warps(2), unordered(lines, false, read5, read5));
}
// The first write is missing a barrier: found as a race in every order, although in some of them
// the reader came first and met memory that nobody had written.
TEST(Races, AFirstWriteThatIsNotOrdered) {
  Pair lines;
  const auto body = [&] {
    words();
    if (warp_id() == 0) at(lines.first.note()), write_row(9);
    if (warp_id() == 1) at(lines.second.note()), read_row(9);
  };
  expect_verdict(warps(2), body, {"races"});
  expect_both_lines(warps(2), body, "races", kFile, lines.first, lines.second);
}
// A read that a later write comes after, in order, is a read of nothing.
TEST(Races, AnOrderedLaterWriteDoesNotExplainARead) {
  Pair lines;
  const auto o = expect_verdict(warps(2),
                                [&] {
                                  words();
                                  if (warp_id() == 1) at(lines.first.note()), read_row(9);
                                  barrier();
                                  if (warp_id() == 0) write_row(9);
                                },
                                {"uninit"});
  expect_message(o, "uninit", {"warp 1, lane 0, " + lines.first.at(kFile), "S(9, 0)"});
}
// Barriers order transitively, and only those who were there.
TEST(Races, NamedBarriersOrderTheirOwnWarps) {
  Line write, read;
  const auto body = [&](int reader) {
    return [&, reader] {
      words();
      if (warp_id() == 0) at(write.note()), write_row(0);
      if (warp_id() <= 1) barrier(1, 2);
      if (warp_id() == 1 || warp_id() == 2) barrier(2, 2);
      if (warp_id() == reader) at(read.note()), read_row(0);
    };
  };
  expect_silence(warps(4), body(1));
  expect_silence(warps(4), body(2));  // through warp 1
  const auto o = expect_verdict(warps(4), body(3), {"races"});
  expect_message(o, "races", {"S(0, 0)", "no barrier"});
  expect_both_lines(warps(4), body(3), "races", kFile, write, read);
}

// ---- races inside a warp

TEST(Races, MissingWarpSync) {
  Line write, read;
  const auto body = [&](bool sync) {
    return [&, sync] {
      at(write.note()), write_row(2);
      if (sync) warp_sync();
      Lanes<float> x;  // each lane reads its neighbour's word
      at(read.note()), ld_shared(x, words().address_of(Lanes<i32>(2), lane_id() ^ Lanes<i32>(1)));
    };
  };
  expect_silence(warps(1), body(true));
  const auto o = expect_verdict(warps(1), body(false), {"races"});
  expect_message(
      o, "races",
      {"warp 0, lane 0, " + read.at(kFile),
       "S(2, 1) is read, and no warp_sync orders it after the write of warp 0, lane 1 at " +
           write.at(kFile)});
  expect_silence(warps(1), [&] {  // a lane's own words need none
    write_row(2);
    read_row(2);
  });
}
TEST(Races, TwoLanesWriteOneWord) {
  Line line;
  const auto o = expect_verdict(warps(1),
                                [&] {
                                  at(line.note()),
                                      st_shared(words().address_of(Lanes<i32>(2), lane_id() >> 1),
                                                Lanes<float>(0.0f));
                                },
                                {"races"});
  expect_message(o, "races",
                 {"warp 0, lane 1, " + line.at(kFile), "S(2, 0)",
                  "the write of warp 0, lane 0 at " + line.at(kFile)});
  EXPECT_EQ(o.findings[0].count, 16u);
}

// ---- async: tile code as kernels have it, two warps

constexpr Config C{
    .arch = Arch::sm_89, .rows = 32, .cols = 16, .depth = 32, .warps = 2, .stages = 2};
using HalfTile = SharedTile<f16, 32, 32>;
using ARing = Ring<HalfTile, 2>;

struct AsyncFaults : ::testing::Test {
  static constexpr int kSteps = 4;
  alignas(16) static inline f16 a[32 * 32 * kSteps] = {};
  RunOptions run{.warps = 2, .shared_bytes = ARing::kBytes};
  Line copy, use;
  AsyncFaults() { run.tensors = {matrix("A", a, 32, 32 * kSteps, 32 * kSteps, Role::input)}; }

  static BlockPtr<const f16, 32, 32> window(int step) {
    return {a, 32 * kSteps, 32, 32 * kSteps, 0, 32 * step};
  }
  // A use of a whole tile by each warp: a product.
  void multiply(const HalfTile& t) {
    Accumulator<16, 32> acc;
    fill(acc, 0.0f);
    dot<C>(acc, t, 16 * warp_id(), transpose(t), use.note());
  }
};

TEST_F(AsyncFaults, Clean) {
  expect_silence(run, [&] {
    const ARing ring = SharedMemory().ring<ARing>("A");
    load<C>(ring.acquire(0), window(0), copy.note());
    commit<C>();
    for (int j = 0; j < kSteps; j++) {
      wait<C, 0>();
      if (j + 1 < kSteps) load<C>(ring.acquire(j + 1), window(j + 1), copy.note());
      commit<C>();
      multiply(ring.ready(j));
    }
  });
}
TEST_F(AsyncFaults, MissingWait) {
  const auto o = expect_verdict(run,
                                [&] {
                                  const ARing ring = SharedMemory().ring<ARing>("A");
                                  for (int j = 0; j < 2; j++) {
                                    load<C>(ring.acquire(j), window(j), copy.note());
                                    commit<C>();
                                  }
                                  wait<C, 1>();
                                  multiply(ring.ready(0));
                                  wait<C, 1>();  // wait<0>: nothing new was committed
                                  multiply(ring.ready(1));
                                },
                                {"async"});
  // The first 128 chunks of a 32x32 tile are 64 threads twice: row 0 is lane 0 of warp 0.
  expect_message(o, "async",
                 {"block 0, warp 0, lane 0, " + use.at(kFile),
                  "shared tile A(0, 0) is read while the cp.async of warp 0, lane 0 at " +
                      copy.at(kFile) + " is in flight: its group was not waited for"});
}
TEST_F(AsyncFaults, NotEvenCommitted) {
  const auto o = expect_verdict(run,
                                [&] {
                                  const ARing ring = SharedMemory().ring<ARing>("A");
                                  load<C>(ring.acquire(0), window(0), copy.note());
                                  wait<C, 0>();
                                  multiply(ring.ready(0));
                                },
                                {"async"});
  expect_message(o, "async", {use.at(kFile), copy.at(kFile), "in flight"});
}
TEST_F(AsyncFaults, WaitWithoutBarrier) {
  const auto body = [&] {
    const ARing ring = SharedMemory().ring<ARing>("A");
    load<C>(ring.acquire(0), window(0), copy.note());
    commit<C>();
    cp_async_wait<0>();
    multiply(ring.ready(0));
  };
  const auto o = expect_verdict(run, body, {"async"});
  // Warp 1 copied rows 8 to 15 (thread 32 and up), warp 0 reads them.
  expect_message(o, "async", {"A(", "warp 1", "warp 0", use.at(kFile), copy.at(kFile)});
  expect_both_lines(run, body, "async", kFile, use, copy);
}
TEST_F(AsyncFaults, BarrierBeforeTheWait) {
  const auto body = [&] {
    const ARing ring = SharedMemory().ring<ARing>("A");
    load<C>(ring.acquire(0), window(0), copy.note());
    commit<C>();
    barrier();
    cp_async_wait<0>();
    multiply(ring.ready(0));
  };
  const auto o = expect_verdict(run, body, {"async"});
  expect_message(o, "async", {use.at(kFile), copy.at(kFile)});
}
// One copies, the other reads. Where the copier runs first, the copy has landed by then, and only
// its clock tells that the barrier came too early.
TEST_F(AsyncFaults, BarrierBeforeTheWaitOfOneWarp) {
  const auto body = [&](bool barrier_after) {
    return [&, barrier_after] {
      const Words tile = words();
      if (warp_id() == 0) {
        at(copy.note());
        cp_async(tile.at(lane_id() >> 3, lane_id() & Lanes<i32>(7)),
                 reinterpret_cast<const char*>(a) + Lanes<i64>(lane_id() * 16), Lanes<i32>(16));
        cp_async_commit();
      }
      if (!barrier_after) barrier();
      if (warp_id() == 0) cp_async_wait<0>();
      if (barrier_after) barrier();
      if (warp_id() == 1) at(use.note()), read_row(0);
    };
  };
  expect_silence(run, body(true));
  expect_verdict(run, body(false), {"async"});
  expect_both_lines(run, body(false), "async", kFile, use, copy);
}
// Each warp reads what it copied itself: the wait is enough for its own lane, and a warp_sync for
// others.
TEST_F(AsyncFaults, OwnCopiesNeedNoBarrier) {
  const auto body = [&](bool sync) {
    return [&, sync] {
      const Words tile = words();
      const Lanes<i32> row = (lane_id() >> 3) + Lanes<i32>(4 * warp_id()),
                       chunk = lane_id() & Lanes<i32>(7);
      at(copy.note());
      cp_async(tile.at(row, chunk), reinterpret_cast<const char*>(a) + Lanes<i64>(lane_id() * 16),
               Lanes<i32>(16));
      cp_async_commit();
      cp_async_wait<0>();
      if (sync) warp_sync();
      at(use.note());
      Lanes<float> own[4], other;
      ld_shared(own, tile.at(row, chunk));
      if (sync) ld_shared(other, tile.address_of(Lanes<i32>(4 * warp_id()), lane_id()));
    };
  };
  expect_silence(run, body(true));
  expect_silence(run, body(false));
  const auto o = expect_verdict(
      run,
      [&] {
        body(false)();
        Lanes<float> other;
        at(use.note()), ld_shared(other, words().address_of(Lanes<i32>(4 * warp_id()), lane_id()));
      },
      {"async"});
  expect_message(
      o, "async",
      {"warp 0, lane 1",
       "S(0, 1) is read, and no warp_sync orders it after the cp.async of warp 0, lane 0",
       use.at(kFile), copy.at(kFile)});
}
// Two tiles in flight in a ring of one: the next copy goes where the product still reads.
TEST_F(AsyncFaults, OneBufferWhereTwoAreNeeded) {
  const auto body = [&](auto ring) {
    return [&, ring] {
      using Slots = decltype(ring);
      const auto slots = SharedMemory().ring<Slots>("A");
      load<C>(slots.acquire(0), window(0), copy.note());
      commit<C>();
      for (int j = 0; j < kSteps; j++) {
        wait<C, 0>();
        if (j + 1 < kSteps) load<C>(slots.acquire(j + 1), window(j + 1), copy.note());
        commit<C>();
        multiply(slots.ready(j));
      }
    };
  };
  expect_silence(run, body(Ring<HalfTile, 2>{0}));
  const auto one = body(Ring<HalfTile, 1>{0});
  const auto o = expect_verdict(run, one, {"async"});
  expect_message(o, "async", {"A(0, 0)", "warp 0, lane 0", use.at(kFile), copy.at(kFile)});
  expect_both_lines(run, one, "async", kFile, use, copy);
}
// The barrier that releases a slot is missing: fast warps refill what slow ones still read.
TEST_F(AsyncFaults, ASlotRefilledBeforeItIsReleased) {
  const auto body = [&](bool release) {
    return [&, release] {
      const ARing ring = SharedMemory().ring<ARing>("A");
      load<C>(ring.acquire(0), window(0), copy.note());
      commit<C>();
      wait<C, 0>();
      multiply(ring.ready(0));
      if (release) barrier();
      load<C>(ring.acquire(2), window(2), copy.note());
      commit<C>();
    };
  };
  expect_silence(run, body(true));
  expect_verdict(run, body(false), {"async"});
  expect_both_lines(run, body(false), "async", kFile, use, copy);
}
TEST_F(AsyncFaults, AStoreIntoACopyInFlight) {
  const auto body = [&] {
    const Words tile = words();
    if (warp_id() == 0) {
      at(copy.note());
      cp_async(tile.at(lane_id() >> 3, lane_id() & Lanes<i32>(7)),
               reinterpret_cast<const char*>(a) + Lanes<i64>(lane_id() * 16), Lanes<i32>(16));
      cp_async_commit();
      cp_async_wait<0>();
    } else {
      at(use.note());
      st_shared(row_address(1), Lanes<float>(0.0f));
    }
  };
  const auto o = expect_verdict(run, body, {"async"});
  expect_message(o, "async", {"S(1, 0)", use.at(kFile), copy.at(kFile)});
  expect_both_lines(run, body, "async", kFile, use, copy);
}

// sm_75 copies through registers: its faults are races.
TEST_F(AsyncFaults, WithoutCpAsyncAMissingBarrierIsARace) {
  constexpr Config kTuring{.arch = Arch::sm_75, .warps = 2};
  const auto body = [&](bool with_barrier) {
    return [&, with_barrier] {
      const ARing ring = SharedMemory().ring<ARing>("A");
      load<kTuring>(ring.acquire(0), window(0), copy.note());
      if (with_barrier) wait<kTuring, 0>();
      Accumulator<16, 32> acc;
      fill(acc, 0.0f);
      dot<kTuring>(acc, ring.ready(0), 16 * warp_id(), transpose(ring.ready(0)), use.note());
    };
  };
  expect_silence(run, body(true));
  // Inside a warp lanes read what other lanes stored, between warps rows of the other.
  expect_verdict(run, body(false), {"races"});
  expect_both_lines(run, body(false), "races", kFile, use, copy);
}

}  // namespace
}  // namespace tessera::faults
