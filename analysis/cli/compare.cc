// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <fstream>
#include <map>

#include "analysis/cli/bench.h"

namespace tessera::cli {
namespace {

using Json = nlohmann::ordered_json;

// What makes two rows the same measurement, besides the run's target and card.
constexpr const char* kKey[] = {"provider", "kernel",   "arch",   "config",   "exp2",
                                "dtype",    "batch",    "heads",  "heads_kv", "q_len",
                                "k_len",    "head_dim", "causal", "launch",   "warm"};

struct Row {
  Json key;  // an object of kKey
  std::string status, reason;
  Spread ms;  // where timed
  bool has_times() const { return status == "ok" || status == "noisy"; }
  bool timed() const { return has_times() && ms.median > 0; }  // 0: the case was empty
};

// A file of records. Messages name it and the line.
struct File {
  std::string name;
  Json run;
  std::vector<Row> rows;
  std::map<std::string, std::size_t> at;  // a row's key, as text

  [[noreturn]] void fail(int line, const std::string& why) const {
    throw Error(ErrorKind::invalid_argument, fmt::format("{}:{}: {}", name, line, why));
  }

  void add_row(int line, const Json& record) {
    Row row;
    for (const char* field : kKey) row.key[field] = record.at(field);
    row.status = record.at("status").get<std::string>();
    if (record.at("reason").is_string()) row.reason = record["reason"].get<std::string>();
    if (row.has_times()) {
      const Json& ms = record.at("ms");
      row.ms = {ms.at("median").get<double>(), ms.at("p20").get<double>(),
                ms.at("p80").get<double>(), ms.at("min").get<double>(), ms.at("count").get<int>()};
      // A median of several runs' medians may lie outside of the interval of all their times.
      if (!(row.ms.p20 >= 0 && row.ms.p20 <= row.ms.p80 && row.ms.median >= 0))
        fail(line, "its times are not 0 <= p20 <= p80 and a median");
    }
    if (!at.emplace(row.key.dump(), rows.size()).second)
      fail(line, "a second row of the same measurement");
    rows.push_back(std::move(row));
  }

  explicit File(const std::string& path) : name(path) {
    std::ifstream file(path);
    if (!file) throw Error(ErrorKind::invalid_argument, path + ": cannot be read");
    int line = 0;
    for (std::string text; std::getline(file, text);) {
      ++line;
      try {
        const Json record = Json::parse(text);
        const auto kind = record.at("record").get<std::string>();
        if (kind == "row" && run.is_null()) fail(line, "a row before the record of its run");
        if (kind == "run" && !run.is_null()) fail(line, "a second run");
        if (kind == "run") {
          run = record;
          for (const char* field : {"target", "card"}) run.at(field);
        } else if (kind == "row") {
          add_row(line, record);
        } else if (kind != "end") {
          fail(line, "unknown record '" + kind + "'");
        }
      } catch (const nlohmann::json::exception& e) {
        fail(line, fmt::format("not a record of a benchmark: {}", e.what()));
      }
    }
    if (run.is_null()) fail(line, "no record of a run");
  }
};

struct Pair {
  const Row *a, *b;
  Verdict verdict;
  std::string note;
  double ratio() const { return b->ms.median / a->ms.median; }
  bool timed() const { return a->timed() && b->timed(); }
};

Pair pair_of(const Row& a, const Row& b, double threshold) {
  const auto stands = [](const Row& r) {
    return r.status + (r.reason.empty() ? "" : ": " + r.reason);
  };
  if (a.timed() && b.timed()) return {&a, &b, verdict_of(a.ms, b.ms, threshold), ""};
  if (a.timed()) return {&a, &b, Verdict::slower, "now " + stands(b)};
  if (b.timed()) return {&a, &b, Verdict::faster, "was " + stands(a)};
  const bool same = a.status == b.status;
  return {&a, &b, same ? Verdict::same : Verdict::unclear,
          same ? stands(b) : "was " + stands(a) + "; now " + stands(b)};
}

std::string text_of(const Json& value) {
  return value.is_string() ? value.get<std::string>() : value.is_null() ? "-" : value.dump();
}

std::string row_text(const Row& r) {
  const auto s = [&](const char* field) { return text_of(r.key[field]); };
  const std::string length = r.key["q_len"] == r.key["k_len"] ? s("q_len")
                                                              : s("q_len") + "x" + s("k_len");
  return fmt::format("{:<14} {:<20} {:<5} {:>3} {:>11} {:<12}",
                     s("provider") == "tessera" ? s("kernel") : s("provider"), s("config"),
                     s("dtype"), s("head_dim"), length, s("causal"));
}

void print_pair(std::FILE* to, const Pair& p) {
  const auto ms = [](const Row& r) {
    return r.timed() ? fmt::format("{:.4f}", r.ms.median) : std::string("-");
  };
  fmt::print(to, "{} {:>10} {:>10} {:>7} {}{}\n", row_text(*p.a), ms(*p.a), ms(*p.b),
             p.timed() ? fmt::format("{:.3f}", p.ratio()) : "-", name_of(p.verdict),
             p.note.empty() ? "" : ", " + p.note);
}

Json pair_record(const Pair& p) {
  const auto spread = [](const Row& r) -> Json {
    if (!r.timed()) return nullptr;
    return {{"median", r.ms.median}, {"p20", r.ms.p20}, {"p80", r.ms.p80}};
  };
  Json j = {{"record", "comparison"}};
  j.update(p.a->key);
  j.update({{"a", {{"status", p.a->status}, {"ms", spread(*p.a)}}},
            {"b", {{"status", p.b->status}, {"ms", spread(*p.b)}}},
            {"ratio", p.timed() ? Json(p.ratio()) : Json()},
            {"verdict", name_of(p.verdict)},
            {"note", p.note.empty() ? Json() : Json(p.note)}});
  return j;
}

int rows_without_partner(const File& f, const File& other, Output& out) {
  int n = 0;
  for (const Row& r : f.rows) {
    if (other.at.contains(r.key.dump())) continue;
    ++n;
    fmt::print(out.text(), "{} only in {}\n", row_text(r), f.name);
    Json j = {{"record", "unmatched"}, {"file", f.name}};
    j.update(r.key);
    out.record(j);
  }
  return n;
}

}  // namespace

ExitCode compare(const CompareOptions& o, Output& out) {
  const File a(o.before), b(o.after);
  for (const char* field : {"target", "card"})
    if (a.run[field] != b.run[field])
      b.fail(1, fmt::format("{} is {}, and {} in {}: times of different machines", field,
                            text_of(b.run[field]), text_of(a.run[field]), a.name));
  std::vector<Pair> pairs;
  for (const Row& r : a.rows)
    if (const auto found = b.at.find(r.key.dump()); found != b.at.end())
      pairs.push_back(pair_of(r, b.rows[found->second], o.threshold_percent / 100));
  if (pairs.empty())
    throw Error(ErrorKind::invalid_argument,
                a.name + " and " + b.name + " have no measurement in common");

  std::FILE* to = out.text();
  fmt::print(to, "{:<14} {:<20} {:<5} {:>3} {:>11} {:<12} {:>10} {:>10} {:>7}\n", "kernel",
             "config", "type", "D", "N", "causal", "A ms", "B ms", "B/A");
  int count[4] = {};
  std::vector<double> ratios;
  for (const Pair& p : pairs) {
    print_pair(to, p);
    out.record(pair_record(p));
    ++count[int(p.verdict)];
    if (p.timed()) ratios.push_back(p.ratio());
  }
  const int only_a = rows_without_partner(a, b, out), only_b = rows_without_partner(b, a, out);
  const double mean = geometric_mean(ratios);
  fmt::print(to, "{} rows: {} faster, {} slower, {} same, {} unclear; ", pairs.size(), count[0],
             count[1], count[2], count[3]);
  if (only_a || only_b) fmt::print(to, "only in A {}, only in B {}; ", only_a, only_b);
  fmt::print(to, "geometric mean of B/A {:.4f} over {}\n", mean, ratios.size());
  out.record({{"record", "summary"},
              {"a", a.name},
              {"b", b.name},
              {"threshold", o.threshold_percent / 100},
              {"faster", count[0]},
              {"slower", count[1]},
              {"same", count[2]},
              {"unclear", count[3]},
              {"only_in_a", only_a},
              {"only_in_b", only_b},
              {"geometric_mean", mean}});
  return count[int(Verdict::slower)] ? kRegression : kOk;
}

}  // namespace tessera::cli
