// SPDX-License-Identifier: Apache-2.0
#include "analysis/cli/refuse.h"

#include <algorithm>

#include "kernels/registry.h"

namespace tessera::cli {
namespace {

const Names kAttentionFlags = {"--batch", "--heads",    "--kv-heads", "--q-len",
                               "--k-len", "--head-dim", "--causal",   "--left",
                               "--right", "--align",    "--scale",    "--exp2"};
const Names kMatmulFlags = {"--rows", "--cols", "--inner"};
const Names kWeightedSumFlags = {"--rows", "--cols"};
const Names kEmulatorFlags = {"--card", "--numerics", "--isa", "--threads", "--order-seed"};

const Names& flags_of(KernelKind kind) {
  return kind == KernelKind::attention ? kAttentionFlags
         : kind == KernelKind::matmul  ? kMatmulFlags
                                       : kWeightedSumFlags;
}

Names names_of_flags(const CLI::App* sub) {
  Names names;
  for (const CLI::Option* option : sub->get_options())
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  return names;
}

}  // namespace

void invalid(const std::string& message) { throw Error(ErrorKind::invalid_argument, message); }

void refuse_unknown(const CLI::App* sub) {
  const Names extras = sub->remaining();
  if (extras.empty()) return;
  const auto is_flag = [](const std::string& s) { return s.size() > 1 && s[0] == '-'; };
  const auto flag = std::find_if(extras.begin(), extras.end(), is_flag);
  if (flag == extras.end()) invalid("unexpected argument '" + extras.front() + "'");
  fail_unknown(ErrorKind::invalid_argument, "flag", flag->substr(0, flag->find('=')),
               names_of_flags(sub));
}

void refuse_meaningless(const CLI::App* sub, const Command& c, const KernelRow& kernel) {
  const auto given = [&](const std::string& flag) { return sub->count(flag) > 0; };
  const Names& own = flags_of(kernel.kind);
  for (const Names* all : {&kAttentionFlags, &kMatmulFlags}) {
    for (const std::string& flag : *all) {
      if (!given(flag) || std::find(own.begin(), own.end(), flag) != own.end()) continue;
      std::string have;
      for (const std::string& f : own) have += (have.empty() ? "" : ", ") + f;
      invalid(flag + ": " + std::string(kernel.name) +
              " has no such dimension or setting; it has " + have);
    }
  }
  if (c.options.run.target == Target::cuda)
    for (const std::string& flag : kEmulatorFlags)
      if (given(flag)) invalid(flag + ": it is the emulator's; target is cuda");
  if (c.options.dtype == Dtype::field && given("--scale"))
    invalid("--scale: the scores of field elements are not scaled");
}

void refuse_misspelt(const Options& o) {
  Names kernels, configs;
  for (const KernelRow& k : kKernels) kernels.emplace_back(k.name);
  if (std::find(kernels.begin(), kernels.end(), o.kernel) == kernels.end())
    fail_unknown(ErrorKind::invalid_argument, "kernel", o.kernel, kernels);
  for (const ConfigRow& r : kRows)
    if (r.kernel == o.kernel && std::find(configs.begin(), configs.end(), r.name) == configs.end())
      configs.emplace_back(r.name);
  if (!o.config.empty() && std::find(configs.begin(), configs.end(), o.config) == configs.end())
    fail_unknown(ErrorKind::invalid_argument, "config", o.config, configs);
}

}  // namespace tessera::cli
