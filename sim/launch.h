// SPDX-License-Identifier: Apache-2.0
// Launching a kernel on the emulator, and what a module (the emulator and all kernels, compiled for
// one ISA level) offers to the host program that loads it.
#pragma once
#include <string>
#include <vector>

#include "sim/block.h"
#include "sim/cards.h"
#include "sim/tensor_core.h"

namespace tessera::sim {

// A kernel with all its parameters but exp2 fixed. `key` is kernel/arch/dtype[/dHEAD_DIM]/config.
struct Instance {
  const char* key;
  int threads;
  int shared_bytes;
  i64 (*grid)(const void* args);
  void (*entry)(const void* args);
};

struct Launch {
  const void* args = nullptr;
  Card card = kCards[1];
  MmaMode numerics = MmaMode::exact;
  int threads = 1;  // of the host
  Exp2 exp2 = Exp2::soft;
  u64 order_seed = 0;  // 0: blocks and warps in ascending order
  bool checks = false;
  std::vector<GlobalTensor> tensors;  // what the kernel may touch
  std::string repeat;                 // a command that repeats the launch, for findings
};

struct Outcome {
  Counters counters;
  std::vector<Finding> findings;
  double seconds = 0;
  std::string error;  // not empty: the launch was refused or broke off
};

// Refuses what the card's limits do not allow; otherwise runs every block.
Outcome launch(const Instance& instance, const Launch& l);
// The limit that is broken, as a message; empty if none. `blocks` of the grid.
std::string broken_limit(const Instance& instance, const Card& card, i64 blocks);

// Scalar functions of the emulated machine over 32 lanes of raw bits, for tests of equal bits.
enum class LaneFunction {
  exp2_soft,
  exp2_hardware,
  log2_soft,
  narrow_f16,
  narrow_bf16,
  widen_f16,
  reciprocal_normal
};

constexpr int kModuleAbi = 2;
struct Module {
  int abi;
  const char* isa;
  const Instance* const* instances;
  int count;
  Outcome (*launch)(const Instance&, const Launch&);
  MmaFunction (*mma_function)(bool is_bf16, int k, MmaMode mode, const MmaRule& rule);
  void (*lanes)(LaneFunction f, const u32* in, u32* out);
};

// Instances announce themselves while their module is loaded.
struct Registrar {
  explicit Registrar(const Instance& i);
};

}  // namespace tessera::sim

// The symbol that a module exports: const Module* tessera_sim_module().
extern "C" __attribute__((visibility("default"))) const tessera::sim::Module* tessera_sim_module();
