// SPDX-License-Identifier: Apache-2.0
// Every configuration of flash_forward, forced by its name: lengths around its tiles, every kind of
// band, results, findings and counters. A part of the grid on every commit, another one for each
// configuration; all of it with TESSERA_WHOLE=1.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <set>

#include "kernels/registry.h"
#include "tests/kernels/attention_case.h"

namespace tessera::testing {
namespace {

constexpr i64 kPart = 18;    // one shape of so many, on every commit
constexpr i64 kChecked = 4;  // and one of so many of the whole with the checks on

class FlashForwardGrid : public ::testing::TestWithParam<Configured> {};
INSTANTIATE_TEST_SUITE_P(Configurations, FlashForwardGrid,
                         ::testing::ValuesIn(every_config("flash_forward")),
                         [](const auto& i) { return i.param.name(); });

// One and two tiles, one less and one more.
std::vector<i64> lengths(const ConfigRow& row) {
  std::set<i64> all;
  for (const i64 t : {row.rows, row.cols}) all.insert({1, t - 1, t, t + 1, 2 * t - 1, 2 * t + 1});
  return {all.begin(), all.end()};
}

// Masks in two groups: what people use, and what is left of the bands.
void set_common_mask(Case& c, i64 n) {
  const Causal kinds[] = {Causal::none, Causal::top_left, Causal::bottom_right};
  c.causal = kinds[n % 3];
}
constexpr i64 kBands = 12;
void set_band(Case& c, i64 n, i64 block_q, i64 block_k) {
  const std::optional<i64> none;
  const struct {
    std::optional<i64> left, right;
    Align align;
  } bands[kBands] = {
      {3, 5, Align::top_left},
      {0, block_k, Align::top_left},
      {-2, none, Align::top_left},   // later keys only
      {none, -3, Align::top_left},   // earlier keys only: the first rows have none
      {5, -7, Align::bottom_right},  // empty
      {20, none, Align::bottom_right},
      {none, 10, Align::top_left},
      {7, 9, Align::bottom_right},
      {block_q, -1, Align::bottom_right},
      {-block_k, 2 * block_k, Align::top_left},
      {block_k - 1, 0, Align::bottom_right},
      {none, block_k, Align::bottom_right},
  };
  const auto& b = bands[n % kBands];
  c.left = b.left, c.right = b.right, c.align = b.align;
}

struct TileCounts {
  u64 skipped = 0, full = 0, masked = 0;
};
// By looking at every pair of every tile. Full: every query of the tile sees block_k keys.
TileCounts count_tiles(const Case& c, i64 block_q, i64 block_k) {
  const Band band = problem(c).band;
  TileCounts n;
  for (i64 q0 = 0; q0 < c.q_len; q0 += block_q)
    for (i64 k0 = 0; k0 < c.k_len; k0 += block_k) {
      const i64 rows = std::min(block_q, c.q_len - q0);
      i64 pairs = 0;
      for (i64 i = q0; i < q0 + rows; i++)
        for (i64 j = k0; j < k0 + block_k; j++) pairs += visible(band, i, j, c.k_len);
      ++(pairs == 0 ? n.skipped : pairs == rows * block_k ? n.full : n.masked);
    }
  const u64 heads = u64(c.batch * c.heads);
  return {heads * n.skipped, heads * n.full, heads * n.masked};
}

void expect_right_and_counted(const Case& c, const ConfigRow& row, bool checks) {
  AttentionOptions options;
  options.checks = checks;
  const Counters n = expect_right(c, options).counters;
  const TileCounts want = count_tiles(c, row.rows, row.cols);
  EXPECT_EQ(n.tiles_skipped, want.skipped) << c;
  EXPECT_EQ(n.tiles_full, want.full) << c;
  EXPECT_EQ(n.tiles_masked, want.masked) << c;
  EXPECT_EQ(n.blocks, u64(c.batch * c.heads * ((c.q_len + row.rows - 1) / row.rows))) << c;

  // Products of visited tiles, whole: Q K^T and P V.
  const u64 bucket = u64(bucket_of(row, int(c.head_dim)));
  const u64 products = (want.full + want.masked) * u64(row.rows * row.cols) * bucket * 2;
  const bool tensor_cores = c.dtype == Dtype::f16 || c.dtype == Dtype::bf16;
  const u64 one = tensor_cores ? 16 * 8 * (c.arch == "sm_75" ? 8 : 16) : 1;
  const u64 counted = tensor_cores ? n.mma : n.fma;
  EXPECT_EQ(tensor_cores ? n.fma : n.mma, 0u) << c;
  // With two stages a full tile's scores may be made again by a warp, half a tile at a time.
  const u64 full_scores = row.stages == 2 ? want.full * u64(row.rows * row.cols) * bucket : 0;
  const u64 part = u64(row.rows / row.warps) * std::min<u64>(32, u64(row.cols)) * bucket;
  EXPECT_GE(counted, products / one) << c;
  EXPECT_LE(counted, (products + full_scores) / one) << c;
  EXPECT_EQ((counted * one - products) % part, 0u) << c;
  // No bank conflict, but for 32-bit elements in registers: O on its way out, and Q into them, meet
  // half of the banks, one wavefront more for each of 32 elements.
  const u64 conflicts = n.shared_wavefronts - n.shared_wavefronts_ideal;
  const bool words_in_registers = !tensor_cores && row.q == QHome::registers;
  EXPECT_LE(conflicts, words_in_registers ? 2 * n.blocks * u64(row.rows) * bucket / 32 : 0) << c;
}

TEST_P(FlashForwardGrid, LengthsAroundTheTiles) {
  const ConfigRow& row = *GetParam().row;
  const std::vector<i64> all = lengths(row);
  const char* whole = std::getenv("TESSERA_WHOLE");
  const bool all_of_it = whole && *whole == '1';
  const i64 part = all_of_it ? 1 : all.size() > 6 ? kPart : kPart / 4;
  i64 offset = 0;  // another part for every configuration
  for (const char ch : GetParam().name()) offset = offset * 31 + ch;
  offset = (offset % 1000 + 1000) % 1000;
  i64 n = 0, run = 0;
  for (const i64 q_len : all)
    for (const i64 k_len : all) {
      n++;
      if ((n * 7 + n / i64(all.size()) + offset) % part) continue;
      const bool checks = !all_of_it || run % kChecked == 0;
      Case c = GetParam().start();
      c.q_len = q_len, c.k_len = k_len, c.seed = u64(n);
      if (q_len * k_len < 3000) c.batch = 2, c.heads = 4, c.heads_kv = 2;
      if (run % 3 == 1) c.head_dim -= 5;
      Case banded = c;
      set_common_mask(c, run + offset);
      expect_right_and_counted(c, row, checks);
      set_band(banded, run + offset, row.rows, row.cols);
      expect_right_and_counted(banded, row, checks);
      run++;
    }
  EXPECT_GE(run, 3);
}

// ---- what the tables promise

TEST(FlashForwardTable, TilesOfBothProportions) {
  bool taller = false, wider = false;
  for (const ConfigRow& row : kRows)
    if (row.kernel == "flash_forward")
      taller = taller || row.rows > row.cols, wider = wider || row.rows < row.cols;
  EXPECT_TRUE(taller && wider);
}

TEST(FlashForwardTable, EveryTypeAndHeadDimHasItsCandidates) {
  for (const Arch arch : {Arch::sm_75, Arch::sm_89, Arch::sm_90})
    for (const Dtype d : {Dtype::f32, Dtype::f16, Dtype::bf16})
      for (const int bucket : {32, 64, 96, 128}) {
        int candidates = 0;
        std::set<std::string_view> names;
        for (const Configured& c : every_config("flash_forward"))
          if (c.row->arch == arch && c.dtype == d && c.bucket == bucket)
            candidates++, names.insert(c.row->name);
        EXPECT_GE(candidates, !supports(arch, d) ? 0
                              : d == Dtype::f32  ? 1
                                                 : 2)
            << name_of(arch) << " " << name_of(d) << " " << bucket;
        EXPECT_EQ(names.size(), std::size_t(candidates)) << "two rows of one name";
      }
}

}  // namespace
}  // namespace tessera::testing
