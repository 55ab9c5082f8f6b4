// SPDX-License-Identifier: Apache-2.0
// The cases whose result bits are recorded on a real GPU and recomputed on the emulator in CI.
#pragma once
#include <vector>

#include "kernels/registry.h"
#include "tests/kernels/attention_case.h"

namespace tessera::testing {

struct GoldenShape {
  i64 batch, heads, heads_kv, q_len, k_len, head_dim;
  Causal causal;
  double magnitude;
};
constexpr Causal kFull = Causal::none, kTop = Causal::top_left, kBottom = Causal::bottom_right;
// Ragged both ways, Nq != Nk, causal and not, grouped queries, spread magnitudes.
constexpr GoldenShape kShapes[] = {
    {1, 1, 1, 1, 1, 64, kFull, 1},      {1, 1, 1, 1, 77, 32, kFull, 4},
    {2, 1, 1, 37, 53, 32, kFull, 1},    {1, 2, 2, 53, 37, 64, kTop, 1},
    {1, 3, 1, 100, 100, 64, kTop, 2},   {1, 4, 2, 65, 130, 96, kBottom, 1},
    {1, 1, 1, 200, 96, 128, kFull, 1},  {1, 2, 1, 129, 255, 128, kBottom, 3},
    {2, 2, 2, 33, 200, 40, kFull, 0.1}, {1, 1, 1, 17, 0, 64, kFull, 1},
    {1, 1, 1, 150, 150, 72, kTop, 8},   {3, 1, 1, 16, 512, 64, kFull, 1},
};
// What a kernel with tiles to skip and rows without a key adds.
constexpr GoldenShape kMoreShapes[] = {
    {1, 1, 1, 255, 64, 64, kBottom, 1},  {1, 2, 1, 300, 129, 128, kBottom, 2},
    {1, 1, 1, 257, 257, 64, kTop, 1},    {1, 1, 1, 129, 129, 128, kTop, 4},
    {1, 2, 2, 128, 128, 64, kFull, 1},   {1, 1, 1, 256, 256, 128, kFull, 1},
    {1, 1, 1, 1, 600, 128, kBottom, 1},  {1, 8, 1, 5, 333, 64, kBottom, 2},
    {2, 3, 3, 63, 65, 1, kFull, 2},      {1, 2, 2, 65, 63, 8, kTop, 1},
    {1, 1, 1, 97, 161, 31, kBottom, 1},  {1, 1, 1, 190, 70, 33, kTop, 1},
    {1, 1, 1, 64, 320, 63, kFull, 6},    {1, 1, 1, 130, 90, 80, kBottom, 1},
    {1, 2, 1, 90, 300, 100, kTop, 2},    {1, 1, 1, 70, 140, 127, kFull, 1},
    {1, 1, 1, 333, 197, 64, kFull, 0.1}, {1, 1, 1, 1000, 40, 64, kTop, 1},
    {1, 1, 1, 40, 1000, 64, kBottom, 8}, {1, 1, 1, 513, 511, 96, kTop, 1},
};

// flash_step1 over its shapes; flash_forward over all of them, with every configuration of every
// arch that a shape has, and a few masks and scales more. Soft exp2.
inline std::vector<Case> golden_cases() {
  std::vector<Case> all;
  const auto add = [&](const std::string& kernel, const ConfigRow& row, Dtype d,
                       const GoldenShape& s) -> Case& {
    Case c;
    c.kernel = kernel, c.arch = std::string(name_of(row.arch)), c.card = "h200", c.dtype = d;
    c.config = std::string(row.name);
    c.batch = s.batch, c.heads = s.heads, c.heads_kv = s.heads_kv;
    c.q_len = s.q_len, c.k_len = s.k_len, c.head_dim = s.head_dim;
    c.causal = s.causal, c.magnitude = s.magnitude;
    return all.emplace_back(c);
  };
  for (const ConfigRow& row : kRows)
    for (const Dtype d : {Dtype::f32, Dtype::f16, Dtype::bf16}) {
      if (!row.has(Where::cuda) || !row.has(Where::sim) || !row.has(d)) continue;
      if (row.kernel == "flash_step1")
        for (const GoldenShape& s : kShapes) add("flash_step1", row, d, s);
      if (row.kernel != "flash_forward") continue;
      const auto own_bucket = [&](const GoldenShape& s) {
        return row.has_bucket(int(s.head_dim + 31) / 32 * 32);
      };
      for (const GoldenShape& s : kShapes)
        if (own_bucket(s)) add("flash_forward", row, d, s);
      for (const GoldenShape& s : kMoreShapes)
        if (own_bucket(s)) add("flash_forward", row, d, s);
      // Windows; scales: negative, zero, and so large that no maximum can be folded.
      const int bucket = row.has_bucket(32) ? 32 : row.has_bucket(96) ? 96 : 128;
      const GoldenShape s{1, 2, 1, 150, 270, bucket, kFull, 1};
      Case& window = add("flash_forward", row, d, s);
      window.left = 70, window.right = 5;
      Case& last = add("flash_forward", row, d, s);
      last.left = 63, last.right = 0, last.align = Align::bottom_right;
      for (const double scale : {-0.5, 0.0, 5000.0}) add("flash_forward", row, d, s).scale = scale;
    }
  return all;
}

}  // namespace tessera::testing
