// SPDX-License-Identifier: Apache-2.0
// The modules of the ISA levels: the same bits from each, and nothing but the entry leaves one.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <cstring>
#include <sstream>
#include <string>
#include <vector>

#include "kernels/attention.h"
#include "sim/loader.h"
#include "sim/random.h"

namespace tessera::sim {
namespace {

class IsaLevel : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    try {
      module = &load_module(GetParam());
      const auto levels = available_isa_levels();
      baseline = &load_module(levels.back());
    } catch (const Error& e) {
      GTEST_SKIP() << e.what();
    }
  }
  const Module* module = nullptr;
  const Module* baseline = nullptr;  // the lowest level there is
};
INSTANTIATE_TEST_SUITE_P(All, IsaLevel, ::testing::Values("v4", "v3", "v2"),
                         [](const auto& info) { return std::string(info.param); });

TEST_P(IsaLevel, SaysWhatItIs) {
  EXPECT_EQ(std::string(module->isa), GetParam());
  EXPECT_EQ(module->abi, kModuleAbi);
  EXPECT_GT(module->count, 0);
}

TEST_P(IsaLevel, SameBitsOfScalarFunctions) {
  constexpr LaneFunction kAll[] = {LaneFunction::exp2_soft,   LaneFunction::exp2_hardware,
                                   LaneFunction::log2_soft,   LaneFunction::narrow_f16,
                                   LaneFunction::narrow_bf16, LaneFunction::widen_f16};
  for (const LaneFunction f : kAll) {
    u64 differing = 0;
    u32 example = 0;
    const auto compare = [&](auto pattern) {
      u32 in[32], out[32], expected[32];
      for (u32 i = 0; i < 32; i++) in[i] = pattern(i);
      module->lanes(f, in, out);
      baseline->lanes(f, in, expected);
      for (int i = 0; i < 32; i++)
        if (out[i] != expected[i]) differing++, example = in[i];
    };
    for (u64 n = 0; n < 8192; n++) {
      compare([&](u32 i) { return u32((n * 32 + i) * 16381); });  // all exponents
      // Numbers as scores are: -150 to 150 and around 1.
      compare([&](u32 i) {
        return 0x3c000000u + u32(mix(n, i) % 0x08000000u) + (i % 2 ? 0x80000000u : 0);
      });
    }
    if (f == LaneFunction::widen_f16)
      for (u32 n = 0; n < 2048; n++) compare([&](u32 i) { return n * 32 + i; });
    EXPECT_EQ(differing, 0u) << "function " << int(f) << ", at " << std::hex << example;
  }
}

TEST_P(IsaLevel, SameBitsOfTensorCores) {
  struct Case {
    bool is_bf16;
    int k;
  };
  for (const auto& [is_bf16, k] : {Case{false, 8}, Case{false, 16}, Case{true, 16}})
    for (const MmaMode mode : {MmaMode::exact, MmaMode::fma, MmaMode::scalar})
      for (const MmaRule rule : {MmaRule{8, 24}, MmaRule{16, 25}}) {
        const MmaFunction f = module->mma_function(is_bf16, k, mode, rule);
        const MmaFunction g = baseline->mma_function(is_bf16, k, mode, rule);
        MmaState state_f, state_g;
        state_f.rule = state_g.rule = rule;
        u64 differing = 0;
        for (u64 n = 0; n < (mode == MmaMode::scalar ? 200u : 2000u); n++) {
          alignas(64) u32 a[4 * 32], b[2 * 32];
          alignas(64) float c[4 * 32], d[4 * 32];
          // A third ordinary numbers, a third every exponent, a third any bits.
          const auto draw = [&](u64 salt) {
            const u32 x = u32(mix(n, salt));
            const u32 ordinary = is_bf16 ? 0x3c003c00u : 0x2c002c00u;
            if (n % 3 == 0) return (x & 0x83ff83ffu) | ordinary;
            return n % 3 == 1 ? x & 0xbfffbfffu : x;
          };
          for (u32 i = 0; i < 4 * 32; i++) a[i] = draw(i);
          for (u32 i = 0; i < 2 * 32; i++) b[i] = draw(1000 + i);
          for (u32 i = 0; i < 4 * 32; i++) {
            u32 x = u32(mix(n, 2000 + i));
            if (n % 3 != 2) x = (x & 0x83ffffffu) | 0x3c000000u;
            std::memcpy(&c[i], &x, 4);
          }
          std::memcpy(d, c, sizeof c);
          f(c, a, b, state_f);
          g(d, a, b, state_g);
          for (int i = 0; i < 4 * 32; i++) {
            const bool both_nan = c[i] != c[i] && d[i] != d[i];
            differing += std::memcmp(&c[i], &d[i], 4) != 0 && !(both_nan && mode == MmaMode::fma);
          }
        }
        EXPECT_EQ(differing, 0u) << (is_bf16 ? "bf16" : "f16") << " k " << k << " mode "
                                 << int(mode) << " terms " << rule.terms;
      }
}

// An inline function that was built for one level and leaves its module could serve another.
TEST_P(IsaLevel, ExportsItsEntryAndNothingElse) {
  Dl_info info;
  ASSERT_NE(dladdr(reinterpret_cast<const void*>(module->launch), &info), 0);
  const std::string command = "nm -D --defined-only '" + std::string(info.dli_fname) +
                              "' 2>/dev/null";
  FILE* const pipe = popen(command.c_str(), "r");
  ASSERT_NE(pipe, nullptr);
  std::string text;
  char buffer[4096];
  while (std::fgets(buffer, sizeof buffer, pipe)) text += buffer;
  if (pclose(pipe) != 0) GTEST_SKIP() << "nm is not there";
  std::vector<std::string> names;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);)
    names.push_back(line.substr(line.rfind(' ') + 1));
  EXPECT_EQ(names, std::vector<std::string>{"tessera_sim_module"}) << text;
}

TEST(IsaLevels, UnknownOnesAreRefused) {
  EXPECT_THROW(load_module("v5"), Error);
  for (const std::string& level : available_isa_levels()) EXPECT_EQ(load_module(level).isa, level);
}

}  // namespace
}  // namespace tessera::sim
