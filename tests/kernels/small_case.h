// SPDX-License-Identifier: Apache-2.0
// Problems whose elements are written one by one, and tensors laid out in memory in any way: what
// the tests of real kernels' faults are made of.
#pragma once
#include <array>
#include <string>
#include <vector>

#include "tests/kernels/attention_case.h"

namespace tessera::testing {

constexpr double kInf = __builtin_huge_val();

// Numbers rounded to a 16- or 32-bit type.
Bytes pack(Dtype d, const std::vector<double>& x);

// One key head for each head, or heads_kv of them. options.checks is on.
struct Small {
  Dtype dtype;
  i64 batch, heads, heads_kv, q_len, k_len, head_dim;
  AttentionOptions options;
  std::vector<double> q, k, v, o, lse;  // q, k, v start as 0, run() makes o and lse
  Report report;

  Small(const std::string& kernel, Dtype d, i64 q_len, i64 k_len, i64 head_dim, i64 batch = 1,
        i64 heads = 1, i64 heads_kv = 0);
  void fill_random(double magnitude = 1, u64 seed = 3);
  void run();  // O and LSE were NaN before, and findings are failures
  double& at(std::vector<double>& x, i64 row, i64 col) {
    return x[std::size_t(row * head_dim + col)];
  }
  double at(const std::vector<double>& x, i64 row, i64 col) const {
    return x[std::size_t(row * head_dim + col)];
  }
  Problem problem() const;
  // O and LSE against float64 on what the type holds of q, k and v.
  Verdict verdict() const;
};

// A kernel and a type: what a case of faults runs for.
struct KernelType {
  std::string kernel;
  Dtype dtype;
};
std::ostream& operator<<(std::ostream& os, const KernelType& k);
std::vector<KernelType> kernels_and_types();
std::vector<KernelType> types_of(const std::string& kernel);
std::string kernel_type_name(const KernelType& k);

// ---- layouts

struct Layout {
  const char* name;
  std::array<i64, 4> order;  // dimensions from outermost to innermost storage; 3 last
  i64 row_gap = 0;           // extra elements after each row
  i64 offset = 0;            // of the first element
  i64 rows_after = 0;        // extra rows after the last one of each head
};
extern const std::vector<Layout> kLayouts;

// The elements of a contiguous tensor, laid out otherwise inside memory that is filled with
// `around`.
struct Placed {
  Bytes memory;
  Tensor tensor;
};
Placed place(const Bytes& from, Dtype d, std::array<i64, 4> shape, const Layout& l, u32 around);
// The same elements, contiguous again.
Bytes gather(const Tensor& t);

}  // namespace tessera::testing
