// SPDX-License-Identifier: Apache-2.0
// A window of the C++ interface. All scores are 0, so O is the mean of the visible rows of V, and
// LSE the logarithm of their number.
#include <tessera/attention.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <vector>

int main() {
  constexpr int kLength = 40, kDim = 24, kLeft = 5;
  std::vector<float> zero(kLength * kDim), v(kLength * kDim), o(kLength * kDim), lse(kLength);
  for (int j = 0; j < kLength; j++)
    for (int d = 0; d < kDim; d++) v[j * kDim + d] = float(j) + 0.5f * float(d);
  const auto tensor = [](std::vector<float>& x) {
    return tessera::contiguous(x.data(), tessera::Dtype::f32, {1, 1, kLength, kDim});
  };
  tessera::AttentionOptions options;
  options.causal = tessera::Causal::top_left, options.left = kLeft;
  const tessera::Tensor l = tessera::contiguous(lse.data(), tessera::Dtype::f32, {1, 1, kLength});
  try {
    const tessera::Report report = tessera::attention(tensor(zero), tensor(zero), tensor(v),
                                                      tensor(o), &l, options);
    std::printf("%s on %s\n", report.instance.c_str(), report.card.c_str());
  } catch (const tessera::Error& e) {
    std::printf("%s\n", e.what());
    return int(e.kind);
  }
  for (int i = 0; i < kLength; i++) {
    const int first = std::max(0, i - kLeft);
    const double count = i - first + 1, mean = 0.5 * (first + i);
    bool right = std::fabs(lse[i] - std::log(count)) < 1e-5;
    for (int d = 0; d < kDim; d++)
      right = right && std::fabs(o[i * kDim + d] - (mean + 0.5 * d)) < 1e-4;
    if (!right) {
      std::printf("row %d is wrong\n", i);
      return 1;
    }
  }
  std::printf("right\n");
}
