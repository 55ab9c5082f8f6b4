// SPDX-License-Identifier: Apache-2.0
// Rows of flash_forward, in every configuration: maxima that rise slowly, fast, or fall and rise;
// scores so large that they cannot be folded; and none of a row's bits depends on what other rows
// of its warp hold. NaN and inf reach the rows that see them.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "kernels/registry.h"
#include "reference/inputs.h"
#include "tests/kernels/small_case.h"

namespace tessera::testing {
namespace {

std::vector<Configured> float_configs() {
  std::vector<Configured> all;
  for (const Configured& c : every_config("flash_forward"))
    if (c.dtype != Dtype::field) all.push_back(c);
  return all;
}

class FlashForwardRows : public ::testing::TestWithParam<Configured> {
 protected:
  const ConfigRow& row() const { return *GetParam().row; }
  Small small(i64 q_len, i64 k_len, i64 heads = 1) const {
    Small p("flash_forward", GetParam().dtype, q_len, k_len, GetParam().bucket, 1, heads);
    p.options.arch = name_of(row().arch), p.options.config = row().name;
    return p;
  }
};
INSTANTIATE_TEST_SUITE_P(Configurations, FlashForwardRows, ::testing::ValuesIn(float_configs()),
                         [](const auto& i) { return i.param.name(); });

// A kind of row looks at one channel of K, whose values over the keys are its scores, and but for
// `giant` and `low` at the channels behind as well, which are noise.
enum Kind { slow, medium, fast, falling, giant, low, offset, ordinary, kKinds };
Kind kind_of(i64 row) { return Kind(row % kKinds); }

struct Rows {
  Small p;
  double large;  // its square is a score: 3.6e9 in f16, 1e12 in the others
  i64 best;      // the key of the giant score
};
Rows rows_of_all_kinds(Small p, i64 block_k) {
  const i64 n = p.k_len;
  const double large = p.dtype == Dtype::f16 ? 6e4 : 1e6;
  const double lowest = p.dtype == Dtype::f16 ? 6e4 : 1e15;  // squared and negated: to -1e30
  const i64 best = n - block_k - 3;
  p.options.scale = 1.0;
  p.fill_random();
  for (i64 i = 0; i < p.q_len; i++)
    for (i64 d = 0; d < p.head_dim; d++) {
      const Kind kind = kind_of(i);
      double& x = p.at(p.q, i, d);
      x = d < ordinary ? 0 : kind == giant || kind == low ? 0 : 0.3 * x;
      if (d == kind && kind != ordinary)
        x = kind == giant ? large : kind == low ? lowest : kind == offset ? 1000 : 1;
    }
  for (i64 j = 0; j < n; j++) {
    p.at(p.k, j, slow) = 5.0 * double(j) / double(n);          // below 2^8 in all
    p.at(p.k, j, medium) = 5.5 * double(j) / double(block_k);  // raised at every other tile
    p.at(p.k, j, fast) = 40.0 * double(j) / double(block_k);
    p.at(p.k, j, falling) = j < n - 3 ? -30.0 * double(j / block_k) : 60.0;
    p.at(p.k, j, giant) = j == best ? large : 0;
    p.at(p.k, j, low) = -lowest;
    p.at(p.k, j, offset) = 1;
  }
  return {std::move(p), large, best};
}

TEST_P(FlashForwardRows, MaximaOfAllKindsInOneWarp) {
  const i64 n = 3 * row().cols + 5;
  Rows r = rows_of_all_kinds(small(row().rows + 3, n), row().cols);
  Small& p = r.p;
  p.run();
  const auto held = [&](double x) { return double(round_to(p.dtype, float(x))); };
  const double large = held(r.large), lowest = -held(p.at(p.q, low, low));
  for (int kind = 0; kind < kKinds; kind++) {
    // The kind's rows alone, and of K only what they look at: the tolerance is then their own.
    Problem own = p.problem();
    own.q_len = 0;
    std::vector<double> q, o, lse, k, v;
    for (i64 i = kind; i < p.q_len; i += kKinds, own.q_len++) {
      for (i64 d = 0; d < p.head_dim; d++) {
        const bool wide = kind == giant || kind == low;
        q.push_back(wide ? 0 : held(p.at(p.q, i, d))), o.push_back(p.at(p.o, i, d));
      }
      lse.push_back(p.lse[std::size_t(i)]);
    }
    for (i64 j = 0; j < n; j++)
      for (i64 d = 0; d < p.head_dim; d++) {
        k.push_back(d < ordinary && d != kind ? 0 : held(p.at(p.k, j, d)));
        v.push_back(held(p.at(p.v, j, d)));
      }
    if (kind == giant) {  // all the weight is one key's
      for (i64 i = kind; i < p.q_len; i += kKinds) {
        EXPECT_EQ(p.lse[std::size_t(i)], double(float(large * large)));
        for (i64 d = 0; d < p.head_dim; d++)
          EXPECT_EQ(p.at(p.o, i, d), held(p.at(p.v, r.best, d))) << i << " " << d;
      }
      continue;
    }
    const Result want = attention_f64(own, q, k, v);
    if (kind == low)  // what the scores have in common is all that LSE can hold
      for (double& x : k) x = 0;
    const Comparison c = compare(o, want.o, forward_tolerance(own, p.dtype, q, k, v, want));
    EXPECT_TRUE(c.pass) << "kind " << kind << ": " << c.max_abs << " > " << c.tolerance << " at "
                        << c.worst_index;
    if (kind == low) {
      for (const double x : lse) EXPECT_EQ(x, double(float(-lowest * lowest)));
    } else {
      const Comparison l = compare(lse, want.lse, lse_tolerance(own, q, k, want));
      EXPECT_TRUE(l.pass) << "kind " << kind << ": " << l.max_abs << " > " << l.tolerance;
    }
  }
}

TEST_P(FlashForwardRows, NoBitDependsOnOtherRowsOfTheWarp) {
  const i64 n = 2 * row().cols + 5;
  for (const bool causal : {false, true}) {
    Rows r = rows_of_all_kinds(small(row().rows + 3, n), row().cols);
    if (causal) r.p.options.causal = Causal::bottom_right;
    r.p.options.checks = causal;
    Small before = r.p, after = r.p;
    before.run();
    const auto watched = [](i64 i) { return i % 5 == 3; };
    const double wild[] = {NAN, kInf, 6e4, -6e4, 0, -kInf, 1e-6};
    for (i64 i = 0; i < after.q_len; i++)
      for (i64 d = 0; d < after.head_dim; d++)
        if (!watched(i) && (i % 3 || d == i % after.head_dim))
          after.at(after.q, i, d) = wild[i % 7];
    after.run();
    for (i64 i = 0; i < after.q_len; i++) {
      if (!watched(i)) continue;
      EXPECT_EQ(before.lse[std::size_t(i)], after.lse[std::size_t(i)]) << i;
      for (i64 d = 0; d < after.head_dim; d++)
        ASSERT_EQ(before.at(before.o, i, d), after.at(after.o, i, d)) << i << " " << d;
    }
  }
}

// A row that never rises beside rows that do, and alone: its reference is far from 0, so a factor
// that is only nearly 1 would show.
TEST_P(FlashForwardRows, NoBitDependsOnOthersThatRise) {
  const i64 n = 2 * row().cols + 5;
  Rows r = rows_of_all_kinds(small(row().rows, n), row().cols);
  r.p.options.checks = false;
  Small all = r.p;
  all.run();
  for (const Kind kind : {slow, offset, ordinary}) {
    Small alone = r.p;
    for (i64 i = 0; i < alone.q_len; i++)
      for (i64 d = 0; d < alone.head_dim; d++)
        if (kind_of(i) != kind) alone.at(alone.q, i, d) = 0;
    alone.run();
    for (i64 i = kind; i < alone.q_len; i += kKinds) {
      EXPECT_EQ(alone.lse[std::size_t(i)], all.lse[std::size_t(i)]) << kind << " " << i;
      for (i64 d = 0; d < alone.head_dim; d++)
        ASSERT_EQ(alone.at(alone.o, i, d), all.at(all.o, i, d)) << kind << " " << i << " " << d;
    }
  }
}

// ---- NaN and inf in K and V. Every row that sees one follows the formula. Rows that do not may
// turn NaN where their tile of queries sees a later key of the same tile of keys; all others keep
// every bit.

struct Spoiled {
  i64 key;
  double value;
  bool in_v;
};
void expect_reach(const Small& start, const Spoiled& s, i64 block_q, i64 block_k) {
  SCOPED_TRACE(::testing::Message() << s.value << (s.in_v ? " in V" : " in K") << " at " << s.key);
  Small clean = start, p = start;
  clean.run();
  const i64 column = p.head_dim / 3;
  p.at(s.in_v ? p.v : p.k, s.key, column) = s.value;  // of head 0
  p.run();
  const auto held = [&](const std::vector<double>& x) {
    return widen_all(p.dtype, pack(p.dtype, x).data(), i64(x.size()));
  };
  const Problem problem = p.problem();
  const auto q = held(p.q), k = held(p.k), v = held(p.v);
  const Result want = attention_f64(problem, q, k, v);
  const auto tolerance = forward_tolerance(problem, p.dtype, q, k, v, want);
  const auto same = [](double a, double b) { return a == b || (std::isnan(a) && std::isnan(b)); };
  bool anyone = false;
  std::vector<bool> read;  // by tile of queries: the key, though not every row sees it
  for (i64 q0 = 0; q0 < p.q_len; q0 += block_q) {
    read.push_back(false);
    for (i64 i = q0; i < std::min(q0 + block_q, p.q_len); i++) {
      anyone = anyone || visible(problem.band, i, s.key, p.k_len);
      for (i64 j = s.key; j < (s.key / block_k + 1) * block_k && !read.back(); j++)
        read.back() = visible(problem.band, i, j, p.k_len);
    }
  }
  for (i64 r = 0; r < p.heads * p.q_len; r++) {
    const i64 i = r % p.q_len;
    const bool other_head = r >= p.q_len;
    const bool sees = !other_head && visible(problem.band, i, s.key, p.k_len);
    if (!sees && !other_head && read[std::size_t(i / block_q)] && anyone) continue;
    const double lse = p.lse[std::size_t(r)];
    if (!sees || s.in_v) {
      ASSERT_TRUE(same(lse, clean.lse[std::size_t(r)])) << "LSE of row " << r;
    } else {
      const double e = want.lse[std::size_t(r)];
      ASSERT_TRUE(same(lse, e) || std::fabs(lse - e) < 1e-4) << r << ": " << lse << ", not " << e;
    }
    for (i64 d = 0; d < p.head_dim; d++) {
      const double x = p.at(p.o, r, d), e = p.at(want.o, r, d);
      if (!sees || (s.in_v && d != column))
        ASSERT_TRUE(same(x, p.at(clean.o, r, d))) << "row " << r << " column " << d << ": " << x;
      else
        ASSERT_TRUE(same(x, e) || std::fabs(x - e) <= p.at(tolerance, r, d))
            << "row " << r << " column " << d << ": " << x << ", not " << e;
    }
  }
}

TEST_P(FlashForwardRows, NanAndInfReachWhoSeesThem) {
  const i64 block_q = row().rows, block_k = row().cols;
  int n = 0;
  for (const double value : {double(NAN), kInf, -kInf})
    for (const bool in_v : {false, true}) {
      Small p = small(block_q + 20, 2 * block_k + 9, 2);
      p.fill_random(0.7);
      p.options.checks = n == 0;
      const Causal masks[] = {Causal::top_left, Causal::bottom_right, Causal::none};
      p.options.causal = masks[n % 3];
      const i64 keys[] = {5, block_k + 3, block_k - 1};
      expect_reach(p, {std::min(keys[n % 3], p.q_len - 1), value, in_v}, block_q, block_k);
      n++;
    }
}

TEST_P(FlashForwardRows, NanThatNoRowSeesReachesNone) {
  for (const bool in_v : {false, true}) {
    Small p = small(7, row().cols + 9, 2);
    p.fill_random();
    p.options.causal = Causal::top_left;
    expect_reach(p, {12, NAN, in_v}, row().rows, row().cols);  // after the last row's last one
    Small q = small(7, row().cols + 9, 2);
    q.fill_random();
    q.options.left = 2, q.options.align = Align::bottom_right;
    // in the tile before the first that is visited
    expect_reach(q, {row().cols - 7, NAN, in_v}, row().rows, row().cols);
  }
}

}  // namespace
}  // namespace tessera::testing
