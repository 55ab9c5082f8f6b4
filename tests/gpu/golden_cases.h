// SPDX-License-Identifier: Apache-2.0
// The cases whose result bits are recorded on a real GPU and recomputed on the emulator in CI.
#pragma once
#include <vector>

#include "tests/kernels/attention_case.h"

namespace tessera::testing {

// Ragged both ways, Nq != Nk, causal and not, grouped queries, spread magnitudes; soft exp2.
inline std::vector<Case> golden_cases() {
  struct Shape {
    i64 batch, heads, heads_kv, q_len, k_len, head_dim;
    Causal causal;
    double magnitude;
  };
  const Shape shapes[] = {
      {1, 1, 1, 1, 1, 64, Causal::none, 1},
      {1, 1, 1, 1, 77, 32, Causal::none, 4},
      {2, 1, 1, 37, 53, 32, Causal::none, 1},
      {1, 2, 2, 53, 37, 64, Causal::top_left, 1},
      {1, 3, 1, 100, 100, 64, Causal::top_left, 2},
      {1, 4, 2, 65, 130, 96, Causal::bottom_right, 1},
      {1, 1, 1, 200, 96, 128, Causal::none, 1},
      {1, 2, 1, 129, 255, 128, Causal::bottom_right, 3},
      {2, 2, 2, 33, 200, 40, Causal::none, 0.1},
      {1, 1, 1, 17, 0, 64, Causal::none, 1},
      {1, 1, 1, 150, 150, 72, Causal::top_left, 8},
      {3, 1, 1, 16, 512, 64, Causal::none, 1},
  };
  std::vector<Case> all;
  for (const char* arch : {"sm_75", "sm_89", "sm_90"})
    for (const Dtype d : {Dtype::f32, Dtype::f16, Dtype::bf16})
      for (const Shape& s : shapes) {
        if (d == Dtype::bf16 && std::string(arch) == "sm_75") continue;
        Case c;
        c.arch = arch, c.card = "h200", c.dtype = d;
        c.batch = s.batch, c.heads = s.heads, c.heads_kv = s.heads_kv;
        c.q_len = s.q_len, c.k_len = s.k_len, c.head_dim = s.head_dim;
        c.causal = s.causal, c.magnitude = s.magnitude;
        all.push_back(c);
      }
  return all;
}

}  // namespace tessera::testing
