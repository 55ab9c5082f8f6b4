// SPDX-License-Identifier: Apache-2.0
#include "analysis/cli/case.h"

#include <algorithm>
#include <cmath>

#include "kernels/registry.h"
#include "reference/hash.h"
#include "reference/inputs.h"
#include "sim/loader.h"

namespace tessera::cli {
namespace {

// The GPU's ex2.approx is held to 2 ulp, so to 2^-22 of its value. The emulator's hardware exp2 is
// correctly rounded and needs no allowance.
constexpr double kExp2Error = 0x1p-22;

Report launch(const AttentionOptions& options, const Tensor& q, const Tensor& k, const Tensor& v,
              const Tensor& o, const Tensor& lse) {
  return attention(q, k, v, o, &lse, options);
}

// An AttentionCase's members are built from sizes that have been checked.
const CaseOptions& checked(const CaseOptions& c) {
  check_arguments(c);
  return c;
}

std::vector<double> integers(const std::vector<Fq>& x) {
  return widen_all(Dtype::field, x.data(), std::int64_t(x.size()));
}

std::vector<Fq> elements(const Array& a) {
  const Fq* x = static_cast<const Fq*>(a.host());
  return {x, x + a.count()};
}

}  // namespace

std::int64_t empty_unless_invalid(std::int64_t extent) {
  constexpr std::int64_t kLongest = std::int64_t(1) << 30;
  return extent < 0 || extent > kLongest ? extent : 0;
}

void require_instance(const Report& report, const Options& options) {
  if (options.target == Target::sim) sim::find_instance(report.instance, options.isa);
}

Report check_arguments(const CaseOptions& c) {
  const std::int64_t batch = empty_unless_invalid(c.batch);
  const Tensor q = shape_only(c.dtype, {batch, c.heads, c.q_len, c.head_dim});
  const Tensor k = shape_only(c.dtype, {batch, c.heads_kv, c.k_len, c.head_dim});
  const Dtype lse_dtype = c.dtype == Dtype::field ? Dtype::field : Dtype::f32;
  const Tensor lse = shape_only(lse_dtype, {batch, c.heads, c.q_len});
  Report report = launch(c.run, q, k, k, q, lse);
  require_instance(report, c.run);
  return report;
}

Problem problem_of(const CaseOptions& c) {
  Problem p{c.batch, c.heads, c.heads_kv, c.q_len, c.k_len, c.head_dim};
  p.scale = c.run.scale.value_or(1 / std::sqrt(double(c.head_dim)));
  p.band = band_of(c.run, c.q_len, c.k_len);
  return p;
}

OutputResult judge(const char* name, const Array& actual, const std::vector<double>& expected,
                   const std::vector<double>& tolerance) {
  const std::vector<double> values = actual.widened();
  OutputResult r{name, compare(values, expected, tolerance), 0, {}, {}};
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double error = values[i] == expected[i] ? 0 : std::fabs(values[i] - expected[i]);
    r.tolerance = tolerance[i];
    if (!(error < r.error.max_abs)) break;  // the largest, or NaN
  }
  std::int64_t rest = r.error.worst_index;
  const std::vector<std::int64_t>& shape = actual.shape();
  for (std::size_t d = shape.size(); rest >= 0 && d-- > 0; rest /= shape[d])
    r.worst.insert(r.worst.begin(), rest % shape[d]);
  r.hash = hash_hex(hash_elements(actual.dtype(), actual.host(), actual.count()));
  return r;
}

AttentionCase::AttentionCase(const CaseOptions& c)
    : problem_(problem_of(checked(c))),
      dtype_(c.dtype),
      q_("q", dtype_, {c.batch, c.heads, c.q_len, c.head_dim}, c.run.target),
      k_("k", dtype_, {c.batch, c.heads_kv, c.k_len, c.head_dim}, c.run.target),
      v_("v", dtype_, {c.batch, c.heads_kv, c.k_len, c.head_dim}, c.run.target),
      o_("o", dtype_, {c.batch, c.heads, c.q_len, c.head_dim}, c.run.target),
      lse_("lse", dtype_ == Dtype::field ? dtype_ : Dtype::f32, {c.batch, c.heads, c.q_len},
           c.run.target) {
  q_.fill_input(c.seed, 0);
  k_.fill_input(c.seed, 1);
  v_.fill_input(c.seed, 2);
}

void AttentionCase::find_expected() {
  if (have_expected_) return;
  have_expected_ = true;
  if (dtype_ == Dtype::field) {
    const FieldResult r = attention_field(problem_, elements(q_), elements(k_), elements(v_));
    expected_o_ = integers(r.o), expected_lse_ = integers(r.lse);
    tolerance_o_.assign(r.o.size(), 0), tolerance_lse_.assign(r.lse.size(), 0);
    return;
  }
  const std::vector<double> q = q_.widened(), k = k_.widened(), v = v_.widened();
  Result r = attention_f64(problem_, q, k, v);
  tolerance_o_ = forward_tolerance(problem_, dtype_, q, k, v, r);
  tolerance_lse_.assign(r.lse.size(), lse_tolerance(problem_, q, k, r));
  expected_o_ = std::move(r.o), expected_lse_ = std::move(r.lse), abs_pv_ = std::move(r.abs_pv);
}

double exp2_allowance(const Report& r, const Problem& p) {
  if (r.target != "cuda" || r.exp2 != "hardware" || r.dtype == name_of(Dtype::field)) return 0;
  const ConfigRow& row = find_config(find_kernel(r.kernel), parse_arch(r.arch),
                                     parse_dtype(r.dtype), int(p.head_dim), r.config);
  return kExp2Error * (double((p.k_len + row.cols - 1) / row.cols) + 1);
}

CaseResult AttentionCase::run(const AttentionOptions& options) {
  // A GPU's first launch loads the code, which `seconds` should not count.
  if (options.target == Target::cuda)
    launch(options, q_.tensor(), k_.tensor(), v_.tensor(), o_.tensor(), lse_.tensor());
  o_.poison(), lse_.poison();
  CaseResult result;
  result.report = launch(options, q_.tensor(), k_.tensor(), v_.tensor(), o_.tensor(),
                         lse_.tensor());
  o_.download(), lse_.download();
  find_expected();

  std::vector<double> tolerance_o = tolerance_o_, tolerance_lse = tolerance_lse_;
  if (const double e = exp2_allowance(result.report, problem_); e > 0) {
    for (std::size_t i = 0; i < tolerance_o.size(); ++i) tolerance_o[i] += 2 * e * abs_pv_[i];
    for (double& t : tolerance_lse) t += e;
  }
  result.outputs.push_back(judge("o", o_, expected_o_, tolerance_o));
  result.outputs.push_back(judge("lse", lse_, expected_lse_, tolerance_lse));
  for (const OutputResult& o : result.outputs) result.pass = result.pass && o.error.pass;
  result.flops = flop_of(problem_);
  return result;
}

CaseResult run_case(const CaseOptions& options) {
  switch (find_kernel(options.run.kernel).kind) {
    case KernelKind::attention: return AttentionCase(options).run(options.run);
    case KernelKind::matmul: return run_matmul(options);
    case KernelKind::weighted_sum: return run_weighted_sum(options);
  }
  throw Error(ErrorKind::internal, "kernel: its kind is unknown");
}

}  // namespace tessera::cli
