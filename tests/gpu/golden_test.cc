// SPDX-License-Identifier: Apache-2.0
// The signature claim, on every commit and without a GPU: the emulator's bits, with the arithmetic
// of the card, are the bits that were recorded on the card (docs/results/h200/golden.jsonl).
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "tests/gpu/golden_cases.h"
#include "tests/kernels/products.h"

namespace tessera::testing {
namespace {

std::map<std::string, nlohmann::json> golden() {
  std::map<std::string, nlohmann::json> all;
  std::ifstream file(TESSERA_SOURCE_DIR "/docs/results/h200/golden.jsonl");
  for (std::string line; std::getline(file, line);) {
    const auto j = nlohmann::json::parse(line);
    all[j.at("case").get<std::string>()] = j;
  }
  return all;
}

TEST(Golden, AttentionBitsEqualTheCard) {
  const auto recorded = golden();
  int compared = 0;
  for (const Case& c : golden_cases()) {
    const auto it = recorded.find(c.name());
    ASSERT_NE(it, recorded.end()) << c << " was not recorded";
    Tensors t = make_inputs(c);
    run(c, t);
    EXPECT_EQ(hash_o(c, t), it->second.at("o")) << c;
    EXPECT_EQ(hash_lse(c, t), it->second.at("lse")) << c;
    compared++;
  }
  EXPECT_GE(compared, 400);  // 32 shapes, 3 types, 3 archs, less bf16 on sm_75; two candidates
}

TEST(Golden, ProductBitsEqualTheCard) {
  const auto recorded = golden();
  for (const ProductCase& c : golden_products()) {
    const auto it = recorded.find(c.name());
    ASSERT_NE(it, recorded.end()) << c.name() << " was not recorded";
    EXPECT_EQ(run_product(c, {}).hash, it->second.at("o")) << c.name();
  }
}

// A card with another rule must give other bits somewhere, or the comparison above would prove
// nothing.
TEST(Golden, AnotherCardsRuleIsSeen) {
  const auto recorded = golden();
  int different = 0;
  for (Case c : golden_cases()) {
    if (c.dtype == Dtype::f32 || c.arch != "sm_75") continue;
    c.card = "t4";
    Tensors t = make_inputs(c);
    run(c, t);
    different += hash_lse(c, t) != recorded.at(c.name()).at("lse");
  }
  EXPECT_GT(different, 3);
}

}  // namespace
}  // namespace tessera::testing
