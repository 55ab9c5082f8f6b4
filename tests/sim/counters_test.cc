// SPDX-License-Identifier: Apache-2.0
// Counters against models that go through every byte, and the promise that they depend on nothing
// but the kernel and its arguments.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <random>
#include <set>
#include <vector>

#include "kernels/basics/matmul.h"
#include "kernels/tile/math.h"
#include "sim/instance.h"
#include "sim/memory.h"
#include "tests/sim/exp2_check.h"
#include "tests/sim/run_kernel.h"

namespace tessera::sim {
namespace {

// ---- shared memory: 32 banks of 4 bytes. 4-byte accesses are served 32 lanes at a time, 8-byte
// 16, 16-byte 8; a wavefront serves one word a bank, to any number of lanes.
int wavefronts_of(const std::vector<u32>& address, int bytes) {
  int total = 0;
  for (std::size_t first = 0; first < 32; first += std::size_t(128 / bytes)) {
    std::vector<std::set<u32>> bank(32);
    for (std::size_t lane = first; lane < first + std::size_t(128 / bytes); lane++)
      for (u32 b = 0; b < u32(bytes); b++)
        bank[(address[lane] + b) / 4 % 32].insert((address[lane] + b) / 4);
    std::size_t most = 0;
    for (const auto& words : bank) most = std::max(most, words.size());
    total += int(most);
  }
  return total;
}

// Addresses of many kinds: anywhere, within a few lines, strided, permuted, all the same, and
// without conflicts but for one lane.
std::vector<u32> draw_addresses(std::mt19937& random, int bytes) {
  std::vector<u32> a(32);
  const u32 unit = u32(bytes), kind = random() % 7, offset = random() % 64;
  const u32 stride = 1 + random() % 40;
  std::vector<u32> p(32);
  std::iota(p.begin(), p.end(), 0u);
  if (kind == 3) std::shuffle(p.begin(), p.end(), random);
  for (u32 i = 0; i < 32; i++) {
    switch (kind) {
      case 0: a[i] = random() % (32768 / unit); break;
      case 1: a[i] = random() % (256 / unit); break;
      case 2: a[i] = i * stride; break;
      case 3: a[i] = p[i] + offset; break;
      case 4: a[i] = offset; break;
      case 5: a[i] = i / (1 + random() % 4) + offset; break;
      default: a[i] = (i * 5 + offset) % 8 + 8 * (random() % 16); break;
    }
    a[i] = a[i] * unit % 32768;
  }
  if (kind == 6) a[random() % 32] ^= unit << random() % 6;
  return a;
}

TEST(Counters, WavefrontsOfSharedAccesses) {
  const Outcome outcome = run_kernel({.shared_bytes = 32768}, [] {
    std::mt19937 random(1);
    Counters& c = self().counters;
    const auto expect = [&](const std::vector<u32>& a, int bytes, auto access) {
      const u64 before = c.shared_wavefronts, ideal = c.shared_wavefronts_ideal;
      access(lanes_of<u32>([&](int i) { return a[std::size_t(i)]; }));
      ASSERT_EQ(c.shared_wavefronts - before, u64(wavefronts_of(a, bytes)));
      ASSERT_EQ(c.shared_wavefronts_ideal - ideal, u64(bytes / 4));
      ASSERT_GE(c.shared_wavefronts - before, u64(bytes / 4));
    };
    for (int n = 0; n < 3000; n++) {
      const auto a4 = draw_addresses(random, 4), a8 = draw_addresses(random, 8),
                 a16 = draw_addresses(random, 16);
      Lanes<u32> one, two[2], four[4];
      const Chunk chunk = ld_shared_chunk(Lanes<u32>(0u));
      expect(a4, 4, [&](const Lanes<u32>& a) { ld_shared(one, a); });
      expect(a8, 8, [&](const Lanes<u32>& a) { ld_shared(two, a); });
      expect(a16, 16, [&](const Lanes<u32>& a) { ld_shared(four, a); });
      expect(a4, 4, [&](const Lanes<u32>& a) { st_shared(a, one); });
      expect(a16, 16, [&](const Lanes<u32>& a) { ldmatrix_x4(four, a); });
      expect(a16, 16, [&](const Lanes<u32>& a) { ldmatrix_x4_trans(four, a); });
      expect(a16, 16, [&](const Lanes<u32>& a) { st_shared_chunk(a, chunk); });
      expect(a16, 16,
             [&](const Lanes<u32>& a) { cp_async(a, Lanes<const char*>(nullptr), Lanes<i32>(0)); });
    }
  });
  EXPECT_EQ(outcome.error, "");
}

TEST(Counters, KnownConflicts) {
  const auto count = [](int bytes, auto f) {
    std::vector<u32> a;
    for (int i = 0; i < 32; i++) a.push_back(u32(f(i)));
    EXPECT_EQ(wavefronts_slow(a.data(), bytes), wavefronts_of(a, bytes));
    return wavefronts_slow(a.data(), bytes);
  };
  EXPECT_EQ(count(4, [](int i) { return 4 * i; }), 1);
  EXPECT_EQ(count(4, [](int) { return 64; }), 1);          // broadcast
  EXPECT_EQ(count(4, [](int i) { return 8 * i; }), 2);     // every other word
  EXPECT_EQ(count(4, [](int i) { return 128 * i; }), 32);  // a column of 32-word rows
  EXPECT_EQ(count(4, [](int i) { return 132 * i; }), 1);   // padded by a word
  EXPECT_EQ(count(8, [](int i) { return 8 * i; }), 2);
  EXPECT_EQ(count(16, [](int i) { return 16 * i; }), 4);
  EXPECT_EQ(count(16, [](int i) { return 128 * i; }),
            32);  // ldmatrix on rows of 64 halves, unswizzled
  EXPECT_EQ(count(16, [](int i) { return 128 * i + 16 * (i % 8); }), 4);
}

// ---- global memory: sectors of 32 bytes

struct Sectors {
  u64 actual, ideal, bytes;
};
Sectors sectors_of(const std::vector<u64>& address, const std::vector<int>& bytes) {
  std::set<u64> touched;
  u64 sum = 0;
  for (std::size_t i = 0; i < address.size(); i++)
    for (int b = 0; b < bytes[i]; b++) touched.insert((address[i] + u64(b)) / 32), sum++;
  return {touched.size(), (sum + 31) / 32, sum};
}

TEST(Counters, SectorsOfGlobalAccesses) {
  struct alignas(64) Aligned {
    char b[64];
  };
  std::vector<Aligned> memory(1024);
  char* const base = memory[0].b;
  const Outcome outcome = run_kernel({.shared_bytes = 512}, [&] {
    std::mt19937 random(2);
    Counters& c = self().counters;
    for (int n = 0; n < 3000; n++) {
      for (int unit : {2, 4, 16}) {
        std::vector<u64> address(32);
        std::vector<int> bytes(32);
        const u32 kind = random() % 4;
        for (u32 i = 0; i < 32; i++) {
          const u32 place = kind == 0   ? random() % 60000
                            : kind == 1 ? i * u32(unit)
                            : kind == 2 ? (31 - i) * u32(unit)
                                        : random() % 256;
          address[i] = u64(reinterpret_cast<std::uintptr_t>(base)) + place / u32(unit) * u32(unit);
          bytes[i] = random() % 5 == 0 ? 0 : unit == 16 ? 2 * int(1 + random() % 8) : unit;
        }
        const Sectors expected = sectors_of(address, bytes);
        const auto pointers = [&]<class T>(T*) {
          Lanes<T*> p;
          for (std::size_t i = 0; i < 32; i++) p.v[i] = reinterpret_cast<T*>(address[i]);
          return p;
        };
        const auto size = lanes_of<i32>([&](int i) { return bytes[std::size_t(i)]; });
        const auto on = mask_of([&](int i) { return bytes[std::size_t(i)] > 0; });
        const Counters before = c;
        const bool store = unit != 16 && n % 2;
        if (unit == 16) {
          const auto p = pointers(static_cast<const char*>(nullptr));
          if (n % 2)
            ld_global_chunk(p, size);
          else
            cp_async(Lanes<u32>(lane_id() * 16), p, size);
        } else if (unit == 4) {
          if (store)
            st_global(pointers(static_cast<float*>(nullptr)), Lanes<float>(1.0f), on);
          else
            ld_global(pointers(static_cast<const float*>(nullptr)), on, 0.0f);
        } else {
          if (store)
            st_global(pointers(static_cast<f16*>(nullptr)), Lanes<f16>(f16{1}), on);
          else
            ld_global(pointers(static_cast<const f16*>(nullptr)), on, f16{0});
        }
        ASSERT_EQ(c.global_sectors - before.global_sectors, expected.actual);
        ASSERT_EQ(c.global_sectors_ideal - before.global_sectors_ideal, expected.ideal);
        ASSERT_EQ(c.global_store_bytes - before.global_store_bytes, store ? expected.bytes : 0);
        ASSERT_EQ(c.global_load_bytes - before.global_load_bytes, store ? 0 : expected.bytes);
      }
    }
  });
  EXPECT_EQ(outcome.error, "");
}

// ---- the rest, in closed form

TEST(Counters, ExponentialsAndTiles) {
  const Outcome o = run_kernel({.warps = 3, .blocks = 5}, [] {
    exp2<Exp2::soft>(Lanes<float>(1.0f));
    exp2<Exp2::hardware>(Lanes<float>(1.0f));
    count_fma(7);
    count_tiles(1, 2, 3);  // the block's tiles, not each warp's
  });
  EXPECT_EQ(o.counters.exp2, 5u * 3 * 2 * 32);
  EXPECT_EQ(o.counters.fma, 5u * 3 * 7 * 32);
  EXPECT_EQ(o.counters.tiles_skipped, 5u);
  EXPECT_EQ(o.counters.tiles_full, 10u);
  EXPECT_EQ(o.counters.tiles_masked, 15u);
}

TEST(Counters, PeakOfSharedMemory) {
  const Outcome o = run_kernel({.warps = 2, .blocks = 3, .shared_bytes = 8192}, [] {
    tessera::name_shared("a", 0, 1000, 1, 250, 4);
    if (block_index() == 1) tessera::name_shared("b", 4096, 2000, 1, 500, 4);
  });
  EXPECT_EQ(o.counters.shared_bytes, 6096u);
}

bool equal(const Counters& a, const Counters& b) { return std::memcmp(&a, &b, sizeof a) == 0; }

TEST(Counters, DependOnTheKernelAlone) {
  constexpr Config C{
      .arch = Arch::sm_89, .rows = 64, .cols = 64, .depth = 32, .warps = 4, .stages = 2};
  const Instance instance = make_instance<Matmul<f16, C>>("matmul");
  constexpr i32 m = 150, n = 200, k = 72;
  std::vector<f16> a(m * k), b(k * n), c(m * n);
  const MatmulArgs args{a.data(), b.data(), c.data(), k, n, n, m, n, k};
  Counters first{};
  for (int threads = 1; threads <= 8; threads++)
    for (u64 seed : {u64(0), u64(threads) * 11})
      for (bool checks : {false, true}) {
        const RunOptions run{.checks = checks,
                             .threads = threads,
                             .order_seed = seed,
                             .tensors = {matrix("A", a.data(), m, k, k, Role::input),
                                         matrix("B", b.data(), k, n, n, Role::input),
                                         matrix("C", c.data(), m, n, n, Role::output)}};
        const Outcome o = launch(instance, launch_of(run, &args));
        EXPECT_TRUE(o.findings.empty());
        if (first.blocks == 0) first = o.counters;
        EXPECT_TRUE(equal(o.counters, first)) << threads << " threads, seed " << seed;
      }
  const u64 blocks = 3 * 4, steps = 3;
  EXPECT_EQ(first.blocks, blocks);
  EXPECT_EQ(first.mma, blocks * steps * 64 / 16 * 64 / 8 * 32 / 16);
  EXPECT_EQ(first.barriers, blocks * steps);
  EXPECT_EQ(first.shared_wavefronts, first.shared_wavefronts_ideal);
  EXPECT_EQ(first.global_store_bytes, u64(m) * n * 2);
  EXPECT_EQ(first.global_load_bytes,
            u64(m) * k * 2 * 4 + u64(k) * n * 2 * 3);  // A by 4 columns of blocks
  EXPECT_EQ(first.shared_bytes, 2u * 2 * 64 * 32 * 2);
}

// A sample of what exp2_test.cc goes through completely.
TEST(Exp2Rounded, Sample) { expect_correctly_rounded(1021); }

}  // namespace
}  // namespace tessera::sim
