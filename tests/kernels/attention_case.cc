// SPDX-License-Identifier: Apache-2.0
#include "tests/kernels/attention_case.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>

#include "kernels/cuda_backend.h"
#include "kernels/registry.h"
#include "reference/hash.h"
#include "reference/inputs.h"
#include "reference/plain_attention.h"

namespace tessera::testing {

std::string Case::name() const {
  std::string s = (kernel.empty() ? "" : kernel + "_") + arch + "_" + std::string(name_of(dtype)) +
                  "_b" + std::to_string(batch) + "_h" + std::to_string(heads) + "_kv" +
                  std::to_string(kv_heads()) + "_q" + std::to_string(q_len) + "_k" +
                  std::to_string(k_len) + "_d" + std::to_string(head_dim);
  s += causal == Causal::none       ? "_full"
       : causal == Causal::top_left ? "_top_left"
                                    : "_bottom_right";
  const auto number = [](i64 x) { return (x < 0 ? "m" : "") + std::to_string(x < 0 ? -x : x); };
  if (left) s += "_left" + number(*left);
  if (right) s += "_right" + number(*right);
  if (align) s += *align == Align::top_left ? "_at_top_left" : "_at_bottom_right";
  if (scale)
    s += "_scale" +
         std::to_string(int(*scale * 1000)).replace(0, *scale < 0, *scale < 0 ? "m" : "");
  if (magnitude != 1) s += "_mag" + std::to_string(int(magnitude * 1000));
  if (exp2 != "soft") s += "_" + exp2;
  if (!config.empty()) s += "_" + config;
  for (char& ch : s)
    if (!std::isalnum(static_cast<unsigned char>(ch))) ch = '_';
  return s;
}
std::ostream& operator<<(std::ostream& os, const Case& c) { return os << c.name(); }

Case Configured::start() const {
  Case c;
  c.kernel = row->kernel, c.arch = name_of(row->arch), c.config = row->name;
  c.dtype = dtype, c.head_dim = bucket;
  return c;
}
std::string Configured::name() const {
  std::string s(name_of(row->arch));
  s += "_" + std::string(name_of(dtype)) + "_d" + std::to_string(bucket) + "_";
  for (const char ch : row->name) s += std::isalnum(static_cast<unsigned char>(ch)) ? ch : '_';
  return s;
}
std::ostream& operator<<(std::ostream& os, const Configured& c) { return os << c.name(); }
std::vector<Configured> every_config(std::string_view kernel, Where where) {
  std::vector<Configured> all;
  for (const ConfigRow& row : kRows)
    for (const Dtype d : {Dtype::f32, Dtype::f16, Dtype::bf16, Dtype::field})
      for (const int bucket : {32, 64, 96, 128})
        if (row.kernel == kernel && row.variant == Variant::none && row.has(where) && row.has(d) &&
            row.has_bucket(bucket))
          all.push_back({&row, d, bucket});
  return all;
}

Bytes::Bytes(std::size_t n, int fill)
    : data_(static_cast<char*>(std::aligned_alloc(256, (n + 511) / 256 * 256))), size_(n) {
  if (!data_) throw std::bad_alloc();
  std::memset(data_, fill, (n + 511) / 256 * 256);
}
Bytes::~Bytes() { std::free(data_); }

namespace {
std::size_t bytes_of(Dtype d, i64 count) {
  return std::size_t(count) * std::size_t(element_size(d));
}
Dtype lse_type(const Case& c) { return c.dtype == Dtype::field ? Dtype::field : Dtype::f32; }
i64 q_count(const Case& c) { return c.batch * c.heads * c.q_len * c.head_dim; }
i64 k_count(const Case& c) { return c.batch * c.kv_heads() * c.k_len * c.head_dim; }
i64 rows(const Case& c) { return c.batch * c.heads * c.q_len; }
}  // namespace

Tensors make_inputs(const Case& c) {
  Tensors t{Bytes(bytes_of(c.dtype, q_count(c))), Bytes(bytes_of(c.dtype, k_count(c))),
            Bytes(bytes_of(c.dtype, k_count(c))), Bytes(bytes_of(c.dtype, q_count(c))),
            Bytes(bytes_of(lse_type(c), rows(c)))};
  fill(t.q.data(), c.dtype, q_count(c), c.seed, 0, c.magnitude);
  fill(t.k.data(), c.dtype, k_count(c), c.seed, 1, c.magnitude);
  fill(t.v.data(), c.dtype, k_count(c), c.seed, 2, c.magnitude);
  return t;
}

AttentionOptions options_of(const Case& c, AttentionOptions o) {
  o.arch = c.arch, o.exp2 = c.exp2;
  if (!c.kernel.empty()) o.kernel = c.kernel;
  if (!c.card.empty() && o.target == Target::sim) o.card = c.card;
  if (!c.config.empty()) o.config = c.config;
  if (!c.isa.empty()) o.isa = c.isa;
  o.causal = c.causal, o.scale = c.scale;
  if (c.left) o.left = c.left;
  if (c.right) o.right = c.right;
  if (c.align) o.align = c.align;
  return o;
}

Report run(const Case& c, Tensors& t, AttentionOptions o) {
  o = options_of(c, o);
  void* p[5] = {t.q.data(), t.k.data(), t.v.data(), t.o.data(), t.lse.data()};
  Bytes* host[5] = {&t.q, &t.k, &t.v, &t.o, &t.lse};
  std::vector<std::unique_ptr<cuda::Buffer>> device;
  if (o.target == Target::cuda)
    for (int i = 0; i < 5; i++) {
      device.push_back(std::make_unique<cuda::Buffer>(host[i]->size()));
      device.back()->upload(host[i]->data());
      p[i] = device.back()->data();
    }
  const Tensor lse = contiguous(p[4], lse_type(c), {c.batch, c.heads, c.q_len});
  const Report r = attention(
      contiguous(p[0], c.dtype, {c.batch, c.heads, c.q_len, c.head_dim}),
      contiguous(p[1], c.dtype, {c.batch, c.kv_heads(), c.k_len, c.head_dim}),
      contiguous(p[2], c.dtype, {c.batch, c.kv_heads(), c.k_len, c.head_dim}),
      contiguous(p[3], c.dtype, {c.batch, c.heads, c.q_len, c.head_dim}), &lse, o);
  if (o.target == Target::cuda) {
    device[3]->download(t.o.data());
    device[4]->download(t.lse.data());
  }
  return r;
}

Problem problem(const Case& c) {
  Problem p;
  p.batch = c.batch, p.heads = c.heads, p.heads_kv = c.kv_heads();
  p.q_len = c.q_len, p.k_len = c.k_len, p.head_dim = c.head_dim;
  p.scale = c.scale.value_or(1 / std::sqrt(double(c.head_dim)));
  p.band = band_of(options_of(c), c.q_len, c.k_len);
  return p;
}

Verdict compare_with_reference(const Case& c, const Tensors& t, double loosen) {
  const Problem p = problem(c);
  if (c.dtype == Dtype::field) {
    const auto field = [](const Bytes& b) {
      const Fq* f = reinterpret_cast<const Fq*>(b.data());
      return std::vector<Fq>(f, f + b.size() / sizeof(Fq));
    };
    const auto expected = attention_field(p, field(t.q), field(t.k), field(t.v));
    const auto equal = [&](const Bytes& actual, const std::vector<Fq>& want) {
      Comparison r{};
      r.pass = true, r.worst_index = -1;
      const std::vector<Fq> got = field(actual);
      for (std::size_t i = 0; i < want.size(); i++)
        if (got[i] != want[i]) r.pass = false, r.worst_index = i64(i), r.max_abs = 1;
      return r;
    };
    return {equal(t.o, expected.o), equal(t.lse, expected.lse)};
  }
  const auto q = widen_all(c.dtype, t.q.data(), q_count(c)),
             k = widen_all(c.dtype, t.k.data(), k_count(c)),
             v = widen_all(c.dtype, t.v.data(), k_count(c));
  const Result expected = attention_f64(p, q, k, v);
  auto tolerance = forward_tolerance(p, c.dtype, q, k, v, expected);
  for (double& x : tolerance) x *= loosen;
  return {compare(widen_all(c.dtype, t.o.data(), q_count(c)), expected.o, tolerance),
          compare(widen_all(Dtype::f32, t.lse.data(), rows(c)), expected.lse,
                  lse_tolerance(p, q, k, expected) * loosen)};
}

std::string Verdict::text() const {
  const auto one = [](const char* what, const Comparison& c) {
    return std::string(what) + (c.pass ? " ok" : " WRONG") + ": max error " +
           std::to_string(c.max_abs) + ", tolerance " + std::to_string(c.tolerance) + ", at " +
           std::to_string(c.worst_index) + "; ";
  };
  return one("O", o) + one("LSE", lse);
}

Report expect_right(const Case& c, AttentionOptions o) {
  Tensors t = make_inputs(c);
  const Report r = run(c, t, o);
  for (const Finding& f : r.findings) ADD_FAILURE() << c << " " << f.check << ": " << f.message;
  const Verdict v = compare_with_reference(c, t);
  EXPECT_TRUE(v.pass()) << c << " " << v.text();
  return r;
}
Report expect_right_with_checks(const Case& c) {
  AttentionOptions o;
  o.checks = true;
  return expect_right(c, o);
}

Errors errors_of_o(const Case& c, const Tensors& t) {
  const Problem p = problem(c);
  const auto q = widen_all(c.dtype, t.q.data(), q_count(c)),
             k = widen_all(c.dtype, t.k.data(), k_count(c)),
             v = widen_all(c.dtype, t.v.data(), k_count(c));
  const auto expected = attention_f64(p, q, k, v).o, plain = plain_attention(p, c.dtype, q, k, v).o,
             ours = widen_all(c.dtype, t.o.data(), q_count(c));
  Errors worst{0, 0};
  for (std::size_t i = 0; i < expected.size(); i++) {
    EXPECT_FALSE(std::isnan(ours[i])) << c << " " << i;
    worst.ours = std::max(worst.ours, std::fabs(ours[i] - expected[i]));
    worst.plain = std::max(worst.plain, std::fabs(plain[i] - expected[i]));
  }
  return worst;
}

std::string hash_o(const Case& c, const Tensors& t) {
  return hash_hex(hash_elements(c.dtype, t.o.data(), q_count(c)));
}
std::string hash_lse(const Case& c, const Tensors& t) {
  return hash_hex(hash_elements(lse_type(c), t.lse.data(), rows(c)));
}

}  // namespace tessera::testing
