// SPDX-License-Identifier: Apache-2.0
// `tessera compare`: verdicts, files that cannot be compared, exit codes.
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <sstream>

#include "analysis/cli/statistics.h"
#include "tests/analysis/command.h"

namespace tessera::cli {
namespace {

using nlohmann::json;

Spread spread(double p20, double median, double p80) { return {median, p20, p80, p20, 20}; }

TEST(CompareVerdict, BySpreadAndThreshold) {
  const Spread a = spread(99.8, 100, 100.2);
  const auto verdict = [&](double p20, double median, double p80) {
    return verdict_of(a, spread(p20, median, p80), 0.01);
  };
  EXPECT_EQ(verdict(94, 95, 96), Verdict::faster);
  EXPECT_EQ(verdict(104, 105, 106), Verdict::slower);
  EXPECT_EQ(verdict(90, 95, 99.9), Verdict::unclear);  // 5 % less, but the intervals touch
  EXPECT_EQ(verdict(100.1, 105, 110), Verdict::unclear);
  EXPECT_EQ(verdict(99.4, 99.5, 99.6), Verdict::same);  // disjoint, but within the threshold
  EXPECT_EQ(verdict(100.4, 100.5, 100.6), Verdict::same);
  EXPECT_EQ(verdict(99, 100, 100.9), Verdict::same);
  EXPECT_EQ(verdict(98, 100, 101), Verdict::unclear);  // a spread of 3 %
  EXPECT_EQ(verdict_of(spread(98, 100, 101), a, 0.01), Verdict::unclear);
  EXPECT_EQ(verdict_of(a, spread(104, 105, 106), 0.1), Verdict::same);
}

TEST(CompareVerdict, GeometricMean) {
  EXPECT_DOUBLE_EQ(geometric_mean({2, 0.5}), 1);
  EXPECT_DOUBLE_EQ(geometric_mean({4, 1}), 2);
  EXPECT_EQ(geometric_mean({}), 1);
}

// ---- files

json run_line(const std::string& card = "card") {
  return {{"record", "run"}, {"target", "cuda"}, {"card", card}};
}
json row_line(int q_len, double median, const std::string& status = "ok") {
  json row = {{"record", "row"},
              {"provider", "tessera"},
              {"kernel", "flash_forward"},
              {"arch", "sm_90"},
              {"config", "128x64"},
              {"exp2", "hardware"},
              {"dtype", "bf16"},
              {"batch", 4},
              {"heads", 8},
              {"heads_kv", 8},
              {"q_len", q_len},
              {"k_len", q_len},
              {"head_dim", 64},
              {"causal", "none"},
              {"launch", "graph"},
              {"warm", false},
              {"status", status},
              {"reason", nullptr},
              {"ms", nullptr}};
  if (status == "ok" || status == "noisy")
    row["ms"] = {{"median", median},
                 {"p20", 0.998 * median},
                 {"p80", 1.002 * median},
                 {"min", 0.99 * median},
                 {"count", 20}};
  return row;
}

class Compare : public ::testing::Test {
 protected:
  ~Compare() override {
    std::remove(a_.c_str());
    std::remove(b_.c_str());
  }
  static void write(const std::string& path, const std::vector<json>& lines) {
    std::ofstream file(path);
    for (const json& line : lines) file << line.dump() << "\n";
  }
  Outcome compare(const std::vector<json>& a, const std::vector<json>& b,
                  const std::string& flags = "") {
    write(a_, a), write(b_, b);
    return tessera_command("compare '" + a_ + "' '" + b_ + "' " + flags);
  }
  // Its records, the summary last.
  std::vector<json> records(const std::vector<json>& a, const std::vector<json>& b, int code) {
    const Outcome r = compare(a, b, "--json -");
    EXPECT_EQ(r.code, code) << r.err;
    std::vector<json> all;
    std::istringstream lines(r.out);
    for (std::string line; std::getline(lines, line);) all.push_back(json::parse(line));
    return all;
  }
  const std::string a_ = temporary("a"), b_ = temporary("b");
};

TEST_F(Compare, FasterAndSameAreZeroSlowerIsFive) {
  const std::vector<json> a = {
      run_line(), row_line(512, 1), row_line(1024, 2), row_line(2048, 4), {{"record", "end"}}};
  const std::vector<json> better = {run_line(), row_line(1024, 2.001), row_line(512, 0.5),
                                    row_line(4096, 9)};
  const std::vector<json> all = records(a, better, 0);
  ASSERT_EQ(all.size(), 5u);
  EXPECT_EQ(all[0].at("verdict"), "faster");
  EXPECT_EQ(all[0].at("q_len"), 512);
  EXPECT_EQ(all[0].at("ratio"), 0.5);
  EXPECT_EQ(all[1].at("verdict"), "same");
  EXPECT_EQ(all[2].at("record"), "unmatched");
  EXPECT_EQ(all[2].at("q_len"), 2048);
  EXPECT_EQ(all[2].at("file"), a_);
  EXPECT_EQ(all[3].at("q_len"), 4096);
  EXPECT_EQ(all[3].at("file"), b_);
  EXPECT_EQ(all[4].at("record"), "summary");
  EXPECT_EQ(all[4].at("only_in_a"), 1);
  EXPECT_NEAR(all[4].at("geometric_mean").get<double>(), std::sqrt(0.5 * 2.001 / 2), 1e-12);

  const Outcome worse = compare(a, {run_line(), row_line(512, 1), row_line(1024, 2.1)});
  EXPECT_EQ(worse.code, 5);
  EXPECT_TRUE(contains(worse.out, "1 slower, 1 same")) << worse.out;
  EXPECT_TRUE(contains(worse.out, "geometric mean of B/A 1.0247")) << worse.out;
  EXPECT_EQ(compare(a, {run_line(), row_line(1024, 2.1)}, "--threshold 10").code, 0);
}

TEST_F(Compare, WhatIsNoLongerRightIsARegression) {
  for (const char* status : {"wrong", "refused", "impossible", "fell_back"}) {
    const json now = row_line(512, 0, status), before = row_line(512, 1);
    const std::vector<json> lost = records({run_line(), before}, {run_line(), now}, 5);
    EXPECT_EQ(lost[0].at("verdict"), "slower") << status;
    EXPECT_TRUE(lost[0].at("ratio").is_null());
    EXPECT_TRUE(contains(lost[0].at("note").get<std::string>(), status));
    EXPECT_EQ(records({run_line(), now}, {run_line(), before}, 0)[0].at("verdict"), "faster");
    EXPECT_EQ(records({run_line(), now}, {run_line(), now}, 0)[0].at("verdict"), "same");
  }
  // Noisy rows are timed.
  const json noisy = row_line(512, 1.1, "noisy");
  EXPECT_EQ(records({run_line(), row_line(512, 1)}, {run_line(), noisy}, 5)[0].at("verdict"),
            "slower");
}

TEST_F(Compare, RowsMatchByTheWholeKey) {
  const json row = row_line(512, 1);
  const std::pair<const char*, json> other[] = {{"provider", "sdpa:flash"},
                                                {"kernel", "flash_step1"},
                                                {"arch", "sm_89"},
                                                {"config", "64x64"},
                                                {"exp2", nullptr},
                                                {"dtype", "f16"},
                                                {"batch", 1},
                                                {"heads", 4},
                                                {"heads_kv", 4},
                                                {"q_len", 511},
                                                {"k_len", 511},
                                                {"head_dim", 63},
                                                {"causal", "top_left"},
                                                {"launch", "call"},
                                                {"warm", true}};
  for (const auto& [field, value] : other) {
    json changed = row;
    changed[field] = value;
    const Outcome r = compare({run_line(), row}, {run_line(), changed});
    EXPECT_EQ(r.code, 2) << field;
    EXPECT_TRUE(contains(r.err, "no measurement in common")) << r.err;
  }
}

TEST_F(Compare, WhatCannotBeComparedIsNamedWithItsLine) {
  const std::vector<json> good = {run_line(), row_line(512, 1)};
  const auto fails = [&](const std::vector<json>& b, const std::string& says) {
    const Outcome r = compare(good, b);
    EXPECT_EQ(r.code, 2) << says << r.out;
    EXPECT_TRUE(contains(r.err, b_ + says)) << r.err;
    EXPECT_EQ(r.out, "");
  };
  json without = row_line(512, 1), backwards = row_line(512, 1), negative = row_line(512, -1);
  without.erase("dtype");
  backwards["ms"]["p20"] = 2;
  fails({}, ":0: no record of a run");
  fails({row_line(512, 1)}, ":1: a row before the record of its run");
  fails({run_line(), run_line()}, ":2: a second run");
  fails({run_line(), without}, ":2: not a record of a benchmark: ");
  fails({run_line(), backwards}, ":2: its times are not");
  fails({run_line(), negative}, ":2: its times are not");
  fails({run_line(), row_line(512, 1), row_line(512, 1)}, ":3: a second row of the same");
  fails({run_line(), json{{"record", "rows"}}}, ":2: unknown record 'rows'");
  fails({run_line("another"), row_line(512, 1)}, ":1: card is another, and card in " + a_);
  fails({run_line(), json("text")}, ":2: not a record");

  std::ofstream(b_) << "{\"record\": \"run\", \n";
  const Outcome cut = tessera_command("compare '" + a_ + "' '" + b_ + "'");
  EXPECT_EQ(cut.code, 2);
  EXPECT_TRUE(contains(cut.err, b_ + ":1: not a record")) << cut.err;
  const Outcome missing = tessera_command("compare '" + a_ + "' /nonexistent");
  EXPECT_EQ(missing.code, 2);
  EXPECT_TRUE(contains(missing.err, "/nonexistent: cannot be read")) << missing.err;
  const Outcome one = tessera_command("compare '" + a_ + "'");
  EXPECT_EQ(one.code, 2);
  EXPECT_TRUE(contains(one.err, "two files")) << one.err;
  EXPECT_EQ(tessera_command("compare a b --threshold x").code, 2);
}

TEST_F(Compare, WhatBenchWritesIsTheSameAsItself) {
  const std::string bench = "bench --n 0,16 --causal none --max-repetitions 3 --noise 0 --json ";
  EXPECT_EQ(tessera_command(bench + a_).code, 0);
  const Outcome r = tessera_command("compare " + a_ + " " + a_ + " --threshold 1000 --json " + b_);
  EXPECT_EQ(r.code, 0) << r.err;
  EXPECT_TRUE(contains(r.out, "2 rows: 0 faster, 0 slower, 2 same")) << r.out;
  EXPECT_TRUE(contains(read_file(b_), "\"summary\""));
}

}  // namespace
}  // namespace tessera::cli
