// SPDX-License-Identifier: Apache-2.0
// The flags of `tessera bench`.
#pragma once
#include <CLI/CLI.hpp>
#include <optional>
#include <string>

#include "analysis/cli/options.h"

namespace tessera::cli {

// Lives as long as the parsing: `sub` writes into it.
class BenchFlags {
 public:
  explicit BenchFlags(CLI::App* sub);
  BenchFlags(const BenchFlags&) = delete;
  // After the parsing. Throws Error naming the flag.
  BenchOptions options() const;

 private:
  CLI::App* sub_;
  BenchOptions given_;
  std::string lengths_, head_dims_ = "64", dtypes_ = "bf16", causals_ = "both", configs_;
  std::optional<std::int64_t> batch_, heads_, heads_kv_;
  std::string k_len_, target_ = "sim", launch_ = "graph";
  std::optional<double> noise_;
  std::optional<int> least_, most_;
};

// "512", "4k" (4096). Throws Error naming the flag.
std::int64_t parse_length(const std::string& flag, const std::string& text);

}  // namespace tessera::cli
