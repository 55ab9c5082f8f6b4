// SPDX-License-Identifier: Apache-2.0
// Single instructions over whole input spaces: the emulator's bits are those that were recorded on
// the card.
#include "tests/gpu/instructions.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <thread>

#include "reference/hash.h"
#include "sim/loader.h"

namespace tessera::testing {
namespace {

std::string recorded(const std::string& name) {
  std::ifstream file(TESSERA_SOURCE_DIR "/docs/results/h200/golden.jsonl");
  for (std::string line; std::getline(file, line);) {
    const auto j = nlohmann::json::parse(line);
    if (j.at("case") == name) return j.at("sum").get<std::string>();
  }
  return "not recorded";
}

const sim::Module& best() { return sim::load_module(sim::available_isa_levels().front()); }

class Functions : public ::testing::TestWithParam<Function> {};
INSTANTIATE_TEST_SUITE_P(All, Functions,
                         ::testing::Values(Function::exp2_soft, Function::log2_soft,
                                           Function::narrow_f16, Function::narrow_bf16,
                                           Function::reciprocal_normal),
                         [](const auto& i) { return std::string(kFunctionNames[int(i.param)]); });

// A sixteenth of all 2^32 inputs; with TESSERA_WHOLE set all of them, in about three minutes of CPU
// time.
TEST_P(Functions, HaveTheCardsBits) {
  constexpr sim::LaneFunction kLane[] = {
      sim::LaneFunction::exp2_soft, sim::LaneFunction::log2_soft, sim::LaneFunction::narrow_f16,
      sim::LaneFunction::narrow_bf16, sim::LaneFunction::reciprocal_normal};
  const Function f = GetParam();
  const bool whole = std::getenv("TESSERA_WHOLE") != nullptr;
  std::atomic<u64> sum{0};
  std::atomic<u32> next{0};
  const auto work = [&] {
    u64 mine = 0;
    for (u32 run; (run = next.fetch_add(1)) < (1u << 20);) {
      if (!whole && !in_sample(run << 12)) continue;
      for (u32 x = run << 12; x - (run << 12) < 4096; x += 32) {
        u32 in[32], out[32];
        for (u32 i = 0; i < 32; i++) in[i] = x + i;
        best().lanes(kLane[int(f)], in, out);
        for (u32 i = 0; i < 32; i++)
          if (in_domain(f, in[i])) mine += term(x + i, out[i]);
      }
    }
    sum += mine;
  };
  std::vector<std::thread> pool;
  for (unsigned i = 0; i < std::max(1u, std::thread::hardware_concurrency()); i++)
    pool.emplace_back(work);
  for (std::thread& t : pool) t.join();
  EXPECT_EQ(hash_hex(sum),
            recorded(std::string(kFunctionNames[int(f)]) + (whole ? "" : "_sample")));
}

u64 mma_sum(bool is_bf16, int k, const sim::Card& card) {
  u64 sum = 0;
  sim::MmaState state;
  state.rule = card.mma;
  for (u64 n = 0; n < kMmaCount; n++) {
    alignas(64) float c[128];
    alignas(64) u32 a[128], b[64];
    for (int lane = 0; lane < 32; lane++) {
      for (int i = 0; i < 4; i++) c[32 * i + lane] = __builtin_bit_cast(float, mma_c(n, i, lane));
      for (int i = 0; i < k / 4; i++) a[32 * i + lane] = mma_input(n, i, lane, is_bf16);
      for (int i = 0; i < k / 8; i++) b[32 * i + lane] = mma_input(n, 4 + i, lane, is_bf16);
    }
    best().mma_function(is_bf16, k, sim::MmaMode::exact, card.mma)(c, a, b, state);
    for (int i = 0; i < 128; i++) sum += term(n * 128 + u64(i), __builtin_bit_cast(u32, c[i]));
  }
  return sum;
}

TEST(Mma, RandomBitsHaveTheCardsBits) {
  const sim::Card& h200 = sim::find_card("h200");
  EXPECT_EQ(hash_hex(mma_sum(false, 8, h200)), recorded("mma_m16n8k8_f16"));
  EXPECT_EQ(hash_hex(mma_sum(false, 16, h200)), recorded("mma_m16n8k16_f16"));
  EXPECT_EQ(hash_hex(mma_sum(true, 16, h200)), recorded("mma_m16n8k16_bf16"));
  EXPECT_NE(hash_hex(mma_sum(true, 16, sim::find_card("rtx4070"))), recorded("mma_m16n8k16_bf16"));
}

}  // namespace
}  // namespace tessera::testing
