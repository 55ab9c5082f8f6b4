// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda_backend.h"

#include <cuda_runtime.h>

#include <algorithm>

namespace tessera::cuda {

namespace {

std::vector<const Instance*>& registered() {
  static std::vector<const Instance*> all;
  return all;
}

void check(cudaError_t e, const std::string& what) {
  if (e != cudaSuccess)
    throw Error(ErrorKind::internal,
                what + ": " + cudaGetErrorName(e) + ", " + cudaGetErrorString(e));
}
void check(int e, const std::string& what) { check(cudaError_t(e), what); }

}  // namespace

Registrar::Registrar(const Instance& i) { registered().push_back(new Instance(i)); }

bool built() { return true; }

std::vector<std::string> instances() {
  std::vector<std::string> keys;
  for (const Instance* i : registered()) keys.emplace_back(i->key);
  return keys;
}

std::string why_no_device() {
  int n = 0;
  const cudaError_t e = cudaGetDeviceCount(&n);
  if (e == cudaErrorInsufficientDriver) return "no NVIDIA driver, or one older than the toolkit";
  if (e != cudaSuccess) return cudaGetErrorString(e);
  return n ? "" : "no CUDA device";
}

std::string device_name() {
  int device = 0;
  cudaDeviceProp p;
  check(cudaGetDevice(&device), "cudaGetDevice");
  check(cudaGetDeviceProperties(&p, device), "cudaGetDeviceProperties");
  return p.name;
}

Arch device_arch() {
  if (const std::string why = why_no_device(); !why.empty())
    throw Error(ErrorKind::unsupported, "target: cuda: " + why);
  int device = 0, major = 0, minor = 0;
  check(cudaGetDevice(&device), "cudaGetDevice");
  check(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device),
        "compute capability");
  check(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device),
        "compute capability");
  const int sm = 10 * major + minor;
  for (const Arch a : {Arch::sm_90, Arch::sm_89, Arch::sm_75})
    if (sm >= int(a)) return a;
  throw Error(ErrorKind::unsupported, "target: cuda: compute capability " + std::to_string(major) +
                                          "." + std::to_string(minor) + " is below 7.5");
}

double launch(const std::string& key, const void* args, void* stream, bool timed) {
  const Instance* instance = nullptr;
  for (const Instance* i : registered())
    if (key == i->key) instance = i;
  if (!instance) throw Error(ErrorKind::unsupported, "config: " + key + " is not built for CUDA");
  const i64 blocks = instance->grid(args);
  if (blocks > 2147483647)
    throw Error(ErrorKind::unsupported,
                key + ": " + std::to_string(blocks) + " blocks, the limit is 2147483647");
  int device = 0, limit = 0;
  check(cudaGetDevice(&device), "cudaGetDevice");
  check(cudaDeviceGetAttribute(&limit, cudaDevAttrMaxSharedMemoryPerBlockOptin, device),
        "shared memory limit");
  if (instance->shared_bytes > limit)
    throw Error(ErrorKind::unsupported,
                "config: " + key + ": shared memory of " + std::to_string(instance->shared_bytes) +
                    " bytes a block, the limit of this device is " + std::to_string(limit));
  if (blocks == 0) return 0;
  const auto s = static_cast<cudaStream_t>(stream);
  if (!timed) {
    check(instance->launch(args, unsigned(blocks), stream), "launch of " + key);
    return 0;
  }
  cudaEvent_t begin, end;
  check(cudaEventCreate(&begin), "cudaEventCreate");
  check(cudaEventCreate(&end), "cudaEventCreate");
  check(cudaEventRecord(begin, s), "cudaEventRecord");
  check(instance->launch(args, unsigned(blocks), stream), "launch of " + key);
  check(cudaEventRecord(end, s), "cudaEventRecord");
  check(cudaEventSynchronize(end), "run of " + key);
  float ms = 0;
  check(cudaEventElapsedTime(&ms, begin, end), "cudaEventElapsedTime");
  cudaEventDestroy(begin), cudaEventDestroy(end);
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

void* copy_compact(const void* from, const i64 (&extent)[3], const i64 (&stride)[3], i64 bytes,
                   i64 pitch, void* stream) {
  const auto s = static_cast<cudaStream_t>(stream);
  void* to = nullptr;
  check(cudaMallocAsync(&to, std::size_t(extent[0] * extent[1] * extent[2] * pitch), s),
        "memory for an aligned copy");
  for (i64 b = 0; b < extent[0]; b++)
    for (i64 h = 0; h < extent[1]; h++) {
      const char* src = static_cast<const char*>(from) + b * stride[0] + h * stride[1];
      char* dst = static_cast<char*>(to) + (b * extent[1] + h) * extent[2] * pitch;
      if (stride[2] >= bytes || extent[2] == 1) {
        check(cudaMemcpy2DAsync(dst, std::size_t(pitch), src,
                                std::size_t(std::max(stride[2], bytes)), std::size_t(bytes),
                                std::size_t(extent[2]), cudaMemcpyDeviceToDevice, s),
              "aligned copy");
      } else {  // rows that overlap (stride 0): one by one
        for (i64 r = 0; r < extent[2]; r++)
          check(cudaMemcpyAsync(dst + r * pitch, src + r * stride[2], std::size_t(bytes),
                                cudaMemcpyDeviceToDevice, s),
                "aligned copy");
      }
    }
  return to;
}
void free_async(void* p, void* stream) { cudaFreeAsync(p, static_cast<cudaStream_t>(stream)); }

}  // namespace tessera::cuda
