// SPDX-License-Identifier: Apache-2.0
// FlashAttention-2 forward (Dao 2023, arXiv 2307.08691): one block a query tile and (batch, head),
// its warps share the key tiles and split the query rows, so a row's maximum and sum never leave a
// warp. Key tiles outside the band are not visited, full ones run without mask code. The scores'
// accumulators become the operand of P V in registers; those of 32-bit types, which the CUDA cores
// multiply, in shared memory.
//
// stages 2: K and V in rings of two; a tile's copies run beside the whole step before it. A full
//           tile is weighed against the maximum as it is (OnlineSoftmax::try_weigh), half a tile at
//           a time; where that fails, its half is computed again, K being still there.
// stages 1: one buffer each; V's copy runs beside Q K^T, the next K's beside softmax and P V. Half
//           the shared memory, two barriers a tile instead of one.
#pragma once
#include "kernels/tile/dot.h"
#include "kernels/tile/global.h"
#include "kernels/tile/key_range.h"
#include "kernels/tile/online_softmax.h"

namespace tessera {

template <class T, Config C>
struct FlashForward {
  using Args = AttentionArgs;
  static constexpr Config kConfig = C;
  using E = Element<T, C.exp2>;
  using Acc = typename E::accumulator;
  static constexpr int kBlockQ = C.rows, kBlockK = C.cols, kHeadDim = C.head_dim;
  static constexpr int kWarpRows = kBlockQ / C.warps;
  static constexpr bool kQInRegisters = C.q == QHome::registers;
  // The CUDA cores multiply what a lane has read of both operands: with eight rows a lane (16 a
  // warp take 16 lanes a row, 32 take 8) its parts of S and O are nearly square, which takes the
  // fewest reads. A lane reads rows of K, so single columns of S, and 16 bytes of a row of V; P
  // changes from one map to the other in shared memory.
  static constexpr bool kPInShared = !E::kTensorCores && !kQInRegisters;
  static constexpr int kRowLanes = kWarpRows == 16 && kHeadDim % 64 == 0 && kBlockK % 32 == 0 ? 16
                                                                                              : 8;
  using Grid = std::conditional_t<kPInShared, WordGrid<kRowLanes>, MmaGrid>;
  template <int Cols>
  using Scores = Accumulator<kWarpRows, Cols, Acc, TileMap<Grid, kPInShared ? 1 : 2>>;
  using Output = Accumulator<kWarpRows, kHeadDim, Acc, TileMap<Grid, kPInShared ? 4 : 2>>;
  // Columns whose scores are weighed, and multiplied by V, at once: in full tiles so few that one
  // part's exponentials hide behind the other's product; in the first and in masked ones as many as
  // there are registers for.
  static constexpr int kPart = kBlockK < 32 ? kBlockK : 32;
  static constexpr int kEdgePart = kQInRegisters ? kBlockK : kPart;
  using OTile = SharedTile<T, kBlockQ, kHeadDim>;
  using QTile = std::conditional_t<kPInShared, WordTile<T, kBlockQ, kHeadDim>, OTile>;
  using KTile = SharedTile<T, kBlockK, kHeadDim>;
  using KRing = Ring<KTile, C.stages>;
  using PTile =
      std::conditional_t<kPInShared, WordTile<T, kBlockQ, kBlockK>, SharedTile<T, 0, kBlockK>>;
  static constexpr int kSharedBytes = QTile::kBytes + 2 * KRing::kBytes + PTile::kBytes;
  static_assert(kBlockQ % (16 * C.warps) == 0, "a warp owns whole 16-row fragments");
  static_assert(C.stages == 1 || (C.stages == 2 && !kPInShared));

  static i64 grid(const Args& p) { return i64(ceil_div(p.q_len, kBlockQ)) * p.batch * p.heads; }

  static TESSERA_FN void run(const Args& p) {
    const QueryTile block = longest_first(p.q_len, kBlockQ, p.heads, p.batch);
    const i32 q0 = block.q0, head_kv = block.head / (p.heads / p.heads_kv);
    const i32 row0 = warp_id() * kWarpRows;  // of this warp in the query tile
    const i32 q_last = (q0 + kBlockQ < p.q_len ? q0 + kBlockQ : p.q_len) - 1;
    const KeyRange keys{p.key_left, p.key_right, p.k_len};
    const KeyRange::Tiles tiles = keys.tiles(q0, q_last, kBlockK);
    const i32 full = keys.full_tiles(q0, q_last, kBlockK).count();  // for the counters alone
    count_tiles(ceil_div(p.k_len, kBlockK) - tiles.count(), full, tiles.count() - full);

    const auto origin = [&](const void* base, const Strides& s, const QueryTile& b, i32 h) {
      return static_cast<const T*>(base) + (i64(b.batch) * s.batch + i64(h) * s.head);
    };
    // Rows past the last visible key read as zero: what they hold, NaN too, meets no weight; and
    // the copy that runs ahead needs no branch.
    const i32 k_end = keys.end(q_last);
    const BlockPtr<const T, kBlockQ, kHeadDim> q{
        origin(p.q, p.q_stride, block, block.head), p.q_stride.row, p.q_len, p.head_dim, q0, 0};
    TileStream<C, const T, kBlockK, kHeadDim> k_stream({origin(p.k, p.k_stride, block, head_kv),
                                                        p.k_stride.row, k_end, p.head_dim,
                                                        tiles.first * kBlockK, 0});
    TileStream<C, const T, kBlockK, kHeadDim> v_stream({origin(p.v, p.v_stride, block, head_kv),
                                                        p.v_stride.row, k_end, p.head_dim,
                                                        tiles.first * kBlockK, 0});

    SharedMemory shared;
    const QTile q_tile = shared.tile<QTile>("Q");  // (block_q, head_dim)
    const KRing k_ring = shared.ring<KRing>("K");  // stages x (block_k, head_dim)
    const KRing v_ring = shared.ring<KRing>("V");  // stages x (block_k, head_dim)
    PTile p_tile{};                                // (block_q, block_k), each warp its own rows
    if constexpr (kPInShared) p_tile = shared.tile<PTile>("P");

    const typename E::Scaling scaling(p);
    OnlineSoftmax<E, kWarpRows, Grid> softmax(scaling);
    Output acc(E::zero());  // O before it is divided by l

    if (tiles.count() > 0) {
      load<C>(q_tile, q);
      k_stream.all(k_ring.acquire(tiles.first));
      commit<C>();
      if constexpr (C.stages == 2) {
        v_stream.all(v_ring.acquire(tiles.first));
        commit<C>();
      }
      const float sign = E::sign(p.scale);
      if (kQInRegisters || sign != 1.0f) wait<C, C.stages - 1>();
      if (sign != 1.0f) {
        multiply<C>(q_tile, sign);
        barrier();
      }
      Operand<kWarpRows, kQInRegisters ? kHeadDim : 16, T> q_operand;
      if constexpr (kQInRegisters) load(q_operand, q_tile, row0);

      for (i32 j = tiles.first; j < tiles.last; j++) {
        const KTile k_tile = k_ring.ready(j), v_tile = v_ring.ready(j);
        wait<C, 0>();
        const bool masked = keys.masked(q0, q_last, j, kBlockK);
        const auto product = [&](auto& s, const auto& k) {
          if constexpr (kQInRegisters)
            dot<C>(s, q_operand, transpose(k));
          else
            dot<C>(s, q_tile, row0, transpose(k));
        };
        const auto weigh_and_add = [&](auto& s, const auto& v, i32 first_key) {
          if (masked)
            for_each(s, [&](const Lanes<i32>& row, const Lanes<i32>& col, Lanes<Acc>& x) {
              const Lanes<i32> query = row + Lanes<i32>(q0 + row0),
                               key = col + Lanes<i32>(first_key);
              x = select(keys.visible(query, key), x, Lanes<Acc>(E::hidden()));
            });
          softmax.weigh(s, acc);
          if constexpr (kPInShared) {
            store<C.variant>(p_tile, s, row0);
            dot<C>(acc, p_tile, row0, v);
          } else {
            dot<C>(acc, as_operand<T, C.variant>(s), v);  // P rounded to the storage type
          }
        };

        if constexpr (C.stages == 1) {
          v_stream.start(v_tile);
          commit<C>();
          Scores<kBlockK> s(E::zero());
          product(s, k_tile);
          v_stream.finish(v_tile);
          wait<C, 0>();
          k_stream.start(k_tile);
          commit<C>();
          weigh_and_add(s, v_tile, j * kBlockK);
          k_stream.finish(k_tile);
        } else {
          const auto start_next = [&] {
            k_stream.start(k_ring.acquire(j + 1));
            v_stream.start(v_ring.acquire(j + 1));
            commit<C>();
          };
          // Behind the product a copy's instructions fill the gaps of the exponentials; where Q is
          // in shared memory there are no registers for its addresses that long.
          if (!kQInRegisters) start_next();
          if (j == tiles.first || masked) {
            if (kQInRegisters) start_next();
            TESSERA_ROLLED_FOR (int part = 0; part < kBlockK / kEdgePart; part++) {
              Scores<kEdgePart> e(E::zero());
              product(e, rows<kEdgePart>(k_tile, part));
              weigh_and_add(e, rows<kEdgePart>(v_tile, part), j * kBlockK + part * kEdgePart);
            }
          } else {
            Scores<kBlockK> s(E::zero());
            product(s, k_tile);
            if (kQInRegisters) start_next();
            TESSERA_UNROLL_FOR (int part = 0; part < kBlockK / kPart; part++) {
              auto p = columns<kPart>(s, part);
              if (!softmax.try_weigh(p)) {
                fill(p, E::zero());
                product(p, rows<kPart>(k_tile, part));
                softmax.weigh_again(p, acc);
              }
              dot<C>(acc, as_operand<T, C.variant>(p), rows<kPart>(v_tile, part));
            }
          }
          k_stream.finish(k_ring.acquire(j + 1));
          v_stream.finish(v_ring.acquire(j + 1));
        }
      }
    }

    const auto rows = softmax.finish();
    scale_rows(acc, rows.reciprocal);
    const QueryTile at = longest_first(p.q_len, kBlockQ, p.heads, p.batch);
    const BlockPtr<T, kBlockQ, kHeadDim> o{const_cast<T*>(origin(p.o, p.o_stride, at, at.head)),
                                           p.o_stride.row,
                                           p.q_len,
                                           p.head_dim,
                                           at.q0,
                                           0};
    store(o, acc, row0, OTile{q_tile.base});
    const VectorPtr<typename E::lse_type, kBlockQ> lse{
        static_cast<typename E::lse_type*>(p.lse) + (i64(at.batch) * p.heads + at.head) * p.q_len,
        p.q_len, at.q0};
    if (p.lse) store(lse, rows.lse, row0, [](auto& x) { return x; });
  }
};

}  // namespace tessera
