// SPDX-License-Identifier: Apache-2.0
// Seeded faults in tiny kernels: what every one of them asserts. The checks that speak must be the
// expected ones, and no others, whatever order blocks and warps run in and on any number of host
// threads.
#pragma once
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "sim/checker.h"
#include "tests/sim/run_kernel.h"

namespace tessera::faults {

using sim::GlobalTensor;
using sim::lanes_of;
using sim::Line;
using sim::mask_of;
using sim::matrix;
using sim::Outcome;
using sim::Role;
using sim::run_kernel;
using sim::RunOptions;
using sim::vector;

inline std::string describe(const Outcome& o) {
  std::string s = o.error;
  for (const Finding& f : o.findings)
    s += "\n" + f.check + " x" + std::to_string(f.count) + ": " + f.message;
  return s;
}

// The launch in ascending order on one thread, after the verdict has been found the same
// everywhere.
template <class F>
Outcome expect_verdict(RunOptions run, const F& body, const std::set<std::string>& checks) {
  run.checks = true;
  Outcome first;
  for (u64 seed = 0; seed < 10; seed++)
    for (int threads : {1, 2, 4}) {
      run.order_seed = seed, run.threads = threads;
      const Outcome o = run_kernel(run, body);
      std::set<std::string> found;
      for (const Finding& f : o.findings) found.insert(f.check);
      EXPECT_EQ(found, checks) << "seed " << seed << ", " << threads << " threads" << describe(o);
      EXPECT_EQ(o.error, "");
      if (seed == 0 && threads == 1) first = o;
    }
  return first;
}
template <class F>
void expect_silence(const RunOptions& run, const F& body) {
  expect_verdict(run, body, {});
}

// A finding of `check` whose message has all parts.
inline void expect_message(const Outcome& o, const std::string& check,
                           const std::vector<std::string>& parts) {
  for (const Finding& f : o.findings) {
    bool all = f.check == check;
    for (const std::string& part : parts) all = all && f.message.find(part) != std::string::npos;
    if (all) return;
  }
  std::string wanted;
  for (const std::string& part : parts) wanted += " [" + part + "]";
  ADD_FAILURE() << "no " << check << " with" << wanted << ", but" << describe(o);
}

// In whatever order an unordered pair ran, its finding names both lines.
template <class F>
void expect_both_lines(RunOptions run, const F& body, const std::string& check,
                       const std::string& file, const Line& a, const Line& b) {
  run.checks = true;
  for (u64 seed = 0; seed < 10; seed++) {
    run.order_seed = seed;
    expect_message(run_kernel(run, body), check, {a.at(file), b.at(file)});
  }
}

}  // namespace tessera::faults
