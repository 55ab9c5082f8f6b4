// SPDX-License-Identifier: Apache-2.0
// What the checks know about a launch's global tensors.
#pragma once
#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "sim/block.h"
#include "sim/findings.h"

namespace tessera::sim {

// Shadow of the launch's global tensors, shared by all blocks. One cell an output element: the
// first and the last block that wrote it.
class GlobalShadow {
 public:
  GlobalShadow(std::vector<GlobalTensor> tensors, Findings& findings);
  // False if the lane must not touch memory.
  bool access(Block& b, int lane, const char* address, int bytes, bool write);
  void finish();  // after the last block: outputs that nobody wrote, reads that no write explains

 private:
  struct Cells {
    GlobalTensor t;
    i64 elements;
    std::unique_ptr<std::atomic<u64>[]>
        cell;  // last writer's block + 1 | first writer's block + 1 << 32
  };
  struct EarlyRead {  // of an output element that its own block had not written last
    const Cells* tensor;
    i64 index, block;
    int warp, lane;
    Site site;
  };
  static std::string element(const Cells& c, i64 index);  // O(0, 1, 2, 3)
  std::string outside(const char* address) const;  // where an address lies that is in no tensor
  // The tensor and coordinates of an address; null if it lies in none.
  Cells* find(const char* address, int bytes, i64 (&coordinate)[4]);
  std::vector<Cells> tensors_;
  std::mutex mutex_;
  std::vector<EarlyRead> early_reads_;
  Findings& findings_;
};

}  // namespace tessera::sim
