// SPDX-License-Identifier: Apache-2.0
// One case: its inputs, the launch, and the comparison of every output with float64.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "analysis/cli/memory.h"
#include "analysis/cli/options.h"
#include "reference/attention.h"

namespace tessera::cli {

struct OutputResult {
  std::string name;  // o, lse; c; y
  Comparison error;
  double tolerance = 0;             // where the largest error is; error.tolerance is at `worst`
  std::vector<std::int64_t> worst;  // coordinates of error.worst_index
  std::string hash;
};

struct CaseResult {
  Report report;
  std::vector<OutputResult> outputs;
  double flops = 0;  // of visible pairs only: what the result needs, whatever the kernel does
  bool pass = true;

  double gflops() const { return report.seconds > 0 ? flops * 1e-9 / report.seconds : 0; }
};

// A fault of the kernel comes before a wrong result: it is usually the cause.
inline ExitCode exit_code(bool pass, bool findings) {
  return findings ? kFinding : pass ? kOk : kWrong;
}
inline ExitCode exit_code(const CaseResult& r) {
  return exit_code(r.pass, !r.report.findings.empty());
}

// Inputs and reference of an attention case, for as many runs as wanted. `options` gives the shape,
// type, seed, mask, scale and target; a run's own options give the rest.
class AttentionCase {
 public:
  explicit AttentionCase(const CaseOptions& options);
  CaseResult run(const AttentionOptions& options);
  const Problem& problem() const { return problem_; }

 private:
  void find_expected();

  Problem problem_;
  Dtype dtype_;
  Array q_, k_, v_, o_, lse_;
  bool have_expected_ = false;
  std::vector<double> expected_o_, expected_lse_, abs_pv_;
  std::vector<double> tolerance_o_, tolerance_lse_;  // all 0 for field elements
};

// Any kernel. Throws Error, and before memory is touched where an argument is the reason.
CaseResult run_case(const CaseOptions& options);

Problem problem_of(const CaseOptions& options);

// Throws Error if an attention case is refused, before any memory is touched. Otherwise the report
// of the same case without a batch: which instance it is.
Report check_arguments(const CaseOptions& options);

// What hardware exp2 of a GPU may add to the tolerances: e to each LSE, 2 e sum_j P_ij |V_jd| to O.
// A weight is one exponential, and each tile of keys may rescale it by another: its relative error
// is at most e = (tiles + 1) 2^-22. LSE then moves by e, and O, a quotient of two sums of weights,
// by twice that. 0 for whatever else ran.
double exp2_allowance(const Report& report, const Problem& problem);

// The kernels with matrices; run_case calls them.
CaseResult run_matmul(const CaseOptions& options);
CaseResult run_weighted_sum(const CaseOptions& options);

// Arguments are checked before memory is touched by launching the same case with this in place of
// its outer dimension: the library then checks everything and runs nothing. An extent out of range
// stays as it is, and is refused.
std::int64_t empty_unless_invalid(std::int64_t extent);
// Throws unless the emulator has the instance that such a launch chose.
void require_instance(const Report& report, const Options& options);

// Compares and hashes one output.
OutputResult judge(const char* name, const Array& actual, const std::vector<double>& expected,
                   const std::vector<double>& tolerance);

}  // namespace tessera::cli
