// SPDX-License-Identifier: Apache-2.0
// One case of a benchmark: its contenders are checked, take turns, and are checked again.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "analysis/cli/options.h"
#include "analysis/cli/statistics.h"
#include "kernels/report.h"

namespace tessera::cli {

enum class Status {
  ok,
  noisy,       // timed, but the spread stayed above what was asked for
  refused,     // nothing runs it here
  wrong,       // its results, before or after the timing
  impossible,  // faster than the card multiplies
};
const char* name_of(Status s);

// Of O's sampled rows: the largest error, and the norm of the errors over that of what is right.
struct SampleError {
  double max_abs = 0, relative = 0;
  std::string against;
};

struct Measurement {
  CaseOptions options;
  Report report = {};  // of one launch; empty where it was refused
  Status status = Status::ok;
  std::string reason = {};  // where the status is not ok
  std::optional<Spread> ms = {};
  std::optional<SampleError> error = {};
  std::optional<double> call_us = {};  // median time of the host for one asynchronous call
  std::int64_t pairs = 0;              // visible ones of one head
  double flop = 0;

  bool timed() const { return status == Status::ok || status == Status::noisy; }
  double tflops() const { return ms && ms->median > 0 ? flop / ms->median * 1e-9 : 0; }
};

// Whatever is not refused already is measured. The contenders' options differ in kernel, arch,
// config and exp2 alone. `limit`: TFLOP/s that no contender can exceed; none on the emulator.
void measure(std::vector<Measurement>& contenders, const BenchOptions& bench,
             std::optional<double> limit);

}  // namespace tessera::cli
