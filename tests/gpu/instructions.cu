// SPDX-License-Identifier: Apache-2.0
#include "tests/gpu/instructions.h"

#include <cuda_runtime.h>

#include <stdexcept>

#include "kernels/tile/math.h"

namespace tessera::testing {
namespace {

__device__ u32 apply_function(Function f, u32 x) {
  const float v = bits_to_float(x);
  switch (f) {
    case Function::exp2_soft: return float_to_bits(exp2_soft(v));
    case Function::log2_soft: return float_to_bits(log2_soft(v));
    case Function::narrow_f16: return pack<f16>(v, 0.0f);
    case Function::narrow_bf16: return pack<bf16>(v, 0.0f);
    case Function::reciprocal_normal: return float_to_bits(reciprocal_normal(v));
  }
  return 0;
}

__global__ void functions(Function f, bool sample, unsigned long long* sum) {
  unsigned long long mine = 0;
  for (u64 x = blockIdx.x * u64(blockDim.x) + threadIdx.x; x < (u64(1) << 32);
       x += u64(gridDim.x) * blockDim.x)
    if (in_domain(f, u32(x)) && (!sample || in_sample(u32(x))))
      mine += term(x, apply_function(f, u32(x)));
  atomicAdd(sum, mine);
}

template <class T, int K>
__global__ void mmas(unsigned long long* sum) {
  const u64 n = blockIdx.x;
  const int lane = lane_id();
  float c[4];
  u32 a[4], b[2];
  for (int i = 0; i < 4; i++) c[i] = bits_to_float(mma_c(n, i, lane));
  for (int i = 0; i < K / 4; i++) a[i] = mma_input(n, i, lane, std::is_same_v<T, bf16>);
  for (int i = 0; i < K / 8; i++) b[i] = mma_input(n, 4 + i, lane, std::is_same_v<T, bf16>);
  if constexpr (K == 16) {
    mma_m16n8k16<T>(c, a, b);
  } else {
    const u32 half[2] = {a[0], a[1]};
    mma_m16n8k8<T>(c, half, b[0]);
  }
  unsigned long long mine = 0;
  for (int i = 0; i < 4; i++) mine += term(n * 128 + u64(32 * i + lane), float_to_bits(c[i]));
  atomicAdd(sum, mine);
}

template <class F>
u64 run(F launch) {
  unsigned long long *device = nullptr, host = 0;
  cudaError_t e = cudaMalloc(&device, sizeof host);
  if (e == cudaSuccess) e = cudaMemset(device, 0, sizeof host);
  if (e == cudaSuccess) {
    launch(device);
    e = cudaGetLastError();
  }
  if (e == cudaSuccess) e = cudaMemcpy(&host, device, sizeof host, cudaMemcpyDeviceToHost);
  cudaFree(device);
  if (e != cudaSuccess) throw std::runtime_error(cudaGetErrorString(e));
  return host;
}

}  // namespace

u64 function_on_gpu(Function f, bool sample) {
  return run([&](unsigned long long* sum) { functions<<<1024, 256>>>(f, sample, sum); });
}
u64 mma_on_gpu(bool is_bf16, int k) {
  return run([&](unsigned long long* sum) {
    if (is_bf16)
      mmas<bf16, 16><<<unsigned(kMmaCount), 32>>>(sum);
    else if (k == 16)
      mmas<f16, 16><<<unsigned(kMmaCount), 32>>>(sum);
    else
      mmas<f16, 8><<<unsigned(kMmaCount), 32>>>(sum);
  });
}

}  // namespace tessera::testing
