// SPDX-License-Identifier: Apache-2.0
#include "tests/kernels/products.h"

#include <gtest/gtest.h>

#include "kernels/configs.h"
#include "kernels/registry.h"

namespace tessera::testing {
namespace {

std::vector<ProductCase> ragged(const std::string& kernel) {
  std::vector<ProductCase> all;
  for (const ConfigRow& r : kRows)
    for (const Dtype d : {Dtype::f32, Dtype::f16, Dtype::bf16}) {
      if (r.kernel != kernel || !r.has(d)) continue;
      const i64 rows[] = {1, r.rows - 1, r.rows, r.rows + 1}, cols[] = {1, r.cols - 1, r.cols + 1};
      const i64 depths[] = {1, 31, 32, 33, 97, 0};
      for (const i64 m : rows)
        for (const i64 k : depths) {
          if (kernel == "weighted_sum") {
            all.push_back(
                {kernel, std::string(name_of(r.arch)), "", std::string(r.name), d, m, 1, k});
          } else {
            for (const i64 n : cols)
              all.push_back(
                  {kernel, std::string(name_of(r.arch)), "", std::string(r.name), d, m, n, k});
          }
        }
    }
  return all;
}

void expect_right(const std::vector<ProductCase>& cases) {
  ASSERT_FALSE(cases.empty());
  for (const ProductCase& c : cases) {
    Options o;
    o.checks = c.m * c.n * c.k < 40000;
    const ProductResult r = run_product(c, o);
    EXPECT_TRUE(r.comparison.pass)
        << c.name() << ": " << r.comparison.max_abs << " against " << r.comparison.tolerance;
    for (const Finding& f : r.report.findings)
      ADD_FAILURE() << c.name() << ": " << f.check << ": " << f.message;
  }
}

TEST(Matmul, RaggedEveryWay) { expect_right(ragged("matmul")); }
TEST(WeightedSum, RaggedBothWays) { expect_right(ragged("weighted_sum")); }

TEST(Matmul, CountersHaveTheirClosedForm) {
  const ProductResult r = run_product({"matmul", "sm_89", "", "64x64x32", Dtype::f16, 130, 70, 100},
                                      {});
  const u64 blocks = 3 * 2, steps = 4;
  EXPECT_EQ(r.report.counters.blocks, blocks);
  EXPECT_EQ(r.report.counters.mma,
            blocks * steps * 4 * (64 / 8) * (32 / 16));  // 4 warps of 16 rows
  EXPECT_EQ(r.report.counters.barriers, blocks * steps);
  EXPECT_EQ(r.report.counters.shared_wavefronts, r.report.counters.shared_wavefronts_ideal);
  const ProductResult t4 = run_product(
      {"matmul", "sm_75", "", "64x64x32", Dtype::f16, 130, 70, 100}, {});
  EXPECT_EQ(t4.report.counters.mma, 2 * r.report.counters.mma);  // m16n8k8
}

}  // namespace
}  // namespace tessera::testing
