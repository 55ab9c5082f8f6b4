// SPDX-License-Identifier: Apache-2.0
// Attention in float64 for some of the queries: what is affordable where a whole result is not.
#pragma once
#include <cstdint>
#include <vector>

#include "reference/attention.h"

namespace tessera {

struct SampleRow {
  std::int64_t head;   // batch index * heads + head
  std::int64_t query;  // its position
};
// At most `count` different rows, the same for the same problem: spread over batches and heads, and
// over positions, among them the first query of the first head and the last query of the last.
std::vector<SampleRow> sample_rows(const Problem& p, int count);

// Element d of the r-th sampled row is at r * head_dim + d, its LSE at r.
struct SampledResult {
  std::vector<double> o, lse;
  std::vector<double> abs_pv;                      // as Result's
  std::vector<double> tolerance_o, tolerance_lse;  // forward_tolerance and lse_tolerance of the row
};
// q, k, v as Problem has them, in their storage type (not field).
SampledResult attention_of_rows(const Problem& p, Dtype storage, const void* q, const void* k,
                                const void* v, const std::vector<SampleRow>& rows);

}  // namespace tessera
