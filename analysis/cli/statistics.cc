// SPDX-License-Identifier: Apache-2.0
#include "analysis/cli/statistics.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <stdexcept>

namespace tessera::cli {

double quantile(std::vector<double> samples, double at) {
  if (samples.empty()) throw std::invalid_argument("quantile: no samples");
  std::sort(samples.begin(), samples.end());
  const double place = at * double(samples.size() - 1), below = std::floor(place);
  const auto i = std::size_t(below);
  const double next = samples[std::min(i + 1, samples.size() - 1)];
  return samples[i] + (place - below) * (next - samples[i]);
}

Spread spread_of(const std::vector<double>& samples) {
  return {quantile(samples, 0.5), quantile(samples, 0.2), quantile(samples, 0.8),
          quantile(samples, 0), int(samples.size())};
}

bool StopRule::enough(const std::vector<std::vector<double>>& times) const {
  const auto count = times.empty() ? std::size_t(most) : times.front().size();
  if (count >= std::size_t(most)) return true;
  if (count < std::size_t(least)) return false;
  return std::all_of(times.begin(), times.end(),
                     [&](const auto& t) { return spread_of(t).noise() <= noise; });
}

std::vector<int> turn(int contenders, int repetition) {
  std::vector<int> order(std::size_t(contenders), 0);
  std::iota(order.begin(), order.end(), 0);
  if (contenders > 0)
    std::rotate(order.begin(), order.begin() + repetition % contenders, order.end());
  return order;
}

const char* name_of(Verdict v) {
  constexpr const char* kNames[] = {"faster", "slower", "same", "unclear"};
  return kNames[int(v)];
}

Verdict verdict_of(const Spread& a, const Spread& b, double threshold) {
  if (std::fabs(b.median - a.median) > threshold * a.median) {
    if (b.p80 < a.p20) return Verdict::faster;
    if (b.p20 > a.p80) return Verdict::slower;
    return Verdict::unclear;
  }
  return std::max(a.noise(), b.noise()) <= 2 * threshold ? Verdict::same : Verdict::unclear;
}

double geometric_mean(const std::vector<double>& ratios) {
  double sum = 0;
  for (const double r : ratios) sum += std::log(r);
  return ratios.empty() ? 1 : std::exp(sum / double(ratios.size()));
}

}  // namespace tessera::cli
