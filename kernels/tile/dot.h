// SPDX-License-Identifier: Apache-2.0
// Products of tiles: acc += a . b, one warp's rows. a is a shared tile (with the warp's first row)
// or a register operand; b is a shared tile (Depth, Cols), or transpose(tile) of a (Cols, Depth)
// one. Sums run over k in ascending order, whatever the types. Both operands have one storage type,
// or it does not compile.
#pragma once
#include "kernels/tile/fragment.h"
#include "kernels/tile/shared.h"
#include "kernels/tile/word_product.h"

namespace tessera {

// ---- 16-bit types: ldmatrix and mma.sync
namespace detail {

// acc columns n, n + 1 += a . b for one k step of 16; b holds (k 0-7, k 8-15) of columns n, then of
// n + 1.
template <Config C, class T, int Rows, int Cols>
TESSERA_FN void mma_step(Accumulator<Rows, Cols>& acc, int n, const Lanes<u32> (&a)[Rows / 16][4],
                         const Lanes<u32> (&b)[4]) {
  TESSERA_UNROLL_FOR (int i = 0; i < 2; i++)
    TESSERA_UNROLL_FOR (int m = 0; m < Rows / 16; m++) {
      if constexpr (C.mma_k() == 16) {
        const Lanes<u32> bi[2] = {b[2 * i], b[2 * i + 1]};
        mma_m16n8k16<T>(acc.x[m][n + i], a[m], bi);
      } else {
        const Lanes<u32> lo[2] = {a[m][0], a[m][1]}, hi[2] = {a[m][2], a[m][3]};
        mma_m16n8k8<T>(acc.x[m][n + i], lo, b[2 * i]);
        mma_m16n8k8<T>(acc.x[m][n + i], hi, b[2 * i + 1]);
      }
    }
}

// The operands of a k step of 16, from wherever they are: rows 16m of a, columns 8n and 8n + 8 of
// b.
template <class T, int TileRows, int Depth>
struct SharedA {  // (TileRows, Depth)
  static constexpr bool kInRegisters = false;
  const SharedTile<T, TileRows, Depth>& tile;
  int row0;
  TESSERA_FN void get(Lanes<u32> (&a)[4], int m, int k) const {
    using Tile = SharedTile<T, TileRows, Depth>;
    const Tile rows{tile.base + u32(row0 * tile.kPitch)};
    ldmatrix_x4(a, rows.template fragment<Tile::Order::rows>(16 * m, 2 * k));
  }
};
template <class T, int Rows, int Depth>
struct RegisterA {
  static constexpr bool kInRegisters = true;
  const Operand<Rows, Depth, T>& operand;
  TESSERA_FN void get(Lanes<u32> (&a)[4], int m, int k) const {
    TESSERA_UNROLL_FOR (int i = 0; i < 4; i++) a[i] = operand.x[m][2 * k + (i >> 1)][i & 1];
  }
};
template <class T, int Cols, int Depth>
TESSERA_FN void get_b(Lanes<u32> (&b)[4], const Transposed<SharedTile<T, Cols, Depth>>& t, int n,
                      int k) {
  using Tile = SharedTile<T, Cols, Depth>;  // its rows are columns of b
  ldmatrix_x4(b, t.tile.template fragment<Tile::Order::chunks>(8 * n, 2 * k));
}
template <class T, int Depth, int Cols>
TESSERA_FN void get_b(Lanes<u32> (&b)[4], const SharedTile<T, Depth, Cols>& t, int n, int k) {
  using Tile = SharedTile<T, Depth, Cols>;
  ldmatrix_x4_trans(b, t.template fragment<Tile::Order::rows>(16 * k, n));
}

template <Config C, int Depth, class T, class A, class B, int Rows, int Cols>
TESSERA_FN void mma_product(Accumulator<Rows, Cols>& acc, const A& a, const B& b) {
  static_assert(Cols % 16 == 0 && Depth % 16 == 0);
  const auto step = [&](int k) {
    Lanes<u32> ak[Rows / 16][4];
    TESSERA_UNROLL_FOR (int m = 0; m < Rows / 16; m++) a.get(ak[m], m, k);
    TESSERA_UNROLL_FOR (int n = 0; n < Cols / 8; n += 2) {
      Lanes<u32> bk[4];
      get_b(bk, b, n, k);
      mma_step<C, T>(acc, n, ak, bk);
    }
  };
  // Turing's ldmatrix adds no uniform register to an address: those of all steps at once, of both
  // operands, are more registers than a warp with 32 rows has to spare.
  if constexpr (C.arch == Arch::sm_75 && !A::kInRegisters && Rows > 16) {
    TESSERA_UNROLL_2_FOR(int k = 0; k < Depth / 16; k++) step(k);
  } else {
    TESSERA_UNROLL_FOR (int k = 0; k < Depth / 16; k++) step(k);
  }
}

}  // namespace detail

// acc (Rows, Cols) += rows row0 .. row0 + Rows - 1 of a (., Depth) . b
template <Config C, int Rows, int Cols, class Acc, class Map, class T, int TileRows, int Depth,
          class B>
requires std::is_same_v<typename B::element, T> TESSERA_FN void dot(
    Accumulator<Rows, Cols, Acc, Map>& acc, const SharedTile<T, TileRows, Depth>& a, int row0,
    const B& b, Site site = Site::here()) {
  at(site);
  if constexpr (sizeof(T) == 2)
    detail::mma_product<C, Depth, T>(acc, detail::SharedA<T, TileRows, Depth>{a, row0}, b);
  else
    detail::word_product<Depth, T>(acc, detail::WordA<Map, SharedTile<T, TileRows, Depth>>(a, row0),
                                   detail::WordB<Map, B>(b));
}
template <Config C, int Rows, int Cols, class Acc, class Map, class T, int TileRows, int Depth,
          class B>
requires std::is_same_v<typename B::element, T> TESSERA_FN void dot(
    Accumulator<Rows, Cols, Acc, Map>& acc, const WordTile<T, TileRows, Depth>& a, int row0,
    const B& b, Site site = Site::here()) {
  at(site);
  detail::word_product<Depth, T>(acc, detail::WordA<Map, WordTile<T, TileRows, Depth>>(a, row0),
                                 detail::WordB<Map, B>(b));
}
// acc (Rows, Cols) += a (Rows, Depth) . b; both operands in the same storage type T
template <Config C, int Rows, int Cols, class Acc, class Map, class T, int Depth, class B>
requires std::is_same_v<typename B::element, T> TESSERA_FN void dot(
    Accumulator<Rows, Cols, Acc, Map>& acc, const Operand<Rows, Depth, T>& a, const B& b,
    Site site = Site::here()) {
  at(site);
  if constexpr (sizeof(T) == 2)
    detail::mma_product<C, Depth, T>(acc, detail::RegisterA<T, Rows, Depth>{a}, b);
  else
    detail::word_product<Depth, T>(acc, detail::WordA<Map, Operand<Rows, Depth, T>>{a},
                                   detail::WordB<Map, B>(b));
}

// Rows row0 .. row0 + Rows - 1 of a tile as an operand in registers.
template <int Rows, class T, int TileRows, int Depth>
TESSERA_FN void load(Operand<Rows, Depth, T>& to, const SharedTile<T, TileRows, Depth>& from,
                     int row0, Site site = Site::here()) {
  at(site);
  if constexpr (sizeof(T) == 2) {
    const detail::SharedA<T, TileRows, Depth> a{from, row0};
    TESSERA_UNROLL_FOR (int m = 0; m < Rows / 16; m++)
      TESSERA_UNROLL_FOR (int k = 0; k < Depth / 16; k++) {
        Lanes<u32> x[4];
        a.get(x, m, k);
        TESSERA_UNROLL_FOR (int i = 0; i < 4; i++) to.x[m][2 * k + (i >> 1)][i & 1] = x[i];
      }
  } else {
    for_each(to, [&](const Lanes<i32>& row, const Lanes<i32>& col, Lanes<T>& x) {
      ld_shared(x, from.address_of(row + Lanes<i32>(row0), col));
    });
  }
}

}  // namespace tessera
