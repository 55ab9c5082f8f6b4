// SPDX-License-Identifier: Apache-2.0
#include "reference/attention.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>

namespace tessera {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

// Four partial sums: one chain of additions would wait for each before the next.
double dot(const double* a, const double* b, std::int64_t n) {
  double sum[4] = {0, 0, 0, 0};
  std::int64_t d = 0;
  for (; d + 4 <= n; d += 4)
    for (int c = 0; c < 4; ++c) sum[c] += a[d + c] * b[d + c];
  for (; d < n; ++d) sum[0] += a[d] * b[d];
  return (sum[0] + sum[1]) + (sum[2] + sum[3]);
}

double max_finite(const double* x, std::int64_t n) {
  double most = 0;
  for (std::int64_t i = 0; i < n; ++i)
    if (std::isfinite(x[i])) most = std::max(most, std::fabs(x[i]));
  return most;
}

double unit_roundoff(Dtype storage) {
  switch (storage) {
    case Dtype::f32: return 0x1p-24;
    case Dtype::f16: return 0x1p-11;
    case Dtype::bf16: return 0x1p-8;
    case Dtype::field: break;
  }
  throw std::invalid_argument("forward_tolerance: field results are exact");
}

// kFieldBase^exponent.
Fq field_weight(i32 exponent) {
  constexpr Fq kBase{kFieldBase};
  constexpr Fq kInverse = field_power(kBase, kFieldPrime - 2);
  return exponent < 0 ? field_power(kInverse, u32(-exponent)) : field_power(kBase, u32(exponent));
}

}  // namespace

void require_shapes(const Problem& p, std::size_t q, std::size_t k, std::size_t v) {
  if (std::min({p.batch, p.heads, p.heads_kv, p.q_len, p.k_len, p.head_dim}) < 0)
    throw std::invalid_argument("attention: a size is negative");
  if (p.heads_kv == 0 ? p.heads != 0 : p.heads % p.heads_kv != 0)
    throw std::invalid_argument("attention: heads must be a multiple of heads_kv");
  const std::size_t q_size = p.q_rows() * p.head_dim, k_size = p.k_rows() * p.head_dim;
  if (q != q_size || k != k_size || v != k_size)
    throw std::invalid_argument("attention: q, k or v does not fit the problem's sizes");
}

std::int64_t visible_keys(const Problem& p, std::int64_t i) {
  const std::int64_t at = i + p.band.shift;  // the key on the diagonal
  const std::int64_t first = p.band.left >= Band::kUnlimited ? 0 : at - p.band.left;
  const std::int64_t last = p.band.right >= Band::kUnlimited ? p.k_len - 1 : at + p.band.right;
  const std::int64_t from = std::max<std::int64_t>(first, 0), to = std::min(last, p.k_len - 1);
  return std::max<std::int64_t>(to - from + 1, 0);
}

std::int64_t visible_pairs(const Problem& p) {
  std::int64_t pairs = 0;
  for (std::int64_t i = 0; i < p.q_len; ++i) pairs += visible_keys(p, i);
  return pairs;
}

double flop_of(const Problem& p) {
  return 4 * double(p.head_dim) * double(visible_pairs(p)) * double(p.batch) * double(p.heads);
}

Result attention_f64(const Problem& p, const std::vector<double>& q, const std::vector<double>& k,
                     const std::vector<double>& v) {
  require_shapes(p, q.size(), k.size(), v.size());
  const std::int64_t dim = p.head_dim;
  Result result;
  result.o.assign(q.size(), 0);
  result.abs_pv.assign(q.size(), 0);
  result.abs_v.assign(q.size(), 0);
  result.lse.assign(p.q_rows(), -kInf);

  std::vector<std::int64_t> keys;  // the visible ones
  std::vector<double> weight(p.k_len);
  for (std::int64_t head = 0; head < p.batch * p.heads; ++head) {
    const double* k_head = k.data() + p.kv_head(head) * p.k_len * dim;  // (k_len, head_dim)
    const double* v_head = v.data() + p.kv_head(head) * p.k_len * dim;  // (k_len, head_dim)
    for (std::int64_t i = 0; i < p.q_len; ++i) {
      const std::int64_t row = head * p.q_len + i;
      keys.clear();
      for (std::int64_t j = 0; j < p.k_len; ++j)
        if (visible(p.band, i, j, p.k_len)) keys.push_back(j);
      if (keys.empty()) continue;

      // A NaN score may be lost in m, but its weight is NaN and so are l, O and LSE.
      double m = -kInf, l = 0;
      for (std::int64_t j : keys) {
        weight[j] = p.scale * dot(&q[row * dim], k_head + j * dim, dim);
        m = std::max(m, weight[j]);
      }
      for (std::int64_t j : keys) l += weight[j] = std::exp(weight[j] - m);
      result.lse[row] = m + std::log(l);

      double* o = result.o.data() + row * dim;
      double* abs_pv = result.abs_pv.data() + row * dim;
      double* abs_v = result.abs_v.data() + row * dim;
      for (std::int64_t j : keys) {
        const double probability = weight[j] / l;
        for (std::int64_t d = 0; d < dim; ++d) {
          const double term = probability * v_head[j * dim + d];
          o[d] += term;
          abs_pv[d] += std::fabs(term);
          abs_v[d] += std::fabs(v_head[j * dim + d]) / l;
        }
      }
    }
  }
  return result;
}

std::vector<double> forward_tolerance(const Problem& p, Dtype storage, const std::vector<double>& q,
                                      const std::vector<double>& k, const std::vector<double>& v,
                                      const Result& expected) {
  require_shapes(p, q.size(), k.size(), v.size());
  const double u = unit_roundoff(storage), half_tiny = storage == Dtype::f16 ? 0x1p-25 : 0;
  const std::int64_t dim = p.head_dim, k_head_size = p.k_len * dim;
  std::vector<double> tolerance(q.size());
  for (std::int64_t head = 0; head < p.batch * p.heads; ++head) {
    const double max_k = max_finite(k.data() + p.kv_head(head) * k_head_size, k_head_size);
    const double max_v = max_finite(v.data() + p.kv_head(head) * k_head_size, k_head_size);
    for (std::int64_t row = head * p.q_len; row < (head + 1) * p.q_len; ++row) {
      const double max_q = max_finite(q.data() + row * dim, dim);
      const double fp32 = 4 * 0x1p-24 * (double(dim) * std::fabs(p.scale) * max_q * max_k + 4) *
                          max_v;
      for (std::int64_t x = row * dim; x < (row + 1) * dim; ++x)
        tolerance[x] = 2 * u * expected.abs_pv.at(x) + fp32 +
                       half_tiny * (1 + expected.abs_v.at(x));
    }
  }
  return tolerance;
}

double lse_tolerance(const Problem& p, const std::vector<double>& q, const std::vector<double>& k,
                     const Result& expected) {
  const double score = double(p.head_dim) * std::fabs(p.scale) * max_finite(q.data(), q.size()) *
                       max_finite(k.data(), k.size());
  const double max_lse = max_finite(expected.lse.data(), expected.lse.size());
  const double keys = double(std::max<std::int64_t>(p.k_len, 1));
  return 0x1p-24 * (4 * score + keys / 2 + 4 + 4 * (max_lse + std::log(keys)));
}

Comparison compare(const std::vector<double>& actual, const std::vector<double>& expected,
                   const std::vector<double>& tolerances) {
  if (actual.size() != expected.size() || tolerances.size() != expected.size())
    throw std::invalid_argument("compare: sizes differ");
  Comparison result;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const double a = actual[i], e = expected[i], tolerance = tolerances[i];
    const bool agree = a == e || (std::isnan(a) && std::isnan(e));
    double error = agree ? 0 : std::fabs(a - e);
    if (std::isnan(error)) error = kInf;
    double ratio = error == 0 ? 0 : error / tolerance;
    // An infinite tolerance would let an infinity pass, and would test nothing.
    if (!(error <= tolerance && tolerance < kInf) && !agree) {
      result.pass = false;
      if (!(ratio > 1)) ratio = kInf;
    }
    result.nan_count += std::isnan(a) && !std::isnan(e);
    result.max_abs = std::max(result.max_abs, error);
    if (result.worst_index < 0 || ratio > result.max_ratio) {
      result.max_ratio = ratio;
      result.tolerance = tolerance;
      result.worst_index = std::int64_t(i);
    }
  }
  return result;
}

Comparison compare(const std::vector<double>& actual, const std::vector<double>& expected,
                   double tolerance) {
  return compare(actual, expected, std::vector<double>(expected.size(), tolerance));
}

FieldResult attention_field(const Problem& p, const std::vector<Fq>& q, const std::vector<Fq>& k,
                            const std::vector<Fq>& v) {
  require_shapes(p, q.size(), k.size(), v.size());
  const std::int64_t dim = p.head_dim;
  FieldResult result;
  result.o.assign(q.size(), Fq{0});
  result.lse.assign(p.q_rows(), Fq{0});
  for (std::int64_t head = 0; head < p.batch * p.heads; ++head) {
    const Fq* k_head = k.data() + p.kv_head(head) * p.k_len * dim;  // (k_len, head_dim)
    const Fq* v_head = v.data() + p.kv_head(head) * p.k_len * dim;  // (k_len, head_dim)
    for (std::int64_t i = 0; i < p.q_len; ++i) {
      const std::int64_t row = head * p.q_len + i;
      Fq* o = result.o.data() + row * dim;
      Fq l{0};
      for (std::int64_t j = 0; j < p.k_len; ++j) {
        if (!visible(p.band, i, j, p.k_len)) continue;
        Fq score{0};
        for (std::int64_t d = 0; d < dim; ++d)
          score = score + q[row * dim + d] * k_head[j * dim + d];
        const Fq weight = field_weight(score.centred());
        l = l + weight;
        for (std::int64_t d = 0; d < dim; ++d) o[d] = o[d] + weight * v_head[j * dim + d];
      }
      const Fq reciprocal = field_power(l, kFieldPrime - 2);
      for (std::int64_t d = 0; d < dim; ++d) o[d] = o[d] * reciprocal;
      result.lse[row] = l;
    }
  }
  return result;
}

}  // namespace tessera
