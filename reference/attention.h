// SPDX-License-Identifier: Apache-2.0
// What the right answer is: attention in float64 and in the finite field, both straight from the
// formula, and how far from it a kernel may be.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/warp/types.h"

namespace tessera {

// Tensors are contiguous: q, o (batch, heads, q_len, head_dim); k, v (batch, heads_kv, k_len,
// head_dim); lse (batch, heads, q_len).
struct Problem {
  std::int64_t batch = 1, heads = 1, heads_kv = 1, q_len = 0, k_len = 0, head_dim = 0;
  double scale = 1;
  Band band = {};

  std::int64_t q_rows() const { return batch * heads * q_len; }
  std::int64_t k_rows() const { return batch * heads_kv * k_len; }
  // The (batch, key head) that the (batch, query head) `head` reads, both as one flat index.
  std::int64_t kv_head(std::int64_t head) const {
    return head / heads * heads_kv + head % heads / (heads / heads_kv);
  }
};

// Throws std::invalid_argument unless the sizes (in elements) fit the problem.
void require_shapes(const Problem& p, std::size_t q, std::size_t k, std::size_t v);

// Whether query i sees key j. Nothing overflows while i and j are below 2^62 and |shift|, and left
// and right where they are limits, at most 2^62.
inline bool visible(const Band& band, std::int64_t i, std::int64_t j, std::int64_t k_len) {
  const std::int64_t offset = j - i - band.shift;
  return 0 <= j && j < k_len && (band.left >= Band::kUnlimited || offset >= -band.left) &&
         (band.right >= Band::kUnlimited || offset <= band.right);
}

// How many keys query i sees, and all queries of one (batch, head) together.
std::int64_t visible_keys(const Problem& p, std::int64_t i);
std::int64_t visible_pairs(const Problem& p);
// Floating-point operations that O needs, whatever a kernel does: a visible pair is a product of
// head_dim for its score and one for its value, 4 head_dim in all. Over all batches and heads.
double flop_of(const Problem& p);

struct Result {
  std::vector<double> o, lse;
  std::vector<double> abs_pv;  // sum_j P_ij |V_jd|, shaped like o: the error of a rounded P
  std::vector<double> abs_v;   // sum_j |V_jd| / l over visible keys: of a P below fp16's normals
};

// O = P V and LSE = m + log l over the visible keys only, where S = scale Q K^T, m = max_j S_ij,
// l = sum_j exp(S_ij - m), P = exp(S - m) / l. A row that sees no key: O = 0, LSE = -inf. NaN and
// inf go where this formula takes them: a row whose largest visible score is infinite is NaN.
Result attention_f64(const Problem& p, const std::vector<double>& q, const std::vector<double>& k,
                     const std::vector<double>& v);

// How far O may be from `expected`, per element:
//   2u sum_j P_ij |V_jd| + 4 * 2^-24 (head_dim |scale| max|q| max|k| + 4) max|V|
//   [+ 2^-25 (1 + sum_j |V_jd| / l) for f16]
// u is the unit roundoff of storage: P and O are rounded to it once each. The second term is the
// fp32 arithmetic: a score's error, as a relative error of its weight, and a few roundings more.
// The last is half the spacing of fp16's subnormals, which O and each weight exp(S - m) may be.
// max|q| is over the query's row, max|k| and max|V| over the head, finite values only: one inf must
// not loosen the test of everything else.
std::vector<double> forward_tolerance(const Problem& p, Dtype storage, const std::vector<double>& q,
                                      const std::vector<double>& k, const std::vector<double>& v,
                                      const Result& expected);

// How far any LSE may be from `expected`, u = 2^-24 throughout since LSE is fp32:
//   u (4 head_dim |scale| max|q| max|k| + k_len / 2 + 4 + 4 (max|LSE| + log k_len))
// - a score is a sum of head_dim products, and LSE moves by at most as much as the scores do;
// - l is a sum of k_len positive terms. In sequence that is k_len * u at worst; but lanes or tiles
//   split the sum at least in two. 4 more for the exponential;
// - m + log l is rounded, and so are scale, its product with log2(e) and the way back to base e:
//   each relative to m, and |m| <= |LSE| + log k_len.
double lse_tolerance(const Problem& p, const std::vector<double>& q, const std::vector<double>& k,
                     const Result& expected);

struct Comparison {
  bool pass = true;
  double max_abs = 0;    // largest |actual - expected|; inf where one is NaN or infinite alone
  double max_ratio = 0;  // largest error / tolerance
  double tolerance = 0;  // at worst_index
  std::int64_t worst_index = -1;  // where max_ratio is; -1: nothing was compared
  std::int64_t nan_count = 0;     // NaNs in `actual` where `expected` has none
};

// Passes when every |actual - expected| <= tolerance. NaN agrees with NaN and an infinity with
// itself; against anything else they fail, whatever the tolerance.
Comparison compare(const std::vector<double>& actual, const std::vector<double>& expected,
                   const std::vector<double>& tolerances);
Comparison compare(const std::vector<double>& actual, const std::vector<double>& expected,
                   double tolerance);

struct FieldResult {
  std::vector<Fq> o, lse;
};

// Attention modulo kFieldPrime: score s = centred(q . k), weight = kFieldBase^s, l = sum of
// weights, O = (sum weight v) / l, where 1 / 0 is 0. LSE is l itself. Exact, so kernels must equal
// it bit for bit. A row that sees no key: O = LSE = 0. The problem's scale has no part in it.
FieldResult attention_field(const Problem& p, const std::vector<Fq>& q, const std::vector<Fq>& k,
                            const std::vector<Fq>& v);

}  // namespace tessera
