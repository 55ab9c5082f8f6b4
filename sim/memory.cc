// SPDX-License-Identifier: Apache-2.0
#include "sim/memory.h"

#include <algorithm>
#include <cstring>

#include "sim/checker.h"

namespace tessera::sim {

void name_shared(const SharedRegion& region) {
  Block& b = self();
  // Every warp lays out the same tiles, and any of them may be the first to come here.
  for (const SharedRegion& r : b.regions)
    if (r.base == region.base && r.bytes == region.bytes && std::strcmp(r.name, region.name) == 0)
      return;
  b.regions.push_back(region);
  if (b.checker) b.checker->name_region(region.base, region.bytes);
  b.counters.shared_bytes = std::max<u64>(b.counters.shared_bytes, region.base + region.bytes);
}

int wavefronts_slow(const u32* address, int bytes) {
  const int lanes = 128 / bytes, words = bytes / 4;  // lanes of a phase; words of a lane
  int total = 0;
  for (int first = 0; first < 32; first += lanes) {
    // The distinct words of each bank. A word is looked for among those its bank already has.
    u32 word[32][32];
    int count[32] = {}, most = 0;
    for (int lane = first; lane < first + lanes; lane++)
      for (int w = 0; w < words; w++) {
        const u32 x = address[lane] / 4 + u32(w), bank = x % 32;
        const u32* end = word[bank] + count[bank];
        if (std::find(word[bank], const_cast<u32*>(end), x) != end) continue;
        word[bank][count[bank]++] = x;
        most = std::max(most, count[bank]);
      }
    total += most;
  }
  return total;
}

namespace {

// Distinct 32-byte sectors that the active lanes touch, and how few their bytes would fit in.
void count_sectors(Block& b, const u64* first, const u64* bytes, int lanes, bool write) {
  u64 sector[64], sum = 0;
  int n = 0;
  bool sorted = true;
  for (int i = 0; i < lanes; i++) {
    sum += bytes[i];
    for (u64 s = first[i] / 32; s <= (first[i] + bytes[i] - 1) / 32; s++) {
      if (n > 0 && sector[n - 1] == s) continue;
      if (n > 0 && sector[n - 1] > s) sorted = false;
      sector[n++] = s;
    }
  }
  if (!sorted) {
    std::sort(sector, sector + n);
    n = int(std::unique(sector, sector + n) - sector);
  }
  b.counters.global_sectors += u64(n);
  b.counters.global_sectors_ideal += (sum + 31) / 32;
  (write ? b.counters.global_store_bytes : b.counters.global_load_bytes) += sum;
}

void count_lanes(Block& b, const void* const* address, const i32* bytes, bool write) {
  u64 first[32], size[32];
  int n = 0;
  for (int i = 0; i < 32; i++)
    if (bytes[i] > 0)
      first[n] = u64(reinterpret_cast<std::uintptr_t>(address[i])), size[n++] = u64(bytes[i]);
  if (n) count_sectors(b, first, size, n, write);
}
// The same for aligned 16-byte chunks, each within one sector. Usual: all are whole, in ascending
// order.
void count_chunks(Block& b, const void* const* address, const i32* bytes) {
  u64 sector[32];
  std::memcpy(sector, address, sizeof sector);
  i32 all = 16;
  for (int i = 0; i < 32; i++) sector[i] >>= 5, all &= bytes[i];
  u64 distinct = 1, ascending = 1;
  for (int i = 1; i < 32; i++)
    distinct += sector[i] != sector[i - 1], ascending &= sector[i] >= sector[i - 1];
  if (all != 16 || !ascending) return count_lanes(b, address, bytes, false);
  b.counters.global_sectors += distinct;
  b.counters.global_sectors_ideal += 16;
  b.counters.global_load_bytes += 512;
}

void land(Block& b, const PendingCopy& c) {
  char* to = b.shared + c.destination;
  if (c.bytes == 16) return void(std::memcpy(to, c.source, 16));
  if (c.bytes) std::memcpy(to, c.source, c.bytes);  // a lane that copies nothing may point anywhere
  std::memset(to + c.bytes, 0, std::size_t(16 - c.bytes));
}

}  // namespace

void shared_access(Block& b, u32* safe, const u32* address, const i32* ok, int bytes,
                   Access access) {
  b.checker->shared_access(safe, address, ok, bytes, access);
}
void checked_warp_sync() { self().checker->warp_sync(); }

void global_access(const void* const* address, i32* mask, int bytes, bool write) {
  Block& b = self();
  i32 size[32];
  for (int i = 0; i < 32; i++) size[i] = mask[i] ? bytes : 0;
  count_lanes(b, address, size, write);
  if (b.checker) b.checker->global_access(address, mask, bytes, write);
}

void ld_global_chunk(const char* const* address, const i32* bytes, char* out) {
  Block& b = self();
  count_chunks(b, reinterpret_cast<const void* const*>(address), bytes);
  for (int i = 0; i < 32; i++) {
    i32 n = bytes[i];
    if (b.checker && n > 0 && !b.checker->global_read(i, address[i], n)) n = 0;
    std::memset(out + 16 * i, 0, 16);
    if (n > 0) std::memcpy(out + 16 * i, address[i], std::size_t(n));
  }
}

void cp_async(const u32* destination, const char* const* source, const i32* bytes) {
  Block& b = self();
  count_wavefronts(b, destination, 16);
  count_chunks(b, reinterpret_cast<const void* const*>(source), bytes);
  if (!b.checker) {  // nobody looks: a correct kernel cannot tell a copy that lands at once
    for (int i = 0; i < 32; i++) land(b, {destination[i], source[i], u8(bytes[i])});
    return;
  }
  b.checker->async_issue(destination, source, bytes);
}

void cp_async_commit() {
  Warp& w = self().me();
  if (self().checker) w.groups.push_back(w.copies.size());
}

void cp_async_wait(int pending) {
  Block& b = self();
  if (!b.checker) return;
  Warp& w = b.me();
  if (int(w.groups.size()) <= pending) return;
  const auto last = w.groups.end() - pending - 1;
  const std::size_t count = *last;
  for (std::size_t i = 0; i < count; i++) land(b, w.copies[i]);
  b.checker->async_land(w.copies.data(), count);
  w.copies.erase(w.copies.begin(), w.copies.begin() + std::ptrdiff_t(count));
  w.groups.erase(w.groups.begin(), last + 1);
  for (std::size_t& end : w.groups) end -= count;
}

}  // namespace tessera::sim
