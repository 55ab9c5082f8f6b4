// SPDX-License-Identifier: Apache-2.0
#include "tests/kernels/products.h"

#include <cmath>
#include <memory>

#include "kernels/cuda_backend.h"
#include "kernels/registry.h"
#include "reference/hash.h"
#include "reference/inputs.h"
#include "tests/kernels/attention_case.h"

namespace tessera::testing {

std::string ProductCase::name() const {
  std::string s = kernel + "_" + arch + "_" + std::string(name_of(dtype)) + "_" +
                  std::to_string(m) + "x" + std::to_string(n) + "x" + std::to_string(k);
  return config.empty() ? s : s + "_" + config;
}

namespace {

double unit_roundoff(Dtype d) {
  return std::ldexp(1.0, d == Dtype::f16 ? -11 : d == Dtype::bf16 ? -8 : -24);
}

}  // namespace

ProductResult run_product(const ProductCase& c, Options o) {
  o.kernel = c.kernel, o.arch = c.arch, o.config = c.config;
  if (o.target == Target::sim) o.card = c.card;
  const bool vector = c.kernel == "weighted_sum";
  const i64 n = vector ? 1 : c.n, count[3] = {c.m * c.k, c.k * n, c.m * n};
  const std::size_t es = std::size_t(element_size(c.dtype));
  std::vector<Bytes> host;
  for (int i = 0; i < 3; i++) host.emplace_back(std::size_t(count[i]) * es);
  for (int i = 0; i < 2; i++) fill(host[std::size_t(i)].data(), c.dtype, count[i], 7, u32(i), 1.0);
  void* p[3] = {host[0].data(), host[1].data(), host[2].data()};
  std::vector<std::unique_ptr<cuda::Buffer>> device;
  if (o.target == Target::cuda)
    for (int i = 0; i < 3; i++) {
      device.push_back(std::make_unique<cuda::Buffer>(host[std::size_t(i)].size()));
      device.back()->upload(host[std::size_t(i)].data());
      p[i] = device.back()->data();
    }
  ProductResult r;
  if (vector)
    r.report = weighted_sum(contiguous(p[0], c.dtype, {c.m, c.k}), contiguous(p[1], c.dtype, {c.k}),
                            contiguous(p[2], c.dtype, {c.m}), o);
  else
    r.report = matmul(contiguous(p[0], c.dtype, {c.m, c.k}), contiguous(p[1], c.dtype, {c.k, n}),
                      contiguous(p[2], c.dtype, {c.m, n}), o);
  if (o.target == Target::cuda) device[2]->download(host[2].data());

  const auto a = widen_all(c.dtype, host[0].data(), count[0]),
             b = widen_all(c.dtype, host[1].data(), count[1]);
  std::vector<double> expected(std::size_t(count[2]), 0.0), tolerance(std::size_t(count[2]), 0.0);
  for (i64 i = 0; i < c.m; i++)
    for (i64 kk = 0; kk < c.k; kk++)
      for (i64 j = 0; j < n; j++) {
        const double x = a[std::size_t(i * c.k + kk)] * b[std::size_t(kk * n + j)];
        expected[std::size_t(i * n + j)] += x;
        tolerance[std::size_t(i * n + j)] += std::fabs(x);
      }
  // A tensor-core step cuts each term toward zero (2^-23 of the largest), CUDA cores round (2^-24).
  for (std::size_t i = 0; i < expected.size(); i++)
    tolerance[i] = tolerance[i] * double(c.k + 2) * 0x1p-23 +
                   unit_roundoff(c.dtype) * std::fabs(expected[i]) + 0x1p-25;
  r.comparison = compare(widen_all(c.dtype, host[2].data(), count[2]), expected, tolerance);
  r.hash = hash_hex(hash_elements(c.dtype, host[2].data(), count[2]));
  return r;
}

std::vector<ProductCase> golden_products() {
  std::vector<ProductCase> all;
  const i64 shapes[][3] = {{1, 1, 1},      {64, 64, 64},  {65, 63, 33},
                           {130, 70, 100}, {17, 200, 31}, {63, 129, 257}};
  for (const ConfigRow& r : kRows)
    for (const Dtype d : {Dtype::f32, Dtype::f16, Dtype::bf16})
      for (const auto& s : shapes) {
        if (!r.has(d) || (r.kernel != "matmul" && r.kernel != "weighted_sum")) continue;
        const bool vector = r.kernel == "weighted_sum";
        all.push_back({std::string(r.kernel), std::string(name_of(r.arch)), "h200",
                       std::string(r.name), d, s[0], vector ? 1 : s[1], s[2]});
      }
  return all;
}

}  // namespace tessera::testing
