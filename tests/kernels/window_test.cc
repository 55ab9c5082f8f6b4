// SPDX-License-Identifier: Apache-2.0
// Sliding windows: what the options mean, which of them leave a row without a key, and results.
#include <gtest/gtest.h>

#include "kernels/arguments.h"
#include "reference/inputs.h"
#include "tests/kernels/attention_case.h"

namespace tessera::testing {
namespace {

using Limit = std::optional<i64>;
constexpr i64 kNone = Band::kUnlimited;

AttentionOptions window(Limit left, Limit right, std::optional<Align> align = {},
                        Causal causal = Causal::none) {
  AttentionOptions o;
  o.left = left, o.right = right, o.align = align, o.causal = causal;
  return o;
}

void expect_band(const AttentionOptions& o, i64 left, i64 right, i64 shift) {
  const Band b = band_of(o, 10, 17);
  EXPECT_EQ(b.left, left);
  EXPECT_EQ(b.right, right);
  EXPECT_EQ(b.shift, shift);
}

TEST(Window, WhatTheOptionsMean) {
  expect_band({}, kNone, kNone, 0);
  expect_band(window(3, 4), 3, 4, 0);
  expect_band(window(-3, {}), -3, kNone, 0);
  expect_band(window({}, 4, Align::bottom_right), kNone, 4, 7);
  expect_band(window(3, {}, Align::top_left), 3, kNone, 0);
  expect_band(window({}, {}, {}, Causal::top_left), kNone, 0, 0);
  expect_band(window(3, {}, {}, Causal::bottom_right), 3, 0, 7);
  expect_band(window(3, {}, Align::bottom_right, Causal::bottom_right), 3, 0, 7);
  const i64 most = AttentionOptions::kMaxWindow;
  expect_band(window(most, -most), most, -most, 0);
}

void expect_refused(const AttentionOptions& o, const std::string& words) {
  try {
    band_of(o, 10, 17);
    FAIL() << words;
  } catch (const Error& e) {
    EXPECT_EQ(e.kind, ErrorKind::invalid_argument);
    EXPECT_EQ(std::string(e.what()).find(words), 0u) << e.what();
  }
}

TEST(Window, ContradictionsAndLimits) {
  const i64 beyond = AttentionOptions::kMaxWindow + 1;
  expect_refused(window(beyond, {}), "left: 1099511627777 is outside -2^40..2^40");
  expect_refused(window({}, -beyond), "right: -1099511627777 is outside");
  expect_refused(window({}, INT64_MIN), "right: -9223372036854775808 is outside");
  expect_refused(window({}, 0, {}, Causal::top_left), "right: 0 beside causal");
  expect_refused(window({}, {}, Align::bottom_right, Causal::top_left),
                 "align: causal is top-left");
  expect_refused(window({}, {}, Align::top_left, Causal::bottom_right),
                 "align: causal is bottom-right");
}

// Every window around small shapes.
template <class F>
void for_each_window(F f) {
  const std::vector<Limit> limits = {{}, -9, -2, -1, 0, 1, 2, 5, 9};
  for (const Limit& left : limits)
    for (const Align align : {Align::top_left, Align::bottom_right}) {
      for (const Limit& right : limits) f(window(left, right, align));
      f(window(left, {}, {}, align == Align::top_left ? Causal::top_left : Causal::bottom_right));
    }
}

TEST(Window, RowsWithoutAKeyInClosedForm) {
  int with = 0, without = 0;
  for (const i64 q_len : {1, 2, 3, 6, 7})
    for (const i64 k_len : {1, 2, 3, 6, 7})
      for_each_window([&](const AttentionOptions& o) {
        const Band band = band_of(o, q_len, k_len);
        bool empty = false;
        for (i64 i = 0; i < q_len; i++) {
          bool any = false;
          for (i64 j = 0; j < k_len; j++) any = any || visible(band, i, j, k_len);
          empty = empty || !any;
        }
        const std::string what = what_empties_a_row(o, q_len, k_len);
        EXPECT_EQ(!what.empty(), empty) << q_len << " " << k_len << " " << what;
        ++(empty ? with : without);
      });
  EXPECT_GT(with, 500);
  EXPECT_GT(without, 500);
}

std::vector<Fq> elements(const Bytes& b) {
  const Fq* f = reinterpret_cast<const Fq*>(b.data());
  return {f, f + b.size() / sizeof(Fq)};
}

TEST(Window, TheFieldEqualsTheFormula) {  // rows without a key among them
  for (const auto& [q_len, k_len] : {std::pair<i64, i64>{6, 40}, {40, 6}, {33, 33}})
    for_each_window([&, q = q_len, k = k_len](const AttentionOptions& o) {
      Case c;
      c.kernel = "flash_step1", c.dtype = Dtype::field, c.q_len = q, c.k_len = k, c.head_dim = 16,
      c.causal = o.causal;
      Tensors t = make_inputs(c);
      run(c, t, o);
      Problem p = problem(c);
      p.band = band_of(o, q, k);
      const FieldResult r = attention_field(p, elements(t.q), elements(t.k), elements(t.v));
      EXPECT_TRUE(r.o == elements(t.o) && r.lse == elements(t.lse))
          << c
          << attention_flags(contiguous(nullptr, c.dtype, {1, 1, q, 16}),
                             contiguous(nullptr, c.dtype, {1, 1, k, 16}), o);
    });
}

TEST(Window, SixteenBitTypesAreRightOrRefused) {
  int right = 0, refused = 0;
  for (const auto& [q_len, k_len] : {std::pair<i64, i64>{6, 40}, {40, 6}, {33, 33}})
    for_each_window([&, q = q_len, k = k_len](const AttentionOptions& o) {
      Case c;
      c.kernel = "flash_step1", c.q_len = q, c.k_len = k, c.head_dim = 16, c.causal = o.causal;
      Tensors t = make_inputs(c);
      const std::string what = what_empties_a_row(o, q, k);
      try {
        run(c, t, o);
        EXPECT_EQ(what, "");
      } catch (const Error& e) {
        EXPECT_EQ(e.kind, ErrorKind::unsupported);
        EXPECT_FALSE(what.empty()) << e.what();
        EXPECT_EQ(std::string(e.what()).find(what), 0u) << e.what();
        ++refused;
        return;
      }
      ++right;
      Problem p = problem(c);
      p.band = band_of(o, q, k);
      const auto wide = [&](const Bytes& b, i64 rows) {
        return widen_all(c.dtype, b.data(), rows * c.head_dim);
      };
      const auto qs = wide(t.q, q), ks = wide(t.k, k), vs = wide(t.v, k);
      const Result want = attention_f64(p, qs, ks, vs);
      EXPECT_TRUE(
          compare(wide(t.o, q), want.o, forward_tolerance(p, c.dtype, qs, ks, vs, want)).pass);
      EXPECT_TRUE(
          compare(widen_all(Dtype::f32, t.lse.data(), q), want.lse, lse_tolerance(p, qs, ks, want))
              .pass);
    });
  EXPECT_GT(right, 100);
  EXPECT_GT(refused, 100);
}

TEST(Window, TheRepeatCommandCarriesIt) {
  const Tensor q = contiguous(nullptr, Dtype::f16, {1, 2, 3, 4}),
               k = contiguous(nullptr, Dtype::f16, {1, 2, 5, 4});
  const auto has = [&](const AttentionOptions& o, const std::string& flags) {
    const std::string all = attention_flags(q, k, o);
    EXPECT_NE((all + " ").find(flags + " "), std::string::npos) << all;
  };
  has(window(3, -4), " --left=3 --right=-4");
  has(window({}, 4, Align::bottom_right), " --right=4 --align=bottom-right");
  has(window(3, {}, Align::top_left), " --left=3 --align=top-left");
  has(window(3, {}, {}, Causal::bottom_right), " --causal=bottom-right --left=3");
}

}  // namespace
}  // namespace tessera::testing
