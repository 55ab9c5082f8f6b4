// SPDX-License-Identifier: Apache-2.0
// The CUDA target, seen from the host program: the same in builds with and without a CUDA toolkit.
#pragma once
#include <string>
#include <vector>

#include "kernels/attention.h"

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
// Null if a device can be used, otherwise why not.
std::string why_no_device();
std::string device_name();
Arch device_arch();  // the newest of our archs that the current device runs; throws Error if none

// Launches on `stream`; errors of the launch are thrown. timed: waits, and returns seconds by CUDA
// events.
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

// Rows of `bytes` at (batch, head, row) * strides (in bytes) to a compact tensor with rows of
// `pitch` bytes, in stream order. The result is freed in stream order by free_async.
void* copy_compact(const void* from, const i64 (&extent)[3], const i64 (&stride)[3], i64 bytes,
                   i64 pitch, void* stream);
void free_async(void* p, void* stream);

}  // namespace tessera::cuda
