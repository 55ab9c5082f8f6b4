// SPDX-License-Identifier: Apache-2.0
// FlashAttention-2 as a double loop over tiles, in fp32: the algorithm that every kernel here
// follows, slow and without a lane, a warp or a shared tile in sight. Read this first.
#pragma once
#include <cstdint>
#include <vector>

#include "reference/attention.h"

namespace tessera {

struct FlashAttention2Result {
  std::vector<float> o;    // (batch, heads, q_len, head_dim)
  std::vector<float> lse;  // (batch, heads, q_len), natural log
};

// Neither tile size needs to divide a length, and they change nothing beyond rounding.
FlashAttention2Result flash_attention2(const Problem& p, const std::vector<float>& q,
                                       const std::vector<float>& k, const std::vector<float>& v,
                                       std::int64_t block_q, std::int64_t block_k);

}  // namespace tessera
