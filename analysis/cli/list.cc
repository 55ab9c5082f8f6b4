// SPDX-License-Identifier: Apache-2.0
// `tessera list`: what there is to run, from the registry, and where, from this machine.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <string_view>
#include <vector>

#include "analysis/cli/report.h"
#include "kernels/cuda_backend.h"
#include "kernels/registry.h"
#include "sim/loader.h"

namespace tessera::cli {

void list(Output& out) {
  if (out.wants_records())
    for (const auto& kernel : nlohmann::ordered_json::parse(list_json())) out.record(kernel);

  std::FILE* to = out.text();
  for (const KernelRow& kernel : kKernels) {
    fmt::print(to, "{}: {}\n", kernel.name, kernel.title);
    fmt::print(to, "  {:<6}  {:<20}  {:<14}  {:<14}  {}\n", "arch", "config", "types", "head_dim",
               "targets");
    for (const ConfigRow& row : kRows) {
      if (row.kernel != kernel.name) continue;
      std::vector<std::string_view> types, targets;
      std::vector<int> buckets;
      for (const Dtype d : {Dtype::f32, Dtype::f16, Dtype::bf16, Dtype::field})
        if (row.has(d)) types.push_back(name_of(d));
      for (const int d : {32, 64, 96, 128})
        if (row.has_bucket(d)) buckets.push_back(d);
      if (row.has(Where::sim)) targets.push_back("sim");
      if (row.has(Where::cuda)) targets.push_back("cuda");
      fmt::print(to, "  {:<6}  {:<20}  {:<14}  {:<14}  {}\n", name_of(row.arch), row.name,
                 fmt::format("{}", fmt::join(types, " ")),
                 buckets.empty() ? "-" : fmt::format("{}", fmt::join(buckets, " ")),
                 fmt::join(targets, " "));
    }
    fmt::print(to, "\n");
  }
  fmt::print(to, "Cards that the emulator models:\n");
  for (const sim::Card& card : sim::kCards)
    fmt::print(to, "  {:<8} {}, {}\n", card.name, name_of(card.arch),
               card.measured ? "its bits were compared with the card's"
                             : "a model: nobody has compared its bits with the card's yet");
  const std::vector<std::string> levels = sim::available_isa_levels();
  fmt::print(to, "ISA levels here, best first: {}\n",
             levels.empty() ? "none; the emulator's modules were not found"
                            : fmt::format("{}", fmt::join(levels, " ")));
  const std::string why_not = cuda::why_no_device();
  fmt::print(to, "CUDA device: {}\n", why_not.empty() ? cuda::device_name() : "none: " + why_not);
}

}  // namespace tessera::cli
