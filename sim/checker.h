// SPDX-License-Identifier: Apache-2.0
// Shadow memory and happens-before: what the emulator's checks know about a block and a launch.
//
// Shared memory has one cell a 4-byte word: who wrote it last (warp, lane, that warp's clock then), and when
// each warp last read it. A barrier joins the vector clocks of the warps that meet there and advances each
// of them, warp_sync advances the warp's own; an access races with an earlier one of another warp whose
// clock the accessor has not yet seen. So a verdict depends on the barriers a kernel has, not on the order
// in which warps happened to run.
#pragma once
#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <tuple>
#include <vector>

#include "sim/block.h"

namespace tessera::sim {

enum class Access { read, write };

// Findings of a launch, from all threads; repeated ones are counted, the first is described.
class Findings {
 public:
  explicit Findings(std::string kernel, std::string repeat)
      : kernel_(std::move(kernel)), repeat_(std::move(repeat)) {}
  // `other` is the other party's site, for a race.
  void add(const char* check, const Block& b, Site site, int lane, const std::string& what);
  void add_launch(const char* check, const std::string& what);  // of the launch as a whole
  std::vector<Finding> take();

 private:
  struct Entry {
    i64 order;
    Finding finding;
  };
  std::mutex mutex_;
  std::string kernel_, repeat_;
  std::map<std::tuple<std::string, std::string, int>, Entry> entries_;
};

// Shadow of the launch's global tensors, shared by all blocks. One cell an output element: the block that
// wrote it, and one that read it.
class GlobalShadow {
 public:
  GlobalShadow(std::vector<GlobalTensor> tensors, Findings& findings);
  // False if the lane must not touch memory.
  bool access(Block& b, int lane, const char* address, int bytes, bool write);
  void check_coverage();  // after the last block: outputs that nobody wrote

 private:
  struct Cells {
    GlobalTensor t;
    i64 elements;
    std::unique_ptr<std::atomic<u64>[]> cell;  // writer block + 1 | reader block + 1 << 32
  };
  // The tensor and coordinates of an address; null if it lies in none.
  Cells* find(const char* address, int bytes, i64 (&coordinate)[4]);
  std::vector<Cells> tensors_;
  Findings& findings_;
};

// The shadow of one block. Made once a thread, reset for each block.
class Checker {
 public:
  Checker(GlobalShadow& global, Findings& findings) : global_(global), findings_(findings) {}
  void start_block(Block& b);

  // Checks 32 accesses of `bytes`; `safe` gets the addresses, bad ones moved to the poisoned spare area
  // behind shared memory (kSpareBytes). ok: null or one word a lane, 0 for a lane that is off.
  void shared_access(u32* safe, const u32* address, const i32* ok, int bytes, Access access);
  void global_access(const void* const* address, i32* mask, int bytes, bool write);
  void async_issue(const PendingCopy& c);  // the destination is pending until the copy lands
  void async_land(const PendingCopy& c);
  bool async_valid(const PendingCopy& c) const;

  void warp_sync();
  void barrier_complete(Block& b, const std::vector<int>& warps);
  void barrier_fault(Block& b, const std::string& what);

  static constexpr u32 kSpareBytes = 1024;

 private:
  struct Cell {
    u32 clock = 0;  // of the writer at the write; 0: nobody wrote
    u8 warp = 0, lane = 0;
    u8 state = 0;   // 0 unwritten, 1 a copy is pending, 2 written
    u32 site = 0;   // index into sites_
  };
  bool word_access(u32 word, int lane, Access access);
  u32 site_index(Site s);
  std::string tile_coordinate(u32 address) const;
  void race(const char* what, const Cell& c, u32 address, int lane);

  GlobalShadow& global_;
  Findings& findings_;
  Block* block_ = nullptr;
  std::vector<Cell> cells_;
  std::vector<u32> read_clock_, read_site_;  // [word * warps + warp]
  std::vector<Site> sites_;
};

}  // namespace tessera::sim
