// SPDX-License-Identifier: Apache-2.0
// The command line of `tessera`, read into plain values.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "analysis/cli/statistics.h"
#include "kernels/attention.h"

namespace tessera::cli {

// What the program ends with; --help lists them. The first four are ErrorKind's numbers too.
enum ExitCode { kOk = 0, kWrong = 1, kUsage = 2, kUnsupported = 3, kFinding = 4, kRegression = 5 };

enum class Verb { list, run, check, demo, bench, compare };

// One case: a kernel, its shape, and how to run it. Which sizes count depends on the kernel's kind.
struct CaseOptions {
  AttentionOptions run;
  Dtype dtype = Dtype::f16;
  std::int64_t batch = 1, heads = 4, heads_kv = 4, q_len = 256, k_len = 256, head_dim = 64;
  std::int64_t rows = 256, cols = 256, inner = 256;
  std::uint64_t seed = 1;  // of the inputs
};

// A table of attention cases: every type with every head_dim, length and mask, each with every
// configuration. What is said of a measurement: docs/benchmark.md.
struct BenchOptions {
  CaseOptions base;  // kernel, arch, exp2, target, batch, heads, seed; the rest is the table's
  std::vector<Dtype> dtypes;
  std::vector<std::int64_t> head_dims, lengths;  // lengths: q_len, and k_len unless that is given
  std::optional<std::int64_t> k_len;
  std::vector<Causal> causals;
  std::vector<std::string> configs;  // "": the default; empty: all that the target has for a case
  bool graph = true;                 // CUDA: a graph of one call, not the call itself
  bool warm = false;                 // CUDA: the L2 is left as the repetition before left it
  StopRule stop;
  std::string commit;
};

struct CompareOptions {
  std::string before, after;
  double threshold_percent = 1;  // medians that differ by less are the same
};

struct Command {
  Verb verb = Verb::list;
  CaseOptions options;
  BenchOptions bench;
  CompareOptions compare;
  std::string json;  // a file name, "-" for stdout, empty for none
};

// Throws Error. Nothing is returned when only help or the version was asked for, and was printed.
std::optional<Command> parse(int argc, char** argv);

const char* name_of(Causal causal);
const char* name_of(Align align);
const char* name_of(Numerics numerics);

}  // namespace tessera::cli
