// SPDX-License-Identifier: Apache-2.0
#include "reference/plain_attention.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "reference/inputs.h"

namespace tessera {

PlainResult plain_attention(const Problem& p, Dtype storage, const std::vector<double>& q,
                            const std::vector<double>& k, const std::vector<double>& v) {
  require_shapes(p, q.size(), k.size(), v.size());
  constexpr float kInf = std::numeric_limits<float>::infinity();
  const std::int64_t dim = p.head_dim;
  const float scale = float(p.scale);
  const std::vector<float> q32(q.begin(), q.end()), k32(k.begin(), k.end()),
      v32(v.begin(), v.end());
  PlainResult result{std::vector<double>(q.size(), 0), std::vector<double>(p.q_rows(), -kInf)};
  std::vector<std::int64_t> keys;                       // the visible ones
  std::vector<float> s(p.k_len), w(p.k_len), sum(dim);  // a row of S and of P, and one of O

  for (std::int64_t head = 0; head < p.batch * p.heads; ++head) {
    const float* k_head = k32.data() + p.kv_head(head) * p.k_len * dim;  // (k_len, head_dim)
    const float* v_head = v32.data() + p.kv_head(head) * p.k_len * dim;  // (k_len, head_dim)
    for (std::int64_t i = 0; i < p.q_len; ++i) {
      const std::int64_t row = head * p.q_len + i;
      keys.clear();
      for (std::int64_t j = 0; j < p.k_len; ++j)
        if (visible(p.band, i, j, p.k_len)) keys.push_back(j);
      if (keys.empty()) continue;

      float m = -kInf, l = 0;
      for (std::int64_t j : keys) {
        float dot = 0;
        for (std::int64_t d = 0; d < dim; ++d) dot += q32[row * dim + d] * k_head[j * dim + d];
        s[j] = round_to(storage, scale * dot);
        m = std::max(m, s[j]);
      }
      for (std::int64_t j : keys) l += w[j] = std::exp(s[j] - m);
      result.lse[row] = m + std::log(l);

      std::fill(sum.begin(), sum.end(), 0.f);
      for (std::int64_t j : keys) {
        const float probability = round_to(storage, w[j] / l);
        for (std::int64_t d = 0; d < dim; ++d) sum[d] += probability * v_head[j * dim + d];
      }
      for (std::int64_t d = 0; d < dim; ++d) result.o[row * dim + d] = round_to(storage, sum[d]);
    }
  }
  return result;
}

}  // namespace tessera
