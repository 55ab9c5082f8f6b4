// SPDX-License-Identifier: Apache-2.0
// The `tessera` command as a user meets it: run as a program, judged by its exit code, its stdout
// and its stderr.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "analysis/cli/case.h"
#include "kernels/cuda_backend.h"
#include "kernels/registry.h"
#include "tests/analysis/command.h"

namespace tessera {
namespace {

using nlohmann::json;

// The one record that a command writes to stdout.
json record(const std::string& arguments, int code = 0) {
  const Outcome r = tessera_command(arguments + " --json -");
  EXPECT_EQ(r.code, code) << arguments << "\n" << r.err;
  EXPECT_EQ(std::count(r.out.begin(), r.out.end(), '\n'), 1) << r.out;
  return json::parse(r.out, nullptr, false);
}

TEST(Cli, HelpListsFlagsAndExitCodes) {
  const Outcome top = tessera_command("--help"), run = tessera_command("run --help");
  EXPECT_EQ(top.code, 0);
  EXPECT_EQ(run.code, 0);
  for (const char* s : {"list", "run", "check", "demo", "bench", "compare", "Exit codes:"})
    EXPECT_TRUE(contains(top.out, s)) << s;
  for (const char* s :
       {"--batch",   "--heads", "--kv-heads",   "--q-len",    "--k-len",  "--head-dim",
        "--left",    "--right", "--align",      "--dtype",    "--causal", "--scale",
        "--arch",    "--card",  "--target",     "--numerics", "--exp2",   "--isa",
        "--threads", "--seed",  "--order-seed", "--config",   "--json",   "--rows",
        "--cols",    "--inner", "0  ",          "1  ",        "2  ",      "3  ",
        "4  ",       "5  "})
    EXPECT_TRUE(contains(run.out, s)) << s;
  EXPECT_EQ(tessera_command("--version").out, "tessera " TESSERA_VERSION "\n");
}

TEST(Cli, ListsEveryKernelAndConfiguration) {
  const Outcome text = tessera_command("list"), records = tessera_command("list --json -");
  EXPECT_EQ(text.code, 0);
  EXPECT_EQ(records.code, 0);
  for (const KernelRow& k : kKernels)
    EXPECT_TRUE(contains(text.out, std::string(k.name) + ": ")) << k.name;
  for (const ConfigRow& r : kRows) EXPECT_TRUE(contains(text.out, std::string(r.name))) << r.name;

  std::istringstream lines(records.out);
  std::vector<std::string> names;
  for (std::string line; std::getline(lines, line);)
    names.push_back(json::parse(line).at("name").get<std::string>());
  ASSERT_EQ(names.size(), std::size(kKernels));
  for (std::size_t i = 0; i < names.size(); ++i) EXPECT_EQ(names[i], kKernels[i].name);
}

TEST(Cli, RunsEveryConfiguration) {
  for (const ConfigRow& r : kRows) {
    if (!r.has(Where::sim) || r.variant != Variant::none) continue;
    for (const Dtype d : {Dtype::f32, Dtype::f16, Dtype::bf16, Dtype::field}) {
      if (!r.has(d)) continue;
      const KernelKind kind = find_kernel(std::string(r.kernel)).kind;
      std::string arguments = "run " + std::string(r.kernel) + " --arch ";
      arguments += std::string(name_of(r.arch)) + " --dtype " + std::string(name_of(d));
      arguments += " --config " + std::string(r.name);
      arguments += kind == KernelKind::attention ? " --heads 2 --kv-heads 1 --q-len 37 --k-len 53"
                   : kind == KernelKind::matmul  ? " --rows 70 --cols 45 --inner 83"
                                                 : " --rows 70 --cols 83";
      const json j = record(arguments);
      EXPECT_TRUE(j.at("pass").get<bool>()) << j;
      EXPECT_EQ(j.at("kernel"), r.kernel);
      EXPECT_EQ(j.at("arch"), name_of(r.arch));
      EXPECT_EQ(j.at("config"), r.name);
      EXPECT_EQ(j.at("dtype"), name_of(d));
    }
  }
}

void expect_keys(const json& j, const std::vector<std::string>& outputs,
                 const std::vector<std::string>& sizes) {
  for (const char* key :
       {"kernel",   "instance", "target",  "arch",      "card",    "dtype",    "shape",
        "causal",   "band",     "scale",   "config",    "exp2",    "numerics", "isa",
        "seed",     "pass",     "errors",  "hash",      "seconds", "gflops",   "counters",
        "findings", "flops",    "threads", "order_seed"})
    EXPECT_TRUE(j.contains(key)) << key;
  EXPECT_EQ(j.at("shape").size(), sizes.size());
  for (const std::string& s : sizes) EXPECT_TRUE(j.at("shape").at(s).is_number_integer()) << s;
  EXPECT_EQ(j.at("errors").size(), outputs.size());
  EXPECT_EQ(j.at("hash").size(), outputs.size());
  for (const std::string& o : outputs) {
    const json& e = j.at("errors").at(o);
    EXPECT_TRUE(e.at("max_abs").is_number()) << o;
    EXPECT_LE(e.at("max_abs"), e.at("tolerance")) << o;
    EXPECT_LE(e.at("max_ratio"), 1) << o;
    EXPECT_EQ(j.at("hash").at(o).get<std::string>().size(), 16u) << o;
  }
  EXPECT_TRUE(j.at("findings").is_array());
  EXPECT_GT(j.at("counters").at("global_load_bytes"), 0);
}

TEST(Cli, RecordHasEveryKey) {
  const std::vector<std::string> sizes = {"batch", "heads", "kv_heads",
                                          "q_len", "k_len", "head_dim"};
  for (const char* dtype : {"f32", "f16", "field"}) {
    const json j = record(std::string("check --q-len 20 --causal --dtype ") + dtype);
    expect_keys(j, {"o", "lse"}, sizes);
    EXPECT_EQ(j.at("causal"), "top-left");
  }
  expect_keys(record("run matmul --rows 20"), {"c"}, {"rows", "cols", "inner"});
  expect_keys(record("run weighted_sum --rows 20"), {"y"}, {"rows", "cols"});
}

TEST(Cli, ShapeAndDefaults) {
  const json j = record("run flash_step1 --batch 2 --heads 3 --q-len 5 --head-dim 33 --scale 0.5");
  const json shape = {{"batch", 2}, {"heads", 3}, {"kv_heads", 3},
                      {"q_len", 5}, {"k_len", 5}, {"head_dim", 33}};
  EXPECT_EQ(j.at("shape"), shape);
  EXPECT_EQ(j.at("scale"), 0.5);
  EXPECT_EQ(j.at("causal"), "none");
  EXPECT_EQ(j.at("instance"), "flash_step1/sm_89/f16/d64/16x16/soft");
  EXPECT_EQ(record("run --q-len 5 --card h200").at("arch"), "sm_90");
  EXPECT_EQ(record("run --q-len 5 --exp2 hardware").at("exp2"), "hardware");
  EXPECT_EQ(record("run --q-len 5 --numerics fma").at("numerics"), "fma");
  EXPECT_EQ(record("run --q-len 5 --k-len 7 --causal bottom-right").at("causal"), "bottom-right");
  const json band = {{"left", 3}, {"right", nullptr}, {"shift", 2}};
  EXPECT_EQ(record("run --q-len 5 --k-len 7 --left 3 --align bottom-right").at("band"), band);
  const json behind = {{"left", nullptr}, {"right", -2}, {"shift", 3}};
  EXPECT_EQ(record("run --q-len 5 --k-len 8 --right -2 --align=bottom-right").at("band"), behind);
  EXPECT_NE(record("run --q-len 5").at("hash"), record("run --q-len 5 --seed 2").at("hash"));
}

TEST(Cli, JsonGoesToStdoutAloneOrToAFile) {
  const std::string file = temporary("json");
  const Outcome to_file = tessera_command("run --q-len 5 --json '" + file + "'");
  EXPECT_EQ(to_file.code, 0);
  EXPECT_TRUE(contains(to_file.out, "GFLOP/s"));
  EXPECT_EQ(to_file.err, "");
  EXPECT_TRUE(json::parse(read_file(file)).at("pass").get<bool>());
  std::remove(file.c_str());

  const Outcome to_stdout = tessera_command("run --q-len 5 --json -");
  EXPECT_TRUE(contains(to_stdout.err, "GFLOP/s"));
  EXPECT_FALSE(json::parse(to_stdout.out, nullptr, false).is_discarded());

  const Outcome nowhere = tessera_command("run --q-len 5 --json /nonexistent/x");
  EXPECT_EQ(nowhere.code, 2);
  EXPECT_TRUE(contains(nowhere.err, "json: cannot write '/nonexistent/x'")) << nowhere.err;
}

TEST(Cli, AWrongResultIsOne) {
  for (const char* verb : {"run", "check"}) {
    const std::string padded = std::string(verb) +
                               " flash_step1 --config 16x16-padded-keys --dtype f32";
    EXPECT_FALSE(record(padded + " --q-len 100", 1).at("pass").get<bool>());
    EXPECT_TRUE(record(padded + " --q-len 128").at("pass").get<bool>());
  }
  const std::string dropped = "run flash_step1 --config 16x16-dropped-cast --q-len 100 --dtype ";
  EXPECT_TRUE(record(dropped + "f32").at("pass").get<bool>());
  for (const char* dtype : {"f16", "bf16"}) {
    const json j = record(dropped + dtype, 1);
    EXPECT_FALSE(j.at("errors").at("o").at("pass").get<bool>());
    EXPECT_TRUE(j.at("errors").at("lse").at("pass").get<bool>());
  }
  EXPECT_TRUE(contains(tessera_command(dropped + "f16").out, "WRONG"));
}

TEST(Cli, ExitCodeOfFindingsComesFirst) {
  EXPECT_EQ(cli::exit_code(true, false), 0);
  EXPECT_EQ(cli::exit_code(false, false), 1);
  EXPECT_EQ(cli::exit_code(true, true), 4);
  EXPECT_EQ(cli::exit_code(false, true), 4);
}

TEST(Cli, ARefusedCaseSparesTheJsonFile) {
  const std::string path = temporary("kept");
  std::ofstream(path) << "kept\n";
  EXPECT_EQ(tessera_command("run --q-len -1 --json " + path).code, 2);
  EXPECT_EQ(read_file(path), "kept\n");
  EXPECT_EQ(tessera_command("run --q-len 16 --k-len 16 --heads 1 --json " + path).code, 0);
  EXPECT_TRUE(read_file(path).starts_with("{")) << read_file(path);
  std::remove(path.c_str());
  EXPECT_EQ(tessera_command("run --q-len 16 --json /dev/full").code, 2);
}

TEST(Cli, FindsItsModulesWhenCalledThroughThePath) {
  const std::string program = TESSERA_CLI_PATH, folder = program.substr(0, program.rfind('/'));
  const std::string command = "cd / && PATH='" + folder +
                              "':$PATH tessera run --q-len 16 > /dev/null";
  EXPECT_EQ(std::system(command.c_str()), 0);
}

struct Mistake {
  const char* arguments;
  int code;
  const char* says;
};

TEST(Cli, MistakesNameTheNearestRightThing) {
  const Mistake mistakes[] = {
      {"", 2, "There are: list, run, check, demo, bench, compare"},
      {"runn", 2, "command: unknown 'runn', did you mean 'run'?"},
      {"--hepl", 2, "flag: unknown '--hepl', did you mean '--help'?"},
      {"run --q-lenn 5", 2, "flag: unknown '--q-lenn', did you mean '--q-len'?"},
      {"run --k-Len=5", 2, "flag: unknown '--k-Len', did you mean '--k-len'?"},
      {"check matmul --row 5", 2, "flag: unknown '--row', did you mean '--rows'?"},
      {"demo --thread 1", 2, "did you mean '--threads'?"},
      {"list --jsn -", 2, "did you mean '--json'?"},
      {"run flash_stp1", 2, "kernel: unknown 'flash_stp1', did you mean 'flash_step1'?"},
      {"run flash_step1 --config 16x17", 2, "config: unknown '16x17', did you mean '16x16'?"},
      {"run --dtype fp16", 2, "dtype: unknown 'fp16', did you mean 'f16'?"},
      {"run --arch sm_80", 2, "arch: unknown 'sm_80', did you mean 'sm_"},
      {"run --card h100", 2, "card: unknown 'h100', did you mean 'h200'?"},
      {"run --causal=top_left", 2, "causal: unknown 'top_left', did you mean 'top-left'?"},
      {"run --target cudda", 2, "target: unknown 'cudda', did you mean 'cuda'?"},
      {"run --numerics exat", 2, "numerics: unknown 'exat', did you mean 'exact'?"},
      {"run --exp2 sotf", 2, "exp2: unknown 'sotf', did you mean 'soft'?"},
      {"run --isa v33", 2, "isa: unknown 'v33', did you mean 'v3'?"},
      {"run matmul flash_step1", 2, "unexpected argument 'flash_step1'"},
      {"run --q-len abc", 2, "--q-len: 'abc' is not a whole number"},
      {"run --q-len 5x", 2, "--q-len: '5x' is not a whole number"},
      {"run --q-len 99999999999999999999", 2, "'99999999999999999999' is out of range"},
      {"run --q-len 0100", 2, "--q-len: '0100' has a leading zero"},
      {"run --arch ''", 2, "--arch: its value is empty"},
      {"run --json ''", 2, "--json: its value is empty"},
      {"demo --threads -1", 2, "--threads"},
      {"list > /dev/full", 2, "standard output cannot be written"},
      {"run --seed -1", 2, "--seed: '-1' is not a whole number from 0 up"},
      {"run --scale x", 2, "--scale: 'x' is not a number"},
      {"run --q-len", 2, "--q-len"},
      {"run matmul --heads 3", 2, "--heads: matmul has no such"},
      {"run --align=top_left", 2, "align: unknown 'top_left', did you mean 'top-left'?"},
      {"run --causal --right 3", 2, "right: 3 beside causal"},
      {"run --causal --align bottom-right", 2, "align: causal is top-left"},
      {"run --left 1.5", 2, "--left: '1.5' is not a whole number"},
      {"run flash_step1 --left 3 --q-len 9 --k-len 4", 3, "left: 3 with q_len 9 and k_len 4"},
      {"run matmul --left 3", 2, "--left: matmul has no such"},
      {"run matmul --causal", 2, "--causal: matmul has no such"},
      {"run weighted_sum --inner 3", 2, "--inner: weighted_sum has no such"},
      {"run --rows 3", 2, "--rows: flash_forward has no such"},
      {"run --dtype field --scale 2", 2, "--scale: "},
      {"run --target cuda --card h200", 2, "--card: it is the emulator's"},
      {"run --arch sm_75 --dtype bf16", 3, "dtype: flash_forward on sm_75 has no bf16"},
      {"run matmul --arch sm_75 --config 128x128x64", 3, "config: unknown '128x128x64'"},
      {"run --arch sm_90 --card t4", 3, "card: t4 is sm_75 and does not run sm_90 code"},
      {"run flash_step1 --causal=bottom-right --q-len 9 --k-len 4", 3,
       "causal: bottom-right with q_len 9"},
      {"run --batch 100000000 --q-len 100000000", 3, "q: (100000000, 4, 100000000, 64) elements"},
  };
  for (const Mistake& m : mistakes) {
    const Outcome r = tessera_command(m.arguments);
    EXPECT_EQ(r.code, m.code) << m.arguments << "\n" << r.err;
    EXPECT_TRUE(r.err.starts_with("tessera: ")) << r.err;
    EXPECT_TRUE(contains(r.err, m.says)) << m.arguments << "\n" << r.err;
    EXPECT_EQ(r.out, "") << m.arguments;
  }
}

TEST(Cli, BadShapesGiveTheMessageOfTheLibrary) {
  struct Shape {
    std::int64_t batch, heads, heads_kv, q_len, k_len, head_dim;
  };
  const Shape shapes[] = {
      {1, 3, 2, 5, 5, 64},  {1, 3, 0, 5, 5, 64},  {1, 1, 1, 5, 5, 0},
      {1, 1, 1, 5, 5, 129}, {-1, 1, 1, 5, 5, 64}, {1, 1, 1, -5, 5, 64},
      {1, 1, 1, 5, -1, 64}, {1, -2, 1, 5, 5, 64}, {1, 1, 1, std::int64_t(1) << 40, 5, 64}};
  for (const Shape& s : shapes) {
    std::string expected;
    float none = 0;  // never touched
    const Tensor q = contiguous(&none, Dtype::f32, {s.batch, s.heads, s.q_len, s.head_dim});
    const Tensor k = contiguous(&none, Dtype::f32, {s.batch, s.heads_kv, s.k_len, s.head_dim});
    try {
      attention(q, k, k, q, nullptr, {});
    } catch (const Error& e) {
      expected = std::string("tessera: ") + e.what() + "\n";
    }
    ASSERT_NE(expected, "");
    const auto n = [](std::int64_t x) { return std::to_string(x); };
    const Outcome r = tessera_command("run --dtype f32 --batch " + n(s.batch) + " --heads " +
                                      n(s.heads) + " --kv-heads " + n(s.heads_kv) + " --q-len " +
                                      n(s.q_len) + " --k-len " + n(s.k_len) + " --head-dim " +
                                      n(s.head_dim));
    EXPECT_EQ(r.code, 2);
    EXPECT_EQ(r.err, expected);
  }
  const Outcome nan = tessera_command("run --scale nan");
  EXPECT_EQ(nan.code, 2);
  EXPECT_TRUE(contains(nan.err, "scale: nan is not a finite fp32 number")) << nan.err;
  EXPECT_EQ(tessera_command("run matmul --inner -1").code, 2);
  EXPECT_EQ(tessera_command("run weighted_sum --rows -1").code, 2);
}

TEST(Cli, EmptyShapesAreRight) {
  for (const char* arguments :
       {"--batch 0", "--heads 0", "--q-len 0", "--q-len 5 --k-len 0", "--batch 2 --q-len 0"})
    EXPECT_TRUE(record(std::string("run ") + arguments).at("pass").get<bool>()) << arguments;
  for (const char* arguments : {"matmul --rows 0", "matmul --cols 0", "matmul --inner 0",
                                "weighted_sum --rows 0", "weighted_sum --cols 0"})
    EXPECT_TRUE(record(std::string("run ") + arguments).at("pass").get<bool>()) << arguments;
}

TEST(Cli, CudaWithoutADeviceSaysWhy) {
  const std::string why = cuda::why_no_device();
  if (why.empty()) GTEST_SKIP() << "there is a device";
  for (const char* kernel : {"flash_step1", "flash_forward", "matmul", "weighted_sum"}) {
    const Outcome r = tessera_command(std::string("run ") + kernel + " --target cuda");
    EXPECT_EQ(r.code, 3);
    EXPECT_TRUE(contains(r.err, why)) << r.err;
  }
}

TEST(Cli, FlopsCountVisiblePairs) {
  const auto pairs = [](const std::string& arguments) {
    const json j = record("run --dtype field --heads 1 --head-dim 32 " + arguments);
    return j.at("flops").get<std::uint64_t>() / (4 * 32);
  };
  EXPECT_EQ(pairs("--q-len 128"), 128u * 128u);
  EXPECT_EQ(pairs("--q-len 128 --causal"), 8256u);
  EXPECT_EQ(pairs("--q-len 64 --k-len 256 --causal=bottom-right"), 14368u);
  EXPECT_EQ(pairs("--q-len 256 --k-len 64 --causal=bottom-right"), 2080u);
  EXPECT_EQ(pairs("--q-len 256 --k-len 64 --causal=top-left"), 14368u);
  EXPECT_EQ(pairs("--q-len 5 --left 1 --right 2"), 16u);
}

TEST(Cli, ThreadsAndOrderChangeNothing) {
  for (const char* verb : {"run", "check"}) {
    const std::string base = std::string(verb) +
                             " --batch 2 --q-len 50 --k-len 70 --causal --dtype f16";
    const json expected = record(base + " --threads 1");
    for (const char* how : {"--threads 4", "--order-seed 1", "--threads 4 --order-seed 2",
                            "--order-seed 3 --isa v4", "--order-seed 4 --isa v3", "--isa v2"}) {
      const Outcome r = tessera_command(base + " " + how + " --json -");
      if (r.code == 3 && contains(r.err, "isa: ")) continue;  // this CPU lacks the level
      ASSERT_EQ(r.code, 0) << r.err;
      const json j = json::parse(r.out);
      for (const char* key : {"hash", "counters", "findings", "errors"})
        EXPECT_EQ(j.at(key), expected.at(key)) << how << ": " << key;
    }
  }
}

}  // namespace
}  // namespace tessera
