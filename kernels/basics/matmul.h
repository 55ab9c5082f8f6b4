// SPDX-License-Identifier: Apache-2.0
// C = A . B on the tensor cores (fp32: on the CUDA cores): rings of tiles, cp.async, boundary
// checks. Sums in fp32 over k in ascending order, rounded once.
#pragma once
#include "kernels/tile/dot.h"
#include "kernels/tile/element.h"
#include "kernels/tile/global.h"

namespace tessera {

template <class T, Config C>
struct Matmul {
  using Args = MatmulArgs;
  static constexpr Config kConfig = C;
  using ARing = Ring<SharedTile<T, C.rows, C.depth>, C.stages>;
  using BRing = Ring<SharedTile<T, C.depth, C.cols>, C.stages>;
  static constexpr int kSharedBytes = ARing::kBytes + BRing::kBytes;
  static constexpr int kWarpRows = C.rows / C.warps;
  static_assert(C.stages >= 2, "a stage is filled while another is read");

  static i64 grid(const Args& p) { return i64(ceil_div(p.n, C.cols)) * ceil_div(p.m, C.rows); }

  static TESSERA_FN void run(const Args& p) {
    const GridPosition block = grid_position(ceil_div(p.n, C.cols));
    const i32 row = block.y * C.rows, col = block.x * C.cols, row0 = warp_id() * kWarpRows;
    BlockPtr<const T, C.rows, C.depth> a{static_cast<const T*>(p.a), p.a_row, p.m, p.k, row, 0};
    BlockPtr<const T, C.depth, C.cols> b{static_cast<const T*>(p.b), p.b_row, p.k, p.n, 0, col};
    const BlockPtr<T, C.rows, C.cols> c{static_cast<T*>(p.c), p.c_row, p.m, p.n, row, col};

    SharedMemory shared;
    const ARing a_ring = shared.ring<ARing>("A");  // stages x (rows, depth)
    const BRing b_ring = shared.ring<BRing>("B");  // stages x (depth, cols)
    const auto fetch = [&](i32 step) {             // past the end of k: zeros, no branch
      load<C>(a_ring.acquire(step), a);
      load<C>(b_ring.acquire(step), b);
      commit<C>();
      a.advance(0, C.depth);
      b.advance(C.depth, 0);
    };

    Accumulator<kWarpRows, C.cols> acc;
    fill(acc, 0.0f);
    for (i32 j = 0; j < C.stages - 1; j++) fetch(j);
    const i32 steps = ceil_div(p.k, C.depth);
    for (i32 j = 0; j < steps; j++) {
      wait<C, C.stages - 2>();
      fetch(j + C.stages - 1);
      dot<C>(acc, a_ring.ready(j), row0, b_ring.ready(j));
    }
    store(c, acc, row0, [](const Lanes<float>& x) { return narrow<T>(x); });
  }
};

}  // namespace tessera
