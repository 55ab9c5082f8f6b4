// SPDX-License-Identifier: Apache-2.0
// Masks against the definition in 64-bit arithmetic; shared memory's layout and rings.
#include "kernels/tile/key_range.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <set>
#include <string>
#include <vector>

#include "kernels/tile/shared.h"
#include "sim/random.h"
#include "tests/sim/run_kernel.h"

namespace tessera {
namespace {

using sim::run_kernel;

// The definition. 128 bits, so that the oracle cannot overflow where 64 might.
bool sees(const Band& band, i64 k_len, i64 query, i64 key) {
  const __int128 distance = __int128(key) - (__int128(query) + band.shift);
  const bool left = band.left == Band::kUnlimited || -__int128(band.left) <= distance;
  const bool right = band.right == Band::kUnlimited || distance <= band.right;
  return left && right && key < k_len;
}

void expect_equal(const Band& band, i32 k_len, const Lanes<i32>& query, const Lanes<i32>& key) {
  const KeyRange keys{band.key_left(), band.key_right(), k_len};
  const Lanes<bool> visible = keys.visible(query, key), in_band = keys.in_band(query, key);
  for (int i = 0; i < 32; i++) {
    const bool expected = sees(band, k_len, query.v[i], key.v[i]);
    ASSERT_EQ(visible.v[i] != 0, expected)
        << "left " << band.left << " right " << band.right << " shift " << band.shift << " k_len "
        << k_len << " query " << query.v[i] << " key " << key.v[i];
    ASSERT_EQ(in_band.v[i] != 0, sees(band, i64(1) << 40, query.v[i], key.v[i]));
  }
}

TEST(KeyRange, SmallShapesCompletely) {
  const i64 side[] = {Band::kUnlimited, -3, -1, 0, 1, 2, 5, 9};
  for (const i64 left : side)
    for (const i64 right : side)
      for (i64 shift = -9; shift <= 9; shift++)
        for (i32 k_len = 0; k_len <= 8; k_len += 4)
          for (i32 query = 0; query < 8; query++)
            expect_equal({left, right, shift}, k_len, Lanes<i32>(query), lane_id());
}

TEST(KeyRange, LargeNumbers) {
  constexpr i64 kLongest = i64(1) << 30, kMax32 = (i64(1) << 31) - 1;
  const auto near = [](u64 r, const std::vector<i64>& places) {
    return places[std::size_t(r % places.size())] + i64(r >> 32) % 5 - 2;
  };
  for (u64 n = 0; n < 100000; n++) {
    Band band;
    const std::vector<i64> places{0,       kLongest, -kLongest,    kMax32,
                                  -kMax32, 1000,     i64(1) << 33, -(i64(1) << 40)};
    if (sim::mix(n, 1) % 3) band.left = near(sim::mix(n, 2), places);
    if (sim::mix(n, 3) % 3) band.right = near(sim::mix(n, 4), places);
    band.shift = near(sim::mix(n, 5), {0, kMax32, -kMax32 - 1, kLongest, -kLongest, 77});
    const i32 k_len = i32(near(sim::mix(n, 6), {2, 1000, kLongest - 3}));
    const auto position = [&](u64 salt) {  // 0 .. 2^30 - 1
      return sim::lanes_of<i32>([&](int i) {
        const i64 x = near(sim::mix(n * 64 + u64(i), salt), {2, 998, kLongest / 2, kLongest - 3});
        return std::min(x, kLongest - 1);
      });
    };
    expect_equal(band, k_len, position(7), position(8));
  }
}

TEST(KeyRange, TheMasksThatPeopleUse) {
  const auto row = [](const Band& band, i32 k_len, i32 query) {
    std::string s;
    const Lanes<bool> v = KeyRange{band.key_left(), band.key_right(), k_len}.visible(
        Lanes<i32>(query), lane_id());
    for (int i = 0; i < 6; i++) s += v.v[i] ? '1' : '0';
    return s;
  };
  EXPECT_EQ(row({}, 5, 3), "111110");
  EXPECT_EQ(row({.right = 0}, 6, 2), "111000");               // causal, top left
  EXPECT_EQ(row({.right = 0, .shift = 2}, 6, 2), "111110");   // bottom right, k_len - q_len = 2
  EXPECT_EQ(row({.right = 0, .shift = -2}, 6, 1), "000000");  // fewer keys than queries: no key
  EXPECT_EQ(row({.left = 1, .right = 1}, 6, 3), "001110");    // a window
  EXPECT_EQ(row({.left = 1, .right = 0, .shift = 1}, 6, 3), "000110");  // sliding, bottom right
}

// ---- tiles

// The keys that a query sees, [from, to).
struct Interval {
  i64 from, to;
};
Interval seen_by(const Band& band, i64 k_len, i64 query) {
  const __int128 at = __int128(query) + band.shift;
  const __int128 from = band.left == Band::kUnlimited ? 0 : at - band.left,
                 to = band.right == Band::kUnlimited ? k_len : at + band.right + 1;
  const i64 a = i64(from < 0       ? 0
                    : from > k_len ? k_len
                                   : from),
            b = i64(to < 0       ? 0
                    : to > k_len ? k_len
                                 : to);
  return {a, a < b ? b : a};
}

// The tiles of queries q0 .. q_last against every one of these queries.
void expect_tiles(const Band& band, i32 k_len, i32 q0, i32 q_last, i32 block_k, u64 seed) {
  const KeyRange keys{band.key_left(), band.key_right(), k_len};
  const KeyRange::Tiles t = keys.tiles(q0, q_last, block_k),
                        whole = keys.full_tiles(q0, q_last, block_k);
  SCOPED_TRACE(::testing::Message() << "left " << band.left << " right " << band.right << " shift "
                                    << band.shift << " k_len " << k_len << " queries " << q0 << ".."
                                    << q_last << " block_k " << block_k);
  std::vector<Interval> rows;
  for (i64 q = q0; q <= q_last; q++) rows.push_back(seen_by(band, k_len, q));
  const auto visited = [&](i64 j) {
    for (const Interval& r : rows)
      if (r.from < r.to && r.from < (j + 1) * block_k && r.to > j * block_k) return true;
    return false;
  };
  const auto full = [&](i64 j) {
    for (const Interval& r : rows)
      if (r.from > j * block_k || r.to < (j + 1) * block_k) return false;
    return true;
  };
  i64 end = 0;
  for (const Interval& r : rows)
    if (r.from < r.to) end = std::max(end, r.to);
  if (end > 0) {
    ASSERT_EQ(keys.end(q_last), end);
  }
  ASSERT_EQ(t.count() > 0, end > 0);
  const i64 all = (i64(k_len) + block_k - 1) / block_k;
  std::set<i64> places;  // all tiles, or those where something changes
  if (all <= 64) {
    i64 full_ones = 0;
    for (i64 j = 0; j < all; j++) places.insert(j), full_ones += full(j);
    ASSERT_EQ(whole.count(), full_ones);
  } else {
    for (const i64 at : {i64(0), i64(t.first), i64(t.last), i64(whole.first), i64(whole.last), all,
                         i64(sim::mix(seed, 1) % u64(all))})
      for (i64 j = at - 2; j <= at + 2; j++)
        if (j >= 0 && j < all) places.insert(j);
    for (const Interval& r : rows)
      for (const i64 key : {r.from, r.to})
        for (i64 j = key / block_k - 1; j <= key / block_k + 1; j++)
          if (j >= 0 && j < all) places.insert(j);
  }
  for (const i64 j : places) {
    const bool inside = j >= t.first && j < t.last;
    ASSERT_EQ(inside, visited(j)) << "tile " << j;
    ASSERT_EQ(j >= whole.first && j < whole.last, full(j)) << "tile " << j;
    if (inside) {
      ASSERT_EQ(keys.masked(q0, q_last, i32(j), block_k), !full(j)) << "tile " << j;
    }
  }
}

TEST(KeyRangeTiles, SmallShapesCompletely) {
  const i64 side[] = {Band::kUnlimited, -5, -1, 0, 1, 3, 7, 12};
  for (const i64 left : side)
    for (const i64 right : side)
      for (i64 shift = -9; shift <= 9; shift += 3)
        for (const i32 k_len : {0, 1, 3, 4, 5, 8, 11, 16})
          for (const i32 q0 : {0, 4, 8})
            for (const i32 q_last : {q0, q0 + 1, q0 + 3})
              for (const i32 block_k : {1, 4, 8})
                expect_tiles({left, right, shift}, k_len, q0, q_last, block_k, 0);
}

TEST(KeyRangeTiles, LargeNumbers) {
  constexpr i64 kLongest = i64(1) << 30;
  const auto near = [](u64 r, const std::vector<i64>& places) {
    return places[std::size_t(r % places.size())] + i64(r >> 32) % 5 - 2;
  };
  for (u64 n = 0; n < 200000; n++) {
    Band band;
    const std::vector<i64> places{0,    kLongest, -kLongest,    kLongest / 2,   -kLongest / 2,
                                  1000, -1000,    i64(1) << 33, -(i64(1) << 40)};
    if (sim::mix(n, 1) % 4) band.left = near(sim::mix(n, 2), places);
    if (sim::mix(n, 3) % 4) band.right = near(sim::mix(n, 4), places);
    band.shift = near(sim::mix(n, 5), {0, 0, kLongest - 2, -kLongest + 2, 77});
    const i32 k_len = i32(near(sim::mix(n, 6), {2, 1000, kLongest / 2, kLongest - 2}));
    const i32 block_q = i32(16 << sim::mix(n, 7) % 5), block_k = i32(32 << sim::mix(n, 8) % 3);
    const i64 query = near(sim::mix(n, 9), {2, 1000, kLongest / 2, kLongest - 3});
    const i32 q0 = i32(query / block_q * block_q);
    const i32 q_last = i32(std::min<i64>(q0 + block_q, kLongest) - 1 -
                           i64(sim::mix(n, 10) % 3 == 0 ? sim::mix(n, 11) % 5 : 0));
    expect_tiles(band, k_len, q0, q_last, block_k, n);
    if (HasFatalFailure()) return;
  }
}

// Long blocks first, neighbours in the grid at the same rows of different heads.
TEST(LongestFirst, EveryBlockOnceFromTheLastRowsOn) {
  const i32 shapes[][4] = {{1, 64, 1, 1}, {100, 32, 3, 2}, {64, 64, 2, 1}, {129, 64, 1, 5}};
  for (const auto& s : shapes) {
    const i32 tiles = (s[0] + s[1] - 1) / s[1], all = tiles * s[2] * s[3];
    std::vector<QueryTile> at(std::size_t(all), QueryTile{});
    run_kernel({.blocks = all}, [&] { at[block_index()] = longest_first(s[0], s[1], s[2], s[3]); });
    std::set<std::array<i32, 3>> apart;
    for (i32 i = 0; i < all; i++) {
      const QueryTile& b = at[std::size_t(i)];
      EXPECT_EQ(b.q0, (tiles - 1 - i / (s[2] * s[3])) * s[1]);
      EXPECT_LT(b.head, s[2]);
      EXPECT_LT(b.batch, s[3]);
      if (i % s[2] > 0) {
        EXPECT_EQ(b.head, at[std::size_t(i - 1)].head + 1);
      }
      apart.insert({b.q0, b.head, b.batch});
    }
    EXPECT_EQ(apart.size(), std::size_t(all));
  }
}

// ---- layout

using Tile = SharedTile<f16, 16, 48>;  // 1536 bytes: takes 2048

TEST(SharedMemory, TilesFollowEachOtherAtMultiplesOf1024) {
  std::vector<u32> base;
  static_assert(Tile::kBytes == 2048 && Ring<Tile, 3>::kBytes == 3 * 2048);
  const auto outcome = run_kernel({.shared_bytes = 5 * Tile::kBytes}, [&] {
    SharedMemory shared;
    base.push_back(shared.tile<Tile>("first").base);
    base.push_back(shared.ring<Ring<Tile, 3>>("ring").base);
    base.push_back(shared.tile<Tile>("last").base);
  });
  EXPECT_EQ(base, (std::vector<u32>{0, 2048, 4 * 2048}));
  EXPECT_EQ(outcome.counters.shared_bytes, 4u * 2048 + 16 * 48 * 2);
}

template <int Stages>
void expect_ring() {
  const Ring<Tile, Stages> ring{1024};
  for (int j = 0; j < 5 * Stages; j++) {
    EXPECT_EQ(ring.acquire(j).base, ring.ready(j).base);
    EXPECT_EQ(ring.acquire(j).base, ring.acquire(j + Stages).base);
    std::set<u32> live;  // the slots of any `Stages` steps in a row are apart
    for (int i = 0; i < Stages; i++) {
      live.insert(ring.acquire(j + i).base);
      EXPECT_EQ((ring.acquire(j + i).base - 1024) % Tile::kBytes, 0u);
      EXPECT_LE(ring.acquire(j + i).base + Tile::kBytes, u32(1024 + ring.kBytes));
    }
    EXPECT_EQ(live.size(), std::size_t(Stages));
  }
}
TEST(Ring, SlotsAreApartAndComeBack) {
  expect_ring<1>();
  expect_ring<2>();
  expect_ring<3>();
  expect_ring<4>();
}

}  // namespace
}  // namespace tessera
