// SPDX-License-Identifier: Apache-2.0
// Every configuration of flash_forward, forced by its name: head_dims, groups, scales, errors
// beside plain attention's, exponentials, and one set of bits. Lengths and masks:
// flash_forward_grid_test; rows: flash_forward_rows_test.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "kernels/registry.h"
#include "reference/inputs.h"
#include "tests/kernels/small_case.h"

namespace tessera::testing {
namespace {

class FlashForward : public ::testing::TestWithParam<Configured> {
 protected:
  const ConfigRow& row() const { return *GetParam().row; }
};
INSTANTIATE_TEST_SUITE_P(Configurations, FlashForward,
                         ::testing::ValuesIn(every_config("flash_forward")),
                         [](const auto& i) { return i.param.name(); });

TEST_P(FlashForward, EveryHeadDim) {
  int run = 0;
  for (const i64 d : {1, 2, 7, 8, 31, 32, 33, 40, 63, 64, 65, 72, 80, 95, 96, 97, 100, 127, 128}) {
    // A name may have another row for other head_dims.
    if (bucket_of(row(), int(d)) != GetParam().bucket ||
        find_config(find_kernel("flash_forward"), row().arch, GetParam().dtype, int(d),
                    std::string(row().name))
                .head_dims != row().head_dims)
      continue;
    Case c = GetParam().start();
    c.q_len = 19, c.k_len = row().cols + 5, c.head_dim = d, c.causal = Causal::bottom_right;
    EXPECT_EQ(expect_right_with_checks(c).head_dim_bucket, GetParam().bucket);
    run++;
  }
  EXPECT_GE(run, 3);
}

TEST_P(FlashForward, GroupedQueries) {  // head h reads key head h / (heads / heads_kv)
  const i64 groups[][2] = {{6, 2}, {8, 1}, {4, 4}};
  for (const auto& g : groups) {
    Case c = GetParam().start();
    c.batch = 2, c.heads = g[0], c.heads_kv = g[1], c.q_len = 17, c.k_len = 23;
    c.causal = Causal::top_left;
    expect_right(c);
  }
}

TEST_P(FlashForward, AnyScale) {
  for (const double scale : {1.0, 0.0, 0.3, -0.7, 1e-30, -1e-30, 1e-45}) {
    Case c = GetParam().start();
    c.q_len = 20, c.k_len = 2 * row().cols + 3, c.scale = scale, c.magnitude = 0.5;
    expect_right_with_checks(c);
  }
}

// So large that a single key has all the weight: which one, and LSE, are known.
TEST_P(FlashForward, EnormousScales) {
  if (GetParam().dtype == Dtype::field) GTEST_SKIP() << "the field has no scale";
  for (const double scale : {1e12, -1e12, 1e30, -1e30, 3e38, -3e38}) {
    SCOPED_TRACE(scale);
    Small p("flash_forward", GetParam().dtype, 3, row().cols + 7, GetParam().bucket);
    p.options.arch = name_of(row().arch), p.options.config = row().name;
    p.options.scale = scale;
    p.fill_random();
    const i64 best = row().cols / 2;
    for (double& x : p.q) x = 0;
    for (i64 i = 0; i < 3; i++) p.at(p.q, i, 0) = 1;
    for (i64 j = 0; j < p.k_len; j++) p.at(p.k, j, 0) = (j == best) == (scale > 0) ? 0.5 : -0.25;
    p.run();
    for (i64 i = 0; i < 3; i++) {
      for (i64 d = 0; d < p.head_dim; d++)
        EXPECT_EQ(p.at(p.o, i, d), round_to(p.dtype, float(p.at(p.v, best, d))));
      const double want = std::fabs(scale) * (scale > 0 ? 0.5 : 0.25);
      EXPECT_NEAR(p.lse[std::size_t(i)] / want, 1, 0x1p-22);
    }
  }
}

TEST_P(FlashForward, NoWorseThanTwicePlainAttention) {
  if (GetParam().dtype == Dtype::field) GTEST_SKIP() << "the field has no rounding";
  for (const Causal causal : {Causal::none, Causal::bottom_right}) {
    Case c = GetParam().start();
    c.q_len = 130, c.k_len = 259, c.causal = causal;
    Tensors t = make_inputs(c);
    run(c, t);
    const Errors e = errors_of_o(c, t);
    EXPECT_LE(e.ours, 2 * e.plain) << c;
  }
}

// With Q = 0 every score is 0, so a warp looks after its maxima exactly as long as one of its rows
// has not met a key.
TEST_P(FlashForward, ExponentialsHaveTheirClosedForm) {
  if (GetParam().dtype == Dtype::field) GTEST_SKIP() << "the field counts none";
  for (const Causal causal : {Causal::none, Causal::top_left, Causal::bottom_right})
    for (const i64 k_len : {i64(row().cols), i64(3 * row().cols - 2)}) {
      Case c = GetParam().start();
      c.batch = 2, c.q_len = row().rows + 9, c.k_len = k_len, c.causal = causal;
      Tensors t = make_inputs(c);
      t.q = Bytes(t.q.size(), 0);
      const Counters n = run(c, t).counters;
      const Band band = problem(c).band;
      const i64 warp_rows = row().rows / row().warps;
      const bool words = c.dtype == Dtype::f32 || c.dtype == Dtype::field;
      const bool wide = warp_rows == 16 && bucket_of(row(), c.head_dim) % 64 == 0 &&
                        row().cols >= 32;
      const i64 row_lanes = !words || row().q == QHome::registers ? 4 : wide ? 16 : 8;
      // Columns of a first or masked tile that are weighed at once.
      const bool in_parts = row().stages == 2 && row().q != QHome::registers;
      const i64 part = in_parts ? std::min<i64>(32, row().cols) : row().cols;
      u64 want = 0;
      for (i64 q0 = 0; q0 < c.q_len; q0 += row().rows) {
        std::set<i64> met;  // rows that have met a key; rows past q_len are rows like others
        for (i64 k0 = 0; k0 < k_len; k0 += row().cols) {
          const auto sees = [&](i64 i, i64 key) {  // bands here have no left side
            return visible(band, i, key, k_len);
          };
          bool visited = false;
          for (i64 i = q0; i < std::min(q0 + row().rows, c.q_len); i++)
            visited = visited || sees(i, k0);
          if (!visited) continue;
          want += u64(row().rows * row().cols);
          for (i64 k = k0; k < k0 + row().cols; k += part)
            for (i64 first = q0; first < q0 + row().rows; first += warp_rows) {
              bool raised = false;
              for (i64 i = first; i < first + warp_rows; i++) {
                raised = raised || !met.count(i);
                if (sees(i, k)) met.insert(i);
              }
              if (raised) want += u64(row_lanes * warp_rows);  // once for each of a row's lanes
            }
        }
      }
      EXPECT_EQ(n.exp2, 2 * want) << c;
    }
}

TEST_P(FlashForward, OneSetOfBits) {
  Case c = GetParam().start();
  c.batch = 2, c.q_len = row().rows + 5, c.k_len = 2 * row().cols + 3;
  c.causal = Causal::bottom_right, c.magnitude = 2;
  const auto bits = [&](u64 seed, int threads, bool checks) {
    AttentionOptions o;
    o.order_seed = seed, o.threads = threads, o.checks = checks;
    Tensors t = make_inputs(c);
    const Report r = run(c, t, o);
    for (const Finding& f : r.findings) ADD_FAILURE() << c << f.check << ": " << f.message;
    return hash_o(c, t) + hash_lse(c, t);
  };
  const std::string first = bits(0, 1, false);
  EXPECT_EQ(bits(1, 4, false), first);
  EXPECT_EQ(bits(2, 2, true), first);
}

// An LSE that nobody wants is not written, and O does not change.
TEST_P(FlashForward, WithoutLse) {
  Case c = GetParam().start();
  c.q_len = 21, c.k_len = 37;
  Tensors t = make_inputs(c), alone = make_inputs(c);
  run(c, t);
  AttentionOptions o = options_of(c);
  o.checks = true;
  const auto tensor = [&](Bytes& b, i64 length) {
    return contiguous(b.data(), c.dtype, {1, 1, length, c.head_dim});
  };
  const Report r = attention(tensor(alone.q, 21), tensor(alone.k, 37), tensor(alone.v, 37),
                             tensor(alone.o, 21), nullptr, o);
  EXPECT_TRUE(r.findings.empty());
  EXPECT_EQ(hash_o(c, alone), hash_o(c, t));
}

}  // namespace
}  // namespace tessera::testing
