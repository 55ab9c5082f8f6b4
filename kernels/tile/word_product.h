// SPDX-License-Identifier: Apache-2.0
// Products of 32-bit types: multiply-adds on the CUDA cores. A lane multiplies what it has read of
// both operands, for any accumulator map; docs/performance.md says what bounds it.
#pragma once
#include "kernels/tile/fragment.h"
#include "kernels/tile/shared.h"

namespace tessera {
namespace detail {

TESSERA_FN Lanes<float> multiply_add(const Lanes<float>& a, const Lanes<float>& b,
                                     const Lanes<float>& c) {
  return fma(a, b, c);
}
TESSERA_FN Lanes<Fq> multiply_add(const Lanes<Fq>& a, const Lanes<Fq>& b, const Lanes<Fq>& c) {
  return a * b + c;
}

// The operands of a k step of 4: a[v][i] = A(row v, 4k + i) and b[i][c] = B(4k + i, column c) for
// this lane's rows, and for its columns Run * j + c. pair(p) are those of steps 2p and 2p + 1.
template <class Map, class A>
struct WordA;
template <class Map, class T, int TileRows, int Depth>
struct WordA<Map, SharedTile<T, TileRows, Depth>> {
  static constexpr bool kInRegisters = false;
  static_assert(Map::kRowRun == 1);
  using Tile = SharedTile<T, TileRows, Depth>;
  Lanes<u32> first;
  TESSERA_FN WordA(const Tile& tile, int row0)
      : first(Tile{tile.base + u32(row0 * Tile::kPitch)}.at(Map::first_row(lane_id()),
                                                            Lanes<i32>(0))) {}
  TESSERA_FN explicit WordA(const Lanes<u32>& address) : first(address) {}
  TESSERA_FN WordA pair(int p) const { return WordA(Tile::beyond(first, 0, 8 * p)); }
  template <int Rows>
  TESSERA_FN void get(Lanes<T> (&a)[Rows][4], int k) const {
    TESSERA_UNROLL_FOR (int v = 0; v < Rows; v++)
      ld_shared(a[v], Tile::beyond(first, Map::down(v), 4 * k));
  }
};
template <class Map, class T, int TileRows, int Depth>
struct WordA<Map, WordTile<T, TileRows, Depth>> {
  static constexpr bool kInRegisters = false;
  static_assert(Map::kRowRun == 4);
  using Tile = WordTile<T, TileRows, Depth>;
  Lanes<u32> first;
  TESSERA_FN WordA(const Tile& tile, int row0)
      : first(tile.at(Map::first_row(lane_id()) + Lanes<i32>(row0), Lanes<i32>(0))) {}
  TESSERA_FN explicit WordA(const Lanes<u32>& address) : first(address) {}
  TESSERA_FN WordA pair(int p) const { return WordA(first + Lanes<u32>(Tile::offset(0, 8 * p))); }
  template <int Rows>
  TESSERA_FN void get(Lanes<T> (&a)[Rows][4], int k) const {
    TESSERA_UNROLL_FOR (int i = 0; i < 4; i++)
      TESSERA_UNROLL_FOR (int v = 0; v < Rows; v += 4) {
        Lanes<T> run[4];
        ld_shared(run, first + Lanes<u32>(Tile::offset(Map::down(v), 4 * k + i)));
        TESSERA_UNROLL_FOR (int w = 0; w < 4; w++) a[v + w][i] = run[w];
      }
  }
};
template <class Map, int OperandRows, int Depth, class T>
struct WordA<Map, Operand<OperandRows, Depth, T>> {
  static constexpr bool kInRegisters = true;
  static_assert(std::is_same_v<Map, MmaMap>, "the operand's own");
  const Operand<OperandRows, Depth, T>& operand;
  template <int Rows>
  TESSERA_FN void get(Lanes<T> (&a)[Rows][4], int k) const {
    // Column 4k + i sits in lane (4k + i) % 8 / 2 of the row's four.
    TESSERA_UNROLL_FOR (int v = 0; v < Rows; v++)
      TESSERA_UNROLL_FOR (int i = 0; i < 4; i++)
        a[v][i] = shuffle(operand.x[v / 2][k / 2][2 * (v % 2) + (i & 1)],
                          (lane_id() & Lanes<i32>(28)) + Lanes<i32>((4 * (k % 2) + i) / 2));
  }
};
template <class Map, class B>
struct WordB;
template <class Map, class T, int Cols, int Depth>
struct WordB<Map, Transposed<SharedTile<T, Cols, Depth>>> {
  using Tile = SharedTile<T, Cols, Depth>;  // its rows are columns of b
  Lanes<u32> first;
  TESSERA_FN explicit WordB(const Transposed<Tile>& b)
      : first(b.tile.at(Map::first_col(lane_id()), Lanes<i32>(0))) {}
  TESSERA_FN explicit WordB(const Lanes<u32>& address) : first(address) {}
  TESSERA_FN WordB pair(int p) const { return WordB(Tile::beyond(first, 0, 8 * p)); }
  TESSERA_FN void get(Lanes<T> (&b)[4][Map::kRun], int j, int k) const {
    TESSERA_UNROLL_FOR (int c = 0; c < Map::kRun; c++) {
      Lanes<T> row[4];
      ld_shared(row, Tile::beyond(first, Map::right(Map::kRun * j + c), 4 * k));
      TESSERA_UNROLL_FOR (int i = 0; i < 4; i++) b[i][c] = row[i];
    }
  }
};
// After eight rows the swizzle repeats: eight addresses, and an offset that is the same for every
// lane, are all that a loop needs.
template <class Map, class T, int Depth, int Cols>
struct WordB<Map, SharedTile<T, Depth, Cols>> {
  using Tile = SharedTile<T, Depth, Cols>;
  Lanes<u32> first[8];
  u32 offset = 0;
  TESSERA_FN explicit WordB(const Tile& b) {
    TESSERA_UNROLL_FOR (int i = 0; i < 8; i++)
      first[i] = b.address_of(Lanes<i32>(i), Map::first_col(lane_id()));
  }
  TESSERA_FN WordB pair(int p) const {
    WordB r = *this;
    r.offset = u32(8 * p * Tile::kPitch);
    return r;
  }
  TESSERA_FN void get(Lanes<T> (&b)[4][Map::kRun], int j, int k) const {
    TESSERA_UNROLL_FOR (int i = 0; i < 4; i++) {
      const int row = 4 * k + i;
      const Lanes<u32> at = Tile::beyond(first[row % 8], 0, Map::right(Map::kRun * j)) +
                            Lanes<u32>(offset + u32(row / 8 * 8 * Tile::kPitch));
      if constexpr (Map::kRun == 1)
        ld_shared(b[i][0], at);
      else
        ld_shared(b[i], at);
    }
  }
};

template <int Depth, class T, class A, class B, int Rows, int Cols, class Map>
TESSERA_FN void word_product(Accumulator<Rows, Cols, T, Map>& acc, const A& a, const B& b) {
  static_assert(Depth % 8 == 0);
  constexpr int kRows = 2 * acc.kRowTiles, kRuns = 2 * acc.kColTiles / Map::kRun;  // of a lane
  constexpr int kTogether = Map::kRun == 1 && kRuns % 2 == 0 ? 2 : 1;
  constexpr int kAhead = kRuns * Map::kRun < 4 ? kRuns : 4 / Map::kRun;
  count_fma(kRows * kRuns * Map::kRun * Depth);
  // What a step needs first, its part of a and of the first columns of b, is read during the step
  // before it.
  struct Start {
    Lanes<T> a[kRows][4], b[kAhead][4][Map::kRun];
    TESSERA_FN void get(const A& from_a, const B& from_b, int k) {
      from_a.get(a, k);
      TESSERA_UNROLL_FOR (int j = 0; j < kAhead; j++) from_b.get(b[j], j, k);
    }
  };
  // A multiply-add reads three registers, and each of two banks gives one a clock. So a number of b
  // meets all rows in turn, and stays in the operand cache, and the next one meets them from the
  // last row up; that the sums lie in the other bank than their rows is up to the compiler. (Where
  // the first one starts is worth 2 % of flash_forward on an H200, and found by trial.)
  constexpr int kFirstUp = Map::kRun == 1 ? 0 : 1;
  const auto step = [&](const Start& start, const B& b, int k) {
    TESSERA_UNROLL_FOR (int first = 0; first < kRuns; first += kTogether) {
      Lanes<T> more[kTogether][4][Map::kRun];
      TESSERA_UNROLL_FOR (int j = 0; j < kTogether; j++)
        if (first + j >= kAhead) b.get(more[j], first + j, k);
      TESSERA_UNROLL_FOR (int i = 0; i < 4; i++)
        TESSERA_UNROLL_FOR (int r = 0; r < kTogether * Map::kRun; r++)
          TESSERA_UNROLL_FOR (int w = 0; w < kRows; w++) {
            const bool up = r % 2 == kFirstUp;
            const int v = up ? kRows - 1 - w : w, j = r / Map::kRun, run = first + j;
            const auto& column = run < kAhead ? start.b[run] : more[j];
            Lanes<T>& x = acc.at(v, Map::kRun * first + r);
            x = multiply_add(start.a[v][i], column[i][r % Map::kRun], x);
          }
    }
  };
  if constexpr (A::kInRegisters) {  // a register array is indexed by constants only
    TESSERA_UNROLL_FOR (int k = 0; k < Depth / 4; k++) {
      Start now;
      now.get(a, b, k);
      step(now, b, k);
    }
  } else {
    Start even, odd;
    A a_now = a;
    B b_now = b;
    even.get(a_now, b_now, 0);
    TESSERA_ROLLED_FOR (int p = 0; p < Depth / 8; p++) {
      odd.get(a_now, b_now, 1);
      step(even, b_now, 0);
      const int next = p + 1 < Depth / 8 ? p + 1 : 0;  // there is always something to read
      const A a_next = a.pair(next);
      const B b_next = b.pair(next);
      even.get(a_next, b_next, 0);
      step(odd, b_now, 1);
      a_now = a_next, b_now = b_next;
    }
  }
}

}  // namespace detail

// One warp's accumulators (Rows, Cols), as the variant casts them, into rows row0 ..
// row0 + Rows - 1 of a tile, which are this warp's alone.
template <Variant V = Variant::none, class T, int TileRows, int Rows, int Cols, class Map>
TESSERA_FN void store(const WordTile<T, TileRows, Cols>& to,
                      const Accumulator<Rows, Cols, T, Map>& from, int row0,
                      Site site = Site::here()) {
  static_assert(Map::kRun == 1 && Map::kRowRun == 4);
  using Tile = WordTile<T, TileRows, Cols>;
  const Lanes<u32> first = to.at(Map::first_row(lane_id()) + Lanes<i32>(row0),
                                 Map::first_col(lane_id()));
  warp_sync(site);  // what other lanes have read of these rows
  at(site);
  TESSERA_UNROLL_FOR (int v = 0; v < 2 * from.kRowTiles; v += 4)
    TESSERA_UNROLL_FOR (int c = 0; c < 2 * from.kColTiles; c++)
      st_shared_chunk(first + Lanes<u32>(Tile::offset(Map::down(v), Map::right(c))),
                      make_chunk(cast_as<V>(from.at(v, c)), cast_as<V>(from.at(v + 1, c)),
                                 cast_as<V>(from.at(v + 2, c)), cast_as<V>(from.at(v + 3, c))));
  warp_sync(site);
}

}  // namespace tessera
