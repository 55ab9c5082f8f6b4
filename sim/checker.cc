// SPDX-License-Identifier: Apache-2.0
#include "sim/checker.h"

#include <algorithm>
#include <array>

namespace tessera::sim {

static_assert(std::ranges::all_of(kCards, [](const Card& c) {
  return c.threads_per_block <= 32 * kMaxWarps;
}));

void Checker::start_block(Block& b) {
  block_ = &b;
  const std::size_t chunks = (b.shared_size + 15) / 16, warps = std::size_t(b.warps);
  chunks_.cell.assign(chunks, {});
  chunks_.read.assign(chunks * warps, {});
  words_.cell.resize(4 * chunks);  // split() fills them
  words_.read.resize(4 * chunks * warps);
  sites_.assign(1, Site{}), last_site_ = 0;
  early_reads_.clear(), overtaken_.clear();
  for (int i = 0; i < b.warps; i++) {
    b.warp[std::size_t(i)].clock.fill(0);
    b.warp[std::size_t(i)].clock[std::size_t(i)] = 1;
  }
}

void Checker::name_region(u32 base, u32 bytes) {
  const u64 end = std::min<u64>(u64(base) + bytes, block_->shared_size) / 16;
  for (u64 i = (u64(base) + 15) / 16; i < end; i++) {
    u8& owner = chunks_.cell[i].owner;
    if (owner == kOutside) owner = kUnwritten;
    if (owner == kOutsideSplit) owner = kSplit;
  }
}

void Checker::end_block() {
  for (const EarlyRead& r : early_reads_) {
    const auto it = overtaken_.find({r.word, r.warp});
    if (it != overtaken_.end() && r.clock > it->second) continue;  // the write has been reported
    findings_.add("uninit", block_->index, r.warp, r.site, r.lane,
                  place(r.word * 4) + " is read and nobody has written it");
  }
}

u32 Checker::site_index() {
  const Site s = block_->me().site;
  const auto same = [&](u32 i) { return sites_[i].line == s.line && sites_[i].file == s.file; };
  if (same(last_site_)) return last_site_;
  for (last_site_ = u32(sites_.size()); last_site_-- > 0;)
    if (same(last_site_)) return last_site_;
  sites_.push_back(s);
  return last_site_ = u32(sites_.size() - 1);
}

std::string Checker::place(u32 address) const {
  for (const SharedRegion& r : block_->regions) {
    if (address < r.base || address >= r.base + r.bytes) continue;
    const TilePosition at = r.position(r.rows, r.cols, r.element, address - r.base);
    return std::string("shared tile ") + r.name + "(" + std::to_string(at.row) + ", " +
           std::to_string(at.col) + ")";
  }
  return "shared byte " + std::to_string(address);
}

std::string Checker::party(int warp, int lane, u32 site) const {
  return "warp " + std::to_string(warp) + (lane < 0 ? "" : ", lane " + std::to_string(lane)) +
         " at " + file_line(sites_[site]);
}

void Checker::report(const char* check, u32 word, int lane, const std::string& what) {
  findings_.add(check, *block_, block_->me().site, lane, place(word * 4) + " " + what);
}

bool Checker::in_tile(u32 address, int bytes, int lane, const char* what) {
  const u64 end = u64(address) + u64(bytes);
  if (address % u32(bytes) == 0 && end <= block_->shared_size)
    for (const SharedRegion& r : block_->regions)
      if (address >= r.base && end <= u64(r.base) + r.bytes) return true;
  findings_.add("bounds", *block_, block_->me().site, lane,
                std::string(what) + " of " + std::to_string(bytes) + " bytes at shared address " +
                    std::to_string(address) +
                    (address % u32(bytes) ? ", which is not aligned to them"
                                          : ", outside every shared tile"));
  return false;
}

void Checker::read_word(const Instruction& n, u32 word, int lane) {
  const Cell& c = words_.cell[word];
  if (c.owner == kUnwritten) {
    early_reads_.push_back({word, n.now, int(n.warp), lane, block_->me().site});
  } else if (c.owner == kPending) {
    report("async", word, lane,
           "is read while the cp.async of " + party(c.warp, c.lane, c.site) +
               " is in flight: its group was not waited for");
  } else if (c.warp != n.warp ? c.clock > n.clock[c.warp] : c.lane != lane && c.clock >= n.now) {
    const char* missing = c.warp != n.warp ? "no barrier" : "no warp_sync";
    report(c.async ? "async" : "races", word, lane,
           std::string("is read, and ") + missing + " orders it after the " +
               (c.async ? "cp.async" : "write") + " of " + party(c.warp, c.lane, c.site));
  }
  Read& r = words_.read[std::size_t(word) * n.warps + n.warp];
  if (r.clock != n.now) r = {n.now, n.site};
}

void Checker::write_word(const Instruction& n, u32 word, int lane, bool async) {
  Cell& c = words_.cell[word];
  const char* by = async ? " by cp.async" : "";
  if (c.owner == kPending)
    report("async", word, lane,
           std::string("is written") + by + " while the cp.async of " +
               party(c.warp, c.lane, c.site) + " is in flight");
  else if (c.owner != kUnwritten &&
           (c.warp != n.warp ? c.clock > n.clock[c.warp] : c.lane != lane && c.clock >= n.now))
    report(async || c.async ? "async" : "races", word, lane,
           std::string("is written") + by + ", and " +
               (c.warp != n.warp ? "no barrier" : "no warp_sync") + " orders it after the " +
               (c.async ? "cp.async" : "write") + " of " + party(c.warp, c.lane, c.site));
  const Read* r = &words_.read[std::size_t(word) * n.warps];
  bool reported = false;
  for (u32 o = 0; o < n.warps; o++) {
    if (o == n.warp || r[o].clock <= n.clock[o]) continue;
    if (!reported)
      report(async ? "async" : "races", word, lane,
             std::string("is written") + by + ", and no barrier orders it after the read of " +
                 party(int(o), -1, r[o].site));
    reported = true;
    if (early_reads_.empty()) break;
    const auto [it, fresh] = overtaken_.try_emplace({word, int(o)}, n.clock[o]);
    it->second = std::min(it->second, n.clock[o]);
  }
  c = writer(n, lane, async);
}

Checker::Instruction Checker::instruction() {
  const u32 warp = u32(block_->current);
  const Warp& w = block_->me();
  return {w.clock.data(), warp,         u32(block_->warps),
          w.clock[warp],  site_index(), u32(chunks_.cell.size())};
}

inline Checker::Cell Checker::writer(const Instruction& n, int lane, bool async) {
  const u8 warp = u8(n.warp), owner = async ? u8(kPending) : warp;
  return {n.now, owner, warp, u8(lane), async, n.site};
}

// The access if it is in order, with nothing to report, and nothing but this to note. What a lane
// itself has written since the last warp_sync is for the words to find.
template <Access A>
inline bool Checker::in_order(Shadow& s, u32 i, const Instruction& n, int lane, bool async) {
  Cell& c = s.cell[i];
  Read* const r = &s.read[std::size_t(i) * n.warps];
  const bool seen = c.clock + (c.owner == n.warp) <= n.clock[c.owner];
  if constexpr (A == Access::read) {
    if (!seen) return false;
    if (r[n.warp].clock != n.now) r[n.warp] = {n.now, n.site};
  } else {
    if (!seen && c.owner != kUnwritten) return false;
    bool late = false;  // never by its own reads
    for (u32 o = 0; o < n.warps; o++) late |= r[o].clock > n.clock[o];
    if (late) return false;
    c = writer(n, lane, async);
  }
  return true;
}

void Checker::split(u32 chunk) {
  Cell& c = chunks_.cell[chunk];
  if (c.owner == kSplit || c.owner == kOutsideSplit) return;
  const bool outside = c.owner == kOutside;
  if (outside) c.owner = kUnwritten;
  const Read* r = &chunks_.read[std::size_t(chunk) * block_->warps];
  for (u32 i = 4 * chunk; i < 4 * chunk + 4; i++) {
    words_.cell[i] = c;
    std::copy_n(r, block_->warps, &words_.read[std::size_t(i) * block_->warps]);
  }
  c = Cell{};
  c.owner = outside ? kOutsideSplit : kSplit;
}

// False: it lies in no tile. Out of the loops over lanes, which are tight without it.
template <int Bytes, Access A>
[[gnu::noinline]] bool Checker::access_words(const Instruction& n, u32 address, int lane,
                                             bool async) {
  const u32 chunk = address / 16;
  if (address % Bytes || chunk >= n.chunks || chunks_.cell[chunk].owner != kSplit) {
    const char* what = async ? "cp.async" : A == Access::read ? "read" : "write";
    if (!in_tile(address, Bytes, lane, what)) return false;
    split(chunk);
  }
  for (u32 i = address / 4; i < (address + Bytes) / 4; i++) {
    if (in_order<A>(words_, i, n, lane, async)) continue;
    if constexpr (A == Access::read)
      read_word(n, i, lane);
    else
      write_word(n, i, lane, async);
  }
  return true;
}

template <int Bytes, Access A>
inline bool Checker::access_lane(const Instruction& n, u32 address, int lane, bool async) {
  if constexpr (Bytes == 16)
    if (address % 16 == 0 && address / 16 < n.chunks &&
        in_order<A>(chunks_, address / 16, n, lane, async))
      return true;
  return access_words<Bytes, A>(n, address, lane, async);
}

template <int Bytes, Access A>
void Checker::access_lanes(u32* safe, const u32* address, const i32* ok) {
  const Instruction n = instruction();
  for (int lane = 0; lane < 32; lane++) {
    const bool done = (!ok || ok[lane]) && access_lane<Bytes, A>(n, address[lane], lane, false);
    // The spare area: poison to read, harmless to write.
    safe[lane] = done ? address[lane] : block_->shared_size;
  }
}

void Checker::shared_access(u32* safe, const u32* address, const i32* ok, int bytes,
                            Access access) {
  const auto by_size = [&]<Access A>() {
    if (bytes == 16) return access_lanes<16, A>(safe, address, ok);
    if (bytes == 8) return access_lanes<8, A>(safe, address, ok);
    return access_lanes<4, A>(safe, address, ok);
  };
  if (access == Access::read)
    by_size.operator()<Access::read>();
  else
    by_size.operator()<Access::write>();
}

void Checker::global_access(const void* const* address, i32* mask, int bytes, bool write) {
  for (int lane = 0; lane < 32; lane++)
    if (mask[lane] &&
        !global_.access(*block_, run_, lane, static_cast<const char*>(address[lane]), bytes, write))
      mask[lane] = 0;
}

bool Checker::global_read(int lane, const char* address, int bytes) {
  if (reinterpret_cast<std::uintptr_t>(address) % 16) {
    findings_.add("bounds", *block_, block_->me().site, lane,
                  "read of a 16-byte chunk at an address that is not aligned to 16 bytes");
    return false;
  }
  return global_.access(*block_, run_, lane, address, bytes, false);
}

void Checker::async_issue(const u32* destination, const char* const* source, const i32* bytes) {
  const Instruction n = instruction();
  std::vector<PendingCopy>& copies = block_->me().copies;
  for (int lane = 0; lane < 32; lane++) {
    PendingCopy c{destination[lane], source[lane], u8(bytes[lane])};
    if (c.bytes && !global_read(lane, source[lane], c.bytes)) c.bytes = 0;
    if (!access_lane<16, Access::write>(n, c.destination, lane, true)) continue;
    std::fill_n(reinterpret_cast<u32*>(block_->shared + c.destination), 4, kPoisonBits);
    copies.push_back(c);
  }
}

void Checker::async_land(const PendingCopy* copies, std::size_t count) {
  const u32 now = block_->me().clock[std::size_t(block_->current)];
  const auto land = [&](Cell& cell) {
    if (cell.owner != kPending) return;  // overwritten in flight, and reported
    cell.owner = cell.warp;
    cell.clock = now;
  };
  for (std::size_t i = 0; i < count; i++) {
    const u32 chunk = copies[i].destination / 16;
    land(chunks_.cell[chunk]);
    if (chunks_.cell[chunk].owner == kSplit || chunks_.cell[chunk].owner == kOutsideSplit)
      for (u32 w = 0; w < 4; w++) land(words_.cell[4 * chunk + w]);
  }
}

void Checker::warp_sync() { block_->me().clock[std::size_t(block_->current)]++; }

void Checker::barrier_complete(const std::vector<int>& warps) {
  std::array<u32, kClockSize> joined{};
  for (const int i : warps)
    for (std::size_t k = 0; k < joined.size(); k++)
      joined[k] = std::max(joined[k], block_->warp[std::size_t(i)].clock[k]);
  for (const int i : warps) {
    block_->warp[std::size_t(i)].clock = joined;
    block_->warp[std::size_t(i)].clock[std::size_t(i)]++;
  }
}

}  // namespace tessera::sim
