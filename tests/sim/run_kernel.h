// SPDX-License-Identifier: Apache-2.0
// Runs a lambda as a kernel on the emulator, compiled into the test itself.
#pragma once
#include <atomic>
#include <string>
#include <utility>
#include <vector>

#include "kernels/warp/warp.h"
#include "sim/launch.h"

namespace tessera::sim {

// How to launch. warps, blocks and shared_bytes are run_kernel's; an Instance has its own.
struct RunOptions {
  int warps = 1;
  i64 blocks = 1;
  int shared_bytes = 0;
  bool checks = false;
  int threads = 1;
  u64 order_seed = 0;
  Card card = kCards[1];
  MmaMode numerics = MmaMode::exact;
  std::vector<GlobalTensor> tensors = {};
};

inline Launch launch_of(const RunOptions& r, const void* args) {
  return {.args = args,
          .card = r.card,
          .numerics = r.numerics,
          .threads = r.threads,
          .order_seed = r.order_seed,
          .checks = r.checks,
          .tensors = r.tensors,
          .repeat = "again"};
}

// Every warp of every block runs body(). What it captures by reference is global memory without a
// check; with more than one block or warp it must not be written unguarded.
template <class F>
Outcome run_kernel(const RunOptions& r, const F& body) {
  struct Args {
    i64 blocks;
    const F* body;
  };
  const Args args{r.blocks, &body};
  const Instance instance{"test_kernel", 32 * r.warps, r.shared_bytes,
                          [](const void* a) { return static_cast<const Args*>(a)->blocks; },
                          [](const void* a) { (*static_cast<const Args*>(a)->body)(); }};
  return launch(instance, launch_of(r, &args));
}

// A (rows, cols) matrix, and a vector, as tensors that a kernel may touch.
enum class Role { input, output };
template <class T>
GlobalTensor matrix(const char* name, T* data, i64 rows, i64 cols, i64 stride, Role role) {
  char* base = reinterpret_cast<char*>(const_cast<std::remove_const_t<T>*>(data));
  return {name, base, int(sizeof(T)), role == Role::output, 2, {rows, cols}, {stride, 1}};
}
template <class T>
GlobalTensor vector(const char* name, T* data, i64 size, Role role) {
  char* base = reinterpret_cast<char*>(const_cast<std::remove_const_t<T>*>(data));
  return {name, base, int(sizeof(T)), role == Role::output, 1, {size}, {1}};
}

// A value a lane, from a function of the lane.
template <class T, class F>
Lanes<T> lanes_of(F f) {
  Lanes<T> r;
  for (int i = 0; i < 32; i++) r.v[i] = T(f(i));
  return r;
}

template <class F>
Lanes<bool> mask_of(F f) {
  Lanes<bool> r;
  for (int i = 0; i < 32; i++) r.v[i] = f(i) ? -1 : 0;
  return r;
}

// The line at which an instruction of a test's kernel stands: `at(line.note())` before a warp
// instruction, or `line.note()` as the Site of a tile operation.
class Line {
 public:
  Site note(Site site = Site::here()) {
    line_.store(site.line, std::memory_order_relaxed);
    return site;
  }
  int number() const { return line_.load(std::memory_order_relaxed); }
  std::string at(const std::string& file) const { return file + ":" + std::to_string(number()); }

 private:
  std::atomic<int> line_{0};
};

}  // namespace tessera::sim
