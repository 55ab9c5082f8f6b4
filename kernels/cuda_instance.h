// SPDX-License-Identifier: Apache-2.0
// What a generated CUDA translation unit says: one kernel, all parameters fixed.
#pragma once
#include <cuda_runtime.h>

#include "kernels/configs.h"
#include "kernels/cuda_backend.h"

namespace tessera::cuda {

template <class Kernel>  // nvcc 13.0 cannot name a __global__ with a class-type value argument
__global__ void __launch_bounds__(Kernel::kConfig.threads(), Kernel::kConfig.blocks)
    entry(const __grid_constant__ typename Kernel::Args args) {
  Kernel::run(args);
}

template <class Kernel>
Instance make_instance(const char* key) {
  using Args = typename Kernel::Args;
  static_assert(Kernel::kSharedBytes <= shared_limit(Kernel::kConfig.arch),
                "the arch's cards have less shared memory");
  return {key, Kernel::kConfig.threads(), Kernel::kSharedBytes,
          [](const void* args) { return Kernel::grid(*static_cast<const Args*>(args)); },
          [](const void* args, unsigned blocks, void* stream) -> int {
            if constexpr (Kernel::kSharedBytes > 48 * 1024) {  // beyond 48 KB a kernel must opt in
              const cudaError_t e = cudaFuncSetAttribute(
                  entry<Kernel>, cudaFuncAttributeMaxDynamicSharedMemorySize, Kernel::kSharedBytes);
              if (e != cudaSuccess) return e;
            }
            entry<Kernel><<<blocks, Kernel::kConfig.threads(), Kernel::kSharedBytes,
                            static_cast<cudaStream_t>(stream)>>>(*static_cast<const Args*>(args));
            return cudaGetLastError();
          }};
}

}  // namespace tessera::cuda
