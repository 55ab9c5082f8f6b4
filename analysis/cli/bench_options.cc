// SPDX-License-Identifier: Apache-2.0
#include "analysis/cli/bench_options.h"

#include <algorithm>

#include "analysis/cli/refuse.h"
#include "kernels/registry.h"

namespace tessera::cli {
namespace {

// The tutorial's table on a GPU; on the emulator what takes seconds.
const std::vector<std::int64_t> kLengthsOnGpu = {512, 1024, 2048, 4096};
const std::vector<std::int64_t> kLengthsOnEmulator = {256, 512, 1024};
constexpr StopRule kStopOnGpu{0.02, 20, 200}, kStopOnEmulator{0.1, 3, 10};

// The entries of a list that commas separate, each once, as values; nothing for an empty text.
template <class F>
auto each(const char* flag, const std::string& list, F parse) {
  std::vector<decltype(parse(list))> values;
  for (std::size_t begin = 0; !list.empty() && begin <= list.size();) {
    const std::size_t end = std::min(list.find(',', begin), list.size());
    const std::string text = list.substr(begin, end - begin);
    if (text.empty()) invalid(std::string(flag) + ": an entry of '" + list + "' is empty");
    const auto value = parse(text);
    if (std::find(values.begin(), values.end(), value) != values.end())
      invalid(std::string(flag) + ": " + text + " is there twice");
    values.push_back(value);
    begin = end + 1;
  }
  return values;
}

std::vector<Causal> causals_of(const std::string& list) {
  if (list == "both") return {Causal::none, Causal::top_left};
  return each("--causal", list, [](const std::string& text) {
    for (const Causal c : {Causal::none, Causal::top_left, Causal::bottom_right})
      if (text == name_of(c)) return c;
    fail_unknown(ErrorKind::invalid_argument, "causal", text,
                 {"none", "top-left", "bottom-right", "both"});
  });
}

}  // namespace

std::int64_t parse_length(const std::string& flag, const std::string& text) {
  const bool kilo = text.ends_with("k");
  const std::string digits = text.substr(0, text.size() - kilo);
  if (const std::string why = why_no_number<std::int64_t>(digits); !why.empty())
    invalid(flag + ": " + why + (kilo ? " before the k" : ""));
  std::int64_t value = std::stoll(digits);
  if (kilo && __builtin_mul_overflow(value, 1024, &value))
    invalid(flag + ": '" + text + "' is out of range");
  return value;
}

BenchFlags::BenchFlags(CLI::App* sub) : sub_(sub) {
  AttentionOptions& run = given_.base.run;
  const auto flag = [&](const char* group, const char* name, auto& value, const char* what,
                        const char* type) { add_flag(sub, group, name, value, what, type); };
  const char* table = "The table";
  sub->add_option("kernel,--kernel", run.kernel,
                  "An attention kernel, as `tessera list` shows it (default flash_forward)");
  flag(table, "--n", lengths_,
       "Queries, and keys unless --k-len says otherwise; 4k is 4096. 512,1k,2k,4k; on the "
       "emulator 256,512,1k",
       "N,...");
  flag(table, "--k-len", k_len_, "Keys; as many as queries by default", "N");
  flag(table, "--head-dim", head_dims_, "64 by default", "N,...");
  flag(table, "--dtype", dtypes_, "bf16 (default), f16, f32", "TYPE,...");
  flag(table, "--causal", causals_, "none, top-left, bottom-right; both (default): none,top-left",
       "MASK,...");
  flag(table, "--batch", batch_, "4 by default; on the emulator 1", "N");
  flag(table, "--heads", heads_, "Query heads; 8 by default; on the emulator 2", "N");
  flag(table, "--kv-heads,--heads-kv", heads_kv_, "Key heads, a divisor of the heads; the same",
       "N");
  flag(table, "--seed", given_.base.seed, "Of the inputs; 1 by default", "N");

  const char* what = "What runs";
  flag(what, "--target", target_, "sim (default): the emulator; cuda: this machine's GPU", "WHERE");
  flag(what, "--arch", run.arch, "Whose code: sm_75, sm_89, sm_90", "ARCH");
  flag(what, "--config", configs_,
       "Configurations, as `tessera list` shows them; all: every one for the case. They take turns",
       "NAME,...");
  flag(what, "--exp2", run.exp2, "soft (emulator's default) or hardware (GPU's default)", "HOW");

  const char* timing = "Timing";
  flag(timing, "--noise", noise_,
       "Repeat until p20 to p80 is this part of the median: 2 (percent; on the emulator 10)",
       "PERCENT");
  flag(timing, "--min-repetitions", least_, "20; on the emulator 3", "N");
  flag(timing, "--max-repetitions", most_, "200; on the emulator 10", "N");
  flag(timing, "--launch", launch_, "graph (default): a CUDA graph of one call; call: the call",
       "HOW");
  sub->add_flag("--warm", given_.warm, "Leave the L2 as it is; else it is written over each time")
      ->group(timing);
  flag(timing, "--commit", given_.commit, "Of the sources, for the record", "TEXT");
}

BenchOptions BenchFlags::options() const {
  BenchOptions b = given_;
  CaseOptions& base = b.base;
  if (base.run.kernel.empty()) base.run.kernel = "flash_forward";
  refuse_misspelt(base.run);
  if (find_kernel(base.run.kernel).kind != KernelKind::attention)
    invalid("kernel: " + base.run.kernel + " is no attention kernel, and only these are timed");
  if (target_ != "sim" && target_ != "cuda")
    fail_unknown(ErrorKind::invalid_argument, "target", target_, {"sim", "cuda"});
  const bool gpu = target_ == "cuda";
  base.run.target = gpu ? Target::cuda : Target::sim;
  if (!base.run.arch.empty()) parse_arch(base.run.arch);
  if (!base.run.exp2.empty() && base.run.exp2 != "soft" && base.run.exp2 != "hardware")
    fail_unknown(ErrorKind::invalid_argument, "exp2", base.run.exp2, {"soft", "hardware"});
  for (const char* name : {"--warm", "--launch"})
    if (!gpu && sub_->count(name)) invalid(std::string(name) + ": it is a GPU's; target is sim");
  if (launch_ != "graph" && launch_ != "call")
    fail_unknown(ErrorKind::invalid_argument, "launch", launch_, {"graph", "call"});
  // The emulator has no graph, and nothing that a flush would empty.
  b.graph = gpu && launch_ == "graph";
  b.warm = !gpu || given_.warm;

  b.lengths = each("--n", lengths_, [](const auto& t) { return parse_length("--n", t); });
  if (b.lengths.empty()) b.lengths = gpu ? kLengthsOnGpu : kLengthsOnEmulator;
  b.head_dims = each("--head-dim", head_dims_,
                     [](const auto& t) { return parse_length("--head-dim", t); });
  if (!k_len_.empty()) b.k_len = parse_length("--k-len", k_len_);
  b.dtypes = each("--dtype", dtypes_, [](const auto& text) {
    const Dtype d = parse_dtype(text);
    if (d == Dtype::field) invalid("--dtype: field elements are exact, and not timed");
    return d;
  });
  b.causals = causals_of(causals_);
  base.batch = batch_.value_or(gpu ? 4 : 1);
  base.heads = heads_.value_or(gpu ? 8 : 2);
  base.heads_kv = heads_kv_.value_or(base.heads);

  if (configs_.empty()) {
    b.configs = {""};
  } else if (configs_ != "all") {
    b.configs = each("--config", configs_, [&](const auto& name) {
      AttentionOptions o = base.run;
      o.config = name;
      refuse_misspelt(o);
      return name;
    });
  }

  b.stop = gpu ? kStopOnGpu : kStopOnEmulator;
  if (noise_) b.stop.noise = *noise_ / 100;
  if (!(b.stop.noise >= 0 && b.stop.noise <= 10)) invalid("--noise: a percentage from 0 to 1000");
  if (least_) b.stop.least = *least_;
  if (most_) b.stop.most = *most_;
  if (least_ && !most_) b.stop.most = std::max(b.stop.most, b.stop.least);
  if (most_ && !least_) b.stop.least = std::min(b.stop.most, b.stop.least);
  if (b.stop.least < 1) invalid("--min-repetitions: at least 1");
  if (b.stop.most < b.stop.least)
    invalid("--max-repetitions: " + std::to_string(b.stop.most) + " is less than the minimum, " +
            std::to_string(b.stop.least));
  return b;
}

}  // namespace tessera::cli
