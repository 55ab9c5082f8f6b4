// SPDX-License-Identifier: Apache-2.0
// Online softmax over the key tiles of one warp's rows: reference maximum m, sum of weights l, and
// the accumulators they scale. The maximum is lazy: a row's is raised, and its l and O rescaled,
// only when its scores have grown by more than E::kSlack in powers of two, so that most tiles pass
// with one test a warp. Weights may then reach 2^kSlack; it is the same algebra.
#pragma once
#include "kernels/tile/element.h"
#include "kernels/tile/fragment.h"

namespace tessera {

template <class E, int Rows>
class OnlineSoftmax {
  using Acc = typename E::accumulator;
  using Row = RowVector<Rows, Acc>;

 public:
  TESSERA_FN explicit OnlineSoftmax(const typename E::Scaling& scaling) : scaling_(scaling) {
    fill(m_, E::hidden());
    fill(shift_, E::zero());
    fill(l_, E::zero());
  }

  // s (Rows, Cols): scores become weights against the row's reference. acc (Rows, HeadDim), which
  // earlier weights have made, is rescaled where that reference was raised.
  template <int Cols, int HeadDim>
  TESSERA_FN void weigh(Accumulator<Rows, Cols, Acc>& s, Accumulator<Rows, HeadDim, Acc>& acc) {
    const Row top = row_max(s);
    const auto unusual = [&](const auto& t, const auto& m) {
      return E::rose(t, m, scaling_) | E::wide(m, scaling_);
    };
    if (warp_any(any_row(unusual, top, m_))) {
      raise(top, acc);
      // Rows too far from 0 to fold their maximum; 0 is taken from the others.
      for_each(s, map_rows([&](const auto& m) { return E::base(m, scaling_); }, m_),
               [](auto& x, auto& base) { x = E::take_base(x, base); });
    }
    for_each(s, shift_, [&](auto& x, auto& shift) { x = E::folded_weight(x, shift, scaling_); });
    l_ = add_lane_sums(l_, s);  // each lane its own columns; finish() adds the four of a row
  }

  // What O is multiplied by in the end, and LSE, for each row.
  struct Result {
    Row reciprocal, lse;
  };
  TESSERA_FN Result finish() const {
    const Row l = across_row(l_, [](const auto& a, const auto& b) { return a + b; });
    return {map_rows([](auto& sum) { return E::reciprocal(sum); }, l),
            map_rows([&](auto& m, auto& shift,
                         auto& sum) { return E::make_lse(m, shift, sum, scaling_); },
                     m_, shift_, l)};
  }

 private:
  template <int HeadDim>
  TESSERA_FN void raise(const Row& top, Accumulator<Rows, HeadDim, Acc>& acc) {
    // A row that has not risen keeps every bit, its alpha is 1: what it gets does not depend on its
    // neighbours.
    const Row m_old = m_, shift_old = shift_;
    m_ = map_rows(
        [&](const auto& t, const auto& m) { return select(E::rose(t, m, scaling_), t, m); }, top,
        m_old);
    shift_ = map_rows([&](const auto& m) { return E::shift(m, scaling_); }, m_);
    const Row alpha = map_rows(
        [&](const auto& old, const auto& shift_of_old, const auto& m, const auto& shift) {
          return E::folded_rescale(old, shift_of_old, m, shift, scaling_);
        },
        m_old, shift_old, m_, shift_);
    l_ = l_ * alpha;
    scale_rows(acc, alpha);
  }

  typename E::Scaling scaling_;
  Row m_, shift_, l_;
};

}  // namespace tessera
