// SPDX-License-Identifier: Apache-2.0
// A tensor of a case: on the host, and for the CUDA target on the device as well.
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <vector>

#include "kernels/attention.h"
#include "kernels/cuda_backend.h"

namespace tessera::cli {

class Array {
 public:
  // Contiguous, its base a multiple of 256 bytes (as cudaMalloc's), on the host every byte 0xff.
  // Throws Error if the tensor does not fit in memory.
  Array(const char* name, Dtype dtype, std::vector<std::int64_t> shape, Target target);

  void fill_input(std::uint64_t seed, std::uint32_t tensor);
  void poison();    // every element a NaN (field: the hidden score), as no kernel writes one
  void download();  // after the launch

  Tensor tensor() const;  // as the target sees it
  const void* host() const { return host_.get(); }
  Dtype dtype() const { return dtype_; }
  std::int64_t count() const { return count_; }
  std::size_t bytes() const;
  const std::vector<std::int64_t>& shape() const { return shape_; }
  std::vector<double> widened() const;

 private:
  void upload();

  Dtype dtype_;
  std::vector<std::int64_t> shape_;
  std::int64_t count_ = 1;
  std::unique_ptr<void, decltype(&std::free)> host_{nullptr, std::free};
  std::unique_ptr<cuda::Buffer> device_;
};

// A tensor without memory: what argument checks need.
Tensor shape_only(Dtype dtype, const std::vector<std::int64_t>& shape);

}  // namespace tessera::cli
