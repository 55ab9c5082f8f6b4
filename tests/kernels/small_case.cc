// SPDX-License-Identifier: Apache-2.0
#include "tests/kernels/small_case.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/registry.h"
#include "reference/inputs.h"

namespace tessera::testing {

Bytes pack(Dtype d, const std::vector<double>& x) {
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

Small::Small(const std::string& kernel, Dtype d, i64 q_len, i64 k_len, i64 head_dim, i64 batch,
             i64 heads, i64 heads_kv)
    : dtype(d),
      batch(batch),
      heads(heads),
      heads_kv(heads_kv ? heads_kv : heads),
      q_len(q_len),
      k_len(k_len),
      head_dim(head_dim),
      q(std::size_t(batch * heads * q_len * head_dim)),
      k(std::size_t(batch * this->heads_kv * k_len * head_dim)),
      v(k.size()) {
  options.kernel = kernel, options.checks = true;
}

void Small::fill_random(double magnitude, u64 seed) {
  std::vector<double>* tensors[] = {&q, &k, &v};
  for (u32 t = 0; t < 3; t++)
    for (std::size_t i = 0; i < tensors[t]->size(); i++)
      (*tensors[t])[i] = double(input_value(seed, t, i, magnitude));
}

void Small::run() {
  Bytes bq = pack(dtype, q), bk = pack(dtype, k), bv = pack(dtype, v), bo(bq.size()),
        bl(std::size_t(batch * heads * q_len) * 4);
  const Tensor l = contiguous(bl.data(), Dtype::f32, {batch, heads, q_len});
  report = attention(contiguous(bq.data(), dtype, {batch, heads, q_len, head_dim}),
                     contiguous(bk.data(), dtype, {batch, heads_kv, k_len, head_dim}),
                     contiguous(bv.data(), dtype, {batch, heads_kv, k_len, head_dim}),
                     contiguous(bo.data(), dtype, {batch, heads, q_len, head_dim}), &l, options);
  for (const Finding& f : report.findings) ADD_FAILURE() << f.check << ": " << f.message;
  o = widen_all(dtype, bo.data(), i64(q.size()));
  lse = widen_all(Dtype::f32, bl.data(), batch * heads * q_len);
}

Problem Small::problem() const {
  Problem p;
  p.batch = batch, p.heads = heads, p.heads_kv = heads_kv;
  p.q_len = q_len, p.k_len = k_len, p.head_dim = head_dim;
  p.scale = options.scale.value_or(1 / std::sqrt(double(head_dim)));
  p.band = band_of(options, q_len, k_len);
  return p;
}

Verdict Small::verdict() const {
  const auto held = [&](const std::vector<double>& x) {
    return widen_all(dtype, pack(dtype, x).data(), i64(x.size()));
  };
  const Problem p = problem();
  const auto hq = held(q), hk = held(k), hv = held(v);
  const Result want = attention_f64(p, hq, hk, hv);
  return {compare(o, want.o, forward_tolerance(p, dtype, hq, hk, hv, want)),
          compare(lse, want.lse, lse_tolerance(p, hq, hk, want))};
}

std::ostream& operator<<(std::ostream& os, const KernelType& k) {
  return os << kernel_type_name(k);
}
std::string kernel_type_name(const KernelType& k) {
  return k.kernel + "_" + std::string(name_of(k.dtype));
}
std::vector<KernelType> types_of(const std::string& kernel) {
  return {{kernel, Dtype::f32}, {kernel, Dtype::f16}, {kernel, Dtype::bf16}};
}
std::vector<KernelType> kernels_and_types() {
  std::vector<KernelType> all;
  for (const char* kernel : kAttentionKernels)
    for (const KernelType& k : types_of(kernel)) all.push_back(k);
  return all;
}

const std::vector<Layout> kLayouts = {
    {"bhnd", {0, 1, 2, 3}},           {"bnhd", {0, 2, 1, 3}},
    {"nbhd", {2, 0, 1, 3}},           {"row_gap", {0, 1, 2, 3}, 8},
    {"odd_gap", {0, 1, 2, 3}, 3},     {"odd_base", {0, 2, 1, 3}, 0, 1},
    {"packed", {0, 2, 1, 3}, 64, 64}, {"cache", {0, 1, 2, 3}, 0, 0, 51},
};

namespace {
template <class F>
void for_each_row(const Tensor& t, F f) {  // f(its first byte)
  const i64 es = element_size(t.dtype);
  for (i64 b = 0; b < t.shape[0]; b++)
    for (i64 h = 0; h < t.shape[1]; h++)
      for (i64 r = 0; r < t.shape[2]; r++)
        f(static_cast<char*>(t.data) + (b * t.stride[0] + h * t.stride[1] + r * t.stride[2]) * es);
}
}  // namespace

Placed place(const Bytes& from, Dtype d, std::array<i64, 4> shape, const Layout& l, u32 around) {
  const i64 es = element_size(d);
  Tensor t{nullptr, d, 4, shape, {}};
  i64 step = shape[3] + l.row_gap;
  for (int n = 2; n >= 0; n--) {
    const std::size_t dim = std::size_t(l.order[std::size_t(n)]);
    t.stride[dim] = step;
    step *= std::max<i64>(1, shape[dim] + (dim == 2 ? l.rows_after : 0));
  }
  t.stride[3] = 1;
  Bytes m(std::size_t((step + l.offset + 64) * es));
  for (std::size_t i = 0; i + 4 <= m.size(); i += 4) std::memcpy(m.data() + i, &around, 4);
  t.data = m.data() + l.offset * es;
  const char* source = from.data();
  for_each_row(t, [&](char* row) {
    std::memcpy(row, source, std::size_t(shape[3] * es));
    source += shape[3] * es;
  });
  return {std::move(m), t};
}

Bytes gather(const Tensor& t) {
  const std::size_t row_bytes = std::size_t(t.shape[3] * element_size(t.dtype));
  Bytes all(std::size_t(t.shape[0] * t.shape[1] * t.shape[2]) * row_bytes);
  char* to = all.data();
  for_each_row(t, [&](char* row) {
    std::memcpy(to, row, row_bytes);
    to += row_bytes;
  });
  return all;
}

}  // namespace tessera::testing
