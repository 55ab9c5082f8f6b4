// SPDX-License-Identifier: Apache-2.0
// What a generated CUDA translation unit says: one kernel, all parameters fixed.
#pragma once
#include <cuda_runtime.h>

#include "kernels/configs.h"
#include "kernels/cuda_backend.h"

namespace tessera::cuda {

template <class Kernel, Config C>
__global__ void __launch_bounds__(C.threads()) entry(const __grid_constant__ typename Kernel::Args args) {
  Kernel::run(args);
}

template <class Kernel, Config C>
Instance make_instance(const char* key) {
  using Args = typename Kernel::Args;
  static_assert(Kernel::kSharedBytes <= shared_limit(C.arch), "the arch's cards have less shared memory");
  return {key, C.threads(), Kernel::kSharedBytes,
          [](const void* args) { return Kernel::grid(*static_cast<const Args*>(args)); },
          [](const void* args, unsigned blocks, void* stream) -> int {
            if constexpr (Kernel::kSharedBytes > 48 * 1024) {  // beyond 48 KB a kernel must opt in
              const cudaError_t e = cudaFuncSetAttribute(entry<Kernel, C>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                                         Kernel::kSharedBytes);
              if (e != cudaSuccess) return e;
            }
            entry<Kernel, C><<<blocks, C.threads(), Kernel::kSharedBytes, static_cast<cudaStream_t>(stream)>>>(
                *static_cast<const Args*>(args));
            return cudaGetLastError();
          }};
}

}  // namespace tessera::cuda
