// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda_backend.h"

#include <cuda.h>
#include <cuda_runtime.h>
#include <dlfcn.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <mutex>
#include <string_view>
#include <unordered_map>

#include "kernels/cuda_check.h"

namespace tessera::cuda {

namespace {

using Instances = std::unordered_map<std::string_view, Instance>;
Instances& registered() {
  static Instances all;
  return all;
}

// These name a fault of work that ran before, whichever call happens to return them; the device is
// then lost to the process.
bool is_of_earlier_work(cudaError_t e) {
  constexpr cudaError_t kFaults[] = {cudaErrorIllegalAddress,
                                     cudaErrorLaunchFailure,
                                     cudaErrorLaunchTimeout,
                                     cudaErrorMisalignedAddress,
                                     cudaErrorAssert,
                                     cudaErrorIllegalInstruction,
                                     cudaErrorHardwareStackError,
                                     cudaErrorInvalidPc,
                                     cudaErrorInvalidAddressSpace,
                                     cudaErrorECCUncorrectable,
                                     cudaErrorContextIsDestroyed};
  return std::find(std::begin(kFaults), std::end(kFaults), e) != std::end(kFaults);
}

std::string text_of(cudaError_t e) {
  return std::string(cudaGetErrorName(e)) + ", " + cudaGetErrorString(e);
}

}  // namespace

void check(int error, const std::string& what) {
  const auto e = cudaError_t(error);
  if (e == cudaSuccess) return;
  cudaGetLastError();  // it is thrown: nobody else shall meet it again
  throw Error(ErrorKind::internal,
              what + ": " + text_of(e) +
                  (is_of_earlier_work(e) ? "; a fault of work launched before this call" : ""));
}

namespace {

// A launch reports its failure through the thread's last error, where an older one may still be.
void refuse_pending_error() {
  if (const cudaError_t e = cudaPeekAtLastError(); e != cudaSuccess)
    throw Error(ErrorKind::internal,
                "target: cuda: nothing was launched, since an earlier CUDA call of this thread "
                "failed and its error is still pending (cudaGetLastError takes it): " +
                    text_of(e));
}

int current_device() {
  int device = 0;
  check(cudaGetDevice(&device), "cudaGetDevice");
  return device;
}

struct Device {
  std::string name;
  int major = 0, minor = 0;
  int multiprocessors = 0;
  int shared_limit = 0;  // bytes a block, with opt-in
  bool reads_pageable_memory = false;
};

// Asked once a device: cudaGetDeviceProperties takes milliseconds.
const Device& device_info(int id) {
  static std::mutex mutex;
  static std::map<int, Device> known;
  const std::lock_guard<std::mutex> lock(mutex);
  if (const auto it = known.find(id); it != known.end()) return it->second;
  cudaDeviceProp p;
  check(cudaGetDeviceProperties(&p, id), "cudaGetDeviceProperties");
  return known[id] = {p.name,
                      p.major,
                      p.minor,
                      p.multiProcessorCount,
                      int(p.sharedMemPerBlockOptin),
                      p.pageableMemoryAccess != 0};
}

std::string device_text(int id) {
  return "device " + std::to_string(id) + " (" + device_info(id).name + ")";
}

}  // namespace

Registrar::Registrar(const Instance& i) { registered().emplace(i.key, i); }

bool built() { return true; }

std::vector<std::string> instances() {
  std::vector<std::string> keys;
  for (const auto& [key, instance] : registered()) keys.emplace_back(key);
  return keys;
}

std::string why_no_device() {
  static std::atomic<bool> found = false;
  if (found) return "";
  int n = 0;
  const cudaError_t e = cudaGetDeviceCount(&n);
  if (e != cudaSuccess) cudaGetLastError();
  if (e == cudaErrorInsufficientDriver) return "no NVIDIA driver, or one older than the toolkit";
  if (e != cudaSuccess) return cudaGetErrorString(e);
  found = n > 0;
  return n ? "" : "no CUDA device";
}

std::string device_name() { return device_info(current_device()).name; }

void require_device() {
  if (const std::string why = why_no_device(); !why.empty())
    throw Error(ErrorKind::unsupported, "target: cuda: " + why);
}

Arch device_arch() {
  require_device();
  const Device& d = device_info(current_device());
  for (const Arch a : {Arch::sm_90, Arch::sm_89, Arch::sm_75})
    if (10 * d.major + d.minor >= int(a)) return a;
  throw Error(ErrorKind::unsupported, "target: cuda: compute capability " +
                                          std::to_string(d.major) + "." + std::to_string(d.minor) +
                                          " is below 7.5");
}

int multiprocessors() { return device_info(current_device()).multiprocessors; }

int device_of(const std::vector<Pointer>& tensors) {
  require_device();
  refuse_pending_error();
  std::vector<cudaPointerAttributes> attributes(tensors.size());
  const Pointer* first = nullptr;
  int device = 0;
  for (std::size_t i = 0; i < tensors.size(); i++) {
    cudaPointerAttributes& a = attributes[i];
    check(cudaPointerGetAttributes(&a, tensors[i].data), tensors[i].name);
    if (a.type != cudaMemoryTypeDevice) continue;
    if (!first) first = &tensors[i], device = a.device;
    if (a.device != device)
      throw Error(ErrorKind::invalid_argument, std::string(tensors[i].name) + ": it is on " +
                                                   device_text(a.device) + ", and " + first->name +
                                                   " is on " + device_text(device));
  }
  if (!first) device = current_device();
  for (std::size_t i = 0; i < tensors.size(); i++) {
    const cudaPointerAttributes& a = attributes[i];
    const bool reached = a.type == cudaMemoryTypeDevice || a.type == cudaMemoryTypeManaged ||
                         (a.type == cudaMemoryTypeHost && a.devicePointer == tensors[i].data) ||
                         (a.type == cudaMemoryTypeUnregistered &&
                          device_info(device).reads_pageable_memory);
    if (!reached)
      throw Error(ErrorKind::invalid_argument,
                  std::string(tensors[i].name) + ": it is host memory, which " +
                      device_text(device) + " cannot reach; target is cuda");
  }
  return device;
}

// By the driver, and only if the process has already loaded it: without it there is no device
// memory, and the runtime would create a context to find that out.
void require_host(const std::vector<Pointer>& tensors) {
  void* driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
  if (!driver) return;
  const auto get = reinterpret_cast<decltype(&cuPointerGetAttribute)>(
      dlsym(driver, "cuPointerGetAttribute"));
  dlclose(driver);  // our reference; the process keeps its own
  if (!get) return;
  for (const Pointer& t : tensors) {
    const auto p = reinterpret_cast<CUdeviceptr>(t.data);
    unsigned type = 0, managed = 0;
    int device = 0;
    const CUresult known = get(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, p);
    if (known == CUDA_ERROR_INVALID_CONTEXT) {  // a thread that has none: the runtime helps
      cudaPointerAttributes a;
      check(cudaPointerGetAttributes(&a, t.data), t.name);
      type = a.type == cudaMemoryTypeDevice ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST;
      device = a.device;
    } else if (known == CUDA_SUCCESS && type == CU_MEMORYTYPE_DEVICE) {
      get(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, p);
      get(&device, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, p);
    }
    if (type == CU_MEMORYTYPE_DEVICE && !managed)
      throw Error(ErrorKind::invalid_argument, std::string(t.name) + ": it is on device " +
                                                   std::to_string(device) +
                                                   "; target is sim, which reads host memory");
  }
}

DeviceGuard::DeviceGuard(int device) : before_(current_device()), device_(device) {
  if (device_ != before_) check(cudaSetDevice(device_), "cudaSetDevice");
}
DeviceGuard::~DeviceGuard() {
  if (device_ != before_ && cudaSetDevice(before_) != cudaSuccess) cudaGetLastError();
}

namespace {

// An event that is destroyed on the way out, whichever way that is.
struct Event {
  cudaEvent_t event = nullptr;
  Event() { check(cudaEventCreate(&event), "cudaEventCreate"); }
  ~Event() { cudaEventDestroy(event); }
  Event(const Event&) = delete;
};

}  // namespace

double launch(const std::string& key, const void* args, void* stream, bool timed) {
  const auto found = registered().find(key);
  if (found == registered().end())
    throw Error(ErrorKind::unsupported, "config: " + key + " is not built for CUDA");
  const Instance& instance = found->second;
  const i64 blocks = instance.grid(args);
  if (blocks > 2147483647)
    throw Error(ErrorKind::unsupported,
                key + ": " + std::to_string(blocks) + " blocks, the limit is 2147483647");
  const int limit = device_info(current_device()).shared_limit;
  if (instance.shared_bytes > limit)
    throw Error(ErrorKind::unsupported,
                "config: " + key + ": shared memory of " + std::to_string(instance.shared_bytes) +
                    " bytes a block, the limit of this device is " + std::to_string(limit));
  if (blocks == 0) return 0;
  refuse_pending_error();
  const auto s = static_cast<cudaStream_t>(stream);
  if (!timed) {
    check(instance.launch(args, unsigned(blocks), stream), "launch of " + key);
    return 0;
  }
  cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
  check(cudaStreamIsCapturing(s, &capture), "cudaStreamIsCapturing");
  if (capture != cudaStreamCaptureStatusNone)
    throw Error(ErrorKind::invalid_argument,
                "timed: the stream is being captured into a graph, and a timed launch waits");
  const Event begin, end;
  check(cudaEventRecord(begin.event, s), "cudaEventRecord");
  check(instance.launch(args, unsigned(blocks), stream), "launch of " + key);
  check(cudaEventRecord(end.event, s), "cudaEventRecord");
  if (const cudaError_t e = cudaEventSynchronize(end.event); e != cudaSuccess)
    throw Error(ErrorKind::internal, "run of " + key + ": " + text_of(e));
  float ms = 0;
  check(cudaEventElapsedTime(&ms, begin.event, end.event), "cudaEventElapsedTime");
  return ms * 1e-3;
}

Buffer::Buffer(std::size_t bytes) : bytes_(bytes) {
  if (bytes) check(cudaMalloc(&data_, bytes), "cudaMalloc of " + std::to_string(bytes) + " bytes");
}
Buffer::~Buffer() { cudaFree(data_); }
void Buffer::upload(const void* from) {
  check(cudaMemcpy(data_, from, bytes_, cudaMemcpyHostToDevice), "copy to the device");
}
void Buffer::download(void* to) const {
  check(cudaMemcpy(to, data_, bytes_, cudaMemcpyDeviceToHost), "copy from the device");
}

void* copy_compact(const void* from, const StridedRows& rows, i64 pitch, int element_size,
                   void* stream) {
  const i64 bytes = rows.extent[0] * rows.extent[1] * rows.extent[2] * pitch * element_size;
  void* to = nullptr;
  check(cudaMallocAsync(&to, std::size_t(bytes), static_cast<cudaStream_t>(stream)),
        "memory for an aligned copy, " + std::to_string(bytes) + " bytes");
  const int e = copy_rows(to, from, rows, pitch, element_size, stream);
  if (e != cudaSuccess) free_async(to, stream);
  check(e, "aligned copy");
  return to;
}
void free_async(void* p, void* stream) {
  if (cudaFreeAsync(p, static_cast<cudaStream_t>(stream)) != cudaSuccess) cudaGetLastError();
}

}  // namespace tessera::cuda
