// SPDX-License-Identifier: Apache-2.0
// FlashAttention-2 forward, step 1 of the tutorial: the kernel as one writes it first. 16x16 tiles,
// one block a query tile and (batch, head), boundary-checked loads that fill with zero, running
// maximum, sum and output in fp32, natural exp, the mask on every tile with -1e6, and no tile
// skipped.
//
// Its limit is the -1e6: a row whose true scores are near or below it is wrong, and so is a row
// without a visible key (the launcher refuses those shapes). The finite-field instance masks with
// `hidden` instead.
#pragma once
#include "kernels/tile/dot.h"
#include "kernels/tile/element.h"
#include "kernels/tile/global.h"
#include "kernels/tile/key_range.h"

namespace tessera {

template <class T, Config C>
struct FlashStep1 {
  using Args = AttentionArgs;
  static constexpr Config kConfig = C;
  using E = Element<T, C.exp2>;
  using Acc = typename E::accumulator;
  static constexpr int kBlockQ = C.rows, kBlockK = C.cols, kHeadDim = C.head_dim;
  using QTile = SharedTile<T, kBlockQ, kHeadDim>;
  using KTile = SharedTile<T, kBlockK, kHeadDim>;
  using Rows = RowVector<kBlockQ, Acc>;
  static constexpr int kSharedBytes = QTile::kBytes + 2 * KTile::kBytes;
  static_assert(C.warps == 1 && kBlockQ == 16, "one warp owns the query tile");

  static i64 grid(const Args& p) { return i64(ceil_div(p.q_len, kBlockQ)) * p.batch * p.heads; }

  static TESSERA_HD constexpr Acc masked() {
    if constexpr (std::is_same_v<Acc, float>)
      return -1e6f;
    else
      return E::hidden();
  }

  static TESSERA_FN void run(const Args& p) {
    const GridPosition block = grid_position(ceil_div(p.q_len, kBlockQ));
    const i32 q0 = block.x * kBlockQ, head = block.y % p.heads, batch = block.y / p.heads;
    const i32 head_kv = head / (p.heads / p.heads_kv);
    const auto origin = [&](const void* base, const Strides& s, i32 h) {
      return static_cast<const T*>(base) + (i64(batch) * s.batch + i64(h) * s.head);
    };

    // Windows: base, row stride, (rows, columns) of the matrix, (row, column) of the first element
    BlockPtr<const T, kBlockQ, kHeadDim> q{
        origin(p.q, p.q_stride, head), p.q_stride.row, p.q_len, p.head_dim, q0, 0};
    BlockPtr<const T, kBlockK, kHeadDim> k{
        origin(p.k, p.k_stride, head_kv), p.k_stride.row, p.k_len, p.head_dim, 0, 0};
    BlockPtr<const T, kBlockK, kHeadDim> v{
        origin(p.v, p.v_stride, head_kv), p.v_stride.row, p.k_len, p.head_dim, 0, 0};
    BlockPtr<T, kBlockQ, kHeadDim> o{
        const_cast<T*>(origin(p.o, p.o_stride, head)), p.o_stride.row, p.q_len, p.head_dim, q0, 0};
    VectorPtr<typename E::lse_type, kBlockQ> lse{
        static_cast<typename E::lse_type*>(p.lse) + (i64(batch) * p.heads + head) * p.q_len,
        p.q_len, q0};

    SharedMemory shared;
    const QTile q_tile = shared.tile<QTile>("Q");  // (block_q, head_dim)
    const KTile k_tile = shared.tile<KTile>("K");  // (block_k, head_dim)
    const KTile v_tile = shared.tile<KTile>("V");  // (block_k, head_dim)

    Accumulator<kBlockQ, kHeadDim, Acc> acc;  // O before it is divided by l
    Rows m, l;                                // running maximum of the scores, sum of the weights
    fill(acc, E::zero());
    fill(m, E::hidden());
    fill(l, E::zero());

    load<C>(q_tile, q);
    const KeyRange keys{p.key_left, p.key_right, p.k_len};
    const i32 tiles = ceil_div(p.k_len, kBlockK);
    count_tiles(0, 0, tiles);

    for (i32 j = 0; j < tiles; j++) {
      load<C>(k_tile, k);
      load<C>(v_tile, v);
      commit<C>();
      wait<C, 0>();

      Accumulator<kBlockQ, kBlockK, Acc> s;  // scores, then weights: (block_q, block_k)
      fill(s, E::zero());
      dot<C>(s, q_tile, 0, transpose(k_tile));
      for_each(s, [&](const Lanes<i32>& row, const Lanes<i32>& col, Lanes<Acc>& x) {
        const Lanes<i32> query = row + Lanes<i32>(q0), key = col + Lanes<i32>(j * kBlockK);
        const Lanes<bool> seen = C.variant == Variant::padded_keys ? keys.in_band(query, key)
                                                                   : keys.visible(query, key);
        x = select(seen, E::score(x, p.scale), masked());
      });

      const Rows m_new = max(m, row_max(s));
      const Rows alpha = map_rows([](auto& was, auto& now) { return E::rescale(was, now); }, m,
                                  m_new);
      for_each(s, m_new, [](auto& x, auto& max) { x = E::weight(x, max); });
      l = alpha * l + row_sum(s);
      scale_rows(acc, alpha);
      if constexpr (C.variant == Variant::dropped_cast)
        dot<C>(acc, as_operand_without_cast<T>(s), v_tile);
      else
        dot<C>(acc, as_operand<T>(s), v_tile);  // P rounded to the storage type
      m = m_new;

      barrier();  // before the next tile overwrites K and V
      k.advance(kBlockK, 0);
      v.advance(kBlockK, 0);
    }

    scale_rows(acc, map_rows([](auto& sum) { return E::reciprocal(sum); }, l));
    store(o, acc, 0, [](auto& x) { return E::to_storage(x); });
    const Rows log_sum = map_rows([](auto& max, auto& sum) { return E::make_lse(max, sum); }, m, l);
    if (p.lse) store(lse, log_sum, 0, [](auto& x) { return x; });
  }
};

}  // namespace tessera
