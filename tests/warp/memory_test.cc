// SPDX-License-Identifier: Apache-2.0
// Memory instructions: shared loads and stores of 1, 2 and 4 words, ldmatrix, asynchronous copies,
// predicated and partial global accesses.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <random>
#include <vector>

#include "tests/sim/run_kernel.h"

namespace tessera {
namespace {

using sim::lanes_of;
using sim::mask_of;
using sim::Role;
using sim::run_kernel;

std::vector<int> permutation(int n, u32 seed) {
  std::vector<int> p(static_cast<std::size_t>(n));
  std::iota(p.begin(), p.end(), 0);
  std::shuffle(p.begin(), p.end(), std::mt19937(seed));
  return p;
}

// Writes words 0..count-1 of shared memory with 100, 101, ... as plain data.
void fill_words(int count) {
  for (int i = 0; i < count; i += 32)
    st_shared(Lanes<u32>(lane_id() + Lanes<i32>(i)) * Lanes<u32>(4u),
              Lanes<u32>(lane_id() + Lanes<i32>(i + 100)));
  warp_sync();
}

class SharedMemoryTest : public ::testing::TestWithParam<bool> {  // with and without checks
 protected:
  sim::RunOptions run() const { return {.shared_bytes = 4096, .checks = GetParam()}; }
  static void name() { name_shared("words", 0, 4096, 1, 1024, 4); }
};
INSTANTIATE_TEST_SUITE_P(Checks, SharedMemoryTest, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "on" : "off"; });

TEST_P(SharedMemoryTest, OneTwoAndFourWords) {
  for (u32 seed = 0; seed < 20; seed++) {
    const std::vector<int> p = permutation(32, seed);
    Lanes<u32> one, two[2], four[4], stored;
    const auto outcome = run_kernel(run(), [&] {
      name();
      fill_words(128);
      const auto place = lanes_of<u32>([&](int i) { return p[std::size_t(i)]; });
      ld_shared(one, place * Lanes<u32>(4u));
      ld_shared(two, place * Lanes<u32>(8u));
      ld_shared(four, place * Lanes<u32>(16u));
      const Lanes<u32> to = place * Lanes<u32>(4u) + Lanes<u32>(2048u);
      st_shared(to, Lanes<u32>(lane_id()) + Lanes<u32>(7000u));
      warp_sync();
      ld_shared(stored, Lanes<u32>(lane_id()) * Lanes<u32>(4u) + Lanes<u32>(2048u));
    });
    EXPECT_TRUE(outcome.findings.empty());
    for (int i = 0; i < 32; i++) {
      const u32 at = u32(p[std::size_t(i)]);
      ASSERT_EQ(one.v[i], 100 + at);
      for (u32 k = 0; k < 2; k++) ASSERT_EQ(two[k].v[i], 100 + 2 * at + k);
      for (u32 k = 0; k < 4; k++) ASSERT_EQ(four[k].v[i], 100 + 4 * at + k);
      ASSERT_EQ(stored.v[at], 7000u + u32(i));
    }
  }
}

TEST_P(SharedMemoryTest, Chunks) {
  const std::vector<int> p = permutation(32, 3);
  Lanes<u32> words[4];
  const auto outcome = run_kernel(run(), [&] {
    name();
    Chunk c;
    for (int i = 0; i < 32; i++)
      for (int b = 0; b < 16; b++) c.v[i].b[b] = char(i * 16 + b);
    const auto place = lanes_of<u32>([&](int i) { return 16 * p[std::size_t(i)]; });
    st_shared_chunk(place, c);
    const Chunk back = ld_shared_chunk(place);
    EXPECT_EQ(std::memcmp(&back, &c, sizeof c), 0);
    ld_shared(words, place);
  });
  EXPECT_TRUE(outcome.findings.empty());
  for (int i = 0; i < 32; i++)
    for (int k = 0; k < 4; k++) {
      u32 expected = 0;
      for (int b = 3; b >= 0; b--) expected = expected << 8 | u8(i * 16 + 4 * k + b);
      ASSERT_EQ(words[k].v[i], expected);
    }
}

// Lane 8i + j points at row j of matrix i. Lane 4g + t of register i receives elements 2t, 2t + 1
// of row g; transposed, elements g of rows 2t, 2t + 1.
TEST_P(SharedMemoryTest, Ldmatrix) {
  for (u32 seed = 0; seed < 20; seed++) {
    std::vector<int> row(32);  // where the row of each lane is, in 16-byte units; some are shared
    std::mt19937 random(seed);
    for (int& r : row) r = int(random() % 64);
    if (seed == 0) std::iota(row.begin(), row.end(), 0);
    Lanes<u32> plain[4], turned[4];
    const auto outcome = run_kernel(run(), [&] {
      name();
      for (int i = 0; i < 256; i += 32) {  // element e of memory is e
        const Lanes<i32> word = lane_id() + Lanes<i32>(i);
        st_shared(Lanes<u32>(word * 4),
                  Lanes<u32>(word * 2) | Lanes<u32>((word * 2 + Lanes<i32>(1)) << Lanes<i32>(16)));
      }
      warp_sync();
      const auto address = lanes_of<u32>([&](int i) { return 16 * row[std::size_t(i)]; });
      ldmatrix_x4(plain, address);
      ldmatrix_x4_trans(turned, address);
    });
    EXPECT_TRUE(outcome.findings.empty());
    const auto element = [&](int matrix, int r, int c) {
      return u32(row[std::size_t(8 * matrix + r)] * 8 + c);
    };
    for (int i = 0; i < 4; i++)
      for (int lane = 0; lane < 32; lane++) {
        const int g = lane / 4, t = lane % 4;
        ASSERT_EQ(plain[i].v[lane], element(i, g, 2 * t) | element(i, g, 2 * t + 1) << 16);
        ASSERT_EQ(turned[i].v[lane], element(i, 2 * t, g) | element(i, 2 * t + 1, g) << 16);
      }
  }
}

// `bytes` come from the source and the rest of the 16 is zero, whatever lies behind the source and
// whatever was in the destination.
TEST_P(SharedMemoryTest, CpAsyncFillsWithZero) {
  alignas(16) char source[33 * 16];
  for (int i = 0; i < 33 * 16; i++) source[i] = char(1 + i % 250);
  Chunk got;
  const auto bytes = lanes_of<i32>([](int i) { return i % 9 * 2; });
  sim::RunOptions r = run();
  r.tensors = {vector("source", source, sizeof source, Role::input)};
  const auto outcome = run_kernel(r, [&] {
    name();
    const Lanes<u32> to = Lanes<u32>(lane_id() * 16);
    Chunk old;
    std::memset(&old, 0x55, sizeof old);
    st_shared_chunk(to, old);
    const auto from = lanes_of<i64>([](int i) { return 16 * (31 - i); });
    cp_async(to, static_cast<const char*>(source) + from, bytes);
    cp_async_commit();
    cp_async_wait<0>();
    got = ld_shared_chunk(to);
  });
  EXPECT_TRUE(outcome.findings.empty());
  for (int i = 0; i < 32; i++)
    for (int b = 0; b < 16; b++)
      ASSERT_EQ(got.v[i].b[b], b < bytes.v[i] ? source[16 * (31 - i) + b] : 0) << i << " " << b;
}

TEST_P(SharedMemoryTest, LanesThatCopyNothingMayPointAnywhere) {
  alignas(16) char source[16] = "fifteen letters";
  Chunk copied, loaded;
  sim::RunOptions r = run();
  r.tensors = {vector("source", source, 16, Role::input)};
  const auto outcome = run_kernel(r, [&] {
    name();
    Lanes<const char*> p(static_cast<const char*>(nullptr));
    p.v[3] = source;
    const auto bytes = lanes_of<i32>([](int i) { return i == 3 ? 16 : 0; });
    cp_async(Lanes<u32>(lane_id() * 16), p, bytes);
    cp_async_commit();
    cp_async_wait<0>();
    copied = ld_shared_chunk(Lanes<u32>(lane_id() * 16));
    loaded = ld_global_chunk(p, bytes);
  });
  EXPECT_TRUE(outcome.findings.empty());
  for (int i = 0; i < 32; i++)
    for (int b = 0; b < 16; b++) {
      ASSERT_EQ(copied.v[i].b[b], i == 3 ? source[b] : 0);
      ASSERT_EQ(loaded.v[i].b[b], i == 3 ? source[b] : 0);
    }
}

// Under checks a copy lands when it is waited for and not earlier: group by group, oldest first.
TEST(CpAsync, LandsWhenItsGroupIsWaitedFor) {
  alignas(16) char source[3 * 512];
  for (std::size_t i = 0; i < sizeof source; i++) source[i] = char(1 + i / 512);
  std::vector<std::vector<int>> seen;
  const auto outcome = run_kernel(
      {.shared_bytes = 2048,
       .checks = true,
       .tensors = {vector("source", source, sizeof source, Role::input)}},
      [&] {
        name_shared("bytes", 0, 2048, 1, 512, 4);
        const auto look = [&] {  // past the checks: this test is not a kernel's read
          std::vector<int> v;
          for (int k = 0; k < 3; k++) v.push_back(sim::self().shared[512 * k + 5]);
          seen.push_back(v);
        };
        for (int k = 0; k < 3; k++) {
          const auto from = lanes_of<i64>([&](int i) { return 512 * k + 16 * i; });
          cp_async(Lanes<u32>(lane_id() * 16 + Lanes<i32>(512 * k)),
                   static_cast<const char*>(source) + from, Lanes<i32>(16));
          cp_async_commit();
        }
        look();
        cp_async_wait<2>(), look();
        cp_async_wait<1>(), look();
        cp_async_wait<0>(), look();
      });
  EXPECT_TRUE(outcome.findings.empty());
  const int poison = 0x7f;
  EXPECT_EQ(seen, (std::vector<std::vector<int>>{
                      {poison, poison, poison}, {1, poison, poison}, {1, 2, poison}, {1, 2, 3}}));
}

// ---- global memory

class GlobalMemoryTest : public ::testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(Checks, GlobalMemoryTest, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "on" : "off"; });

template <class T>
void expect_predicated(bool checks, T (*make)(int)) {
  std::vector<T> in(32), out(32, make(-1));
  for (int i = 0; i < 32; i++) in[std::size_t(i)] = make(i);
  Lanes<T> got;
  const auto outcome = run_kernel(
      {.checks = checks,
       .tensors = {vector("in", in.data(), 32, Role::input),
                   vector("out", out.data(), 32, Role::output)}},
      [&] {
        // Lanes that are off point outside the tensors.
        const auto place = lanes_of<i64>([](int i) { return i % 4 == 1 ? i64(1) << 40 : 31 - i; });
        const Lanes<bool> on = mask_of([](int i) { return i % 4 != 1; });
        got = ld_global(static_cast<const T*>(in.data()) + place, on, make(99));
        st_global(out.data() + place, got, on);
      });
  for (const auto& f : outcome.findings) EXPECT_EQ(f.check, "coverage") << f.message;
  for (int i = 0; i < 32; i++) {
    const T expected = i % 4 == 1 ? make(99) : in[std::size_t(31 - i)];
    EXPECT_EQ(std::memcmp(&got.v[i], &expected, sizeof(T)), 0);
    const T stored = i % 4 == 2 ? make(-1) : in[std::size_t(i)];  // 31 - i is 1 mod 4
    EXPECT_EQ(std::memcmp(&out[std::size_t(i)], &stored, sizeof(T)), 0) << i;
  }
}
TEST_P(GlobalMemoryTest, PredicatedAccesses) {
  expect_predicated<float>(GetParam(), [](int i) { return float(i); });
  expect_predicated<f16>(GetParam(), [](int i) { return f16{u16(i)}; });
  expect_predicated<Fq>(GetParam(), [](int i) { return Fq::of(i); });
}

// A partial chunk: the bytes that exist, zeros after, and nothing behind them is touched.
TEST_P(GlobalMemoryTest, PartialChunks) {
  for (int last = 2; last <= 16; last += 2) {
    // Rows of 16 + last bytes would not be aligned; each row has its own vector, exactly that long.
    std::vector<std::vector<u16>> row;
    std::vector<sim::GlobalTensor> tensors;
    Lanes<const char*> p;
    for (int i = 0; i < 32; i++) {
      row.emplace_back(std::size_t(last / 2));
      for (u16& x : row.back()) x = u16(1 + i * 8 + (&x - row.back().data()));
    }
    for (int i = 0; i < 32; i++) {
      const auto& r = row[std::size_t(i)];
      tensors.push_back(vector("row", r.data(), i64(r.size()), Role::input));
      p.v[i] = reinterpret_cast<const char*>(r.data());
    }
    Chunk got;
    const auto outcome = run_kernel({.checks = GetParam(), .tensors = tensors},
                                    [&] { got = ld_global_chunk(p, Lanes<i32>(last)); });
    EXPECT_TRUE(outcome.findings.empty());
    for (int i = 0; i < 32; i++)
      for (int k = 0; k < 8; k++) {
        u16 x;
        std::memcpy(&x, &got.v[i].b[2 * k], 2);
        ASSERT_EQ(x, k < last / 2 ? row[std::size_t(i)][std::size_t(k)] : 0);
      }
  }
}

}  // namespace
}  // namespace tessera
