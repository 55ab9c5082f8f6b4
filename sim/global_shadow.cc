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

// The elements from a tensor's first to behind its last.
i64 span_of(const GlobalTensor& t) {
  i64 span = 1;
  for (int i = 0; i < t.rank; i++) span += (t.extent[i] - 1) * std::max<i64>(t.stride[i], 0);
  return span;
}

// Whether every address belongs to one element at most, but for dimensions that are broadcast: a
// step along a dimension passes all that the smaller ones reach.
bool nests(const GlobalTensor& t, const int (&order)[4]) {
  i64 reach = 1;
  for (int k = t.rank - 1; k >= 0; k--) {
    const i64 extent = t.extent[order[k]], stride = t.stride[order[k]];
    if (extent == 1 || stride == 0) continue;
    if (stride < reach) return false;
    reach += (extent - 1) * stride;
  }
  return true;
}

i64 quotient(i64 a, i64 b) {  // of what is not negative; a 64-bit division costs several times more
  return (u64(a) | u64(b)) >> 32 ? a / b : i64(u32(a) / u32(b));
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
    by_stride(t, c.order);
    c.span = c.elements ? span_of(t) : 0;
    i64 next = 1;  // the stride that leaves no gap
    for (c.dense = t.rank; c.dense > 0; c.dense--) {
      const i64 extent = t.extent[c.dense - 1];
      if (extent != 1 && t.stride[c.dense - 1] != next) break;
      next *= extent;
    }
    tensors_.push_back(std::move(c));
  }
  const auto end = [](const Cells& c) { return c.t.base + c.span * c.t.element_size; };
  for (Cells& c : tensors_) {
    const int size = c.t.element_size;
    c.runs = c.elements > 0 && c.dense < c.t.rank && (size & (size - 1)) == 0 &&
             nests(c.t, c.order);
    // Where tensors overlap the first one counts: it takes a search, unless all are inputs.
    for (const Cells& o : tensors_)
      if (&o != &c && (c.t.output || o.t.output) && o.t.base < end(c) && c.t.base < end(o))
        c.runs = false;
  }
}

// The longest run around an element.
GlobalShadow::Run GlobalShadow::run_at(Cells& c, const i64 (&coordinate)[4], i64 index) {
  if (!c.runs) return {};
  const GlobalTensor& t = c.t;
  const i64 row = t.extent[t.rank - 1];
  const auto run_from = [&](int dimension) {
    const char* begin = t.base;
    i64 inside = 0, elements = 1;
    for (int i = 0; i < dimension; i++) begin += coordinate[i] * t.stride[i] * t.element_size;
    for (int i = dimension; i < t.rank; i++)
      inside = inside * t.extent[i] + coordinate[i], elements *= t.extent[i];
    return Run{begin,  u64(elements * t.element_size), u64(t.element_size - 1), index - inside, &c,
               !c.cell};
  };
  const Run run = run_from(c.dense);
  // Rows of whole aligned chunks: an access within a chunk stays in its row.
  if ((reinterpret_cast<std::uintptr_t>(run.begin) | u64(row * t.element_size)) % 16 == 0)
    return run;
  return run_from(t.rank - 1);
}

// Strides in descending order peel coordinates off the offset: exact for every layout whose
// dimensions nest (permuted, sliced, padded, broadcast). An offset in a gap leaves a rest, or a
// coordinate past its extent.
GlobalShadow::Cells* GlobalShadow::find(const char* address, int bytes, i64 (&coordinate)[4]) {
  for (Cells& c : tensors_) {
    const GlobalTensor& t = c.t;
    i64 offset = address - t.base;
    if (offset < 0 || offset >= c.span * t.element_size) continue;
    const i64 element = quotient(offset, t.element_size);
    if (offset != element * t.element_size) continue;
    offset = element;
    bool inside = true;
    for (int k = 0; k < t.rank; k++) {
      const int i = c.order[k];
      coordinate[i] = t.stride[i] > 0 && t.extent[i] > 1 ? quotient(offset, t.stride[i]) : 0;
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

bool GlobalShadow::search(Block& b, Run& run, int lane, const char* address, int bytes,
                          bool write) {
  const Site site = b.me().site;
  Cells* c = run.cells;
  i64 index = 0;
  if (c && c->cell && run.holds(address, bytes)) {
    index = run.first + quotient(address - run.begin, c->t.element_size);
  } else {
    i64 at[4];
    c = find(address, bytes, at);
    if (!c) {
      findings_.add("bounds", b, site, lane,
                    std::string(write ? "write" : "read") + " of " + std::to_string(bytes) +
                        " bytes" + outside(address));
      return false;
    }
    for (int i = 0; i < c->t.rank; i++) index = index * c->t.extent[i] + at[i];
    run = run_at(*c, at, index);
    if (!c->cell) {
      if (!write) return true;
      findings_.add("bounds", b, site, lane, "write to the input " + coordinates(c->t, at));
      return false;
    }
  }
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
