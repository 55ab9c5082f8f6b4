// SPDX-License-Identifier: Apache-2.0
#include "sim/checker.h"

#include <algorithm>
#include <cstring>

#include "kernels/tile/swizzle.h"

namespace tessera::sim {

std::string file_line(Site s) {
  const char* name = std::strrchr(s.file, '/');
  return std::string(name ? name + 1 : s.file) + ":" + std::to_string(s.line);
}

// ---- findings

void Findings::add(const char* check, i64 block, int warp, Site site, int lane,
                   const std::string& what) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const i64 order = block * 64 + warp;  // the first in this order is described, whatever ran first
  auto [it, fresh] = entries_.try_emplace({check, site.file, site.line},
                                          Entry{order, {check, "", 0}});
  Entry& e = it->second;
  e.finding.count++;
  if (!fresh && order >= e.order) return;
  e.order = order;
  e.finding.message = kernel_ + ": block " + std::to_string(block) + ", warp " +
                      std::to_string(warp) + (lane < 0 ? "" : ", lane " + std::to_string(lane)) +
                      ", " + file_line(site) + ": " + what + ". Repeat: " + repeat_;
}

void Findings::add_launch(const char* check, const std::string& what) {
  const std::lock_guard<std::mutex> lock(mutex_);
  auto [it, fresh] = entries_.try_emplace({check, what, 0}, Entry{i64(1) << 62, {check, "", 0}});
  it->second.finding.count++;
  it->second.finding.message = kernel_ + ": " + what + ". Repeat: " + repeat_;
}

std::vector<Finding> Findings::take() {
  std::vector<Entry> sorted;
  for (auto& [key, e] : entries_) sorted.push_back(std::move(e));
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const Entry& a, const Entry& b) { return a.order < b.order; });
  std::vector<Finding> r;
  for (Entry& e : sorted) r.push_back(std::move(e.finding));
  entries_.clear();
  return r;
}

// ---- global memory

namespace {

std::string list(int rank, const i64* x) {
  std::string s = "(";
  for (int i = 0; i < rank; i++) s += (i ? ", " : "") + std::to_string(x[i]);
  return s + ")";
}
std::string coordinates(const GlobalTensor& t, const i64* c) { return t.name + list(t.rank, c); }

// The tensor's dimensions, largest stride first.
void by_stride(const GlobalTensor& t, int (&order)[4]) {
  for (int k = 0; k < 4; k++) order[k] = k;
  for (int k = 1; k < t.rank; k++)
    for (int n = k; n > 0 && t.stride[order[n]] > t.stride[order[n - 1]]; n--)
      std::swap(order[n], order[n - 1]);
}

}  // namespace

GlobalShadow::GlobalShadow(std::vector<GlobalTensor> tensors, Findings& findings)
    : findings_(findings) {
  for (const GlobalTensor& t : tensors) {
    Cells c{t, 1, nullptr};
    for (int i = 0; i < t.rank; i++) c.elements *= t.extent[i];
    if (t.output && c.elements > 0) {
      c.cell.reset(new std::atomic<u64>[std::size_t(c.elements)]);
      for (i64 i = 0; i < c.elements; i++)
        c.cell[std::size_t(i)].store(0, std::memory_order_relaxed);
    }
    tensors_.push_back(std::move(c));
  }
}

// Strides in descending order peel coordinates off the offset: exact for every layout whose
// dimensions nest (permuted, sliced, padded, broadcast). An offset in a gap leaves a rest, or a
// coordinate past its extent.
GlobalShadow::Cells* GlobalShadow::find(const char* address, int bytes, i64 (&coordinate)[4]) {
  for (Cells& c : tensors_) {
    const GlobalTensor& t = c.t;
    i64 offset = address - t.base;
    if (c.elements == 0 || offset < 0 || offset % t.element_size) continue;
    offset /= t.element_size;
    int order[4];
    by_stride(t, order);
    bool inside = true;
    for (int k = 0; k < t.rank; k++) {
      const int i = order[k];
      coordinate[i] = t.stride[i] > 0 && t.extent[i] > 1 ? offset / t.stride[i] : 0;
      if (k + 1 < t.rank || t.stride[i] != 1)
        coordinate[i] = std::min(coordinate[i], t.extent[i] - 1);
      offset -= coordinate[i] * t.stride[i];
      inside = inside && coordinate[i] < t.extent[i];
    }
    const i64 last = t.extent[t.rank - 1] - coordinate[t.rank - 1];  // elements to the row's end
    if (inside && offset == 0 && bytes <= last * t.element_size) return &c;
  }
  return nullptr;
}

bool GlobalShadow::access(Block& b, int lane, const char* address, int bytes, bool write) {
  i64 at[4];
  Cells* c = find(address, bytes, at);
  const Site site = b.me().site;
  if (!c) {
    findings_.add("bounds", b, site, lane,
                  std::string(write ? "write" : "read") + " of " + std::to_string(bytes) +
                      " bytes" + outside(address));
    return false;
  }
  if (!c->cell) {
    if (!write) return true;
    findings_.add("bounds", b, site, lane, "write to the input " + coordinates(c->t, at));
    return false;
  }
  i64 index = 0;
  for (int i = 0; i < c->t.rank; i++) index = index * c->t.extent[i] + at[i];
  const u64 me = u64(b.index) + 1;
  bool ok = true;  // a lane that races leaves memory alone: the other block may be there now
  for (int i = 0; i < bytes / c->t.element_size; i++) {
    std::atomic<u64>& cell = c->cell[std::size_t(index + i)];
    u64 was = cell.load(std::memory_order_relaxed), now;
    if (!write) {
      if ((was & 0xffffffff) == me) continue;
      const std::lock_guard<std::mutex> lock(mutex_);
      early_reads_.push_back({c, index + i, b.index, b.current, lane, site});
      ok = false;
      continue;
    }
    do {
      now = (was >> 32 ? was & ~u64(0xffffffff) : me << 32) | me;
    } while (!cell.compare_exchange_weak(was, now, std::memory_order_relaxed));
    const u64 writer = was & 0xffffffff;
    if (!writer) continue;
    const std::string what = element(*c, index + i) + " is written ";
    if (writer == me)
      findings_.add("coverage", b, site, lane, what + "twice");
    else
      findings_.add("races", b, site, lane,
                    what + "by block " + std::to_string(writer - 1) + " too");
    ok = ok && writer == me;
  }
  return ok;
}

std::string GlobalShadow::outside(const char* address) const {
  const GlobalTensor* nearest = nullptr;
  i64 distance = 0;
  for (const Cells& c : tensors_) {
    i64 last = 0;
    for (int i = 0; i < c.t.rank; i++) last += (c.t.extent[i] - 1) * c.t.stride[i];
    const i64 offset = address - c.t.base, end = c.elements ? (last + 1) * c.t.element_size : 0;
    const i64 d = offset < 0 ? -offset : std::max<i64>(offset - end + 1, 0);
    if (!nearest || d < distance) nearest = &c.t, distance = d;
  }
  if (!nearest) return ", and the launch has no tensor";
  const GlobalTensor& t = *nearest;
  i64 offset = address - t.base;
  if (offset < 0) return ", " + std::to_string(-offset) + " before the start of " + t.name;
  if (offset % t.element_size) return " across the elements of " + std::string(t.name);
  // Coordinates that are not held to the shape: X(10, 0) is one row past ten, X(3, 32) in the
  // padding of row 3.
  offset /= t.element_size;
  i64 at[4];
  int order[4];
  by_stride(t, order);
  for (int k = 0; k < t.rank; k++) {
    const i64 stride = t.stride[order[k]];
    at[order[k]] = stride > 0 ? offset / stride : 0;
    offset -= at[order[k]] * stride;
  }
  return " at " + coordinates(t, at) + ", outside its shape " + list(t.rank, t.extent);
}

std::string GlobalShadow::element(const Cells& c, i64 index) {
  i64 at[4];
  for (int i = c.t.rank - 1; i >= 0; i--) at[i] = index % c.t.extent[i], index /= c.t.extent[i];
  return coordinates(c.t, at);
}

void GlobalShadow::finish() {
  // Blocks are never ordered: what another block writes, before or after, races with the read.
  for (const EarlyRead& r : early_reads_) {
    const u64 writers = r.tensor->cell[std::size_t(r.index)].load(std::memory_order_relaxed),
              me = u64(r.block) + 1;
    const u64 last = writers & 0xffffffff, other = last != me ? last : writers >> 32;
    if (other && other != me)
      findings_.add("races", r.block, r.warp, r.site, r.lane,
                    "read of the output " + element(*r.tensor, r.index) + ", which block " +
                        std::to_string(other - 1) + " writes");
    else
      findings_.add(
          "uninit", r.block, r.warp, r.site, r.lane,
          "read of the output " + element(*r.tensor, r.index) + " that nobody has written");
  }
  early_reads_.clear();
  for (const Cells& c : tensors_) {
    if (!c.cell) continue;
    i64 missing = 0, first = -1;
    for (i64 i = 0; i < c.elements; i++)
      if (!(c.cell[std::size_t(i)].load(std::memory_order_relaxed) & 0xffffffff)) {
        if (first < 0) first = i;
        missing++;
      }
    if (!missing) continue;
    findings_.add_launch("coverage", std::to_string(missing) + " elements of the output " +
                                         c.t.name + " are never written, the first is " +
                                         element(c, first));
  }
}

// ---- one block

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
