// SPDX-License-Identifier: Apache-2.0
// y = X . w, ragged both ways: the smallest complete use of block pointers. A block owns 16 rows of
// X and walks along them; what lies outside X is read as zero and never written.
#pragma once
#include "kernels/tile/global.h"

namespace tessera {

template <class T, Config C>
struct WeightedSum {
  using Args = WeightedSumArgs;
  static constexpr Config kConfig = C;
  static constexpr int kSharedBytes = 0;
  static_assert(C.warps == 1);

  static i64 grid(const Args& p) { return ceil_div(p.rows, C.rows); }

  static TESSERA_FN void run(const Args& p) {
    const i32 row0 = i32(block_index()) * C.rows;
    BlockPtr<const T, C.rows, C.cols> x_ptr{
        static_cast<const T*>(p.x), p.x_row, p.rows, p.cols, row0, 0};
    VectorPtr<const T, C.cols> w_ptr{static_cast<const T*>(p.w), p.cols, 0};
    const VectorPtr<T, C.rows> y_ptr{static_cast<T*>(p.y), p.rows, row0};

    RowVector<C.rows> y;
    fill(y, 0.0f);
    for (i32 col = 0; col < p.cols; col += C.cols) {
      Accumulator<C.rows, C.cols> x;  // (rows, cols) of X
      ColVector<C.cols> w;            // (cols)
      load(x, x_ptr);
      load(w, w_ptr);
      scale_cols(x, w);
      y = y + row_sum(x);
      x_ptr.advance(0, C.cols);
      w_ptr.advance(C.cols);
    }
    store(y_ptr, y, 0, [](const Lanes<float>& x) { return narrow<T>(x); });
  }
};

}  // namespace tessera
