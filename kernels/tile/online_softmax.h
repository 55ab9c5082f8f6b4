// SPDX-License-Identifier: Apache-2.0
// Online softmax over the key tiles of one warp's rows: reference maximum m, sum of weights l, and
// the accumulators they scale. The maximum is lazy: a row's is raised, and its l and O rescaled,
// only when its scores have grown by more than E::kSlack in powers of two. Weights may then be
// larger than 1; it is the same algebra.
//
// try_weigh weighs against the reference as it is, and looks at the sums it needs anyway for what
// does not fit: no score waits for a row's maximum, and most tiles find none. weigh takes the
// maximum first, for the first tile, masked ones, and after try_weigh has failed.
#pragma once
#include "kernels/tile/element.h"
#include "kernels/tile/fragment.h"

namespace tessera {

template <class E, int Rows, class Grid = MmaGrid>
class OnlineSoftmax {
  using Acc = typename E::accumulator;
  using Row = RowVector<Rows, Acc, Grid>;

 public:
  TESSERA_FN explicit OnlineSoftmax(const typename E::Scaling& scaling) : scaling_(scaling) {
    fill(m_, E::hidden());
    fill(shift_, E::unfit());
    fill(l_, E::zero());
  }

  // s (Rows, Cols): scores become weights against the row's reference, and true; or, where one of
  // the warp's rows needs another reference, something without a meaning, and false: then the same
  // scores, made again, go to weigh_again.
  template <int Cols, class Map>
  TESSERA_FN bool try_weigh(Accumulator<Rows, Cols, Acc, Map>& s) {
    static_assert(Cols <= 32, "E::fits counts 8 columns a lane");
    for_each(s, shift_, [&](auto& x, auto& shift) { x = E::folded_weight(x, shift, scaling_); });
    const Row sums = lane_sums(s);
    const auto unfit = [](const auto& sum, const auto& shift) { return !E::fits(sum, shift); };
    if (warp_any(any_row(unfit, sums, shift_))) return false;
    l_ = l_ + sums;
    return true;
  }
  // Only where a lane's own sum does not fit may its row rise: what a row gets does not depend on
  // its neighbours. (The sums are made again: they would be registers of the way that is common.)
  template <int Cols, int HeadDim, class ScoreMap, class Map>
  TESSERA_FN void weigh_again(Accumulator<Rows, Cols, Acc, ScoreMap>& s,
                              Accumulator<Rows, HeadDim, Acc, Map>& acc) {
    const Row sums = lane_sums(s, shift_, [&](const auto& x, const auto& shift) {
      return E::folded_weight(x, shift, scaling_);
    });
    const auto top_of_unfit = [](const auto& top, const auto& sum, const auto& shift) {
      return select(E::fits(sum, shift), Lanes<Acc>(E::hidden()), top);
    };
    weigh(s, map_rows(top_of_unfit, lane_max(s), sums, shift_), acc);
  }
  // s (Rows, Cols): scores become weights against the row's reference. acc (Rows, HeadDim), which
  // earlier weights have made, is rescaled where that reference was raised.
  template <int Cols, int HeadDim, class ScoreMap, class Map>
  TESSERA_FN void weigh(Accumulator<Rows, Cols, Acc, ScoreMap>& s,
                        Accumulator<Rows, HeadDim, Acc, Map>& acc) {
    weigh(s, lane_max(s), acc);
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
                     m_, exact_shift(), l)};
  }

 private:
  // top: each lane's largest score of a row. Whether a row rises needs no row's maximum: some
  // lane's rises with it.
  template <int Cols, int HeadDim, class ScoreMap, class Map>
  TESSERA_FN void weigh(Accumulator<Rows, Cols, Acc, ScoreMap>& s, const Row& top,
                        Accumulator<Rows, HeadDim, Acc, Map>& acc) {
    const auto unusual = [&](const auto& t, const auto& m) {
      return E::rose(t, m, scaling_) | E::wide(m, scaling_);
    };
    Row shift = shift_;
    if (warp_any(any_row(unusual, top, m_))) {
      raise(row_max(top), acc);
      // Rows too far from 0 to fold their maximum; 0 is taken from the others.
      for_each(s, map_rows([&](const auto& m) { return E::base(m, scaling_); }, m_),
               [](auto& x, auto& base) { x = E::take_base(x, base); });
      shift = exact_shift();
    }
    for_each(s, shift, [&](auto& x, auto& y) { x = E::folded_weight(x, y, scaling_); });
    l_ = l_ + lane_sums(s);  // each lane its own columns; finish() adds those of a row
  }
  TESSERA_FN Row exact_shift() const {
    return map_rows([&](const auto& m) { return E::shift(m, scaling_); }, m_);
  }
  template <int HeadDim, class Map>
  TESSERA_FN void raise(const Row& top, Accumulator<Rows, HeadDim, Acc, Map>& acc) {
    // A row that has not risen keeps every bit, its alpha is 1: what it gets does not depend on its
    // neighbours.
    const Row m_old = m_, shift_old = exact_shift();
    m_ = map_rows(
        [&](const auto& t, const auto& m) { return select(E::rose(t, m, scaling_), t, m); }, top,
        m_old);
    const Row shift_new = exact_shift();
    shift_ = map_rows(
        [&](const auto& m, const auto& shift) {
          return select(E::wide(m, scaling_), Lanes<Acc>(E::unfit()), shift);
        },
        m_, shift_new);
    const Row alpha = map_rows(
        [&](const auto& old, const auto& shift_of_old, const auto& m, const auto& shift) {
          return E::folded_rescale(old, shift_of_old, m, shift, scaling_);
        },
        m_old, shift_old, m_, shift_new);
    l_ = l_ * alpha;
    scale_rows(acc, alpha);
  }

  typename E::Scaling scaling_;
  Row m_, shift_, l_;  // shift_: E::unfit() where m is wide
};

}  // namespace tessera
