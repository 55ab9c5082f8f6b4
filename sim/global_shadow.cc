// SPDX-License-Identifier: Apache-2.0
#include "sim/global_shadow.h"

#include <algorithm>

namespace tessera::sim {

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

}  // namespace tessera::sim
