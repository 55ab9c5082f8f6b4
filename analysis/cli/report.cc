// SPDX-License-Identifier: Apache-2.0
#include "analysis/cli/report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "kernels/registry.h"

namespace tessera::cli {
namespace {

using Json = nlohmann::ordered_json;

Json shape_of(const CaseOptions& o, KernelKind kind) {
  if (kind == KernelKind::attention)
    return {{"batch", o.batch}, {"heads", o.heads}, {"kv_heads", o.heads_kv},
            {"q_len", o.q_len}, {"k_len", o.k_len}, {"head_dim", o.head_dim}};
  if (kind == KernelKind::matmul) return {{"rows", o.rows}, {"cols", o.cols}, {"inner", o.inner}};
  return {{"rows", o.rows}, {"cols", o.cols}};
}

std::string shape_text(const CaseOptions& o, KernelKind kind) {
  std::string text;
  const Json shape = shape_of(o, kind);
  for (const auto& [name, size] : shape.items())
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", name, size.get<std::int64_t>());
  return text;
}

std::string upper(std::string s) {
  for (char& c : s) c = char(std::toupper(static_cast<unsigned char>(c)));
  return s;
}

Json limit(std::int64_t x) { return x == Band::kUnlimited ? Json() : Json(x); }

Json band_of_case(const CaseOptions& o) {
  const Band band = problem_of(o).band;
  return {{"left", limit(band.left)}, {"right", limit(band.right)}, {"shift", band.shift}};
}

std::string mask_text(const AttentionOptions& o) {
  std::string text = fmt::format("causal {}", name_of(o.causal));
  if (o.left) text += fmt::format(", left {}", *o.left);
  if (o.right) text += fmt::format(", right {}", *o.right);
  if (o.align) text += fmt::format(", align {}", name_of(*o.align));
  return text;
}

void print_counters(std::FILE* to, const Report& r, bool attention) {
  const Counters& c = r.counters;
  if (attention)
    fmt::print(to, "tiles     visited {}, of them masked {}; skipped {}\n",
               c.tiles_full + c.tiles_masked, c.tiles_masked, c.tiles_skipped);
  fmt::print(to, "work      blocks {}, mma {}, fma {}, exp2 {}, barriers {}\n", c.blocks, c.mma,
             c.fma, c.exp2, c.barriers);
  fmt::print(to, "global    {} bytes read, {} written; {} sectors, at best {}\n",
             c.global_load_bytes, c.global_store_bytes, c.global_sectors, c.global_sectors_ideal);
  fmt::print(to, "shared    {} bytes a block; {} wavefronts, at best {}\n", c.shared_bytes,
             c.shared_wavefronts, c.shared_wavefronts_ideal);
}

}  // namespace

Output::Output(const std::string& json) : text_(json == "-" ? stderr : stdout), name_(json) {
  if (json == "-") json_ = stdout;
  if (json.empty() || json == "-") return;
  json_ = std::fopen(json.c_str(), "a");  // emptied by the first record: a refused case spares it
  if (!json_)
    throw Error(ErrorKind::invalid_argument,
                "json: cannot write '" + json + "': " + std::strerror(errno));
}

Output::~Output() {
  if (json_ && json_ != stdout) std::fclose(json_);
}

void Output::record(const Json& record) {
  if (!json_) return;
  if (json_ != stdout && !written_) {
    written_ = true;
    if (ftruncate(fileno(json_), 0) != 0) errno = 0;  // a pipe or a device has nothing to empty
  }
  fmt::print(json_, "{}\n", record.dump());
  if (std::fflush(json_) != 0)
    throw Error(ErrorKind::invalid_argument,
                "json: writing '" + name_ + "': " + std::strerror(errno));
}

Json record_of(const CaseOptions& o, const CaseResult& result) {
  const KernelKind kind = find_kernel(result.report.kernel).kind;
  const bool sim = o.run.target == Target::sim;
  Json j = Json::parse(to_json(result.report));
  if (!sim) j["counters"] = nullptr;  // nobody counted; zeros would claim otherwise
  j["shape"] = shape_of(o, kind);
  j["causal"] = nullptr, j["band"] = nullptr, j["scale"] = nullptr;
  if (kind == KernelKind::attention) {
    j["causal"] = name_of(o.run.causal);
    j["band"] = band_of_case(o);
  }
  if (kind == KernelKind::attention && o.dtype != Dtype::field) j["scale"] = problem_of(o).scale;
  j["numerics"] = sim ? name_of(o.run.numerics) : "hardware";
  j["seed"] = o.seed;
  j["order_seed"] = o.run.order_seed;
  j["pass"] = result.pass;
  for (const OutputResult& out : result.outputs) {
    const Comparison& e = out.error;  // what is not finite becomes null: JSON has no name for it
    j["errors"][out.name] = {{"max_abs", e.max_abs},     {"tolerance", out.tolerance},
                             {"max_ratio", e.max_ratio}, {"nan_count", e.nan_count},
                             {"worst", out.worst},       {"pass", e.pass}};
    j["hash"][out.name] = out.hash;
  }
  j["flops"] = std::uint64_t(result.flops);
  j["gflops"] = result.gflops();
  return j;
}

void print(std::FILE* to, const CaseOptions& o, const CaseResult& result) {
  const Report& r = result.report;
  const KernelRow& kernel = find_kernel(r.kernel);
  const bool attention = kernel.kind == KernelKind::attention, sim = o.run.target == Target::sim;
  fmt::print(to, "kernel    {}: {}\n", kernel.name, kernel.title);
  fmt::print(to, "instance  {}\n", r.instance);
  if (sim)
    fmt::print(to,
               "target    emulator: card {}, {} numerics, ISA level {}, threads {}, checks {}\n",
               r.card, name_of(o.run.numerics), r.isa.empty() ? "(nothing ran)" : r.isa, r.threads,
               o.run.checks ? "on" : "off");
  else
    fmt::print(to, "target    {}\n", r.card);
  fmt::print(to, "shape     {}\n", shape_text(o, kernel.kind));
  if (attention)
    fmt::print(to, "mask      {}{}\n", mask_text(o.run),
               o.dtype == Dtype::field ? "" : fmt::format("; scale {:.6g}", problem_of(o).scale));
  for (const OutputResult& out : result.outputs) {
    const Comparison& e = out.error;
    fmt::print(
        to,
        "{:<9} {}: largest error {:.3g}, allowed {:.3g} there; at worst {:.3g} of what is allowed",
        upper(out.name), e.pass ? "right" : "WRONG", e.max_abs, out.tolerance, e.max_ratio);
    if (!e.pass) fmt::print(to, ", at ({})", fmt::join(out.worst, ", "));
    if (e.nan_count) fmt::print(to, "; {} NaNs", e.nan_count);
    fmt::print(to, "\n");
  }
  if (sim) print_counters(to, r, attention);
  fmt::print(to, "speed     {:.4g} s, {:.3g} GFLOP/s{}\n", r.seconds, result.gflops(),
             attention ? " over the visible pairs" : "");
  for (const OutputResult& out : result.outputs)
    fmt::print(to, "hash      {:<4}{}\n", upper(out.name), out.hash);
  for (const Finding& f : r.findings)
    fmt::print(to, "finding   [{}] {}{}\n", f.check, f.message,
               f.count > 1 ? fmt::format(" ({} times)", f.count) : "");
  if (o.run.checks && r.findings.empty()) fmt::print(to, "findings  none\n");
}

}  // namespace tessera::cli
