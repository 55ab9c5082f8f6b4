// SPDX-License-Identifier: Apache-2.0
#include "analysis/cli/bench_case.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <functional>
#include <limits>
#include <memory>

#include "analysis/cli/case.h"
#include "analysis/cli/memory.h"
#include "kernels/cuda_timing.h"
#include "reference/hash.h"
#include "reference/inputs.h"
#include "reference/sample.h"

namespace tessera::cli {
namespace {

constexpr int kSample = 64;           // rows that are compared with float64
constexpr int kWarmUp = 5;            // repetitions, on a GPU
constexpr int kCalls = 50;            // timed on the host
constexpr double kClockSlack = 1.02;  // clocks may rise between the limit's measurement and a run

using Call = std::function<Report()>;

// Times calls: on a GPU by events, on the emulator by what a launch reports.
class Timer {
 public:
  explicit Timer(const BenchOptions& b) {
    using Launch = cuda::Stopwatch::Launch;
    if (b.base.run.target == Target::cuda)
      stopwatch_.emplace(b.graph ? Launch::graph : Launch::call, b.warm);
  }

  void* stream() const { return stopwatch_ ? stopwatch_->stream() : nullptr; }

  // Calls once, and returns the report of that.
  Report add(Call call) {
    const auto report = std::make_shared<Report>();
    const auto reported = [report, call] { *report = call(); };
    if (stopwatch_)
      stopwatch_->add(reported);
    else
      reported();
    calls_.push_back(std::move(call));
    return *report;
  }

  void run(int number) {
    if (stopwatch_)
      stopwatch_->run(number);
    else
      calls_[std::size_t(number)]();
  }

  // Milliseconds of each of `order`.
  std::vector<double> round(const std::vector<int>& order) {
    if (stopwatch_) return stopwatch_->round(order);
    std::vector<double> times;
    for (const int number : order) times.push_back(calls_[std::size_t(number)]().seconds * 1e3);
    return times;
  }

  // Microseconds until an asynchronous call returns; none on the emulator, which waits.
  std::optional<double> call_us(int number) {
    if (!stopwatch_) return std::nullopt;
    std::vector<double> times;
    for (int i = 0; i < kCalls; ++i) {
      const auto start = std::chrono::steady_clock::now();
      calls_[std::size_t(number)]();
      const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() -
                                                             start;
      times.push_back(took.count());
    }
    stopwatch_->wait();
    return quantile(times, 0.5);
  }

 private:
  std::optional<cuda::Stopwatch> stopwatch_;
  std::vector<Call> calls_;
};

struct Inputs {
  Inputs(const CaseOptions& c)
      : q("q", c.dtype, {c.batch, c.heads, c.q_len, c.head_dim}, c.run.target),
        k("k", c.dtype, {c.batch, c.heads_kv, c.k_len, c.head_dim}, c.run.target),
        v("v", c.dtype, {c.batch, c.heads_kv, c.k_len, c.head_dim}, c.run.target) {
    q.fill_input(c.seed, 0), k.fill_input(c.seed, 1), v.fill_input(c.seed, 2);
  }
  Array q, k, v;
};

struct Outputs {
  explicit Outputs(const CaseOptions& c)
      : o("o", c.dtype, {c.batch, c.heads, c.q_len, c.head_dim}, c.run.target),
        lse("lse", Dtype::f32, {c.batch, c.heads, c.q_len}, c.run.target) {}

  void poison() { o.poison(), lse.poison(); }
  // The bits of both.
  std::pair<std::uint64_t, std::uint64_t> read() {
    o.download(), lse.download();
    return {hash_elements(o.dtype(), o.host(), o.count()),
            hash_elements(lse.dtype(), lse.host(), lse.count())};
  }
  Array o, lse;
};

// Empty if every element of O is finite, and of LSE but where a query sees no key.
std::string why_not_finite(const Outputs& out, const Problem& p) {
  for (std::int64_t i = 0; i < out.o.count(); ++i)
    if (const double x = widen(out.o.dtype(), out.o.host(), i); !std::isfinite(x))
      return fmt::format("o: element {} is {}", i, x);
  constexpr double kInf = std::numeric_limits<double>::infinity();
  for (std::int64_t i = 0; i < out.lse.count(); ++i) {
    const double x = widen(out.lse.dtype(), out.lse.host(), i);
    if (!std::isfinite(x) && !(x == -kInf && visible_keys(p, i % p.q_len) == 0))
      return fmt::format("lse: element {} is {}", i, x);
  }
  return "";
}

// What the outputs are compared with.
struct Expected {
  Expected(const Problem& p, Dtype dtype, const Inputs& in)
      : rows(sample_rows(p, kSample)),
        result(attention_of_rows(p, dtype, in.q.host(), in.k.host(), in.v.host(), rows)) {}
  std::vector<SampleRow> rows;
  SampledResult result;
};

// Compares the sampled rows; returns why they are wrong, empty if they are right.
std::string compare_sample(const Outputs& out, const Problem& p, const Expected& expected,
                           double exp2_error, SampleError& error) {
  std::vector<double> o, lse;
  for (const SampleRow& row : expected.rows) {
    const std::int64_t r = row.head * p.q_len + row.query;
    for (std::int64_t d = 0; d < p.head_dim; ++d)
      o.push_back(widen(out.o.dtype(), out.o.host(), r * p.head_dim + d));
    lse.push_back(widen(out.lse.dtype(), out.lse.host(), r));
  }
  const SampledResult& right = expected.result;
  std::vector<double> tolerance_o = right.tolerance_o, tolerance_lse = right.tolerance_lse;
  for (std::size_t i = 0; i < o.size(); ++i) tolerance_o[i] += 2 * exp2_error * right.abs_pv[i];
  for (double& t : tolerance_lse) t += exp2_error;

  const Comparison of_o = compare(o, right.o, tolerance_o);
  const Comparison of_lse = compare(lse, right.lse, tolerance_lse);
  double wrong = 0, whole = 0;
  for (std::size_t i = 0; i < o.size(); ++i)
    wrong += (o[i] - right.o[i]) * (o[i] - right.o[i]), whole += right.o[i] * right.o[i];
  error = {of_o.max_abs, whole > 0 ? std::sqrt(wrong / whole) : std::sqrt(wrong),
           fmt::format("float64, {} rows", expected.rows.size())};
  const auto says = [&](const char* what, const Comparison& c, std::int64_t a_row) {
    const SampleRow& row = expected.rows[std::size_t(c.worst_index / a_row)];
    return fmt::format("{}: an error {:.3g} times what is allowed, in batch {}, head {}, query {}",
                       what, c.max_ratio, row.head / p.heads, row.head % p.heads, row.query);
  };
  return !of_o.pass ? says("o", of_o, p.head_dim) : !of_lse.pass ? says("lse", of_lse, 1) : "";
}

struct Contender {
  Measurement* m;
  Outputs out;
  int number = -1;  // of the timer
  std::pair<std::uint64_t, std::uint64_t> bits{};

  void fail(Status status, std::string reason) {
    m->status = status, m->reason = std::move(reason);
  }
};

// The contenders that ran, each with its first report.
std::vector<std::unique_ptr<Contender>> start(std::vector<Measurement>& all, const Inputs& in,
                                              Timer& timer) {
  std::vector<std::unique_ptr<Contender>> started;
  int number = 0;
  for (Measurement& m : all) {
    if (m.status == Status::refused) continue;
    auto c = std::make_unique<Contender>(Contender{&m, Outputs(m.options)});
    AttentionOptions options = m.options.run;
    options.stream = timer.stream();
    const Tensor q = in.q.tensor(), k = in.k.tensor(), v = in.v.tensor(), o = c->out.o.tensor(),
                 lse = c->out.lse.tensor();
    try {
      m.report = timer.add([=] { return attention(q, k, v, o, &lse, options); });
    } catch (const Error& e) {
      if (e.kind != ErrorKind::unsupported) throw;
      c->fail(Status::refused, e.what());
      continue;
    }
    c->number = number++;
    started.push_back(std::move(c));
  }
  return started;
}

void check_before(Contender& c, const Problem& p, const Expected& expected, Timer& timer) {
  c.out.poison();
  timer.run(c.number);
  c.bits = c.out.read();
  SampleError error;
  std::string why = compare_sample(c.out, p, expected, exp2_allowance(c.m->report, p), error);
  c.m->error = error;
  if (why.empty()) why = why_not_finite(c.out, p);
  if (!c.m->report.findings.empty()) why = c.m->report.findings.front().message;
  if (!why.empty()) c.fail(Status::wrong, why);
}

void time_all(std::vector<Contender*> racing, const BenchOptions& bench, Timer& timer) {
  const int n = int(racing.size());
  std::vector<std::vector<double>> times(racing.size());
  const int warm_up = bench.base.run.target == Target::cuda ? kWarmUp : 0;
  for (int repetition = 0; n && !bench.stop.enough(times); ++repetition) {
    const std::vector<int> order = turn(n, repetition);
    std::vector<int> numbers;
    for (const int i : order) numbers.push_back(racing[std::size_t(i)]->number);
    const std::vector<double> round = timer.round(numbers);
    for (std::size_t i = 0; i < order.size() && repetition >= warm_up; ++i)
      times[std::size_t(order[i])].push_back(round[i]);
  }
  for (std::size_t i = 0; i < racing.size(); ++i) {
    Measurement& m = *racing[i]->m;
    m.ms = spread_of(times[i]);
    if (m.ms->noise() > bench.stop.noise)
      racing[i]->fail(Status::noisy,
                      fmt::format("p20 to p80 is {:.1f} % of the median after {} repetitions",
                                  100 * m.ms->noise(), m.ms->count));
  }
}

}  // namespace

const char* name_of(Status s) {
  constexpr const char* kNames[] = {"ok", "noisy", "refused", "wrong", "impossible"};
  return kNames[int(s)];
}

void measure(std::vector<Measurement>& contenders, const BenchOptions& bench,
             std::optional<double> limit) {
  const auto runs = [](const Measurement& m) { return m.status != Status::refused; };
  const auto first = std::find_if(contenders.begin(), contenders.end(), runs);
  if (first == contenders.end()) return;
  const Inputs in(first->options);
  const Problem p = problem_of(first->options);
  Timer timer(bench);
  const std::vector<std::unique_ptr<Contender>> started = start(contenders, in, timer);
  if (started.empty()) return;

  const Expected expected(p, first->options.dtype, in);
  std::vector<Contender*> racing;
  for (const auto& c : started) {
    check_before(*c, p, expected, timer);
    if (c->m->status == Status::ok) racing.push_back(c.get());
  }
  time_all(racing, bench, timer);
  for (Contender* c : racing) {
    c->m->call_us = timer.call_us(c->number);
    if (c->out.read() != c->bits)
      c->fail(Status::wrong, "the bits of O or LSE after the timing are not those before it");
    else if (limit && c->m->tflops() > kClockSlack * *limit)
      c->fail(Status::impossible,
              fmt::format("{:.4g} TFLOP/s; the card multiplies at {:.4g}", c->m->tflops(), *limit));
  }
}

}  // namespace tessera::cli
