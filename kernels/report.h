// SPDX-License-Identifier: Apache-2.0
// What a launch tells about itself.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace tessera {

// Counts of one launch, exact and reproducible (emulator).
struct Counters {
  std::uint64_t mma = 0;   // tensor-core instructions
  std::uint64_t fma = 0;   // multiply-adds of products on the CUDA cores, lanes counted
  std::uint64_t exp2 = 0;  // exponentials, lanes counted
  std::uint64_t global_load_bytes = 0, global_store_bytes = 0;  // bytes the lanes asked for
  std::uint64_t global_sectors = 0, global_sectors_ideal = 0;   // 32-byte sectors
  std::uint64_t shared_wavefronts = 0,
                shared_wavefronts_ideal = 0;  // their difference: bank conflicts
  std::uint64_t barriers = 0;                 // block barriers completed
  std::uint64_t tiles_skipped = 0, tiles_full = 0, tiles_masked = 0;  // key tiles, over all blocks
  std::uint64_t shared_bytes = 0;  // peak shared memory of a block
  std::uint64_t blocks = 0;
};

// One fault that a check found.
struct Finding {
  std::string check;    // bounds | uninit | races | async | barrier | coverage | limits
  std::string message;  // kernel, block, warp, lane, tensor or tile, coordinate, line, other party
  std::uint64_t count = 1;  // times met at this place
};

struct Report {
  std::string kernel, instance, target, arch, card, config, dtype, exp2, isa;
  int head_dim_bucket = 0, threads = 0;
  double seconds = 0;  // of the launch alone
  Counters counters;
  std::vector<Finding> findings;
};

// The report as one JSON object: what the command's --json builds on.
std::string to_json(const Report& report);

}  // namespace tessera
