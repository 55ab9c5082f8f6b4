// SPDX-License-Identifier: Apache-2.0
#include "analysis/cli/memory.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "reference/inputs.h"

namespace tessera::cli {
namespace {

constexpr std::size_t kAlignment = 256;

}  // namespace

Tensor shape_only(Dtype dtype, const std::vector<std::int64_t>& shape) {
  Tensor t;
  t.dtype = dtype;
  t.rank = int(shape.size());
  // Sizes may be anything here, and signed overflow is undefined.
  std::uint64_t step = 1;
  for (std::size_t i = shape.size(); i-- > 0;) {
    t.shape[i] = shape[i];
    t.stride[i] = std::int64_t(step & 0x7fffffffffffffffu);
    step *= std::uint64_t(shape[i]);
  }
  return t;
}

Array::Array(const char* name, Dtype dtype, std::vector<std::int64_t> shape, Target target)
    : dtype_(dtype), shape_(std::move(shape)) {
  const auto too_big = [&] {
    std::string dims;
    for (const std::int64_t n : shape_) dims += (dims.empty() ? "" : ", ") + std::to_string(n);
    throw Error(ErrorKind::unsupported,
                std::string(name) + ": (" + dims + ") elements do not fit in memory");
  };
  std::int64_t size = element_size(dtype);
  for (const std::int64_t n : shape_)
    if (__builtin_mul_overflow(size, n, &size)) too_big();
  count_ = size / element_size(dtype);
  const std::size_t whole = std::max<std::size_t>(1, (bytes() + kAlignment - 1) / kAlignment);
  host_.reset(std::aligned_alloc(kAlignment, whole * kAlignment));
  if (!host_) too_big();
  std::memset(host_.get(), 0xff, whole * kAlignment);  // NaN after the last element as well
  if (target == Target::cuda) device_ = std::make_unique<cuda::Buffer>(whole * kAlignment);
}

std::size_t Array::bytes() const { return std::size_t(count_) * std::size_t(element_size(dtype_)); }

void Array::fill_input(std::uint64_t seed, std::uint32_t tensor) {
  fill(host_.get(), dtype_, count_, seed, tensor);
  upload();
}

void Array::poison() {
  std::memset(host_.get(), 0xff, bytes());
  upload();
}

void Array::upload() {
  if (device_) device_->upload(host_.get());
}

void Array::download() {
  if (device_) device_->download(host_.get());
}

Tensor Array::tensor() const {
  Tensor t = shape_only(dtype_, shape_);
  t.data = device_ ? device_->data() : host_.get();
  return t;
}

std::vector<double> Array::widened() const { return widen_all(dtype_, host_.get(), count_); }

}  // namespace tessera::cli
