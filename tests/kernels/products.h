// SPDX-License-Identifier: Apache-2.0
// matmul and weighted_sum problems with deterministic inputs, on either target, against float64.
#pragma once
#include <string>
#include <vector>

#include "kernels/attention.h"
#include "reference/attention.h"

namespace tessera::testing {

struct ProductCase {
  std::string kernel, arch, card, config;  // kernel: matmul or weighted_sum
  Dtype dtype = Dtype::f16;
  i64 m = 0, n = 0, k = 0;  // C (m, n) = A (m, k) . B (k, n); y (m) = X (m, k) . w (k)
  std::string name() const;
};
struct ProductResult {
  Report report;
  Comparison comparison;
  std::string hash;
};
ProductResult run_product(const ProductCase& c, Options options);

// Ragged every way, for all archs and types: recorded on a GPU, recomputed on the emulator.
std::vector<ProductCase> golden_products();

}  // namespace tessera::testing
