// SPDX-License-Identifier: Apache-2.0
// Which keys a query sees, and which tiles of keys a tile of queries visits.
#pragma once
#include "kernels/warp/warp.h"

namespace tessera {

// A Band (types.h) in 32 bits: lengths are at most 2^30, so its sides can be cut to +-2^30 once, in
// 64-bit arithmetic, and compared in 32 bits for every element.
struct KeyRange {
  i32 left, right;  // query i sees keys i - left .. i + right
  i32 k_len;

  TESSERA_HD constexpr KeyRange(const Band& band, i32 k_len)
      : left(clamp(band.left - band.shift)), right(clamp(band.right + band.shift)), k_len(k_len) {}

  TESSERA_FN Lanes<bool> visible(const Lanes<i32>& query, const Lanes<i32>& key) const {
    return in_band(query, key) & exists(key);
  }
  TESSERA_FN Lanes<bool> in_band(const Lanes<i32>& query, const Lanes<i32>& key) const {
    return (key <= query + Lanes<i32>(right)) & (key >= query - Lanes<i32>(left));
  }
  TESSERA_FN Lanes<bool> exists(const Lanes<i32>& key) const { return key < Lanes<i32>(k_len); }

  // The tiles of block_k keys that queries q0 .. q_last visit: first <= j < last, and no other tile
  // has a pair that is visible. Those with full_first <= j < full_last have no pair that is not,
  // and run without mask code. Keys from `end` on are seen by none of the queries.
  struct Tiles {
    i32 first, last, full_first, full_last, end;
    TESSERA_HD constexpr i32 count() const { return last - first; }
    TESSERA_HD constexpr bool masked(i32 j) const { return j < full_first || j >= full_last; }
    TESSERA_HD constexpr i32 full() const {
      const i32 from = full_first > first ? full_first : first,
                to = full_last < last ? full_last : last;
      return to > from ? to - from : 0;
    }
  };
  TESSERA_HD constexpr Tiles tiles(i32 q0, i32 q_last, i32 block_k) const {
    const i32 highest = min(q_last + right, k_len - 1), lowest = max(q0 - left, 0);
    if (highest < lowest || right < -left) return {0, 0, 0, 0, 0};
    const i32 all_from = max(q_last - left, 0), all_to = min(q0 + right, k_len - 1);
    return {lowest / block_k, highest / block_k + 1, all_from / block_k + (all_from % block_k > 0),
            all_to < 0 ? 0 : (all_to + 1) / block_k, highest + 1};
  }

  static TESSERA_HD constexpr i32 min(i32 a, i32 b) { return a < b ? a : b; }
  static TESSERA_HD constexpr i32 max(i32 a, i32 b) { return a > b ? a : b; }
  static TESSERA_HD constexpr i32 clamp(i64 x) {
    constexpr i64 kLimit = i64(1) << 30;
    return i32(x < -kLimit ? -kLimit : x > kLimit ? kLimit : x);
  }
};

// Which tile of queries and which (batch, head) a block computes, heads first: under a causal mask
// the last queries see the most keys, so their tiles start first and the short ones fill the gaps
// at the end; blocks that run side by side read the same rows of different heads.
struct QueryTile {
  i32 q0, head, batch;
};
TESSERA_FN QueryTile longest_first(i32 q_len, i32 block_q, i32 heads, i32 batch) {
  const u32 rows = u32(heads) * u32(batch), index = block_index();
  const i32 tiles = (q_len + block_q - 1) / block_q, bh = i32(index % rows);
  return {(tiles - 1 - i32(index / rows)) * block_q, bh % heads, bh / heads};
}

}  // namespace tessera
