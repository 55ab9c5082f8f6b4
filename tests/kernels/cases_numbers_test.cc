// SPDX-License-Identifier: Apache-2.0
// Faults that real attention kernels had: numbers near and beyond what a type holds, NaN and inf.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "tests/kernels/small_case.h"

namespace tessera::testing {
namespace {

class CasesOfNumbers : public ::testing::TestWithParam<KernelType> {
 protected:
  Small small(i64 q_len, i64 k_len, i64 head_dim) const {
    return {GetParam().kernel, GetParam().dtype, q_len, k_len, head_dim};
  }
};
INSTANTIATE_TEST_SUITE_P(Kernels, CasesOfNumbers, ::testing::ValuesIn(kernels_and_types()),
                         [](const auto& i) { return kernel_type_name(i.param); });

TEST_P(CasesOfNumbers, B12_VeryNegativeScores) {
  for (const bool all : {false, true}) {
    Small p = small(1, 64, 64);
    for (double& x : p.q) x = 1;
    for (i64 j = 0; j < 64; j++)
      for (i64 d = 0; d < 64; d++)
        p.at(p.k, j, d) = j == 0 && !all ? -900 : -1000, p.at(p.v, j, d) = double(j);
    p.run();
    for (i64 d = 0; d < 64; d++) EXPECT_NEAR(p.at(p.o, 0, d), all ? 31.5 : 0, all ? 0.13 : 0);
    EXPECT_NEAR(p.lse[0], all ? -8000 + std::log(64.0) : -7200, 1e-3);
  }
}

// No finite number stands in for -inf: a row whose scores are all -1e30 is an ordinary row.
TEST_P(CasesOfNumbers, B12_ScoresOfMinus1e30) {
  if (GetParam().kernel == "flash_step1") GTEST_SKIP() << "it masks with -1e6";
  for (const bool causal : {false, true})
    for (const bool all : {false, true}) {
      Small p = small(200, 200, 64);
      p.options.scale = 1e26;
      if (causal) p.options.causal = Causal::top_left;
      for (i64 i = 0; i < 200; i++) {
        p.at(p.q, i, 0) = 100;
        p.at(p.k, i, 0) = i == 0 && !all ? -90 : -100, p.at(p.v, i, 0) = double(i % 4);
        for (i64 d = 1; d < 64; d++) p.at(p.v, i, d) = 1;
      }
      p.run();
      for (i64 i = 0; i < 200; i++) {
        const i64 keys = causal ? i + 1 : 200;
        double mean = 0;
        for (i64 j = 0; j < keys; j++) mean += double(j % 4) / double(keys);
        EXPECT_NEAR(p.at(p.o, i, 0), all ? mean : 0, all ? 0.01 : 0) << i;
        EXPECT_NEAR(p.at(p.o, i, 1), 1, 0.005) << i;
        EXPECT_NEAR(p.lse[std::size_t(i)] / (all ? -1e30 : -9e29), 1, 1e-6) << i;
      }
    }
}

TEST_P(CasesOfNumbers, B15_NothingOverflowsInside) {
  Small a = small(1, 4, 128);
  for (double& x : a.q) x = 32;
  for (double& x : a.k) x = 32;
  for (i64 j = 0; j < 4; j++)
    for (i64 d = 0; d < 128; d++) a.at(a.v, j, d) = double(j);
  a.run();
  for (const double x : a.o) EXPECT_EQ(x, 1.5);
  EXPECT_NEAR(a.lse[0], 131072 / std::sqrt(128.0) + std::log(4.0), 2e-3);

  Small b = small(1, 4096, 16);  // an un-normalised sum of 131072
  b.options.checks = false;
  for (double& x : b.v) x = 32;
  b.run();
  for (const double x : b.o) EXPECT_EQ(x, 32);

  const i64 tile = GetParam().kernel == "flash_step1" ? 16 : 64;
  Small c = small(1, 21 * tile, 16);  // scores fall by 30 a tile, then rise
  c.options.scale = 1, c.options.checks = false;
  c.at(c.q, 0, 0) = 1;
  for (i64 j = 0; j < 21 * tile; j++) {
    c.at(c.k, j, 0) = j < 20 * tile ? -30.0 * double(j / tile) : 60.0;
    c.at(c.v, j, 0) = j < 20 * tile ? 1 : 2;
  }
  c.run();
  EXPECT_NEAR(c.o[0], 2, 1e-3);
  EXPECT_NEAR(c.lse[0], 60 + std::log(double(tile)), 1e-5);
}

TEST_P(CasesOfNumbers, B18_NanReachesItsRowAndNoOther) {
  const auto plain = [&](const std::function<void(Small&)>& change) {
    Small p = small(4, 4, 16);
    p.fill_random();
    change(p);
    p.run();
    return p;
  };
  const Small clean = plain([](Small&) {});
  const Small q = plain([](Small& p) { p.at(p.q, 2, 5) = NAN; });
  for (i64 i = 0; i < 4; i++)
    for (i64 d = 0; d < 16; d++)
      if (i == 2)
        EXPECT_TRUE(std::isnan(q.at(q.o, i, d)));
      else
        EXPECT_EQ(q.at(q.o, i, d), clean.at(clean.o, i, d));
  EXPECT_TRUE(std::isnan(q.lse[2]));
  for (const std::size_t i : {0, 1, 3}) EXPECT_EQ(q.lse[i], clean.lse[i]);
  const Small all_of_q = plain([](Small& p) {
    for (double& x : p.q) x = NAN;
  });
  for (const double x : all_of_q.o) EXPECT_TRUE(std::isnan(x));
  for (const double x : all_of_q.lse) EXPECT_TRUE(std::isnan(x));
  const Small k = plain([](Small& p) { p.at(p.k, 1, 0) = NAN; });
  for (const double x : k.o) EXPECT_TRUE(std::isnan(x));
  for (const double x : k.lse) EXPECT_TRUE(std::isnan(x));
  for (const double bad : {double(NAN), kInf, -kInf}) {
    const Small v = plain([&](Small& p) { p.at(p.v, 1, 3) = bad; });
    for (i64 i = 0; i < 4; i++)
      for (i64 d = 0; d < 16; d++)
        if (d == 3 && std::isnan(bad))
          EXPECT_TRUE(std::isnan(v.at(v.o, i, d)));
        else
          EXPECT_EQ(v.at(v.o, i, d), d == 3 ? bad : clean.at(clean.o, i, d));
    EXPECT_EQ(v.lse, clean.lse);
  }
  const auto with_score = [&](double score) {
    return plain([&](Small& p) {
      for (i64 i = 0; i < 4; i++) p.at(p.q, i, 0) = 1;
      p.at(p.k, 1, 0) = score;
    });
  };
  const Small minus = with_score(-kInf);  // weight 0
  const Verdict v = minus.verdict();
  EXPECT_TRUE(v.pass()) << v.text();
  for (const double x : minus.o) EXPECT_TRUE(std::isfinite(x));
  const Small plus = with_score(kInf);
  for (const double x : plus.o) EXPECT_TRUE(std::isnan(x));
  for (const double x : plus.lse) EXPECT_TRUE(std::isnan(x));
}

}  // namespace
}  // namespace tessera::testing
