// SPDX-License-Identifier: Apache-2.0
// The CUDA target, seen from the host program: the same in builds with and without a CUDA toolkit.
// What is here may be called while a stream is captured into a graph, but for Buffer and a timed
// launch.
#pragma once
#include <string>
#include <vector>

#include "kernels/attention.h"
#include "kernels/cuda_copy.h"

namespace tessera::cuda {

struct Instance {
  const char* key;
  int threads, shared_bytes;
  i64 (*grid)(const void* args);
  int (*launch)(const void* args, unsigned blocks, void* stream);  // cudaError_t
};
struct Registrar {
  explicit Registrar(const Instance& i);
};

bool built();                          // with a CUDA toolkit
std::vector<std::string> instances();  // keys of all that was compiled
// Empty if a device can be used, otherwise why not.
std::string why_no_device();
// Of the current device.
std::string device_name();
Arch device_arch();  // the newest of our archs that it runs; throws Error if none
int multiprocessors();

// A call's tensor by its name; only what has elements.
struct Pointer {
  const char* name;
  const void* data;
};
// The device whose memory the tensors are in: the current one where all of them are host memory
// that every device reaches (pinned, managed, or any where the device reads pageable memory).
// Throws Error naming the tensor, for host memory that the device cannot reach and for a tensor on
// another device; and if a failure of an earlier CUDA call is still pending on this thread, which
// would otherwise be taken for this call's.
int device_of(const std::vector<Pointer>& tensors);
// For the emulator: throws Error naming a tensor that is in device memory. Creates no context.
void require_host(const std::vector<Pointer>& tensors);

// Makes a device current, and the one before it again at the end.
class DeviceGuard {
 public:
  explicit DeviceGuard(int device);
  ~DeviceGuard();
  DeviceGuard(const DeviceGuard&) = delete;

 private:
  int before_ = 0, device_ = 0;
};

// Launches on `stream` of the current device; errors of the launch are thrown. timed: waits, and
// returns seconds by CUDA events.
double launch(const std::string& key, const void* args, void* stream, bool timed);

// Device memory for callers without CUDA headers (the command line, tests). Throws Error on
// failure.
class Buffer {
 public:
  explicit Buffer(std::size_t bytes);
  ~Buffer();
  Buffer(const Buffer&) = delete;
  void* data() const { return data_; }
  void upload(const void* from);
  void download(void* to) const;

 private:
  void* data_ = nullptr;
  std::size_t bytes_;
};

// A compact copy with rows of `pitch` elements, made in stream order, and freed in stream order by
// free_async.
void* copy_compact(const void* from, const StridedRows& rows, i64 pitch, int element_size,
                   void* stream);
void free_async(void* p, void* stream);

}  // namespace tessera::cuda
