// SPDX-License-Identifier: Apache-2.0
// A kernel that does nothing but multiply.
#pragma once
#include "kernels/warp/types.h"

namespace tessera::cuda {

struct Multiplied {
  int error = 0;    // cudaError_t
  double flop = 0;  // of the launch; 0: the device has no such instruction
};
// Launches on `stream` of the current device: `iterations` times eight mma.sync (f16, bf16) or
// thirty-two FFMA (f32) in every warp, independent of each other. `blocks` of four warps.
Multiplied multiply(Dtype dtype, int blocks, int iterations, void* stream);

}  // namespace tessera::cuda
