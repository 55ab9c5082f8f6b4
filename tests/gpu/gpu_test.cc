// SPDX-License-Identifier: Apache-2.0
// On a real GPU: results against the float64 reference, and bits for tests/gpu/golden_test.cc.
// TESSERA_RECORD=FILE writes the bits' hashes as JSON lines.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>

#include "kernels/attention_c.h"
#include "kernels/cuda_backend.h"
#include "kernels/registry.h"
#include "reference/hash.h"
#include "reference/inputs.h"
#include "tests/gpu/golden_cases.h"
#include "tests/gpu/instructions.h"
#include "tests/kernels/products.h"

namespace tessera::testing {
namespace {

#define TESSERA_NEEDS_GPU() \
  if (const std::string why = cuda::why_no_device(); !why.empty()) GTEST_SKIP() << why

// Runs c on the GPU and compares.
Tensors expect_right_on_gpu(const Case& c, double loosen = 1) {
  Tensors t = make_inputs(c);
  AttentionOptions o;
  o.target = Target::cuda;
  run(c, t, o);
  const Verdict v = compare_with_reference(c, t, loosen);
  EXPECT_TRUE(v.pass()) << c << ": " << v.text();
  return t;
}

bool runs_here(const std::string& arch) { return parse_arch(arch) <= cuda::device_arch(); }

void record(const nlohmann::ordered_json& line) {
  if (const char* path = std::getenv("TESSERA_RECORD"))
    std::ofstream(path, std::ios::app) << line.dump() << "\n";
}

TEST(Gpu, GoldenCasesAreRightAndRecorded) {
  TESSERA_NEEDS_GPU();
  for (const Case& c : golden_cases()) {
    if (!runs_here(c.arch)) continue;
    const Tensors t = expect_right_on_gpu(c);
    record({{"case", c.name()},
            {"o", hash_o(c, t)},
            {"lse", hash_lse(c, t)},
            {"device", cuda::device_name()}});
  }
}

TEST(Gpu, HardwareExp2StaysInItsBound) {
  TESSERA_NEEDS_GPU();
  for (Case c : golden_cases()) {
    if (!runs_here(c.arch)) continue;
    c.exp2 = "hardware";
    expect_right_on_gpu(c, kHardwareExp2);
  }
}

// Each configuration of each arch, both exp2, ragged and whole: what is worth a run under
// compute-sanitizer (--gtest_filter=Gpu.EveryConfigurationOnce).
TEST(Gpu, EveryConfigurationOnce) {
  TESSERA_NEEDS_GPU();
  for (const Configured& config : every_config("flash_forward", Where::cuda))
    for (const i64 missing : {0, 3})
      for (const char* exp2 : {"soft", "hardware"}) {
        Case c = config.start();
        if (!runs_here(c.arch)) continue;
        c.heads = 2, c.heads_kv = 1, c.q_len = 197, c.k_len = 261, c.head_dim -= missing;
        c.causal = Causal::bottom_right, c.exp2 = exp2;
        expect_right_on_gpu(c, kHardwareExp2);
      }
}

// The tutorial's own shapes, every type and arch, with the exp2 that users get.
TEST(Gpu, TutorialShapes) {
  TESSERA_NEEDS_GPU();
  const i64 shapes[][4] = {{4, 128, 128, 64},
                           {2, 1024, 1024, 64},
                           {2, 100, 100, 64},
                           {1, 37, 53, 32},
                           {1, 200, 96, 128}};
  for (const char* arch : {"sm_75", "sm_89", "sm_90"})
    for (const Dtype d : {Dtype::f32, Dtype::f16, Dtype::bf16})
      for (const auto& s : shapes)
        for (const Causal causal : {Causal::none, Causal::top_left}) {
          if (!runs_here(arch) || !supports(parse_arch(arch), d)) continue;
          Case c;
          c.arch = arch, c.dtype = d, c.causal = causal, c.exp2 = "hardware";
          c.batch = s[0], c.q_len = s[1], c.k_len = s[2], c.head_dim = s[3];
          expect_right_on_gpu(c, kHardwareExp2);
        }
}

TEST(Gpu, ProductsAreRightAndRecorded) {
  TESSERA_NEEDS_GPU();
  for (const ProductCase& c : golden_products()) {
    if (!runs_here(c.arch)) continue;
    Options o;
    o.target = Target::cuda;
    const ProductResult r = run_product(c, o);
    EXPECT_TRUE(r.comparison.pass)
        << c.name() << ": " << r.comparison.max_abs << " against " << r.comparison.tolerance;
    record({{"case", c.name()}, {"o", r.hash}, {"device", cuda::device_name()}});
  }
}

// Whole input spaces of single instructions; bits are recorded, rightness is instructions_test's.
TEST(Gpu, InstructionsAreRecorded) {
  TESSERA_NEEDS_GPU();
  const auto line = [](const std::string& name, u64 sum) {
    record({{"case", name}, {"sum", hash_hex(sum)}, {"device", cuda::device_name()}});
  };
  for (const Function f : {Function::exp2_soft, Function::log2_soft, Function::narrow_f16,
                           Function::narrow_bf16, Function::reciprocal_normal})
    for (const bool sample : {false, true})
      line(std::string(kFunctionNames[int(f)]) + (sample ? "_sample" : ""),
           function_on_gpu(f, sample));
  line("mma_m16n8k8_f16", mma_on_gpu(false, 8));
  if (cuda::device_arch() < Arch::sm_89) return;  // Turing has no m16n8k16
  line("mma_m16n8k16_f16", mma_on_gpu(false, 16));
  line("mma_m16n8k16_bf16", mma_on_gpu(true, 16));
}

// The tensor cores are faster than the CUDA cores on every card here, and a second call measures
// nothing.
TEST(Gpu, RateLimits) {
  TESSERA_NEEDS_GPU();
  double f16 = 0, f32 = 0, again = 0;
  ASSERT_EQ(tessera_cuda_rate_limit(TESSERA_F16, &f16), TESSERA_OK) << tessera_last_error();
  ASSERT_EQ(tessera_cuda_rate_limit(TESSERA_F32, &f32), TESSERA_OK) << tessera_last_error();
  ASSERT_EQ(tessera_cuda_rate_limit(TESSERA_F16, &again), TESSERA_OK);
  EXPECT_EQ(again, f16);
  EXPECT_GT(f16, f32);
  EXPECT_GT(f32, 1);
  if (cuda::device_arch() > Arch::sm_75) {
    ASSERT_EQ(tessera_cuda_rate_limit(TESSERA_BF16, &again), TESSERA_OK) << tessera_last_error();
    EXPECT_NEAR(again / f16, 1, 0.05);
  }
}

TEST(Gpu, UnalignedTensorsAreCopied) {
  TESSERA_NEEDS_GPU();
  Case c;
  c.arch = std::string(name_of(cuda::device_arch())), c.batch = 2, c.q_len = 33, c.k_len = 47,
  c.head_dim = 37;
  expect_right_on_gpu(c);  // rows of 74 bytes
}

TEST(Gpu, ALaunchThatCannotBeIsRefused) {
  TESSERA_NEEDS_GPU();
  Case c;
  c.arch = std::string(name_of(cuda::device_arch()));
  Tensors t = make_inputs(c);
  AttentionOptions o;
  o.target = Target::cuda;
  o.config = "16x16-padded-keys";  // emulator only
  EXPECT_THROW(run(c, t, o), Error);
}

}  // namespace
}  // namespace tessera::testing
