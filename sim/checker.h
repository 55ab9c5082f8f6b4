// SPDX-License-Identifier: Apache-2.0
// Shadow memory and happens-before: what the emulator's checks know about a block.
//
// Shared memory has one cell a 4-byte word: who wrote it last (warp, lane, that warp's clock then),
// and when each warp last read it. A barrier joins the vector clocks of the warps that meet there
// and advances each of them, warp_sync advances the warp's own; an access races with an earlier one
// of another warp whose clock the accessor has not yet seen. So a verdict depends on the barriers a
// kernel has, not on the order in which warps happened to run: an unordered pair is `async` where
// one of the two is a cp.async and `races` otherwise, whichever came first, and a read that met
// nothing written is judged when all writes are known.
#pragma once
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "sim/block.h"
#include "sim/findings.h"
#include "sim/global_shadow.h"
#include "sim/memory.h"

namespace tessera::sim {

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
