// SPDX-License-Identifier: Apache-2.0
#include "sim/block.h"

#include <algorithm>
#include <string>

#include "sim/checker.h"
#include "sim/random.h"

namespace tessera::sim {

constinit thread_local Block* current_block = nullptr;

namespace {

struct Start {
  void (*entry)(const void*);
  const void* args;
};
void warp_main(void* p) {
  const Start* s = static_cast<const Start*>(p);
  s->entry(s->args);
}

std::string where(const Warp& w) {
  if (w.done) return "has returned";
  return "waits at barrier " + std::to_string(w.barrier) + " for " +
         std::to_string(w.barrier_warps) + " warps (" + file_line(w.site) + ")";
}

// Nobody can go on: say where each warp is.
void report_deadlock(Block& b) {
  std::string what = "warps of the block are at different barriers, or gone:";
  int first = 0;
  for (int i = 0; i < b.warps; i++) {
    what += (i ? "; warp " : " warp ") + std::to_string(i) + " " + where(b.warp[std::size_t(i)]);
    if (!b.warp[std::size_t(i)].done) first = i;
  }
  b.current = first;
  b.findings->add("barrier", b, b.me().site, -1, what);
}

}  // namespace

void wait_at_barrier(int id, int warps, Site site) {
  Block& b = self();
  Warp& w = b.me();
  w.site = site, w.barrier = id, w.barrier_warps = warps;
  if (b.checker)  // whoever comes first: otherwise the count of the last one would decide
    for (int i = 0; i < b.warps; i++) {
      const Warp& o = b.warp[std::size_t(i)];
      if (o.barrier == id && !o.done && o.barrier_warps != warps)
        b.findings->add("barrier", b, site, -1,
                        "barrier " + std::to_string(id) + " for " + std::to_string(warps) +
                            " warps, and warp " + std::to_string(i) + " " + where(o));
    }
  int arrived = 0;
  for (const Warp& o : b.warp) arrived += o.barrier == id && !o.done;
  if (arrived < warps) return w.fiber.suspend();

  std::vector<int> met;
  for (int i = 0; i < b.warps; i++) {
    Warp& o = b.warp[std::size_t(i)];
    if (o.barrier != id || o.done) continue;
    // One barrier in the text for the whole block; producers and consumers meet at named ones from
    // two lines.
    if (b.checker && id == 0 && (o.site.line != site.line || o.site.file != site.file))
      b.findings->add(
          "barrier", b, site, -1,
          "warp " + std::to_string(i) + " meets the block's barrier at " + file_line(o.site));
    o.barrier = -1;
    if (b.checker) met.push_back(i);
  }
  b.counters.barriers++;
  if (b.checker) b.checker->barrier_complete(met);
}

void run_block(Block& b, void (*entry)(const void*), const void* args, u64 order_seed) {
  Block* const outer = current_block;
  current_block = &b;
  Start start{entry, args};
  std::vector<int> order(std::size_t(b.warps));
  for (int i = 0; i < b.warps; i++) order[std::size_t(i)] = i;
  if (order_seed) {
    u64 state = mix(order_seed, u64(b.index));
    for (int i = b.warps - 1; i > 0; i--)
      std::swap(order[std::size_t(i)], order[std::size_t((state = mix(state, 1)) % u64(i + 1))]);
  }
  b.regions.clear();
  for (Warp& w : b.warp) {
    w.done = false, w.barrier = -1, w.site = {};
    w.groups.clear(), w.copies.clear();
    w.fiber.start(warp_main, &start);
  }
  if (b.checker) b.checker->start_block(b);
  for (;;) {
    bool ran = false, left = false;
    for (const int i : order) {
      Warp& w = b.warp[std::size_t(i)];
      if (w.done) continue;
      left = true;
      if (w.barrier >= 0) continue;
      b.current = i;
      w.done = !w.fiber.resume();
      ran = true;
    }
    if (!left) break;
    if (!ran) {
      report_deadlock(b);
      break;
    }
  }
  if (b.checker) b.checker->end_block();
  current_block = outer;
}

}  // namespace tessera::sim
