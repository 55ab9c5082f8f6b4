// SPDX-License-Identifier: Apache-2.0
// How fast the emulator is on one thread, at this machine's own ISA level: its tensor core, the two
// vector routines beside it that matter most, and a whole kernel.
//   build/tessera_benchmark --benchmark_filter=mma
// The rate is the FLOP column: a multiply-add counts as 2, so an m16n8k16 is 4096.
#include <benchmark/benchmark.h>

#include <cstring>
#include <vector>

#include "kernels/attention.h"
#include "kernels/tile/math.h"
#include "reference/inputs.h"
#include "sim/memory.h"
#include "sim/tensor_core.h"

namespace tessera {
namespace {

using benchmark::Counter;
using sim::MmaMode;
using sim::MmaRule;

constexpr MmaRule kRtx4070{8, 24}, kH200{16, 25};

Counter rate(double per_iteration) { return {per_iteration, Counter::kIsIterationInvariantRate}; }

// Sixteen instructions onto one accumulator, each with operands of its own: a product of depth 256.
void mma_m16n8k16(benchmark::State& state, Dtype dtype, MmaMode mode, MmaRule rule) {
  constexpr int kChain = 16;
  struct Operands {
    alignas(64) u32 a[4 * 32], b[2 * 32];
  };
  std::vector<Operands> chain(kChain);
  fill(chain.data(), dtype, i64(chain.size() * sizeof(Operands)) / 2, 1, 0);
  const sim::MmaFunction mma = sim::mma_function(dtype == Dtype::bf16, 16, mode, rule);
  sim::MmaState memory;
  memory.rule = rule;
  alignas(64) float c[4 * 32];
  for (auto _ : state) {
    std::memset(c, 0, sizeof c);
    for (const Operands& x : chain) mma(c, x.a, x.b, memory);
    benchmark::DoNotOptimize(c);
  }
  state.counters["FLOP"] = rate(4096.0 * kChain);
}
BENCHMARK_CAPTURE(mma_m16n8k16, f16_fma, Dtype::f16, MmaMode::fma, kRtx4070);
BENCHMARK_CAPTURE(mma_m16n8k16, bf16_fma, Dtype::bf16, MmaMode::fma, kRtx4070);
BENCHMARK_CAPTURE(mma_m16n8k16, f16_exact_rtx4070, Dtype::f16, MmaMode::exact, kRtx4070);
BENCHMARK_CAPTURE(mma_m16n8k16, bf16_exact_rtx4070, Dtype::bf16, MmaMode::exact, kRtx4070);
BENCHMARK_CAPTURE(mma_m16n8k16, f16_exact_h200, Dtype::f16, MmaMode::exact, kH200);
BENCHMARK_CAPTURE(mma_m16n8k16, bf16_exact_h200, Dtype::bf16, MmaMode::exact, kH200);

// What ldmatrix.x4.trans does to its rows: four 8x8 matrices of 16-bit elements.
void ldmatrix_x4_trans(benchmark::State& state) {
  alignas(64) u16 rows[4][64];
  alignas(64) u32 registers[4][32];
  fill(rows, Dtype::f16, 4 * 64, 1, 0);
  for (auto _ : state) {
    benchmark::DoNotOptimize(rows);
    for (int i = 0; i < 4; i++) sim::transpose_8x8(rows[i], registers[i]);
    benchmark::DoNotOptimize(registers);
  }
  state.counters["instructions"] = rate(1);
}
BENCHMARK(ldmatrix_x4_trans);

void exp2_soft(benchmark::State& state) {
  Lanes<float> x, y;
  fill(x.v, Dtype::f32, 32, 1, 0);
  for (auto _ : state) {
    benchmark::DoNotOptimize(x);
    y = tessera::exp2_soft(x);
    benchmark::DoNotOptimize(y);
  }
  state.counters["exp2"] = rate(32);
}
BENCHMARK(exp2_soft);

// A whole kernel through the public interface, code for sm_89: what a caller waits for.
struct Run {
  const char* kernel;
  i64 heads, length;
  Dtype dtype;
  Numerics numerics;
  int threads = 1;
  bool checks = false;
};
void attention(benchmark::State& state, const Run& run) {
  constexpr i64 kHeadDim = 64;
  const i64 count = run.heads * run.length * kHeadDim;
  const std::size_t bytes = std::size_t(count * element_size(run.dtype));
  std::vector<char> storage[4];
  Tensor t[4];  // Q, K, V, O
  for (u32 i = 0; i < 4; i++) {
    storage[i].resize(bytes);
    if (i < 3) fill(storage[i].data(), run.dtype, count, 1, i);
    t[i] = contiguous(storage[i].data(), run.dtype, {1, run.heads, run.length, kHeadDim});
  }
  AttentionOptions options;
  options.kernel = run.kernel, options.arch = "sm_89", options.numerics = run.numerics;
  options.threads = run.threads, options.checks = run.checks;
  for (auto _ : state) attention(t[0], t[1], t[2], t[3], nullptr, options);
  state.counters["FLOP"] = rate(4.0 * double(run.heads * run.length * run.length * kHeadDim));
}
#define TESSERA_BENCHMARK(name, ...) \
  BENCHMARK_CAPTURE(attention, name, Run{__VA_ARGS__})->Unit(benchmark::kMillisecond)->UseRealTime()
constexpr Numerics kExact = Numerics::exact, kFma = Numerics::fma;
TESSERA_BENCHMARK(flash_forward_f16_exact, "flash_forward", 8, 1024, Dtype::f16, kExact);
TESSERA_BENCHMARK(flash_forward_f16_fma, "flash_forward", 8, 1024, Dtype::f16, kFma);
TESSERA_BENCHMARK(flash_forward_f16_exact_2_threads, "flash_forward", 8, 1024, Dtype::f16, kExact,
                  2);
TESSERA_BENCHMARK(flash_forward_f16_fma_2_threads, "flash_forward", 8, 1024, Dtype::f16, kFma, 2);
TESSERA_BENCHMARK(flash_forward_f16_exact_checks, "flash_forward", 8, 1024, Dtype::f16, kExact, 1,
                  true);
TESSERA_BENCHMARK(flash_forward_bf16_exact, "flash_forward", 8, 1024, Dtype::bf16, kExact);
TESSERA_BENCHMARK(flash_forward_bf16_fma, "flash_forward", 8, 1024, Dtype::bf16, kFma);
TESSERA_BENCHMARK(flash_forward_f32, "flash_forward", 8, 256, Dtype::f32, kExact);
TESSERA_BENCHMARK(flash_step1_f16_exact, "flash_step1", 2, 256, Dtype::f16, kExact);
TESSERA_BENCHMARK(flash_step1_f16_fma, "flash_step1", 2, 256, Dtype::f16, kFma);
TESSERA_BENCHMARK(flash_step1_f32, "flash_step1", 2, 256, Dtype::f32, kExact);

}  // namespace
}  // namespace tessera

int main(int argc, char** argv) {
  benchmark::AddCustomContext("isa", TESSERA_OWN_ISA);
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
}
