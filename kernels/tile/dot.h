// SPDX-License-Identifier: Apache-2.0
// Products of tiles: acc += a . b, one warp's rows. a is a shared tile (with the warp's first row)
// or a register operand; b is a shared tile (Depth, Cols), or transpose(tile) of a (Cols, Depth)
// one. Sums run over k in ascending order, whatever the types. Both operands have one storage type,
// or it does not compile.
#pragma once
#include "kernels/tile/fragment.h"
#include "kernels/tile/shared.h"

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

// ---- 32-bit types: multiply-adds on the CUDA cores, the same accumulator map
TESSERA_FN Lanes<float> multiply_add(const Lanes<float>& a, const Lanes<float>& b,
                                     const Lanes<float>& c) {
  return fma(a, b, c);
}
TESSERA_FN Lanes<Fq> multiply_add(const Lanes<Fq>& a, const Lanes<Fq>& b, const Lanes<Fq>& c) {
  return a * b + c;
}

// a[h][i] = A(g + 8h, 4k + i) for this lane's rows
template <class T, int TileRows, int Depth>
struct SharedWordA {
  static constexpr bool kInRegisters = false;
  const SharedTile<T, TileRows, Depth>& tile;
  int row0;
  TESSERA_FN void get(Lanes<T> (&a)[2][4], int m, int k) const {
    TESSERA_UNROLL_FOR (int h = 0; h < 2; h++)
      ld_shared(a[h], tile.at(row_of(lane_id(), 2 * h) + Lanes<i32>(16 * m + row0), Lanes<i32>(k)));
  }
};
template <class T, int Rows, int Depth>
struct RegisterWordA {
  static constexpr bool kInRegisters = true;
  const Operand<Rows, Depth, T>& operand;
  // Column 4k + i sits in lane (4k + i) % 8 / 2 of the row's four.
  TESSERA_FN void get(Lanes<T> (&a)[2][4], int m, int k) const {
    TESSERA_UNROLL_FOR (int h = 0; h < 2; h++)
      TESSERA_UNROLL_FOR (int i = 0; i < 4; i++)
        a[h][i] = shuffle(operand.x[m][k / 2][2 * h + (i & 1)],
                          (lane_id() & Lanes<i32>(28)) + Lanes<i32>((4 * (k % 2) + i) / 2));
  }
};
// b[i][c] = B(4k + i, 8n + 2t + c) for this lane's columns
template <class T, int Cols, int Depth>
TESSERA_FN void get_words_b(Lanes<T> (&b)[4][2], const Transposed<SharedTile<T, Cols, Depth>>& t,
                            int n, int k) {
  TESSERA_UNROLL_FOR (int c = 0; c < 2; c++) {
    Lanes<T> row[4];
    ld_shared(row, t.tile.at(col_of(lane_id(), c) + Lanes<i32>(8 * n), Lanes<i32>(k)));
    TESSERA_UNROLL_FOR (int i = 0; i < 4; i++) b[i][c] = row[i];
  }
}
// In a row that is known, only the lowest bit of a lane's chunk depends on the lane: two addresses
// serve all rows and columns, the rest is a constant. (One address each made ptxas keep 128 of
// them, and spill.)
template <class T, int Depth, int Cols>
TESSERA_FN void get_words_b(Lanes<T> (&b)[4][2], const SharedTile<T, Depth, Cols>& t, int n,
                            int k) {
  using Tile = SharedTile<T, Depth, Cols>;
  static_assert(Tile::kElement == 4 && Tile::kChunks % 2 == 0);
  const Lanes<u32> pair = Lanes<u32>(
      lane_id() & 3);  // columns 2 pair and 2 pair + 1: chunk pair / 2, half pair % 2
  const Lanes<u32> at[2] = {(pair << Lanes<u32>(3u)) + t.base,
                            ((pair ^ Lanes<u32>(2u)) << Lanes<u32>(3u)) + t.base};
  TESSERA_UNROLL_FOR (int i = 0; i < 4; i++) {
    const int row = 4 * k + i, key = swizzle_key(Tile::kChunks, row), chunk = (2 * n ^ key) & ~1;
    ld_shared(b[i], at[key & 1] + Lanes<u32>(u32(row * Tile::kPitch + chunk * 16)));
  }
}

template <int Depth, class T, class A, class B, int Rows, int Cols>
TESSERA_FN void word_product(Accumulator<Rows, Cols, T>& acc, const A& a, const B& b) {
  static_assert(Depth % 8 == 0);
  count_fma(Rows / 16 * (Cols / 8) * 4 * Depth);
  const auto step = [&](int k) {
    Lanes<T> ak[Rows / 16][2][4];
    TESSERA_UNROLL_FOR (int m = 0; m < Rows / 16; m++) a.get(ak[m], m, k);
    TESSERA_UNROLL_FOR (int n = 0; n < Cols / 8; n++) {
      Lanes<T> bk[4][2];
      get_words_b(bk, b, n, k);
      TESSERA_UNROLL_FOR (int m = 0; m < Rows / 16; m++)
        TESSERA_UNROLL_FOR (int i = 0; i < 4; i++)
          TESSERA_UNROLL_FOR (int r = 0; r < 4; r++) {
            Lanes<T>& x = acc.x[m][n][r];
            x = multiply_add(ak[m][r >> 1][i], bk[i][r & 1], x);
          }
    }
  };
  if constexpr (A::kInRegisters) {  // a register array is indexed by constants only
    TESSERA_UNROLL_FOR (int k = 0; k < Depth / 4; k++) step(k);
  } else {
    for (int k = 0; k < Depth / 4; k++) step(k);
  }
}

}  // namespace detail

// acc (Rows, Cols) += rows row0 .. row0 + Rows - 1 of a (., Depth) . b
template <Config C, int Rows, int Cols, class Acc, class T, int TileRows, int Depth, class B>
requires std::is_same_v<typename B::element, T> TESSERA_FN void dot(
    Accumulator<Rows, Cols, Acc>& acc, const SharedTile<T, TileRows, Depth>& a, int row0,
    const B& b, Site site = Site::here()) {
  at(site);
  if constexpr (sizeof(T) == 2)
    detail::mma_product<C, Depth, T>(acc, detail::SharedA<T, TileRows, Depth>{a, row0}, b);
  else
    detail::word_product<Depth, T>(acc, detail::SharedWordA<T, TileRows, Depth>{a, row0}, b);
}
// acc (Rows, Cols) += a (Rows, Depth) . b; both operands in the same storage type T
template <Config C, int Rows, int Cols, class Acc, class T, int Depth, class B>
requires std::is_same_v<typename B::element, T> TESSERA_FN void dot(
    Accumulator<Rows, Cols, Acc>& acc, const Operand<Rows, Depth, T>& a, const B& b,
    Site site = Site::here()) {
  at(site);
  if constexpr (sizeof(T) == 2)
    detail::mma_product<C, Depth, T>(acc, detail::RegisterA<T, Rows, Depth>{a}, b);
  else
    detail::word_product<Depth, T>(acc, detail::RegisterWordA<T, Rows, Depth>{a}, b);
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
