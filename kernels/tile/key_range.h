// SPDX-License-Identifier: Apache-2.0
// Which keys a query sees, and which tiles of keys a tile of queries visits: outside the band none,
// inside it full ones, which run without mask code, and those on its edge, which are masked.
#pragma once
#include "kernels/warp/warp.h"

namespace tessera {

// Query i sees keys i - left .. i + right below k_len, as a Band (types.h) cut to 32 bits.
struct KeyRange {
  i32 left, right;
  i32 k_len;

  TESSERA_FN Lanes<bool> visible(const Lanes<i32>& query, const Lanes<i32>& key) const {
    return in_band(query, key) & exists(key);
  }
  TESSERA_FN Lanes<bool> in_band(const Lanes<i32>& query, const Lanes<i32>& key) const {
    return (key <= query + Lanes<i32>(right)) & (key >= query - Lanes<i32>(left));
  }
  TESSERA_FN Lanes<bool> exists(const Lanes<i32>& key) const { return key < Lanes<i32>(k_len); }

  struct Tiles {
    i32 first = 0, last = 0;  // first <= j < last
    TESSERA_HD constexpr i32 count() const { return last > first ? last - first : 0; }
  };
  // The tiles of block_k keys of which queries q0 .. q_last see any pair; they have no gap.
  TESSERA_HD constexpr Tiles tiles(i32 q0, i32 q_last, i32 block_k) const {
    const i32 lowest = max(q0 - left, 0), highest = min(q_last + right, k_len - 1);
    if (highest < lowest || right < -left) return {};
    return {lowest / block_k, highest / block_k + 1};
  }
  // Those of which they see every pair.
  TESSERA_HD constexpr Tiles full_tiles(i32 q0, i32 q_last, i32 block_k) const {
    const i32 lowest = max(q_last - left, 0), end = min(q0 + right, k_len - 1) + 1;
    if (end <= lowest) return {};
    return {lowest / block_k + (lowest % block_k > 0), end / block_k};
  }
  // Whether tile j, which they visit, is none of those.
  TESSERA_HD constexpr bool masked(i32 q0, i32 q_last, i32 j, i32 block_k) const {
    const i32 first = j * block_k, last = first + block_k - 1;
    return last > min(q0 + right, k_len - 1) || first < q_last - left;
  }
  // The first key behind all that queries up to q_last see, where they see any.
  TESSERA_HD constexpr i32 end(i32 q_last) const { return min(q_last + right, k_len - 1) + 1; }

 private:
  static TESSERA_HD constexpr i32 min(i32 a, i32 b) { return a < b ? a : b; }
  static TESSERA_HD constexpr i32 max(i32 a, i32 b) { return a > b ? a : b; }
};

// Which tile of queries and which (batch, head) a block computes, heads first: under a causal mask
// the last queries see the most keys, so their tiles start first and the short ones fill the gaps
// at the end; blocks that run side by side read the same rows of different heads.
struct QueryTile {
  i32 q0, head, batch;
};
TESSERA_FN QueryTile longest_first(i32 q_len, i32 block_q, i32 heads, i32 batch) {
  const u32 rows = u32(heads) * u32(batch), index = block_index();
  const i32 tiles = ceil_div(q_len, block_q), bh = i32(index % rows);
  return {(tiles - 1 - i32(index / rows)) * block_q, bh % heads, bh / heads};
}

}  // namespace tessera
