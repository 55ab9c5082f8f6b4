// SPDX-License-Identifier: Apache-2.0
// Failures of the CUDA runtime, inside the CUDA part.
#pragma once
#include <string>

namespace tessera::cuda {

// Throws Error (internal) that says what failed, unless `error`, a cudaError_t, is a success. The
// runtime's pending error is taken.
void check(int error, const std::string& what);
// Throws Error (unsupported) where there is no device.
void require_device();

}  // namespace tessera::cuda
