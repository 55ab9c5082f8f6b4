// SPDX-License-Identifier: Apache-2.0
// How a result is shown: a table for people, a JSON record for programs.
#pragma once
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>

#include "analysis/cli/case.h"

namespace tessera::cli {

// Where a command writes: its records to --json, its text to stdout, or to stderr when the records
// have stdout.
class Output {
 public:
  explicit Output(const std::string& json);  // throws Error if the file cannot be written
  ~Output();
  Output(const Output&) = delete;

  std::FILE* text() const { return text_; }
  bool wants_records() const { return json_ != nullptr; }
  void record(const nlohmann::ordered_json& record);  // one line

 private:
  std::FILE* text_;
  std::FILE* json_ = nullptr;
  bool written_ = false;
  std::string name_;
};

// One record a case: the library's own (kernel, instance, target, arch, card, config, dtype, exp2,
// isa, threads, seconds, counters (of the emulator, else null), findings) and
//   shape {batch, heads, kv_heads, q_len, k_len, head_dim | rows, cols, inner | rows, cols}
//   causal "none" | "top-left" | "bottom-right", scale; both null where they have no meaning, as is
//   band {left, right (null: no limit), shift}: key j is seen if -left <= j - (i + shift) <= right
//   numerics "exact" | "fma", on a GPU "hardware"; seed, order_seed; pass
//   errors {o, lse | c | y}, each {max_abs: the largest error, tolerance: what is allowed there,
//     max_ratio: the largest error / tolerance of all, worst: where that is, nan_count, pass}
//   hash, with the same names; flops of the visible pairs, gflops
nlohmann::ordered_json record_of(const CaseOptions& options, const CaseResult& result);
void print(std::FILE* to, const CaseOptions& options, const CaseResult& result);

void list(Output& out);

}  // namespace tessera::cli
