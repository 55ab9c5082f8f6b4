// SPDX-License-Identifier: Apache-2.0
#include "reference/sample.h"

#include <algorithm>
#include <cmath>

#include "reference/inputs.h"

namespace tessera {

std::vector<SampleRow> sample_rows(const Problem& p, int count) {
  const std::int64_t heads = p.batch * p.heads, all = heads * p.q_len;
  const std::int64_t n = std::min<std::int64_t>(count, all);
  std::vector<SampleRow> rows;
  if (n == all) {
    for (std::int64_t r = 0; r < all; ++r) rows.push_back({r / p.q_len, r % p.q_len});
    return rows;
  }
  // Row s is one of the s-th of n equal parts of all rows. Multiples of the golden ratio say where
  // in its part, so that no tile size divides the positions.
  constexpr double kGolden = 0.6180339887498949;
  for (std::int64_t s = 0; s < n; ++s) {
    const double whole = double(all) / double(n), turn = double(s) * kGolden;
    const auto begin = std::int64_t(double(s) * whole), end = std::int64_t(double(s + 1) * whole);
    std::int64_t r = begin + std::int64_t((turn - std::floor(turn)) * double(end - begin));
    r = s == 0 ? 0 : s == n - 1 ? all - 1 : std::clamp(r, begin, end - 1);
    rows.push_back({r / p.q_len, r % p.q_len});
  }
  return rows;
}

SampledResult attention_of_rows(const Problem& p, Dtype storage, const void* q, const void* k,
                                const void* v, const std::vector<SampleRow>& rows) {
  const std::int64_t dim = p.head_dim, head_size = p.k_len * dim;
  const auto part = [&](const void* data, std::int64_t begin, std::int64_t count) {
    const auto* bytes = static_cast<const char*>(data);
    return widen_all(storage, bytes + begin * element_size(storage), count);
  };
  const auto append = [](std::vector<double>& to, const std::vector<double>& from) {
    to.insert(to.end(), from.begin(), from.end());
  };
  SampledResult result;
  std::int64_t kv_before = -1;
  std::vector<double> k_head, v_head;
  for (const SampleRow& row : rows) {
    if (const std::int64_t kv = p.kv_head(row.head); kv != kv_before) {
      k_head = part(k, kv * head_size, head_size), v_head = part(v, kv * head_size, head_size);
      kv_before = kv;
    }
    Problem one{1, 1, 1, 1, p.k_len, dim, p.scale, p.band};
    one.band.shift += row.query;
    const std::vector<double> query = part(q, (row.head * p.q_len + row.query) * dim, dim);
    const Result r = attention_f64(one, query, k_head, v_head);
    append(result.o, r.o), append(result.lse, r.lse), append(result.abs_pv, r.abs_pv);
    append(result.tolerance_o, forward_tolerance(one, storage, query, k_head, v_head, r));
    result.tolerance_lse.push_back(lse_tolerance(one, query, k_head, r));
  }
  return result;
}

}  // namespace tessera
