// SPDX-License-Identifier: Apache-2.0
// Faults that real attention kernels had, as tests of every attention kernel that exists. The ids
// are those of docs/cases.md, which names the public reports.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cmath>
#include <cstring>
#include <functional>

#include "kernels/registry.h"
#include "reference/inputs.h"
#include "tests/kernels/attention_case.h"

namespace tessera::testing {
namespace {

constexpr double kInf = HUGE_VAL;

// A problem whose elements are written one by one, in any type.
struct Small {
  Dtype dtype;
  i64 batch = 1, heads = 1, q_len, k_len, head_dim;
  AttentionOptions options = {};
  std::vector<double> q, k, v, o, lse;

  Small(Dtype d, i64 q_len, i64 k_len, i64 head_dim, i64 batch = 1, i64 heads = 1)
      : dtype(d),
        batch(batch),
        heads(heads),
        q_len(q_len),
        k_len(k_len),
        head_dim(head_dim),
        q(std::size_t(batch * heads * q_len * head_dim)),
        k(std::size_t(batch * heads * k_len * head_dim)),
        v(k.size()) {}

  static Bytes pack(Dtype d, const std::vector<double>& x) {
    Bytes b(x.size() * std::size_t(element_size(d)));
    for (std::size_t i = 0; i < x.size(); i++) {
      const u32 bits = __builtin_bit_cast(u32, float(x[i]));
      const u16 half = d == Dtype::f16 ? f32_to_f16_bits(bits) : f32_to_bf16_bits(bits);
      if (d == Dtype::f32)
        std::memcpy(b.data() + 4 * i, &bits, 4);
      else
        std::memcpy(b.data() + 2 * i, &half, 2);
    }
    return b;
  }
  void run() {
    Bytes bq = pack(dtype, q), bk = pack(dtype, k), bv = pack(dtype, v), bo(bq.size()),
          bl(std::size_t(batch * heads * q_len) * 4);
    const Tensor l = contiguous(bl.data(), Dtype::f32, {batch, heads, q_len});
    options.checks = true;
    const Report r = attention(contiguous(bq.data(), dtype, {batch, heads, q_len, head_dim}),
                               contiguous(bk.data(), dtype, {batch, heads, k_len, head_dim}),
                               contiguous(bv.data(), dtype, {batch, heads, k_len, head_dim}),
                               contiguous(bo.data(), dtype, {batch, heads, q_len, head_dim}), &l,
                               options);
    for (const Finding& f : r.findings) ADD_FAILURE() << f.check << ": " << f.message;
    o = widen_all(dtype, bo.data(), i64(q.size()));
    lse = widen_all(Dtype::f32, bl.data(), batch * heads * q_len);
  }
  double& at(std::vector<double>& x, i64 row, i64 col) {
    return x[std::size_t(row * head_dim + col)];
  }
};

class Cases : public ::testing::TestWithParam<Dtype> {};
INSTANTIATE_TEST_SUITE_P(Types, Cases, ::testing::Values(Dtype::f32, Dtype::f16, Dtype::bf16),
                         [](const auto& i) { return std::string(name_of(i.param)); });

TEST_P(Cases, B06_CausalWithUnequalLengths) {  // the mask can be read off O
  const i64 shapes[][2] = {{2, 5}, {5, 2}, {1, 16}, {4, 9}};
  for (const auto& s : shapes)
    for (const Causal causal : {Causal::top_left, Causal::bottom_right}) {
      if (causal == Causal::bottom_right && s[0] > s[1]) continue;
      Small p(GetParam(), s[0], s[1], 16);
      p.options.causal = causal;
      for (i64 j = 0; j < s[1]; j++) p.at(p.v, j, j) = 1;
      p.run();
      for (i64 i = 0; i < s[0]; i++) {
        const i64 last = std::min(s[1] - 1, causal == Causal::top_left ? i : i + s[1] - s[0]);
        for (i64 j = 0; j < s[1]; j++)
          EXPECT_NEAR(p.at(p.o, i, j), j <= last ? 1.0 / double(last + 1) : 0,
                      4e-3 / double(last + 1));
        EXPECT_NEAR(p.lse[std::size_t(i)], std::log(double(last + 1)), 1e-6);
      }
    }
}

TEST_P(Cases, B08_B11_NoKeysAtAll) {
  Small p(GetParam(), 5, 0, 16);
  p.run();
  for (const double x : p.o) EXPECT_EQ(x, 0);
  for (const double x : p.lse) EXPECT_EQ(x, -kInf);
}

TEST_P(Cases, B12_VeryNegativeScores) {
  for (const bool all : {false, true}) {
    Small p(GetParam() == Dtype::f16 ? Dtype::bf16 : GetParam(), 1, 64, 64);
    for (double& x : p.q) x = 1;
    for (i64 j = 0; j < 64; j++)
      for (i64 d = 0; d < 64; d++)
        p.at(p.k, j, d) = j == 0 && !all ? -900 : -1000, p.at(p.v, j, d) = double(j);
    p.run();
    for (i64 d = 0; d < 64; d++) EXPECT_NEAR(p.at(p.o, 0, d), all ? 31.5 : 0, all ? 0.13 : 0);
    EXPECT_NEAR(p.lse[0], all ? -8000 + std::log(64.0) : -7200, 1e-3);
  }
}

TEST(Cases, B15_Fp16DoesNotOverflowInside) {
  Small a(Dtype::f16, 1, 4, 128);
  for (double& x : a.q) x = 32;
  for (double& x : a.k) x = 32;
  for (i64 j = 0; j < 4; j++)
    for (i64 d = 0; d < 128; d++) a.at(a.v, j, d) = double(j);
  a.run();
  for (const double x : a.o) EXPECT_EQ(x, 1.5);
  EXPECT_NEAR(a.lse[0], 131072 / std::sqrt(128.0) + std::log(4.0), 2e-3);

  Small b(Dtype::f16, 1, 4096, 16);  // an un-normalised sum of 131072
  for (double& x : b.v) x = 32;
  b.run();
  for (const double x : b.o) EXPECT_EQ(x, 32);

  Small c(Dtype::f16, 1, 21 * 16, 16);  // scores fall by 30 a tile, then rise
  c.options.scale = 1;
  c.at(c.q, 0, 0) = 1;
  for (i64 j = 0; j < 21 * 16; j++)
    c.at(c.k, j, 0) = j < 320 ? -30.0 * double(j / 16) : 60.0, c.at(c.v, j, 0) = j < 320 ? 1 : 2;
  c.run();
  EXPECT_NEAR(c.o[0], 2, 1e-3);
}

TEST_P(Cases, B18_NanReachesItsRowAndNoOther) {
  const auto plain = [&](const std::function<void(Small&)>& change) {
    Small p(GetParam(), 4, 4, 16);
    const std::vector<double>* source[] = {&p.q, &p.k, &p.v};
    for (int t = 0; t < 3; t++)
      for (std::size_t i = 0; i < source[t]->size(); i++)
        const_cast<std::vector<double>&>(*source[t])[i] = double(input_value(3, u32(t), i, 1.0));
    change(p);
    p.run();
    return p;
  };
  const Small clean = plain([](Small&) {});
  const Small q = plain([](Small& p) { p.at(p.q, 2, 5) = NAN; });
  for (i64 i = 0; i < 4; i++)
    for (i64 d = 0; d < 16; d++) {
      const std::size_t at = std::size_t(i * 16 + d);
      if (i == 2)
        EXPECT_TRUE(std::isnan(q.o[at]));
      else
        EXPECT_EQ(q.o[at], clean.o[at]);
    }
  EXPECT_TRUE(std::isnan(q.lse[2]));
  EXPECT_EQ(q.lse[1], clean.lse[1]);
  const Small k = plain([](Small& p) { p.at(p.k, 1, 0) = NAN; });
  for (const double x : k.o) EXPECT_TRUE(std::isnan(x));
  const Small v = plain([](Small& p) { p.at(p.v, 1, 3) = NAN; });
  for (i64 i = 0; i < 4; i++)
    for (i64 d = 0; d < 16; d++) {
      if (d == 3)
        EXPECT_TRUE(std::isnan(v.o[std::size_t(i * 16 + d)]));
      else
        EXPECT_EQ(v.o[std::size_t(i * 16 + d)], clean.o[std::size_t(i * 16 + d)]);
    }
  EXPECT_EQ(v.lse, clean.lse);
  const Small inf_v = plain([](Small& p) { p.at(p.v, 1, 3) = kInf; });
  EXPECT_EQ(inf_v.o[3], kInf);
  const Small minus = plain([](Small& p) {  // a score of -inf: weight 0
    for (i64 i = 0; i < 4; i++) p.at(p.q, i, 0) = 1;
    p.at(p.k, 1, 0) = -kInf;
  });
  for (const double x : minus.o) EXPECT_TRUE(std::isfinite(x));
  const Small plus = plain([](Small& p) {
    for (i64 i = 0; i < 4; i++) p.at(p.q, i, 0) = 1;
    p.at(p.k, 1, 0) = kInf;
  });
  for (const double x : plus.o) EXPECT_TRUE(std::isnan(x));
}

// ---- strides and memory around tensors

struct Layout {
  const char* name;
  std::array<i64, 4> order;  // dimensions from outermost to innermost storage; 3 last
  i64 row_gap = 0;           // extra elements after each row
  i64 offset = 0;            // of the first element
};

// The elements of a contiguous tensor, laid out otherwise inside memory that is filled with
// `around`.
struct Placed {
  Bytes memory;
  Tensor tensor;
};
Placed place(const Bytes& from, Dtype d, std::array<i64, 4> shape, const Layout& l, u32 around) {
  const i64 es = element_size(d);
  Tensor t{nullptr, d, 4, shape, {}};
  i64 step = shape[3] + l.row_gap;
  for (int n = 2; n >= 0; n--)
    t.stride[std::size_t(l.order[std::size_t(n)])] = step,
    step *= std::max<i64>(1, shape[std::size_t(l.order[std::size_t(n)])]);
  t.stride[3] = 1;
  Bytes m(std::size_t((step + l.offset + 64) * es));
  for (std::size_t i = 0; i + 4 <= m.size(); i += 4) std::memcpy(m.data() + i, &around, 4);
  t.data = m.data() + l.offset * es;
  i64 i = 0;
  for (i64 b = 0; b < shape[0]; b++)
    for (i64 h = 0; h < shape[1]; h++)
      for (i64 r = 0; r < shape[2]; r++, i += shape[3])
        std::memcpy(
            static_cast<char*>(t.data) + (b * t.stride[0] + h * t.stride[1] + r * t.stride[2]) * es,
            from.data() + i * es, std::size_t(shape[3] * es));
  return {std::move(m), t};
}

const Layout kLayouts[] = {
    {"bhnd", {0, 1, 2, 3}, 0, 0},     {"bnhd", {0, 2, 1, 3}, 0, 0},
    {"nbhd", {2, 0, 1, 3}, 0, 0},     {"row_gap", {0, 1, 2, 3}, 8, 0},
    {"odd_gap", {0, 1, 2, 3}, 3, 0},  {"odd_base", {0, 2, 1, 3}, 0, 1},
    {"packed", {0, 2, 1, 3}, 64, 64},
};

TEST_P(Cases, B20_B27_AnyStridesAndAnythingBetweenRows) {
  for (const i64 head_dim : {64, 37}) {
    Case c;
    c.dtype = GetParam(), c.batch = 2, c.heads = 3, c.q_len = 5, c.k_len = 13,
    c.head_dim = head_dim;
    Tensors t = make_inputs(c);
    run(c, t);
    for (const Layout& l : kLayouts)
      for (const u32 around :
           {0x7fff7fffu, 0x7c007c00u, 0x7f807f80u, 0x70e270e2u}) {  // NaN, inf, about 1e4
        SCOPED_TRACE(std::string(l.name) + " " + std::to_string(around));
        const std::array<i64, 4> qs{2, 3, 5, head_dim}, ks{2, 3, 13, head_dim};
        Placed q = place(t.q, c.dtype, qs, l, around), k = place(t.k, c.dtype, ks, l, around),
               v = place(t.v, c.dtype, ks, l, around);
        Placed o = place(t.q, c.dtype, qs, l, around);
        const Bytes before(0);
        std::vector<char> pattern(o.memory.data(), o.memory.data() + o.memory.size());
        Bytes lse(std::size_t(2 * 3 * 5 * 4));
        const Tensor lt = contiguous(lse.data(), Dtype::f32, {2, 3, 5});
        AttentionOptions options;
        options.checks = true;
        const Report r = attention(q.tensor, k.tensor, v.tensor, o.tensor, &lt, options);
        for (const Finding& f : r.findings) ADD_FAILURE() << f.check << ": " << f.message;
        // every element of O is the contiguous run's, and nothing else in its memory changed
        const i64 es = element_size(c.dtype);
        i64 i = 0;
        for (i64 b = 0; b < 2; b++)
          for (i64 h = 0; h < 3; h++)
            for (i64 n = 0; n < 5; n++, i += head_dim) {
              const i64 at =
                  (b * o.tensor.stride[0] + h * o.tensor.stride[1] + n * o.tensor.stride[2]) * es +
                  l.offset * es;
              EXPECT_EQ(std::memcmp(o.memory.data() + at, t.o.data() + i * es,
                                    std::size_t(head_dim * es)),
                        0);
              std::memcpy(o.memory.data() + at, pattern.data() + at, std::size_t(head_dim * es));
            }
        EXPECT_EQ(std::memcmp(o.memory.data(), pattern.data(), pattern.size()), 0)
            << "memory around O changed";
        EXPECT_EQ(std::memcmp(lse.data(), t.lse.data(), lse.size()), 0);
      }
  }
}

TEST_P(Cases, B27_BroadcastKeysAndValues) {  // stride 0 over the batch
  Case c;
  c.dtype = GetParam(), c.batch = 1, c.heads = 3, c.q_len = 5, c.k_len = 9;
  Tensors one = make_inputs(c);
  Case both = c;
  both.batch = 2;
  Tensors t = make_inputs(both);
  Tensor k = contiguous(one.k.data(), c.dtype, {2, 3, 9, 64}),
         v = contiguous(one.v.data(), c.dtype, {2, 3, 9, 64});
  k.stride[0] = v.stride[0] = 0;
  const Tensor o = contiguous(t.o.data(), c.dtype, {2, 3, 5, 64});
  attention(contiguous(t.q.data(), c.dtype, {2, 3, 5, 64}), k, v, o, nullptr, {});
  const std::size_t half = t.o.size() / 2;
  for (int b = 0; b < 2; b++) {  // each batch entry alone
    Bytes alone(half);
    const Tensor q1 = contiguous(t.q.data() + std::size_t(b) * half, c.dtype, {1, 3, 5, 64});
    Tensor k1 = contiguous(one.k.data(), c.dtype, {1, 3, 9, 64}),
           v1 = contiguous(one.v.data(), c.dtype, {1, 3, 9, 64});
    attention(q1, k1, v1, contiguous(alone.data(), c.dtype, {1, 3, 5, 64}), nullptr, {});
    EXPECT_EQ(std::memcmp(alone.data(), t.o.data() + std::size_t(b) * half, half), 0);
  }
}

TEST(Cases,
     B25_OffsetsPast32Bits) {  // batch stride 2^30 elements, address space that is never touched
  Case c;
  c.batch = 5, c.q_len = c.k_len = 3;
  Tensors t = make_inputs(c);
  run(c, t);
  const i64 stride = i64(1) << 30;
  const std::size_t bytes = std::size_t(4 * stride + 3 * 64) * 2;
  void* m[4];
  for (void*& p : m) {
    p = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
             -1, 0);
    ASSERT_NE(p, MAP_FAILED);
  }
  const char* source[3] = {t.q.data(), t.k.data(), t.v.data()};
  for (int i = 0; i < 3; i++)
    for (i64 b = 0; b < 5; b++)
      std::memcpy(static_cast<char*>(m[i]) + b * stride * 2, source[i] + b * 3 * 64 * 2,
                  3 * 64 * 2);
  Tensor x[4];
  for (int i = 0; i < 4; i++)
    x[i] = contiguous(m[i], Dtype::f16, {5, 1, 3, 64}), x[i].stride[0] = stride;
  attention(x[0], x[1], x[2], x[3], nullptr, {});
  for (i64 b = 0; b < 5; b++)
    EXPECT_EQ(std::memcmp(static_cast<char*>(m[3]) + b * stride * 2, t.o.data() + b * 3 * 64 * 2,
                          3 * 64 * 2),
              0);
  for (void* p : m) munmap(p, bytes);
}

TEST(Cases, B26_MoreThan65535BatchesOrHeads) {
  const i64 shapes[][2] = {{65536, 1}, {1, 65536}, {256, 257}};
  for (const auto& s : shapes) {
    Case c;
    c.batch = s[0], c.heads = s[1], c.q_len = c.k_len = 2, c.head_dim = 16;
    Tensors t = make_inputs(c);
    AttentionOptions o;
    o.numerics = Numerics::fma;
    run(c, t, o);
    const Verdict v = compare_with_reference(c, t);
    EXPECT_TRUE(v.pass()) << c << v.text();
  }
}

TEST_P(Cases, B31_TheLastChannelCounts) {  // a cut head_dim shows uniform weights
  for (const i64 d : {1, 8, 40, 63, 72, 80, 96, 100, 128}) {
    Small p(GetParam(), 3, 5, d);
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

TEST_P(Cases, B35_LseIsNaturalAndScaled) {
  Small p(GetParam(), 1, 8, 16);
  p.run();
  EXPECT_NEAR(p.lse[0], 2.0794415, 1e-6);
  Small one(GetParam(), 1, 1, 16);
  one.options.scale = 0.3;
  for (double& x : one.q) x = 0.5;
  for (double& x : one.k) x = 2;
  one.run();
  EXPECT_NEAR(one.lse[0], 0.3 * 16, 1e-6);
}

}  // namespace
}  // namespace tessera::testing
