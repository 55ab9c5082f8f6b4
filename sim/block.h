// SPDX-License-Identifier: Apache-2.0
// One thread block in the emulator: its shared memory, its warps as fibers, its counters. A block
// runs on one thread of the pool from start to end; `self()` is the block that this thread runs.
#pragma once
#include <array>
#include <cstddef>
#include <vector>

#include "kernels/report.h"
#include "kernels/warp/types.h"
#include "sim/cards.h"
#include "sim/fiber.h"

namespace tessera {

// Where in a kernel's text an instruction stands. As the default argument of a tile operation it is
// the caller's line.
struct Site {
  const char* file = "";
  int line = 0;
  static constexpr Site here(const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
    return {file, line};
  }
};

}  // namespace tessera

namespace tessera::sim {

class Checker;
class Findings;

// What shared memory and registers hold before anything is written: NaN in fp32, fp16 and bf16.
constexpr u32 kPoisonBits = 0x7fff7fffu;

// Operands as tensor_core.cc's vectors want them, kept from one instruction to the next: a product
// uses each A for many columns and each B for many rows. An operand is known by its bits.
struct alignas(64) MmaOperandA {
  u32 bits[4 * 32];
  float value[2][8][2][32];  // [half of a pair][k pair][rows g, g + 8][lane]
  i32 exponent[8][2][32];    // of both halves, packed
  int kind = 0;              // type, K and arithmetic; 0: nothing yet
};
struct alignas(64) MmaOperandB {
  u32 bits[2 * 32];
  float value[2][8][2][4];  // [half][k pair][column parity][column pair]
  i32 exponent[8][2][4];
  int kind = 0;
};
struct MmaState {
  MmaRule rule;
  MmaOperandA a[2];
  MmaOperandB b;
};
using MmaFunction = void (*)(float* c, const u32* a, const u32* b, MmaState& state);

// A shared tile as its kernel named it, for messages and bounds.
struct SharedRegion {
  const char* name;
  u32 base, bytes;
  int rows, cols, element;
  PositionOf position;
};

// A global tensor of the launch: extents and strides in elements, outermost first.
struct GlobalTensor {
  const char* name;
  char* base;
  int element_size;
  bool output;
  int rank;
  i64 extent[4], stride[4];
};

// One 16-byte cp.async that has not landed.
struct PendingCopy {
  u32 destination;
  const void* source;
  u8 bytes;  // from the source; the rest of the 16 is zero
};

constexpr int kMaxWarps = 32;              // of a block
constexpr int kClockSize = kMaxWarps + 8;  // of a vector clock: beyond the warps always 0

struct Warp {
  Fiber fiber;
  bool done = false;
  int barrier = -1;                   // the barrier it waits at; -1: none
  int barrier_warps = 0;              // how many warps that barrier waits for
  Site site;                          // of the last tile operation or barrier
  std::vector<PendingCopy> copies;    // cp.async in flight, oldest first (checks)
  std::vector<std::size_t> groups;    // where in them each committed group ends
  std::array<u32, kClockSize> clock;  // vector clock (checks)
};

struct Block {
  i64 index = 0, blocks = 0;  // of the grid
  int warps = 0, current = 0;
  char* shared = nullptr;  // shared_size bytes, 1024-byte aligned
  u32 shared_size = 0;
  Checker* checker = nullptr;  // null: checks are off
  Findings* findings = nullptr;
  void (*exp2)(const float* x, float* y) = nullptr;  // 32 lanes, by the launch's choice
  MmaState mma_state;
  MmaFunction mma[2][2] = {};  // [f16, bf16][m16n8k8, m16n8k16], by numerics and rule
  Counters counters;
  std::vector<SharedRegion> regions;
  std::vector<Warp> warp;

  Warp& me() { return warp[current]; }
};

// initial-exec: one load to reach the block, although this code sits in a module that is loaded
// late.
extern constinit thread_local Block* current_block __attribute__((tls_model("initial-exec")));
inline Block& self() { return *current_block; }

// Switches to the scheduler until the barrier is complete.
void wait_at_barrier(int id, int warps, Site site);

// Runs every warp of `b` to its end, or reports why it cannot. Warps take turns in an order drawn
// from order_seed and the block's index.
void run_block(Block& b, void (*entry)(const void*), const void* args, u64 order_seed);

}  // namespace tessera::sim
