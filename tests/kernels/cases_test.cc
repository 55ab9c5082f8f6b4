// SPDX-License-Identifier: Apache-2.0
// Faults that real attention kernels had, as tests of every attention kernel that exists: masks,
// sizes and what an LSE is. The ids are those of docs/cases.md, which names the public reports.
// Numbers: cases_numbers_test.cc; memory, launches and limits: cases_memory_test.cc.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "kernels/registry.h"
#include "tests/kernels/small_case.h"

namespace tessera::testing {
namespace {

class Cases : public ::testing::TestWithParam<KernelType> {
 protected:
  Small small(i64 q_len, i64 k_len, i64 head_dim, i64 batch = 1, i64 heads = 1,
              i64 heads_kv = 0) const {
    return {GetParam().kernel, GetParam().dtype, q_len, k_len, head_dim, batch, heads, heads_kv};
  }
  bool expresses_empty_rows() const { return GetParam().kernel != "flash_step1"; }
};
INSTANTIATE_TEST_SUITE_P(Kernels, Cases, ::testing::ValuesIn(kernels_and_types()),
                         [](const auto& i) { return kernel_type_name(i.param); });

TEST_P(Cases, B01_NoMultipleOfTheBlock) {  // and none of a block's rows go to the next head
  for (const i64 n : {1, 192, 131}) {
    Case c;
    c.kernel = GetParam().kernel, c.dtype = GetParam().dtype;
    c.heads = n == 192 ? 8 : 3, c.q_len = c.k_len = n, c.head_dim = 16;
    for (const Causal causal : {Causal::none, Causal::top_left}) {
      c.causal = causal;
      expect_right(c);
    }
  }
}

TEST_P(Cases, B06_CausalWithUnequalLengths) {  // the mask can be read off O
  const i64 shapes[][2] = {{2, 5}, {5, 2}, {1, 16}, {4, 9}};
  for (const auto& s : shapes)
    for (const Causal causal : {Causal::top_left, Causal::bottom_right}) {
      if (causal == Causal::bottom_right && s[0] > s[1] && !expresses_empty_rows()) continue;
      Small p = small(s[0], s[1], 16);
      p.options.causal = causal;
      for (i64 j = 0; j < s[1]; j++) p.at(p.v, j, j) = 1;
      p.run();
      for (i64 i = 0; i < s[0]; i++) {
        const i64 last = std::min(s[1] - 1, causal == Causal::top_left ? i : i + s[1] - s[0]);
        for (i64 j = 0; j < s[1]; j++)
          EXPECT_NEAR(p.at(p.o, i, j), j <= last ? 1.0 / double(last + 1) : 0,
                      4e-3 / double(std::max<i64>(last + 1, 1)));
        if (last < 0)
          EXPECT_EQ(p.lse[std::size_t(i)], -kInf);
        else
          EXPECT_NEAR(p.lse[std::size_t(i)], std::log(double(last + 1)), 1e-6);
      }
    }
}

// Whole tiles of queries, and of one some, without a key: O = 0, LSE = -inf, and nothing of what
// was there before.
void expect_top_rows_empty(Small p) {
  p.options.causal = Causal::bottom_right;
  p.fill_random();
  p.run();
  const Verdict v = p.verdict();
  EXPECT_TRUE(v.pass()) << v.text();
  for (i64 h = 0; h < p.heads; h++)
    for (i64 i = 0; i < p.q_len - p.k_len; i++) {
      EXPECT_EQ(p.lse[std::size_t(h * p.q_len + i)], -kInf) << i;
      for (i64 d = 0; d < p.head_dim; d++) EXPECT_EQ(p.at(p.o, h * p.q_len + i, d), 0) << i;
    }
}

TEST_P(Cases, B07_RowsWithoutAKey) {
  if (!expresses_empty_rows()) GTEST_SKIP() << "refused: api_test, rows_without_a_key";
  expect_top_rows_empty(small(5, 2, 16));
  expect_top_rows_empty(small(5, 2, 16, 1, 6, 2));
}
TEST(Cases, B07_WholeTilesWithoutAKey) {
  for (const Configured& c : every_config("flash_forward")) {
    if (c.dtype == Dtype::field) continue;
    SCOPED_TRACE(c.name());
    Small p("flash_forward", c.dtype, c.row->rows + 3 + 7, 7, c.bucket, 1, 2);
    p.options.arch = name_of(c.row->arch), p.options.config = c.row->name;
    expect_top_rows_empty(p);
  }
}

TEST_P(Cases, B08_B11_NoKeysAtAll) {
  Small p = small(5, 0, 16, 2, 3);
  p.run();
  for (const double x : p.o) EXPECT_EQ(x, 0);
  for (const double x : p.lse) EXPECT_EQ(x, -kInf);
}

// Two parts of the keys, merged by their LSE as split kernels do; an empty part changes nothing.
TEST_P(Cases, B08_PartsMergeByTheirLse) {
  const auto part = [&](i64 from, i64 to) {
    Small all = small(5, 40, 16), p = small(5, to - from, 16);
    all.fill_random();
    p.q = all.q;
    p.k.assign(all.k.begin() + from * 16, all.k.begin() + to * 16);
    p.v.assign(all.v.begin() + from * 16, all.v.begin() + to * 16);
    p.run();
    return p;
  };
  const Small whole = part(0, 40);
  for (const i64 cut : {0, 17, 40}) {
    const Small a = part(0, cut), b = part(cut, 40);
    for (std::size_t i = 0; i < 5; i++) {
      const double top = std::max(a.lse[i], b.lse[i]), wa = std::exp(a.lse[i] - top),
                   wb = std::exp(b.lse[i] - top);
      EXPECT_NEAR(top + std::log(wa + wb), whole.lse[i], 2e-6) << cut;
      for (i64 d = 0; d < 16; d++) {
        const double merged = (wa * a.at(a.o, i64(i), d) + wb * b.at(b.o, i64(i), d)) / (wa + wb);
        EXPECT_NEAR(merged, whole.at(whole.o, i64(i), d), cut == 17 ? 2e-2 : 0) << cut;
      }
    }
  }
}

TEST_P(Cases, B11_EmptySizes) {
  const i64 sizes[][4] = {{0, 1, 5, 7}, {1, 0, 5, 7}, {1, 1, 0, 7}, {1, 1, 0, 0}, {0, 0, 0, 0}};
  for (const auto& s : sizes)
    for (const Causal causal : {Causal::none, Causal::top_left, Causal::bottom_right}) {
      Small p(GetParam().kernel, GetParam().dtype, s[2], s[3], 16, s[0], s[1], s[1]);
      p.options.causal = causal;
      p.run();
      EXPECT_EQ(p.report.counters.blocks, 0u);
    }
}

TEST_P(Cases, B31_TheLastChannelCounts) {  // a cut head_dim shows uniform weights
  for (const i64 d : {1, 8, 40, 63, 72, 80, 96, 100, 128}) {
    Small p = small(3, 5, d);
    for (i64 i = 0; i < 3; i++) p.at(p.q, i, d - 1) = 2;
    for (i64 j = 0; j < 5; j++) p.at(p.k, j, d - 1) = double(j), p.at(p.v, j, d - 1) = double(j);
    p.run();
    double sum = 0, weighted = 0;
    for (int j = 0; j < 5; j++) {
      const double w = std::exp(2.0 * j / std::sqrt(double(d)));  // scale from the true head_dim
      sum += w, weighted += w * j;
    }
    EXPECT_NEAR(p.at(p.o, 0, d - 1), weighted / sum, 4.0 * 0x1p-7) << d;
    EXPECT_NEAR(p.lse[0], std::log(sum), 1e-5) << d;
  }
}

std::string refusal(Small p) {
  try {
    p.run();
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

TEST_P(Cases, B31_LargerHeadDimsAreRefused) {
  for (const i64 d : {129, 136, 160, 192, 256, 257})
    EXPECT_EQ(refusal(small(3, 5, d)).find("q: head_dim " + std::to_string(d)), 0u);
}

TEST_P(Cases, B31_TheMaximumIsTakenAfterScaling) {  // a negative scale turns the order of scores
  for (const double scale : {1.0, 0.0, -1.0}) {
    Small p = small(2, 50, 16);
    p.options.scale = scale;
    for (i64 i = 0; i < 2; i++) p.at(p.q, i, 3) = 8;
    for (i64 j = 0; j < 50; j++) p.at(p.k, j, 3) = double(j - 25), p.at(p.v, j, 0) = double(j);
    p.run();
    const Verdict v = p.verdict();
    EXPECT_TRUE(v.pass()) << v.text();
    const double want = scale > 0 ? 49 : scale < 0 ? 0 : 24.5;
    EXPECT_NEAR(p.o[0], want, scale == 0 ? 0.1 : 0.3);
  }
}

// Query head h reads key head h / (Hq / Hkv): equal bits with K and V repeated for every head.
TEST_P(Cases, B33_GroupedQueriesEqualRepeatedKeys) {
  const i64 groups[][2] = {{6, 2}, {8, 1}, {4, 4}};
  for (const auto& g : groups) {
    Small grouped = small(17, 17, 32, 2, g[0], g[1]), repeated = small(17, 17, 32, 2, g[0]);
    grouped.fill_random();
    repeated.q = grouped.q;
    const i64 per_head = 17 * 32;
    for (i64 x = 0; x < i64(repeated.k.size()); x++) {
      const i64 bh = x / per_head, b = bh / g[0], h = bh % g[0];
      const std::size_t from = std::size_t((b * g[1] + h / (g[0] / g[1])) * per_head +
                                           x % per_head);
      repeated.k[std::size_t(x)] = grouped.k[from], repeated.v[std::size_t(x)] = grouped.v[from];
    }
    grouped.run(), repeated.run();
    EXPECT_EQ(grouped.o, repeated.o);
    EXPECT_EQ(grouped.lse, repeated.lse);
  }
}

TEST_P(Cases, B34_BadSizesAreNamed) {
  float x[4096] = {};
  const Dtype d = GetParam().dtype;
  AttentionOptions options;
  options.kernel = GetParam().kernel;
  const auto refused = [&](i64 heads, i64 k_heads, i64 k_len, i64 v_len, i64 k_dim) {
    const auto tensor = [&](i64 at, i64 h, i64 n, i64 dim) {
      return contiguous(x + 1024 * at, d, {1, h, n, dim});
    };
    try {
      attention(tensor(0, heads, 2, 4), tensor(1, k_heads, k_len, k_dim),
                tensor(2, k_heads, v_len, k_dim), tensor(3, heads, 2, 4), nullptr, options);
    } catch (const Error& e) {
      EXPECT_EQ(e.kind, ErrorKind::invalid_argument);
      return std::string(e.what());
    }
    return std::string("accepted");
  };
  EXPECT_EQ(refused(3, 2, 5, 5, 4), "q: heads 3 is not a multiple of k's heads 2");
  EXPECT_EQ(refused(33, 2, 5, 5, 4), "q: heads 33 is not a multiple of k's heads 2");
  EXPECT_EQ(refused(2, 0, 5, 5, 4), "q: heads 2 is not a multiple of k's heads 0");
  EXPECT_EQ(refused(2, 2, 5, 6, 4), "v: length 6 differs from k's 5");
  EXPECT_EQ(refused(2, 2, 5, 5, 8), "k: head_dim 8 differs from q's 4");
  EXPECT_EQ(refused(2, 2, 5, 5, 4), "accepted");
}

TEST_P(Cases, B35_LseIsNaturalAndScaled) {
  Small p = small(1, 8, 16);
  p.run();
  EXPECT_NEAR(p.lse[0], 2.0794415, 1e-6);
  Small one = small(1, 1, 16);
  one.options.scale = 0.3;
  for (double& x : one.q) x = 0.5;
  for (double& x : one.k) x = 2;
  one.run();
  EXPECT_NEAR(one.lse[0], 0.3 * 16, 1e-6);
}

}  // namespace
}  // namespace tessera::testing
