// SPDX-License-Identifier: Apache-2.0
// Which keys a query sees.
#pragma once
#include "kernels/warp/warp.h"

namespace tessera {

// A Band (types.h) in 32 bits: lengths are at most 2^30, so its sides can be cut to +-2^30 once, in
// 64-bit arithmetic, and compared in 32 bits for every element.
struct KeyRange {
  i32 left, right;  // query i sees keys i - left .. i + right
  i32 k_len;

  TESSERA_FN KeyRange(const Band& band, i32 k_len)
      : left(clamp(band.left - band.shift)), right(clamp(band.right + band.shift)), k_len(k_len) {}

  TESSERA_FN Lanes<bool> visible(const Lanes<i32>& query, const Lanes<i32>& key) const {
    return in_band(query, key) & exists(key);
  }
  TESSERA_FN Lanes<bool> in_band(const Lanes<i32>& query, const Lanes<i32>& key) const {
    return (key <= query + Lanes<i32>(right)) & (key >= query - Lanes<i32>(left));
  }
  TESSERA_FN Lanes<bool> exists(const Lanes<i32>& key) const { return key < Lanes<i32>(k_len); }

  static TESSERA_HD constexpr i32 clamp(i64 x) {
    constexpr i64 kLimit = i64(1) << 30;
    return i32(x < -kLimit ? -kLimit : x > kLimit ? kLimit : x);
  }
};

}  // namespace tessera
