// SPDX-License-Identifier: Apache-2.0
#include "sim/checker.h"

#include <algorithm>
#include <cstring>

#include "kernels/tile/swizzle.h"

namespace tessera::sim {

void Checker::start_block(Block& b) {
  block_ = &b;
  const std::size_t words = b.shared_size / 4;
  cells_.assign(words, {});
  read_clock_.assign(words * std::size_t(b.warps), 0);
  read_site_.assign(words * std::size_t(b.warps), 0);
  sites_.assign(1, Site{});
  early_reads_.clear(), overtaken_.clear();
  for (int i = 0; i < b.warps; i++) {
    b.warp[std::size_t(i)].clock.assign(std::size_t(b.warps), 0);
    b.warp[std::size_t(i)].clock[std::size_t(i)] = 1;
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
  for (std::size_t i = sites_.size(); i-- > 0;)
    if (sites_[i].line == s.line && sites_[i].file == s.file) return u32(i);
  sites_.push_back(s);
  return u32(sites_.size() - 1);
}

std::string Checker::place(u32 address) const {
  for (const SharedRegion& r : block_->regions) {
    if (address < r.base || address >= r.base + r.bytes) continue;
    const int pitch = r.cols * r.element_size, offset = int(address - r.base), row = offset / pitch;
    const int chunk = swizzle(pitch / 16, row, offset % pitch / 16);
    return std::string("shared tile ") + r.name + "(" + std::to_string(row) + ", " +
           std::to_string((chunk * 16 + offset % 16) / r.element_size) + ")";
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
  if (address % u32(bytes) == 0)
    for (const SharedRegion& r : block_->regions)
      if (address >= r.base && address + u32(bytes) <= r.base + r.bytes &&
          address + u32(bytes) <= block_->shared_size)
        return true;
  findings_.add("bounds", *block_, block_->me().site, lane,
                std::string(what) + " of " + std::to_string(bytes) + " bytes at shared address " +
                    std::to_string(address) +
                    (address % u32(bytes) ? ", which is not aligned to them"
                                          : ", outside every shared tile"));
  return false;
}

void Checker::read_word(u32 word, int lane) {
  Cell& c = cells_[word];
  Warp& w = block_->me();
  const u32 me = u32(block_->current);
  if (c.state == Cell::unwritten) {
    early_reads_.push_back({word, w.clock[me], block_->current, lane, w.site});
  } else if (c.state == Cell::pending) {
    report("async", word, lane,
           "is read while the cp.async of " + party(c.warp, c.lane, c.site) +
               " is in flight: its group was not waited for");
  } else if (c.warp != me ? c.clock > w.clock[c.warp] : c.lane != lane && c.clock >= w.clock[me]) {
    const char* missing = c.warp != me ? "no barrier" : "no warp_sync";
    report(c.async ? "async" : "races", word, lane,
           std::string("is read, and ") + missing + " orders it after the " +
               (c.async ? "cp.async" : "write") + " of " + party(c.warp, c.lane, c.site));
  }
  const std::size_t at = std::size_t(word) * std::size_t(block_->warps) + me;
  if (read_clock_[at] != w.clock[me]) read_clock_[at] = w.clock[me], read_site_[at] = site_index();
}

void Checker::write_word(u32 word, int lane, bool async) {
  Cell& c = cells_[word];
  Warp& w = block_->me();
  const u32 me = u32(block_->current);
  const char* by = async ? " by cp.async" : "";
  if (c.state == Cell::pending)
    report("async", word, lane,
           std::string("is written") + by + " while the cp.async of " +
               party(c.warp, c.lane, c.site) + " is in flight");
  else if (c.state == Cell::written &&
           (c.warp != me ? c.clock > w.clock[c.warp] : c.lane != lane && c.clock >= w.clock[me]))
    report(async || c.async ? "async" : "races", word, lane,
           std::string("is written") + by + ", and " +
               (c.warp != me ? "no barrier" : "no warp_sync") + " orders it after the " +
               (c.async ? "cp.async" : "write") + " of " + party(c.warp, c.lane, c.site));
  const std::size_t row = std::size_t(word) * std::size_t(block_->warps);
  bool reported = false;
  for (u32 o = 0; o < u32(block_->warps); o++) {
    if (o == me || read_clock_[row + o] <= w.clock[o]) continue;
    if (!reported)
      report(async ? "async" : "races", word, lane,
             std::string("is written") + by + ", and no barrier orders it after the read of " +
                 party(int(o), -1, read_site_[row + o]));
    reported = true;
    if (early_reads_.empty()) break;
    const auto [it, fresh] = overtaken_.try_emplace({word, int(o)}, w.clock[o]);
    it->second = std::min(it->second, w.clock[o]);
  }
  c = {w.clock[me], u8(me), u8(lane), async ? Cell::pending : Cell::written, async, site_index()};
}

void Checker::shared_access(u32* safe, const u32* address, const i32* ok, int bytes,
                            Access access) {
  for (int lane = 0; lane < 32; lane++) {
    safe[lane] = block_->shared_size;  // the spare area: poison to read, harmless to write
    if (ok && !ok[lane]) continue;
    if (!in_tile(address[lane], bytes, lane, access == Access::read ? "read" : "write")) continue;
    safe[lane] = address[lane];
    for (int i = 0; i < bytes / 4; i++) {
      if (access == Access::read)
        read_word(address[lane] / 4 + u32(i), lane);
      else
        write_word(address[lane] / 4 + u32(i), lane, false);
    }
  }
}

void Checker::global_access(const void* const* address, i32* mask, int bytes, bool write) {
  for (int lane = 0; lane < 32; lane++)
    if (mask[lane] &&
        !global_.access(*block_, lane, static_cast<const char*>(address[lane]), bytes, write))
      mask[lane] = 0;
}

bool Checker::global_read(int lane, const char* address, int bytes) {
  if (reinterpret_cast<std::uintptr_t>(address) % 16) {
    findings_.add("bounds", *block_, block_->me().site, lane,
                  "read of a 16-byte chunk at an address that is not aligned to 16 bytes");
    return false;
  }
  return global_.access(*block_, lane, address, bytes, false);
}

bool Checker::async_issue(const PendingCopy& c) {
  if (!in_tile(c.destination, 16, c.lane, "cp.async")) return false;
  for (u32 i = 0; i < 4; i++) {
    write_word(c.destination / 4 + i, c.lane, true);
    std::memcpy(block_->shared + c.destination + 4 * i, &kPoisonBits, 4);
  }
  return true;
}

void Checker::async_land(const PendingCopy& c) {
  for (u32 i = 0; i < 4; i++) {
    Cell& cell = cells_[c.destination / 4 + i];
    if (cell.state != Cell::pending) continue;  // overwritten in flight, and reported
    cell.state = Cell::written;
    cell.clock = block_->me().clock[std::size_t(block_->current)];
  }
}

void Checker::warp_sync() { block_->me().clock[std::size_t(block_->current)]++; }

void Checker::barrier_complete(const std::vector<int>& warps) {
  std::vector<u32> joined(std::size_t(block_->warps), 0);
  for (const int i : warps)
    for (std::size_t k = 0; k < joined.size(); k++)
      joined[k] = std::max(joined[k], block_->warp[std::size_t(i)].clock[k]);
  for (const int i : warps) {
    block_->warp[std::size_t(i)].clock = joined;
    block_->warp[std::size_t(i)].clock[std::size_t(i)]++;
  }
}

}  // namespace tessera::sim
