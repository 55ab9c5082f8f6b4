// SPDX-License-Identifier: Apache-2.0
// Shadow memory and happens-before: what the emulator's checks know about a block.
//
// Who wrote a 4-byte word of shared memory last (warp, lane, that warp's clock then), and when each
// warp last read it. A barrier joins the vector clocks of the warps that meet there and advances
// each of them, warp_sync advances the warp's own; an access races with an earlier one of another
// warp whose clock the accessor has not yet seen. So a verdict depends on the barriers a kernel
// has, not on the order in which warps happened to run: an unordered pair is `async` where one of
// the two is a cp.async and `races` otherwise, whichever came first, and a read that met nothing
// written is judged when all writes are known.
//
// Nearly every access is of aligned 16-byte chunks and in order, so four words share one cell, and
// one comparison finds such an access in order. Whatever that comparison does not settle splits the
// chunk into its words for the rest of the block, and is judged word by word.
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
  void name_region(u32 base, u32 bytes);  // a tile lies there

  // memory.h's shared_access; the spare area has kSpareBytes.
  void shared_access(u32* safe, const u32* address, const i32* ok, int bytes, Access access);
  void global_access(const void* const* address, i32* mask, int bytes, bool write);
  bool global_read(int lane, const char* address, int bytes);  // of a chunk, 16-byte aligned
  // Adds the copies of a warp's cp.async that may be done to its open group. Their destinations are
  // pending, and NaN, until they land.
  void async_issue(const u32* destination, const char* const* source, const i32* bytes);
  void async_land(const PendingCopy* copies, std::size_t count);

  void warp_sync();
  void barrier_complete(const std::vector<int>& warps);

  static constexpr u32 kSpareBytes = 1024;

 private:
  // What a cell holds instead of a write that has happened. These follow the warps in a vector
  // clock, which stays 0 there: nobody has seen them.
  enum State : u8 {
    kOutside = kMaxWarps,  // the chunk is not, or not whole, in a tile that has been named
    kUnwritten,
    kPending,       // a cp.async that has not landed
    kSplit,         // see the words
    kOutsideSplit,  // the same, of a chunk that is kOutside
  };
  static_assert(kOutsideSplit < kClockSize);
  struct alignas(16) Cell {
    u32 clock = 1;        // of the writer at the write
    u8 owner = kOutside;  // the warp that wrote it, or a State
    u8 warp = 0, lane = 0;
    bool async = false;  // by cp.async
    u32 site = 0;        // index into sites_
  };
  struct Read {
    u32 clock = 0, site = 0;
  };
  struct Shadow {
    std::vector<Cell> cell;
    std::vector<Read> read;  // [cell * warps + warp]: the first at that warp's newest clock
  };
  struct EarlyRead {  // of a word that nobody had written
    u32 word, clock;
    int warp, lane;
    Site site;
  };
  struct Instruction {  // the one that is being judged: of the current warp
    const u32* clock;   // what the warp has seen
    u32 warp, warps, now, site, chunks;
  };
  Instruction instruction();
  static Cell writer(const Instruction& n, int lane, bool async);
  template <Access A>
  static bool in_order(Shadow& s, u32 i, const Instruction& n, int lane, bool async);
  template <int Bytes, Access A>
  void access_lanes(u32* safe, const u32* address, const i32* ok);
  template <int Bytes, Access A>
  bool access_lane(const Instruction& n, u32 address, int lane, bool async);
  template <int Bytes, Access A>
  bool access_words(const Instruction& n, u32 address, int lane, bool async);
  void split(u32 chunk);
  bool in_tile(u32 address, int bytes, int lane, const char* what);
  void read_word(const Instruction& n, u32 word, int lane);
  void write_word(const Instruction& n, u32 word, int lane, bool async);
  void report(const char* check, u32 word, int lane, const std::string& what);
  std::string party(int warp, int lane, u32 site) const;
  std::string place(u32 address) const;  // tile(row, column)
  u32 site_index();

  GlobalShadow& global_;
  GlobalShadow::Run run_;
  Findings& findings_;
  Block* block_ = nullptr;
  Shadow chunks_, words_;  // a chunk's words count once it is split
  std::vector<Site> sites_;
  u32 last_site_ = 0;
  std::vector<EarlyRead> early_reads_;
  // By (word, warp): the reads of that warp after this clock race with a later write.
  std::map<std::pair<u32, int>, u32> overtaken_;
};

}  // namespace tessera::sim
