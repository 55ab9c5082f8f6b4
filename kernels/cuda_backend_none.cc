// SPDX-License-Identifier: Apache-2.0
// The CUDA target of a build without a CUDA toolkit: it says so.
#include "kernels/cuda_backend.h"
#include "kernels/cuda_timing.h"

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
int multiprocessors() { none(); }
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

double rate_limit(Dtype) { none(); }
std::optional<Clocks> clocks_under_load() { return std::nullopt; }
std::string driver_version() { return ""; }
std::string toolkit_version() { return ""; }
struct Stopwatch::State {};
Stopwatch::Stopwatch(Launch, bool) { none(); }
Stopwatch::~Stopwatch() = default;
void* Stopwatch::stream() const { none(); }
int Stopwatch::add(std::function<void()>) { none(); }
void Stopwatch::run(int) { none(); }
void Stopwatch::wait() { none(); }
std::vector<double> Stopwatch::round(const std::vector<int>&) { none(); }

}  // namespace tessera::cuda
