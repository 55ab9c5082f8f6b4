// SPDX-License-Identifier: Apache-2.0
#include <fmt/chrono.h>
#include <fmt/format.h>

#include <ctime>
#include <fstream>

#include "analysis/cli/bench.h"
#include "analysis/cli/case.h"
#include "kernels/cuda_timing.h"
#include "kernels/registry.h"

namespace tessera::cli {
namespace {

using Json = nlohmann::ordered_json;

Json text_or_null(const std::string& s) { return s.empty() ? Json() : Json(s); }

Json clocks(const BenchOptions& o) {
  if (o.base.run.target != Target::cuda) return nullptr;
  const std::optional<cuda::Clocks> c = cuda::clocks_under_load();
  if (!c) return nullptr;
  return {{"sm_mhz", c->sm_mhz},
          {"memory_mhz", c->memory_mhz},
          {"max_sm_mhz", c->max_sm_mhz},
          {"power_w", c->power_w},
          {"temperature_c", c->temperature_c}};
}

Json limit(Dtype d) {
  try {
    return cuda::rate_limit(d);
  } catch (const Error& e) {  // bf16 on Turing
    if (e.kind != ErrorKind::unsupported) throw;
    return nullptr;
  }
}

Json limits(const BenchOptions& o) {
  if (o.base.run.target != Target::cuda) return nullptr;
  return {{"mma_tflops", {{"f16", limit(Dtype::f16)}, {"bf16", limit(Dtype::bf16)}}},
          {"ffma_tflops", limit(Dtype::f32)}};
}

std::string cpu() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("model name")) return line.substr(line.find(": ") + 2);
  return "";
}

const char* record_name(Causal c) {  // the key of a record; the command's flag has a hyphen
  return c == Causal::none ? "none" : c == Causal::top_left ? "top_left" : "bottom_right";
}

const char* launch_of(const BenchOptions& o) { return o.graph ? "graph" : "call"; }

Json options_record(const BenchOptions& o) {
  Json dtypes = Json::array(), causals = Json::array(), configs = Json::array();
  for (const Dtype d : o.dtypes) dtypes.push_back(name_of(d));
  for (const Causal c : o.causals) causals.push_back(record_name(c));
  for (const std::string& c : o.configs) configs.push_back(c.empty() ? "default" : c);
  return {{"kernel", o.base.run.kernel},
          {"arch", text_or_null(o.base.run.arch)},
          {"configs", o.configs.empty() ? Json("all") : configs},
          {"exp2", text_or_null(o.base.run.exp2)},
          {"dtypes", dtypes},
          {"head_dims", o.head_dims},
          {"q_lens", o.lengths},
          {"k_len", o.k_len ? Json(*o.k_len) : Json()},
          {"causals", causals},
          {"batch", o.base.batch},
          {"heads", o.base.heads},
          {"heads_kv", o.base.heads_kv},
          {"launch", launch_of(o)},
          {"warm", o.warm},
          {"noise", o.stop.noise},
          {"min_repetitions", o.stop.least},
          {"max_repetitions", o.stop.most},
          {"seed", o.base.seed}};
}

}  // namespace

Json run_record(const BenchOptions& o, const std::string& card) {
  const bool gpu = o.base.run.target == Target::cuda;
  return {{"record", "run"},
          {"tool", "tessera bench"},
          {"version", TESSERA_VERSION},
          {"commit", text_or_null(o.commit)},
          {"date", fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::time(nullptr)))},
          {"target", gpu ? "cuda" : "sim"},
          {"card", text_or_null(card)},
          {"cpu", text_or_null(cpu())},
          {"driver", gpu ? text_or_null(cuda::driver_version()) : Json()},
          {"toolkit", gpu ? text_or_null(cuda::toolkit_version()) : Json()},
          {"torch", nullptr},
          {"clocks_before", clocks(o)},
          {"limits", limits(o)},
          {"options", options_record(o)}};
}

Json row_record(const BenchOptions& o, const Measurement& m) {
  const CaseOptions& c = m.options;
  const AttentionOptions& run = c.run;
  const Report& r = m.report;  // what was asked for stands in where it was refused
  Json j = {{"record", "row"},
            {"provider", "tessera"},
            {"kernel", run.kernel},
            {"arch", text_or_null(r.arch.empty() ? run.arch : r.arch)},
            {"config", text_or_null(r.config.empty() ? run.config : r.config)},
            {"instance", text_or_null(r.instance)},
            {"exp2", text_or_null(r.exp2.empty() ? run.exp2 : r.exp2)},
            {"dtype", name_of(c.dtype)},
            {"batch", c.batch},
            {"heads", c.heads},
            {"heads_kv", c.heads_kv},
            {"q_len", c.q_len},
            {"k_len", c.k_len},
            {"head_dim", c.head_dim},
            {"causal", record_name(run.causal)},
            {"pairs", m.pairs},
            {"flop", std::uint64_t(m.flop)},
            {"launch", launch_of(o)},
            {"warm", o.warm},
            {"status", name_of(m.status)},
            {"reason", text_or_null(m.reason)},
            {"ms", nullptr},
            {"tflops", nullptr},
            {"error", nullptr},
            {"call_us", m.call_us ? Json(*m.call_us) : Json()},
            {"baseline", nullptr},
            {"percent_of_sdpa", nullptr},
            {"counters", nullptr}};
  if (m.ms) {
    j["ms"] = {{"median", m.ms->median},
               {"p20", m.ms->p20},
               {"p80", m.ms->p80},
               {"min", m.ms->min},
               {"count", m.ms->count}};
    j["tflops"] = m.tflops();
  }
  if (m.error)
    j["error"] = {{"max_abs", m.error->max_abs},
                  {"relative", m.error->relative},
                  {"against", m.error->against}};
  if (run.target == Target::sim && !r.instance.empty())
    j["counters"] = Json::parse(to_json(r)).at("counters");
  return j;
}

Json end_record(const BenchOptions& o, double seconds) {
  return {{"record", "end"}, {"clocks_after", clocks(o)}, {"seconds", seconds}};
}

}  // namespace tessera::cli
