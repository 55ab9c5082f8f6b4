// SPDX-License-Identifier: Apache-2.0
// What the checks know about a launch's global tensors.
#pragma once
#include <atomic>
#include <cstdint>
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
  struct Cells;

 public:
  // Where a thread's last access was: memory that is all elements of one tensor, in order. The next
  // access is mostly there as well, and needs no search.
  struct Run {
    const char* begin = nullptr;
    u64 bytes = 0;
    u64 within = 0;  // an element's size - 1
    i64 first = 0;   // index of its first element
    Cells* cells = nullptr;
    bool input = false;
    // Accesses that may cross from one row to the next are left to the search.
    bool holds(const char* address, int size) const {
      const u64 offset = u64(address - begin);
      return offset < bytes && bytes - offset >= u64(size) && (offset & within) == 0 &&
             (reinterpret_cast<std::uintptr_t>(address) & 15) + u64(size) <= 16;
    }
  };
  GlobalShadow(std::vector<GlobalTensor> tensors, Findings& findings);
  // False if the lane must not touch memory.
  bool access(Block& b, Run& run, int lane, const char* address, int bytes, bool write) {
    if (!write && run.input && run.holds(address, bytes)) return true;
    return search(b, run, lane, address, bytes, write);
  }
  void finish();  // after the last block: outputs that nobody wrote, reads that no write explains

 private:
  struct Cells {
    GlobalTensor t;
    i64 elements;
    std::unique_ptr<std::atomic<u64>[]>
        cell;           // last writer's block + 1 | first writer's block + 1 << 32
    int order[4] = {};  // the dimensions, largest stride first
    i64 span = 0;       // elements from the first to behind the last, gaps included
    int dense = 0;      // the dimensions from here on have no gaps between their elements
    bool runs = false;  // an address that a run holds is found in this tensor, and where it says
  };
  struct EarlyRead {  // of an output element that its own block had not written last
    const Cells* tensor;
    i64 index, block;
    int warp, lane;
    Site site;
  };
  static std::string element(const Cells& c, i64 index);  // O(0, 1, 2, 3)
  std::string outside(const char* address) const;  // where an address lies that is in no tensor
  bool search(Block& b, Run& run, int lane, const char* address, int bytes, bool write);
  static Run run_at(Cells& c, const i64 (&coordinate)[4], i64 index);
  // The tensor and coordinates of an address; null if it lies in none.
  Cells* find(const char* address, int bytes, i64 (&coordinate)[4]);
  std::vector<Cells> tensors_;
  std::mutex mutex_;
  std::vector<EarlyRead> early_reads_;
  Findings& findings_;
};

}  // namespace tessera::sim
