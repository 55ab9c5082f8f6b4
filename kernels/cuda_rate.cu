// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda_rate.h"

#include <cuda_runtime.h>

#include "kernels/warp/cuda.h"

namespace tessera::cuda {

namespace {

constexpr int kThreads = 128, kWarps = kThreads / 32;
constexpr int kMmaChains = 8;  // an instruction's latency is some six times its interval
constexpr int kFmaChains = 32;

// m16n8k16 where the code is for sm_80 and up, else m16n8k8.
template <class T>
__global__ void __launch_bounds__(kThreads) mma_rate(int iterations, float* never) {
  float c[kMmaChains][4] = {};
  const u32 zero = iterations < 0;  // not known to the compiler
  for (int i = 0; i < iterations; i++)
    TESSERA_UNROLL_FOR (int chain = 0; chain < kMmaChains; chain++) {
#if __CUDA_ARCH__ >= 800
      const u32 a[4] = {zero, zero, zero, zero}, b[2] = {zero, zero};
      mma_m16n8k16<T>(c[chain], a, b);
#else
      const u32 a[2] = {zero, zero};
      if constexpr (std::is_same_v<T, f16>) mma_m16n8k8<T>(c[chain], a, zero);
#endif
    }
  float sum = 0;
  for (const auto& x : c) sum += x[0] + x[1] + x[2] + x[3];
  if (sum != 0) *never = sum;
}

__global__ void __launch_bounds__(kThreads) fma_rate(int iterations, float* never) {
  float c[kFmaChains];
  const float zero = iterations < 0 ? 1.0f : 0.0f;
  for (int chain = 0; chain < kFmaChains; chain++) c[chain] = zero * float(chain);
  for (int i = 0; i < iterations; i++)
    TESSERA_UNROLL_FOR (int chain = 0; chain < kFmaChains; chain++)
      c[chain] = fma(zero, c[chain], zero);
  float sum = 0;
  for (const float x : c) sum += x;
  if (sum != 0) *never = sum;
}

template <class T>
Multiplied multiply_mma(int blocks, int iterations, void* stream) {
  cudaFuncAttributes code;
  if (const cudaError_t e = cudaFuncGetAttributes(&code, mma_rate<T>); e != cudaSuccess)
    return {e, 0};
  const int k = code.ptxVersion >= 80 ? 16 : 8;
  if (k == 8 && std::is_same_v<T, bf16>) return {};
  mma_rate<T>
      <<<unsigned(blocks), kThreads, 0, static_cast<cudaStream_t>(stream)>>>(iterations, nullptr);
  return {cudaGetLastError(), 2.0 * 16 * 8 * k * kMmaChains * kWarps * blocks * iterations};
}

}  // namespace

Multiplied multiply(Dtype dtype, int blocks, int iterations, void* stream) {
  switch (dtype) {
    case Dtype::f16: return multiply_mma<f16>(blocks, iterations, stream);
    case Dtype::bf16: return multiply_mma<bf16>(blocks, iterations, stream);
    case Dtype::f32:
      fma_rate<<<unsigned(blocks), kThreads, 0, static_cast<cudaStream_t>(stream)>>>(iterations,
                                                                                     nullptr);
      return {cudaGetLastError(), 2.0 * kFmaChains * kThreads * blocks * iterations};
    case Dtype::field: break;
  }
  return {};
}

}  // namespace tessera::cuda
