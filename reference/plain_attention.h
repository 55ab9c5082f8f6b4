// SPDX-License-Identifier: Apache-2.0
// Attention as a framework's unfused path computes it: three passes, with S and P in memory in the
// storage type. Not a reference but a yardstick: a kernel may be at most twice as far from float64.
#pragma once
#include <vector>

#include "reference/attention.h"

namespace tessera {

struct PlainResult {
  std::vector<double> o;    // numbers of the storage type
  std::vector<double> lse;  // numbers of fp32, of the rounded scores
};

// q, k, v must hold numbers of the storage type. Products, sums and the softmax are fp32; scale Q
// K^T, P and O are rounded to storage once each.
PlainResult plain_attention(const Problem& p, Dtype storage, const std::vector<double>& q,
                            const std::vector<double>& k, const std::vector<double>& v);

}  // namespace tessera
