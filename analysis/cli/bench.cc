// SPDX-License-Identifier: Apache-2.0
#include "analysis/cli/bench.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>

#include "analysis/cli/case.h"
#include "kernels/cuda_timing.h"
#include "kernels/registry.h"

namespace tessera::cli {
namespace {

using Contenders = std::vector<Measurement>;

// The report of a case's instance, or, where nothing runs it, the reason in `m`. A mistake in the
// arguments is thrown.
void check_case(Measurement& m) {
  try {
    m.report = check_arguments(m.options);
  } catch (const Error& e) {
    if (e.kind != ErrorKind::unsupported) throw;
    m.status = Status::refused, m.reason = e.what();
  }
}

// Every configuration of the table for a case: of the rows whose bucket is the smallest that holds
// its head_dim. Just the default where nothing runs the case.
std::vector<std::string> all_configs(const CaseOptions& c) {
  Measurement standard{c};
  check_case(standard);
  if (standard.status == Status::refused) return {""};
  std::vector<std::string> names;
  const Where where = c.run.target == Target::cuda ? Where::cuda : Where::sim;
  for (const ConfigRow& row : kRows)
    if (row.kernel == c.run.kernel && name_of(row.arch) == standard.report.arch &&
        row.has(c.dtype) && row.has(where) && row.variant == Variant::none &&
        bucket_of(row, int(c.head_dim)) == standard.report.head_dim_bucket)
      names.emplace_back(row.name);
  return names;
}

Contenders contenders_of(const BenchOptions& bench, const CaseOptions& c) {
  Contenders all;
  for (const std::string& config : bench.configs.empty() ? all_configs(c) : bench.configs) {
    Measurement m{c};
    m.options.run.config = config;
    check_case(m);
    if (m.status != Status::refused)  // so its lengths are such that pairs can be counted
      m.pairs = visible_pairs(problem_of(c)), m.flop = flop_of(problem_of(c));
    all.push_back(std::move(m));
  }
  return all;
}

// All cases, checked, before anything runs.
std::vector<Contenders> plan(const BenchOptions& bench) {
  std::vector<Contenders> cases;
  for (const Dtype dtype : bench.dtypes)
    for (const std::int64_t head_dim : bench.head_dims)
      for (const std::int64_t length : bench.lengths)
        for (const Causal causal : bench.causals) {
          CaseOptions c = bench.base;
          c.dtype = dtype, c.head_dim = head_dim, c.run.causal = causal;
          c.q_len = length, c.k_len = bench.k_len.value_or(length);
          cases.push_back(contenders_of(bench, c));
        }
  return cases;
}

std::string lengths_text(const CaseOptions& c) {
  return c.q_len == c.k_len ? fmt::format("{}", c.q_len) : fmt::format("{}x{}", c.q_len, c.k_len);
}

// One line a case on stderr; on a terminal it is gone when the case is done.
class Progress {
 public:
  explicit Progress(std::size_t cases) : cases_(cases), terminal_(isatty(STDERR_FILENO)) {}
  void start(const Contenders& contenders) {
    const CaseOptions& c = contenders.front().options;
    fmt::print(stderr, "{}[{}/{}] {}, head_dim {}, N {}, causal {}: {} configuration{}{}",
               terminal_ ? "\r\033[K" : "", ++at_, cases_, tessera::name_of(c.dtype), c.head_dim,
               lengths_text(c), name_of(c.run.causal), contenders.size(),
               contenders.size() == 1 ? "" : "s", terminal_ ? "" : "\n");
    std::fflush(stderr);
  }
  void done() const {
    if (terminal_) fmt::print(stderr, "\r\033[K");
  }

 private:
  std::size_t cases_, at_ = 0;
  bool terminal_;
};

void print_heading(std::FILE* to, const BenchOptions& b, const std::string& card) {
  const bool gpu = b.base.run.target == Target::cuda;
  fmt::print(to, "{} on {}{}; batch {}, heads {}", b.base.run.kernel, gpu ? "" : "the emulator as ",
             card.empty() ? "nothing" : card, b.base.batch, b.base.heads);
  if (b.base.heads_kv != b.base.heads) fmt::print(to, ", key heads {}", b.base.heads_kv);
  if (gpu)
    fmt::print(to, "; {}, L2 {}", b.graph ? "a graph of one call" : "one call",
               b.warm ? "warm" : "written over");
  fmt::print(to, "\n{:<5} {:>3} {:>11} {:<12} {:<20} {:>9} {:>9} {:>9} {:>9} {:>8} {:>8}\n", "type",
             "D", "N", "causal", "config", "ms", "p20", "p80", gpu ? "TFLOP/s" : "GFLOP/s",
             "call us", "error");
}

void print_row(std::FILE* to, const Measurement& m) {
  const CaseOptions& c = m.options;
  const std::string& config = m.report.config.empty() ? c.run.config : m.report.config;
  fmt::print(to, "{:<5} {:>3} {:>11} {:<12} {:<20} ", tessera::name_of(c.dtype), c.head_dim,
             lengths_text(c), name_of(c.run.causal), config.empty() ? "-" : config);
  if (m.ms) {
    const double rate = c.run.target == Target::cuda ? m.tflops() : 1e3 * m.tflops();
    fmt::print(to, "{:>9.4f} {:>9.4f} {:>9.4f} {:>9.2f} {:>8} {:>8.1e}", m.ms->median, m.ms->p20,
               m.ms->p80, rate, m.call_us ? fmt::format("{:.1f}", *m.call_us) : "-",
               m.error ? m.error->max_abs : 0);
  }
  if (m.status != Status::ok) fmt::print(to, "  {}: {}", name_of(m.status), m.reason);
  fmt::print(to, "\n");
  std::fflush(to);
}

}  // namespace

ExitCode bench(const BenchOptions& b, Output& out) {
  const auto start = std::chrono::steady_clock::now();
  const bool gpu = b.base.run.target == Target::cuda;
  if (gpu) cuda::device_arch();  // throws where there is no device
  std::vector<Contenders> cases = plan(b);
  std::string card, why_refused;
  bool any = false, right = true;
  for (const Contenders& contenders : cases)
    for (const Measurement& m : contenders) {
      if (card.empty()) card = m.report.card;
      if (why_refused.empty()) why_refused = m.reason;
    }
  out.record(run_record(b, card));
  print_heading(out.text(), b, card);
  Progress progress(cases.size());
  for (Contenders& contenders : cases) {
    progress.start(contenders);
    std::optional<double> limit;
    const bool runs = std::any_of(contenders.begin(), contenders.end(),
                                  [](const Measurement& m) { return m.status != Status::refused; });
    if (gpu && runs) limit = cuda::rate_limit(contenders.front().options.dtype);
    measure(contenders, b, limit);
    progress.done();
    for (const Measurement& m : contenders) {
      out.record(row_record(b, m));
      print_row(out.text(), m);
      any = any || m.status != Status::refused;
      right = right && m.status != Status::wrong && m.status != Status::impossible;
      if (why_refused.empty()) why_refused = m.reason;
    }
  }
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  out.record(end_record(b, took.count()));
  if (!any && !cases.empty()) throw Error(ErrorKind::unsupported, why_refused);
  return right ? kOk : kWrong;
}

}  // namespace tessera::cli
