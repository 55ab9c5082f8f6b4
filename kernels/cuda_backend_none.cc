// SPDX-License-Identifier: Apache-2.0
// The CUDA target of a build without a CUDA toolkit: it says so.
#include "kernels/cuda_backend.h"

namespace tessera::cuda {

namespace {
[[noreturn]] void none() {
  throw Error(ErrorKind::unsupported, "target: cuda: " + why_no_device());
}
}  // namespace

bool built() { return false; }
std::vector<std::string> instances() { return {}; }
std::string why_no_device() { return "this build has no CUDA part: no CUDA toolkit was found"; }
std::string device_name() { none(); }
Arch device_arch() { none(); }
int device_of(const std::vector<Pointer>&) { none(); }
void require_host(const std::vector<Pointer>&) {}  // all memory is the host's
DeviceGuard::DeviceGuard(int) { none(); }
DeviceGuard::~DeviceGuard() = default;
double launch(const std::string&, const void*, void*, bool) { none(); }
Buffer::Buffer(std::size_t) : bytes_(0) { none(); }
Buffer::~Buffer() = default;
void Buffer::upload(const void*) { none(); }
void Buffer::download(void*) const { none(); }
void* copy_compact(const void*, const StridedRows&, i64, int, void*) { none(); }
void free_async(void*, void*) {}

}  // namespace tessera::cuda
