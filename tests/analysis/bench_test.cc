// SPDX-License-Identifier: Apache-2.0
// `tessera bench`: its arithmetic, its checks, its options, and a table of the emulator as a user
// gets it.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "analysis/cli/bench.h"
#include "analysis/cli/bench_case.h"
#include "analysis/cli/bench_options.h"
#include "analysis/cli/case.h"
#include "kernels/cuda_backend.h"
#include "kernels/registry.h"
#include "tests/analysis/command.h"

namespace tessera::cli {
namespace {

using nlohmann::json;

// ---- arithmetic

TEST(BenchFlop, CountsTheVisiblePairsOfEveryMask) {
  for (const std::int64_t q_len : {0, 1, 5, 64, 100})
    for (const std::int64_t k_len : {0, 1, 7, 64, 130})
      for (const Causal causal : {Causal::none, Causal::top_left, Causal::bottom_right})
        for (const bool window : {false, true}) {
          CaseOptions c;
          c.batch = 3, c.heads = 4, c.heads_kv = 2, c.q_len = q_len, c.k_len = k_len;
          c.head_dim = 32, c.run.causal = causal;
          if (window) c.run.left = 9;
          const Problem p = problem_of(c);
          std::int64_t pairs = 0;
          for (std::int64_t i = 0; i < q_len; ++i)
            for (std::int64_t j = 0; j < k_len; ++j) pairs += visible(p.band, i, j, k_len);
          EXPECT_EQ(visible_pairs(p), pairs) << q_len << " " << k_len << " " << int(causal);
          EXPECT_EQ(flop_of(p), 4.0 * 32 * double(pairs) * 3 * 4);
        }
  // By hand: the square, its lower triangle, and what shifting the diagonal does.
  const auto pairs = [](Causal causal, std::int64_t q_len, std::int64_t k_len) {
    CaseOptions c;
    c.q_len = q_len, c.k_len = k_len, c.run.causal = causal;
    return visible_pairs(problem_of(c));
  };
  EXPECT_EQ(pairs(Causal::none, 4, 6), 24);
  EXPECT_EQ(pairs(Causal::top_left, 4, 4), 10);
  EXPECT_EQ(pairs(Causal::top_left, 4, 6), 1 + 2 + 3 + 4);
  EXPECT_EQ(pairs(Causal::bottom_right, 4, 6), 3 + 4 + 5 + 6);
  EXPECT_EQ(pairs(Causal::top_left, 6, 4), 1 + 2 + 3 + 4 + 4 + 4);
  EXPECT_EQ(pairs(Causal::bottom_right, 6, 4), 0 + 0 + 1 + 2 + 3 + 4);
}

TEST(BenchStatistics, Quantiles) {
  EXPECT_EQ(quantile({3, 1, 2}, 0.5), 2);
  EXPECT_EQ(quantile({4, 1, 3, 2}, 0.5), 2.5);
  EXPECT_EQ(quantile({7}, 0.2), 7);
  EXPECT_EQ(quantile({5, 1, 2, 3, 4, 0}, 0.2), 1);
  EXPECT_EQ(quantile({5, 1, 2, 3, 4, 0}, 0.8), 4);
  EXPECT_EQ(quantile({1, 2}, 0), 1);
  EXPECT_EQ(quantile({1, 2}, 1), 2);
  EXPECT_THROW(quantile({}, 0.5), std::invalid_argument);

  const Spread s = spread_of({10, 14, 12, 11, 13, 100});
  EXPECT_EQ(s.median, 12.5);
  EXPECT_EQ(s.p20, 11);
  EXPECT_EQ(s.p80, 14);
  EXPECT_EQ(s.min, 10);
  EXPECT_EQ(s.count, 6);
  EXPECT_DOUBLE_EQ(s.noise(), 3 / 12.5);
  EXPECT_EQ(spread_of({0, 0}).noise(), 0);
}

TEST(BenchStatistics, RepetitionsStopWhenEveryContenderIsQuiet) {
  const StopRule rule{0.02, 3, 6};
  const std::vector<double> quiet = {100, 100, 101}, loud = {100, 110, 120};
  EXPECT_FALSE(rule.enough({{100, 100}}));  // too few, however quiet
  EXPECT_TRUE(rule.enough({quiet}));
  EXPECT_FALSE(rule.enough({loud}));
  EXPECT_FALSE(rule.enough({quiet, loud}));
  EXPECT_TRUE(rule.enough({{1, 2, 3, 4, 5, 6}}));  // the most there may be
  EXPECT_TRUE(rule.enough({}));                    // nobody to wait for
  // 20 % of outliers on either side are outside of the interval.
  EXPECT_TRUE((StopRule{0.02, 3, 20}.enough({{1, 1, 1, 1, 1, 1, 1, 1, 1, 9}})));
}

TEST(BenchStatistics, EveryRepetitionStartsWithAnother) {
  for (const int contenders : {1, 2, 5})
    for (int repetition = 0; repetition < 2 * contenders; ++repetition) {
      std::vector<int> order = turn(contenders, repetition);
      EXPECT_EQ(order.front(), repetition % contenders);
      std::sort(order.begin(), order.end());
      for (int i = 0; i < contenders; ++i) EXPECT_EQ(order[std::size_t(i)], i);
    }
}

// ---- checks of a contender

BenchOptions small() {
  BenchOptions b;
  b.base.batch = 1, b.base.heads = b.base.heads_kv = 2, b.base.q_len = 40, b.base.k_len = 50;
  b.base.dtype = Dtype::f16, b.base.run.kernel = "flash_step1", b.base.run.arch = "sm_89";
  b.warm = true, b.graph = false, b.stop = {10, 2, 3};
  return b;
}
Measurement measured(const BenchOptions& b, const std::string& config,
                     std::optional<double> limit = {}) {
  std::vector<Measurement> one(1);
  one[0].options = b.base, one[0].options.run.config = config;
  one[0].flop = flop_of(problem_of(b.base));
  measure(one, b, limit);
  return one[0];
}

TEST(BenchChecks, AKernelThatDropsTheCastIsWrongAndNotTimed) {
  const Measurement right = measured(small(), "16x16"),
                    wrong = measured(small(), "16x16-dropped-cast");
  EXPECT_EQ(right.status, Status::ok) << right.reason;
  EXPECT_EQ(right.ms->count, 2);
  EXPECT_LT(right.error->relative, 1e-3);
  EXPECT_EQ(right.error->against, "float64, 64 rows");
  EXPECT_EQ(wrong.status, Status::wrong);
  EXPECT_FALSE(wrong.ms);
  EXPECT_NE(wrong.reason.find("o: "), std::string::npos) << wrong.reason;
}

TEST(BenchChecks, ARateAboveTheLimitIsImpossible) {
  const double rate = measured(small(), "16x16").tflops();
  EXPECT_GT(rate, 0);
  EXPECT_EQ(measured(small(), "16x16", 1e6 * rate).status, Status::ok);
  const Measurement m = measured(small(), "16x16", 1e-6 * rate);
  EXPECT_EQ(m.status, Status::impossible);
  EXPECT_TRUE(m.ms);
}

TEST(BenchChecks, SpreadAboveTheTargetIsNoisyAndReported) {
  BenchOptions b = small();
  b.stop = {0, 2, 4};  // no two launches of some microseconds take the same nanoseconds
  const Measurement m = measured(b, "16x16");
  EXPECT_EQ(m.status, Status::noisy);
  EXPECT_EQ(m.ms->count, 4);
  EXPECT_NE(m.reason.find("after 4 repetitions"), std::string::npos) << m.reason;
}

// ---- the command

TEST(Bench, LengthsMayHaveAK) {
  EXPECT_EQ(parse_length("--n", "512"), 512);
  EXPECT_EQ(parse_length("--n", "4k"), 4096);
  EXPECT_EQ(parse_length("--n", "0"), 0);
  for (const char* text : {"k", "4kk", "1.5k", "k4", "0x10", "9223372036854775807k", "010"})
    EXPECT_THROW(parse_length("--n", text), Error) << text;
}

std::vector<json> records(const std::string& arguments, int code = 0) {
  const Outcome r = tessera_command("bench " + arguments + " --json -");
  EXPECT_EQ(r.code, code) << arguments << "\n" << r.err;
  std::vector<json> all;
  std::istringstream lines(r.out);
  for (std::string line; std::getline(lines, line);) all.push_back(json::parse(line));
  return all;
}

void expect_row(const json& row) {
  for (const char* text : {"provider", "kernel", "arch", "config", "instance", "exp2", "dtype",
                           "causal", "launch", "status"})
    EXPECT_TRUE(row.at(text).is_string()) << text << row;
  for (const char* number :
       {"batch", "heads", "heads_kv", "q_len", "k_len", "head_dim", "pairs", "flop"})
    EXPECT_TRUE(row.at(number).is_number_integer()) << number << row;
  for (const char* key : {"reason", "call_us", "baseline", "percent_of_sdpa"})
    EXPECT_TRUE(row.contains(key)) << key;
  EXPECT_EQ(row.at("record"), "row");
  EXPECT_EQ(row.at("provider"), "tessera");
  EXPECT_TRUE(row.at("status") == "ok" || row.at("status") == "noisy") << row;
  const double flop = 4 * row.at("head_dim").get<double>() * row.at("pairs").get<double>() *
                      row.at("batch").get<double>() * row.at("heads").get<double>();
  EXPECT_EQ(row.at("flop"), flop);
  const json& ms = row.at("ms");
  EXPECT_GT(ms.at("min"), 0);
  EXPECT_LE(ms.at("min"), ms.at("p20"));
  EXPECT_LE(ms.at("p20"), ms.at("median"));
  EXPECT_LE(ms.at("median"), ms.at("p80"));
  EXPECT_NEAR(row.at("tflops").get<double>(), flop / ms.at("median").get<double>() * 1e-9,
              1e-9 * row.at("tflops").get<double>());
  EXPECT_LT(row.at("error").at("relative"), 0.02);
  EXPECT_GE(row.at("error").at("max_abs"), 0);
}

void expect_frame(const std::vector<json>& all, const char* target) {
  ASSERT_GE(all.size(), 3u);
  const json &run = all.front(), &end = all.back();
  EXPECT_EQ(run.at("record"), "run");
  EXPECT_EQ(run.at("tool"), "tessera bench");
  EXPECT_EQ(run.at("target"), target);
  EXPECT_TRUE(run.at("card").is_string());
  EXPECT_EQ(run.at("date").get<std::string>().size(), 20u) << run.at("date");
  for (const char* key :
       {"version", "commit", "driver", "toolkit", "torch", "clocks_before", "limits", "options"})
    EXPECT_TRUE(run.contains(key)) << key;
  EXPECT_EQ(end.at("record"), "end");
  EXPECT_TRUE(end.contains("clocks_after"));
  EXPECT_GE(end.at("seconds"), 0);
}

TEST(Bench, TheEmulatorsTable) {
  const std::vector<json> all = records(
      "--n 33,16 --k-len 40 --dtype f16,f32 --config all --causal none,top-left,bottom-right "
      "--head-dim 64,20 --kv-heads 1 --min-repetitions 2 --max-repetitions 3 --commit abc");
  expect_frame(all, "sim");
  EXPECT_EQ(all.front().at("commit"), "abc");
  EXPECT_EQ(all.front().at("options").at("q_lens"), json({33, 16}));
  EXPECT_EQ(all.front().at("options").at("configs"), "all");
  EXPECT_TRUE(all.front().at("limits").is_null());
  std::set<std::string> keys, configs;
  for (std::size_t i = 1; i + 1 < all.size(); ++i) {
    const json& row = all[i];
    expect_row(row);
    EXPECT_LE(row.at("ms").at("count"), 3);
    EXPECT_GE(row.at("ms").at("count"), 2);
    EXPECT_GT(row.at("counters").at("blocks"), 0);
    EXPECT_TRUE(row.at("call_us").is_null());
    const std::int64_t n = row.at("q_len"), pairs = row.at("pairs");
    EXPECT_EQ(pairs, row.at("causal") == "none"       ? n * 40
                     : row.at("causal") == "top_left" ? n * (n + 1) / 2
                                                      : n * (n + 1) / 2 + n * (40 - n));
    json key = row;
    for (const char* result : {"ms", "tflops", "status", "reason", "error", "counters"})
      key.erase(result);
    EXPECT_TRUE(keys.insert(key.dump()).second) << key;
    configs.insert(row.at("instance").get<std::string>());
  }
  // As many instances as the table has of sm_89 in these types and buckets.
  int expected = 0;
  for (const ConfigRow& row : kRows)
    for (const Dtype d : {Dtype::f16, Dtype::f32})
      for (const int bucket : {32, 64})
        expected += row.kernel == "flash_forward" && row.arch == Arch::sm_89 && row.has(d) &&
                    row.variant == Variant::none && row.has_bucket(bucket) && row.has(Where::sim);
  EXPECT_EQ(int(configs.size()), expected);
  EXPECT_EQ(keys.size(), configs.size() * 2 * 3);
}

TEST(Bench, DefaultsAreATableOfSeconds) {
  const std::vector<json> all = records("");
  expect_frame(all, "sim");
  ASSERT_EQ(all.size(), 2u + 6);
  for (std::size_t i = 1; i + 1 < all.size(); ++i) {
    expect_row(all[i]);
    EXPECT_EQ(all[i].at("dtype"), "bf16");
    EXPECT_EQ(all[i].at("head_dim"), 64);
    EXPECT_EQ(all[i].at("q_len"), all[i].at("k_len"));
  }
  EXPECT_LT(all.back().at("seconds"), 60);
}

TEST(Bench, EmptyCases) {
  for (const json& record : records("--n 0,8 --k-len 0 --dtype f16 --max-repetitions 3")) {
    if (record.at("record") != "row") continue;
    EXPECT_EQ(record.at("pairs"), 0);
    EXPECT_EQ(record.at("flop"), 0);
    EXPECT_NE(record.at("status"), "wrong") << record;
  }
}

TEST(Bench, AWrongKernelIsOneAndARefusedCaseIsNamed) {
  const std::string bug = "flash_step1 --config 16x16-dropped-cast --n 40 --causal none --dtype ";
  const std::vector<json> wrong = records(bug + "f16", 1);
  ASSERT_EQ(wrong.size(), 3u);
  EXPECT_EQ(wrong[1].at("status"), "wrong");
  EXPECT_TRUE(wrong[1].at("reason").is_string());
  EXPECT_TRUE(wrong[1].at("ms").is_null());

  const std::vector<json> mixed = records("--arch sm_75 --dtype f16,bf16 --n 40 --causal none");
  ASSERT_EQ(mixed.size(), 4u);
  EXPECT_EQ(mixed[2].at("status"), "refused");
  EXPECT_EQ(mixed[2].at("dtype"), "bf16");
  EXPECT_TRUE(mixed[2].at("ms").is_null());

  const Outcome all = tessera_command("bench --arch sm_75 --n 40");  // bf16 alone
  EXPECT_EQ(all.code, 3);
  EXPECT_TRUE(contains(all.err, "tessera: dtype: flash_forward on sm_75 has no bf16")) << all.err;
}

TEST(Bench, AListTakesNoWordThatFollows) {
  const std::vector<json> all = records(
      "--n 8 --dtype f16 --causal none flash_step1 --max-repetitions 3");
  ASSERT_EQ(all.size(), 3u);
  EXPECT_EQ(all[1].at("kernel"), "flash_step1");
}

TEST(Bench, MistakesAreNamed) {
  struct Mistake {
    const char* arguments;
    const char* says;
  };
  const Mistake mistakes[] = {
      {"--n 1x", "--n: '1x' is not a whole number"},
      {"--n 5,,6", "--n: an entry of '5,,6' is empty"},
      {"--n 5,", "--n: an entry of '5,' is empty"},
      {"--n 5 --n 6", "--n"},
      {"--config 128x64,128x64", "--config: 128x64 is there twice"},
      {"--n 64,64", "--n: 64 is there twice"},
      {"--n -1", "q: "},
      {"--head-dim 200", "head_dim"},
      {"--kv-heads 3", "heads"},
      {"--dtype fp16", "dtype: unknown 'fp16', did you mean 'f16'?"},
      {"--dtype field", "--dtype: field"},
      {"--causal bottom_right", "causal: unknown 'bottom_right', did you mean 'bottom-right'?"},
      {"--causal both,none", "causal: unknown 'both'"},
      {"--config 128x65", "config: unknown '128x65', did you mean '128x64'?"},
      {"--config all,128x64", "config: unknown 'all'"},
      {"--kernel flash_forwards", "kernel: unknown 'flash_forwards'"},
      {"matmul", "kernel: matmul is no attention kernel"},
      {"--arch sm_80", "arch: unknown 'sm_80'"},
      {"--exp2 hardwar", "exp2: unknown 'hardwar', did you mean 'hardware'?"},
      {"--target gpu", "target: unknown 'gpu'"},
      {"--target cuda --launch graphs", "launch: unknown 'graphs', did you mean 'graph'?"},
      {"--warm", "--warm: it is a GPU's"},
      {"--launch call", "--launch: it is a GPU's"},
      {"--noise -1", "--noise: a percentage"},
      {"--noise x", "--noise: 'x' is not a number"},
      {"--min-repetitions 0", "--min-repetitions: at least 1"},
      {"--min-repetitions 5 --max-repetitions 4", "--max-repetitions: 4 is less"},
      {"--lengths 5", "flag: unknown '--lengths'"},
  };
  for (const Mistake& m : mistakes) {
    const Outcome r = tessera_command("bench " + std::string(m.arguments));
    EXPECT_EQ(r.code, 2) << m.arguments << "\n" << r.err;
    EXPECT_TRUE(contains(r.err, m.says)) << m.arguments << "\n" << r.err;
    EXPECT_EQ(r.out, "") << m.arguments;
  }
  const std::string help = tessera_command("bench --help").out;
  for (const char* flag : {"--n",
                           "--k-len",
                           "--head-dim",
                           "--dtype",
                           "--causal",
                           "--batch",
                           "--heads",
                           "--kv-heads",
                           "--kernel",
                           "--arch",
                           "--config",
                           "--exp2",
                           "--warm",
                           "--launch",
                           "--noise",
                           "--min-repetitions",
                           "--max-repetitions",
                           "--seed",
                           "--target",
                           "--json",
                           "--commit"})
    EXPECT_TRUE(contains(help, flag)) << flag;
}

TEST(Bench, WithoutADeviceItIsThreeAndSaysWhy) {
  const std::string why = cuda::why_no_device();
  if (why.empty()) GTEST_SKIP() << "there is a device";
  const std::string path = temporary("kept");
  std::ofstream(path) << "kept\n";
  const Outcome r = tessera_command("bench --target cuda --json " + path);
  EXPECT_EQ(r.code, 3);
  EXPECT_TRUE(contains(r.err, why)) << r.err;
  EXPECT_EQ(read_file(path), "kept\n");
  std::remove(path.c_str());
}

TEST(Bench, OnAGpu) {
  if (const std::string why = cuda::why_no_device(); !why.empty()) GTEST_SKIP() << why;
  for (const char* how : {"", "--launch call", "--warm", "--exp2 soft"}) {
    const std::vector<json> all = records(
        "--target cuda --n 100,512 --k-len 300 --dtype f16 --config all "
        "--causal none,bottom-right --min-repetitions 5 --max-repetitions 10 " +
        std::string(how));
    expect_frame(all, "cuda");
    EXPECT_GT(all.front().at("limits").at("mma_tflops").at("f16"), 1);
    EXPECT_GT(all.front().at("limits").at("ffma_tflops"), 1);
    for (std::size_t i = 1; i + 1 < all.size(); ++i) {
      expect_row(all[i]);
      EXPECT_GT(all[i].at("call_us"), 0);
      EXPECT_TRUE(all[i].at("counters").is_null());
    }
  }
}

}  // namespace
}  // namespace tessera::cli
