// SPDX-License-Identifier: Apache-2.0
// Do two strided tensors share a byte? In bytes, element x of a and y of b do when
//   -size_a < (base_a + sum x_k s_k) - (base_b + sum y_k t_k) < size_b.
// Counting each y_k down from its last value makes all coefficients positive: is there a z with
//   lo <= sum z_k c_k <= hi,  0 <= z_k <= n_k ?
#include <algorithm>
#include <vector>

#include "kernels/arguments.h"

namespace tessera {

namespace {

using Wide = __int128;  // a stride times an extent passes 64 bits

Wide floor_div(Wide a, Wide b) { return a / b - (a % b < 0); }  // b > 0

Wide gcd(Wide a, Wide b) { return b ? gcd(b, a % b) : a; }

class Search {
 public:
  Search(const Tensor& a, const Tensor& b) {
    const Wide size_a = size_of(a.dtype), size_b = size_of(b.dtype);
    const auto address = [](const Tensor& t) {
      return Wide(reinterpret_cast<std::uintptr_t>(t.data));
    };
    lo_ = address(b) - address(a) - (size_a - 1), hi_ = address(b) - address(a) + (size_b - 1);
    add(a);
    const Wide reach_b = add(b);
    lo_ += reach_b, hi_ += reach_b;
    merge();
  }

  Overlap run() { return visit(terms_.size(), lo_, hi_); }

 private:
  struct Term {
    Wide step, most;   // z * step, 0 <= z <= most
    Wide reach = 0;    // of this term and all smaller ones together
    Wide divisor = 0;  // of their steps
  };

  Wide add(const Tensor& t) {  // returns how far the tensor reaches
    Wide reach = 0;
    for (int i = 0; i < t.rank; i++) {
      const Wide step = Wide(t.stride[std::size_t(i)]) * size_of(t.dtype),
                 most = t.shape[std::size_t(i)] - 1;
      if (step > 0 && most > 0) terms_.push_back({step, most}), reach += step * most;
    }
    return reach;
  }

  void merge() {
    std::sort(terms_.begin(), terms_.end(),
              [](const Term& x, const Term& y) { return x.step < y.step; });
    std::vector<Term> kept;
    for (const Term& t : terms_) {
      if (!kept.empty() && kept.back().step == t.step)
        kept.back().most += t.most;
      else if (kept.empty() && t.step <= hi_ - lo_ + 1)
        lo_ -= t.step * t.most;  // its steps leave no gap in lo .. hi: one wider window
      else
        kept.push_back(t);
    }
    Wide reach = 0, divisor = 0;
    for (Term& t : kept) {
      t.reach = reach += t.step * t.most;
      t.divisor = divisor = gcd(divisor, t.step);
    }
    terms_ = std::move(kept);
  }

  // Over the first n terms, the largest first: every z for which the smaller ones may still end in
  // lo .. hi.
  Overlap visit(std::size_t n, Wide lo, Wide hi) {
    if (n == 0) return lo <= 0 && 0 <= hi ? Overlap::yes : Overlap::no;
    const Term& t = terms_[n - 1];
    if (floor_div(hi, t.divisor) * t.divisor < lo) return Overlap::no;
    const Wide rest = t.reach - t.step * t.most;
    const Wide from = std::max<Wide>(0, -floor_div(rest - lo, t.step)),
               to = std::min(t.most, floor_div(hi, t.step));
    for (Wide z = from; z <= to; z++) {
      if (++steps_ > kOverlapSteps) return Overlap::undecided;
      const Overlap found = visit(n - 1, lo - z * t.step, hi - z * t.step);
      if (found != Overlap::no) return found;
    }
    return Overlap::no;
  }

  Wide lo_ = 0, hi_ = 0;
  std::vector<Term> terms_;  // by step, ascending
  int steps_ = 0;
};

}  // namespace

Overlap overlap(const Tensor& a, const Tensor& b) {
  if (empty(a) || empty(b)) return Overlap::no;
  return Search(a, b).run();
}

}  // namespace tessera
