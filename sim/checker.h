// SPDX-License-Identifier: Apache-2.0
// Shadow memory and happens-before: what the emulator's checks know about a block and a launch.
//
// Shared memory has one cell a 4-byte word: who wrote it last (warp, lane, that warp's clock then),
// and when each warp last read it. A barrier joins the vector clocks of the warps that meet there
// and advances each of them, warp_sync advances the warp's own; an access races with an earlier one
// of another warp whose clock the accessor has not yet seen. So a verdict depends on the barriers a
// kernel has, not on the order in which warps happened to run: an unordered pair is `async` where
// one of the two is a cp.async and `races` otherwise, whichever came first, and a read that met
// nothing written is judged when all writes are known.
#pragma once
#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "sim/block.h"
#include "sim/memory.h"

namespace tessera::sim {

std::string file_line(Site s);  // "name.h:12"

// Findings of a launch, from all threads; repeated ones are counted, the first is described.
class Findings {
 public:
  explicit Findings(std::string kernel, std::string repeat)
      : kernel_(std::move(kernel)), repeat_(std::move(repeat)) {}
  void add(const char* check, const Block& b, Site site, int lane, const std::string& what) {
    add(check, b.index, b.current, site, lane, what);
  }
  void add(const char* check, i64 block, int warp, Site site, int lane, const std::string& what);
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

// The shadow of one block. Made once a thread, reset for each block.
class Checker {
 public:
  Checker(GlobalShadow& global, Findings& findings) : global_(global), findings_(findings) {}
  void start_block(Block& b);
  void end_block();

  // memory.h's shared_access; the spare area has kSpareBytes.
  void shared_access(u32* safe, const u32* address, const i32* ok, int bytes, Access access);
  void global_access(const void* const* address, i32* mask, int bytes, bool write);
  bool global_read(int lane, const char* address, int bytes);  // of a chunk, 16-byte aligned
  // The destination is pending, and NaN, until the copy lands. False: it lies in no tile.
  bool async_issue(const PendingCopy& c);
  void async_land(const PendingCopy& c);

  void warp_sync();
  void barrier_complete(const std::vector<int>& warps);

  static constexpr u32 kSpareBytes = 1024;

 private:
  struct Cell {
    u32 clock = 0;  // of the writer at the write; 0: nobody wrote
    u8 warp = 0, lane = 0;
    enum State : u8 { unwritten, pending, written } state = unwritten;
    bool async = false;  // by cp.async
    u32 site = 0;        // index into sites_
  };
  struct EarlyRead {  // of a word that nobody had written
    u32 word, clock;
    int warp, lane;
    Site site;
  };
  bool in_tile(u32 address, int bytes, int lane, const char* what);
  void read_word(u32 word, int lane);
  void write_word(u32 word, int lane, bool async);
  void report(const char* check, u32 word, int lane, const std::string& what);
  std::string party(int warp, int lane, u32 site) const;
  std::string place(u32 address) const;  // tile(row, column)
  u32 site_index();

  GlobalShadow& global_;
  Findings& findings_;
  Block* block_ = nullptr;
  std::vector<Cell> cells_;
  std::vector<u32> read_clock_, read_site_;  // [word * warps + warp]
  std::vector<Site> sites_;
  std::vector<EarlyRead> early_reads_;
  // By (word, warp): the reads of that warp after this clock race with a later write.
  std::map<std::pair<u32, int>, u32> overtaken_;
};

}  // namespace tessera::sim
