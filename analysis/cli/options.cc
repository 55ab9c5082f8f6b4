// SPDX-License-Identifier: Apache-2.0
// Flags are read as text wherever the library knows the names: it then words the message, and the
// same mistake reads the same in C++, C, Python and here.
#include "analysis/cli/options.h"

#include <CLI/CLI.hpp>
#include <algorithm>

#include "analysis/cli/bench_options.h"
#include "analysis/cli/refuse.h"
#include "kernels/registry.h"

namespace tessera::cli {
namespace {

constexpr const char* kExitCodes =
    "Exit codes:\n"
    "  0  everything right\n"
    "  1  a result is wrong\n"
    "  2  usage: a flag, a value or a shape is invalid\n"
    "  3  nothing here runs this case, or there is no device\n"
    "  4  the emulator found a fault in the kernel\n"
    "  5  a measurement is worse than its baseline\n"
    "Results go to stdout, messages to stderr.";

// Flags as they were given; empty where the default depends on another flag.
struct Given {
  std::string dtype = "f16", causal = "none", align, target = "sim", numerics = "exact";
  std::optional<std::int64_t> heads_kv, k_len, left, right;
  std::optional<double> scale;
};

// The arguments, last one first, as CLI11 wants them. `--causal WHICH` becomes `--causal=WHICH`:
// the flag alone has a meaning too, so CLI11 does not look at the next word.
Names words_of(int argc, char** argv) {
  Names words;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    const bool joins = !words.empty() && words.back() == "--causal" &&
                       (word == "top-left" || word == "bottom-right" || word == "none");
    if (joins)
      words.back() += "=" + word;
    else
      words.push_back(word);
  }
  std::reverse(words.begin(), words.end());
  return words;
}

void add_json(CLI::App* sub, Command& c) {
  sub->add_option("--json", c.json,
                  "Write one JSON record a line to FILE, or to stdout (-); text then goes to "
                  "stderr. A number that is not finite is null")
      ->type_name("FILE|-");
}

void add_case(CLI::App* sub, Command& c, Given& given) {
  CaseOptions& o = c.options;
  sub->add_option("kernel", o.run.kernel, "As `tessera list` shows it (default flash_forward)");
  const auto flag = [&](const char* group, const char* name, auto& value, const char* what,
                        const char* type) { add_flag(sub, group, name, value, what, type); };
  const char* shape = "Shape, attention kernels";
  flag(shape, "--batch", o.batch, "1 by default", "N");
  flag(shape, "--heads", o.heads, "Query heads; 4 by default", "N");
  flag(shape, "--kv-heads", given.heads_kv, "Key heads, a divisor of the heads; the same", "N");
  flag(shape, "--q-len", o.q_len, "Queries; 256 by default", "N");
  flag(shape, "--k-len", given.k_len, "Keys; as many as queries by default", "N");
  flag(shape, "--head-dim", o.head_dim, "1 to 128; 64 by default", "N");
  sub->add_flag("--causal{top-left}", given.causal,
                "Hide later keys; =top-left: key j <= query i (the default), =bottom-right: "
                "j <= i + k_len - q_len, =none")
      ->group(shape);
  flag(shape, "--left", given.left, "A window: the query at key p sees p - N and later keys", "N");
  flag(shape, "--right", given.right,
       "The same: p + N and earlier keys; both without limit by default", "N");
  flag(shape, "--align", given.align,
       "Where query i stands: top-left (causal's, or the default): at key i; bottom-right: at "
       "i + k_len - q_len",
       "WHERE");
  flag(shape, "--scale", given.scale, "Of the scores; 1/sqrt(head_dim) by default", "X");

  const char* matrix = "Shape, matmul and weighted_sum";
  flag(matrix, "--rows", o.rows, "Of the output; 256 by default", "N");
  flag(matrix, "--cols", o.cols, "Of C or X; 256 by default", "N");
  flag(matrix, "--inner", o.inner, "Columns of A, matmul only; 256 by default", "N");

  const char* how = "What runs";
  flag(how, "--dtype", given.dtype, "f32, f16 (default), bf16; field: exact, modulo a prime",
       "TYPE");
  flag(how, "--arch", o.run.arch, "Whose code: sm_75, sm_89, sm_90", "ARCH");
  flag(how, "--config", o.run.config, "A configuration, as `tessera list` shows it", "NAME");
  flag(how, "--exp2", o.run.exp2, "soft (emulator's default) or hardware (GPU's default)", "HOW");
  flag(how, "--target", given.target, "sim (default): the emulator; cuda: this machine's GPU",
       "WHERE");
  flag(how, "--seed", o.seed, "Of the inputs; 1 by default", "N");

  const char* emulator = "Emulator";
  flag(emulator, "--card", o.run.card, "Whose arithmetic and limits: t4, rtx4070, h200", "CARD");
  flag(emulator, "--numerics", given.numerics,
       "exact (default): the card's tensor-core rounding; fma: plain FMA, faster", "HOW");
  flag(emulator, "--isa", o.run.isa, "best (default), v2, v3 or v4: results are the same", "LEVEL");
  flag(emulator, "--threads", o.run.threads, "One a core by default", "N");
  flag(emulator, "--order-seed", o.run.order_seed, "Order of blocks and warps; 0: ascending", "N");
  add_json(sub, c);
}

template <class T>
T choose(const char* option, const std::string& given,
         std::initializer_list<std::pair<const char*, T>> choices) {
  Names names;
  for (const auto& [name, value] : choices) {
    if (given == name) return value;
    names.emplace_back(name);
  }
  fail_unknown(ErrorKind::invalid_argument, option, given, names);
}

void finish_case(const CLI::App* sub, Command& c, const Given& given) {
  CaseOptions& o = c.options;
  if (o.run.kernel.empty()) o.run.kernel = "flash_forward";
  refuse_misspelt(o.run);
  const KernelRow& kernel = find_kernel(o.run.kernel);
  o.dtype = parse_dtype(given.dtype);
  o.run.causal = choose<Causal>("causal", given.causal,
                                {{"top-left", Causal::top_left},
                                 {"bottom-right", Causal::bottom_right},
                                 {"none", Causal::none}});
  o.run.left = given.left, o.run.right = given.right;
  if (!given.align.empty())
    o.run.align = choose<Align>(
        "align", given.align,
        {{"top-left", Align::top_left}, {"bottom-right", Align::bottom_right}});
  o.run.target = choose<Target>("target", given.target,
                                {{"sim", Target::sim}, {"cuda", Target::cuda}});
  o.run.numerics = choose<Numerics>("numerics", given.numerics,
                                    {{"exact", Numerics::exact}, {"fma", Numerics::fma}});
  refuse_meaningless(sub, c, kernel);
  o.heads_kv = given.heads_kv.value_or(o.heads);
  o.k_len = given.k_len.value_or(o.q_len);
  o.run.scale = given.scale;
  o.run.checks = c.verb == Verb::check;
  o.run.timed = o.run.target == Target::cuda;
}

void add_compare(CLI::App* sub, CompareOptions& c) {
  sub->add_option("before", c.before, "What --json of a benchmark wrote")->type_name("A");
  sub->add_option("after", c.after, "The same, from the same card")->type_name("B");
  sub->add_option("--threshold", c.threshold_percent,
                  "Medians that differ by less are the same; 1 (percent)")
      ->check(&why_no_number<double>, "")
      ->type_name("PERCENT");
}

void finish_compare(const CompareOptions& c) {
  if (c.after.empty()) invalid("compare: two files, A and B");
  if (!(c.threshold_percent >= 0 && c.threshold_percent <= 1000))
    invalid("--threshold: a percentage from 0 to 1000");
}

}  // namespace

std::optional<Command> parse(int argc, char** argv) {
  Command command;
  Given given;
  CLI::App app("Attention kernels, on an emulator that gives a GPU's bits and on the GPU itself.",
               "tessera");
  app.require_subcommand(1);
  app.set_version_flag("--version", "tessera " TESSERA_VERSION);
  app.footer(std::string("`tessera run --help` shows the flags of a case.\n\n") + kExitCodes);
  CLI::App* list = app.add_subcommand("list", "Kernels, configurations, cards, ISA levels, device");
  CLI::App* run = app.add_subcommand("run", "Run a kernel and compare it with float64");
  CLI::App* check = app.add_subcommand("check", "The same with the emulator's checks switched on");
  CLI::App* demo = app.add_subcommand("demo", "The tutorial's cases, a mask, and two famous bugs");
  CLI::App* bench = app.add_subcommand("bench", "Time attention over lengths; a table of TFLOP/s");
  CLI::App* compare = app.add_subcommand("compare", "Two records of benchmarks, row by row");
  const std::pair<CLI::App*, Verb> verbs[] = {{list, Verb::list},   {run, Verb::run},
                                              {check, Verb::check}, {demo, Verb::demo},
                                              {bench, Verb::bench}, {compare, Verb::compare}};
  Names names;
  for (const auto& [sub, verb] : verbs) {
    sub->allow_extras();
    sub->footer(kExitCodes);
    names.push_back(sub->get_name());
  }
  add_json(list, command);
  add_case(run, command, given);
  add_case(check, command, given);
  demo->add_option("--threads", command.options.run.threads, "Of the emulator; one a core")
      ->check(&why_no_number<int>, "")
      ->type_name("N");
  add_json(demo, command);
  const BenchFlags bench_flags(bench);
  add_json(bench, command);
  add_compare(compare, command.compare);
  add_json(compare, command);

  if (argc < 2)
    invalid("command: none given. There are: list, run, check, demo, bench, compare; see --help");
  // CLI11 would say no more than that it expected a subcommand.
  const std::string first = argv[1];
  if (first.starts_with("-")) names = {"--help", "-h", "--version"};
  if (std::find(names.begin(), names.end(), first) == names.end())
    fail_unknown(ErrorKind::invalid_argument, first.starts_with("-") ? "flag" : "command", first,
                 names);
  try {
    app.parse(words_of(argc, argv));
  } catch (const CLI::Success& e) {  // help or version
    app.exit(e);
    return std::nullopt;
  } catch (const CLI::ParseError& e) {
    invalid(e.what());
  }
  for (const auto& [sub, verb] : verbs) {
    if (!sub->parsed()) continue;
    command.verb = verb;
    refuse_unknown(sub);
    for (const CLI::Option* option : sub->get_options())
      for (const std::string& value : option->results())
        if (value.empty()) invalid(option->get_name() + ": its value is empty");
    if (command.options.run.threads < 0) invalid("--threads: a number from 0 up");
    if (verb == Verb::run || verb == Verb::check) finish_case(sub, command, given);
    if (verb == Verb::bench) command.bench = bench_flags.options();
    if (verb == Verb::compare) finish_compare(command.compare);
  }
  return command;
}

const char* name_of(Causal causal) {
  return causal == Causal::none ? "none" : causal == Causal::top_left ? "top-left" : "bottom-right";
}
const char* name_of(Align align) { return align == Align::top_left ? "top-left" : "bottom-right"; }
const char* name_of(Numerics numerics) { return numerics == Numerics::exact ? "exact" : "fma"; }

}  // namespace tessera::cli
