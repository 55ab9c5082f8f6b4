// SPDX-License-Identifier: Apache-2.0
// What a set of times says, when it is enough of them, and which of two is faster.
#pragma once
#include <vector>

namespace tessera::cli {

// The value below which a fraction `at` (0 to 1) of the samples lies, linear between neighbours;
// samples in any order. Throws std::invalid_argument where there is none.
double quantile(std::vector<double> samples, double at);

struct Spread {
  double median = 0, p20 = 0, p80 = 0, min = 0;
  int count = 0;

  double noise() const { return median > 0 ? (p80 - p20) / median : 0; }
};
Spread spread_of(const std::vector<double>& samples);

// Repetitions go on until every contender's noise is at most `noise`, at least `least` and at most
// `most` of them.
struct StopRule {
  double noise = 0.02;
  int least = 20, most = 200;

  // times: of each contender, equally many.
  bool enough(const std::vector<std::vector<double>>& times) const;
};

// `order` for a repetition: 0 .. contenders - 1, each repetition starting with the next one.
std::vector<int> turn(int contenders, int repetition);

enum class Verdict { faster, slower, same, unclear };
const char* name_of(Verdict v);
// Of b beside a, by medians and by the intervals [p20, p80]:
// - the medians differ by more than `threshold` (a fraction of a's): faster or slower if the
//   intervals have no point in common, else unclear;
// - otherwise the same, unclear if the noise of one is more than twice the threshold.
Verdict verdict_of(const Spread& a, const Spread& b, double threshold);

double geometric_mean(const std::vector<double>& ratios);  // 1 for none

}  // namespace tessera::cli
