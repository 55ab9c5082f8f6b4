// SPDX-License-Identifier: Apache-2.0
// Symbols are the paper's (Dao 2023, algorithm 1): S scores, P weights, m running maximum, l
// running sum, O output. A materialised softmax needs a whole row of S before the first weight.
// Here a row of S comes one tile at a time: whenever a tile raises m, all that was summed with the
// old m is scaled by exp(m_old - m_new), and is then as if the new m had been known from the start.
#include "reference/flash_attention2.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>

namespace tessera {
namespace {

// std::max loses a NaN in its second argument.
float maximum(float a, float b) { return a > b || std::isnan(a) ? a : b; }

}  // namespace

FlashAttention2Result flash_attention2(const Problem& p, const std::vector<float>& q,
                                       const std::vector<float>& k, const std::vector<float>& v,
                                       std::int64_t block_q, std::int64_t block_k) {
  require_shapes(p, q.size(), k.size(), v.size());
  if (block_q < 1 || block_k < 1) throw std::invalid_argument("flash_attention2: empty tile");
  constexpr float kHidden = -std::numeric_limits<float>::infinity();
  const std::int64_t dim = p.head_dim;
  const float scale = float(p.scale);
  FlashAttention2Result result{std::vector<float>(q.size()), std::vector<float>(p.q_rows())};
  std::vector<float> S(block_q * block_k), P(block_q * block_k);  // (block_q, block_k)
  std::vector<float> O(block_q * dim);                            // (block_q, head_dim)
  std::vector<float> m(block_q), l(block_q);                      // (block_q)

  for (std::int64_t head = 0; head < p.batch * p.heads; ++head) {
    const float* Q = q.data() + head * p.q_len * dim;             // (q_len, head_dim)
    const float* K = k.data() + p.kv_head(head) * p.k_len * dim;  // (k_len, head_dim)
    const float* V = v.data() + p.kv_head(head) * p.k_len * dim;  // (k_len, head_dim)

    for (std::int64_t q0 = 0; q0 < p.q_len; q0 += block_q) {  // on a GPU: one block each
      const std::int64_t rows = std::min(block_q, p.q_len - q0);
      std::fill(O.begin(), O.end(), 0.f);
      std::fill(m.begin(), m.end(), kHidden);
      std::fill(l.begin(), l.end(), 0.f);

      for (std::int64_t k0 = 0; k0 < p.k_len; k0 += block_k) {
        const std::int64_t cols = std::min(block_k, p.k_len - k0);
        for (std::int64_t r = 0; r < rows; ++r) {
          // S = scale Q K^T, hidden where the mask says so; and the new maximum.
          float m_new = m[r];
          for (std::int64_t c = 0; c < cols; ++c) {
            float dot = 0;
            for (std::int64_t d = 0; d < dim; ++d)
              dot += Q[(q0 + r) * dim + d] * K[(k0 + c) * dim + d];
            const bool seen = visible(p.band, q0 + r, k0 + c, p.k_len);
            S[r * block_k + c] = seen ? scale * dot : kHidden;
            m_new = maximum(m_new, S[r * block_k + c]);
          }
          if (m_new == kHidden) continue;  // no key so far: exp(-inf - -inf) would be NaN

          // P = exp(S - m), not yet divided by l; the first rescale is exp(-inf) = 0.
          const float rescale = std::exp(m[r] - m_new);
          float sum = 0;
          for (std::int64_t c = 0; c < cols; ++c)
            sum += P[r * block_k + c] = std::exp(S[r * block_k + c] - m_new);
          m[r] = m_new;
          l[r] = l[r] * rescale + sum;

          // O = rescale O + P V, over visible keys: 0 * V would let a hidden NaN through.
          for (std::int64_t d = 0; d < dim; ++d) O[r * dim + d] *= rescale;
          for (std::int64_t c = 0; c < cols; ++c)
            if (visible(p.band, q0 + r, k0 + c, p.k_len))
              for (std::int64_t d = 0; d < dim; ++d)
                O[r * dim + d] += P[r * block_k + c] * V[(k0 + c) * dim + d];
        }
      }

      // The one division. A row that saw no key keeps O = 0, and its LSE is -inf + log(0) = -inf.
      for (std::int64_t r = 0; r < rows; ++r) {
        const std::int64_t row = head * p.q_len + q0 + r;
        for (std::int64_t d = 0; d < dim; ++d)
          result.o[row * dim + d] = m[r] == kHidden ? 0 : O[r * dim + d] / l[r];
        result.lse[row] = m[r] + std::log(l[r]);
      }
    }
  }
  return result;
}

}  // namespace tessera
