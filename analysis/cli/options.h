// SPDX-License-Identifier: Apache-2.0
// The command line of `tessera`, read into plain values.
#pragma once
#include <cstdint>
#include <optional>
#include <string>

#include "kernels/attention.h"

namespace tessera::cli {

// What the program ends with; --help lists them. The first four are ErrorKind's numbers too.
enum ExitCode { kOk = 0, kWrong = 1, kUsage = 2, kUnsupported = 3, kFinding = 4, kRegression = 5 };

enum class Verb { list, run, check, demo };

// One case: a kernel, its shape, and how to run it. Which sizes count depends on the kernel's kind.
struct CaseOptions {
  AttentionOptions run;
  Dtype dtype = Dtype::f16;
  std::int64_t batch = 1, heads = 4, heads_kv = 4, q_len = 256, k_len = 256, head_dim = 64;
  std::int64_t rows = 256, cols = 256, inner = 256;
  std::uint64_t seed = 1;  // of the inputs
};

struct Command {
  Verb verb = Verb::list;
  CaseOptions options;
  std::string json;  // a file name, "-" for stdout, empty for none
};

// Throws Error. Nothing is returned when only help or the version was asked for, and was printed.
std::optional<Command> parse(int argc, char** argv);

const char* name_of(Causal causal);
const char* name_of(Align align);
const char* name_of(Numerics numerics);

}  // namespace tessera::cli
