// SPDX-License-Identifier: Apache-2.0
// Streams of tiles in two halves (TileStream), stores through a shared tile, and what works on a
// shared tile in place, for every width of rows, number of warps and both ways to stream.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "kernels/tile/dot.h"
#include "kernels/tile/global.h"
#include "sim/random.h"
#include "tests/sim/run_kernel.h"

namespace tessera {
namespace {

using sim::Role;
using sim::run_kernel;

template <class T>
T from_bits(u32 x) {
  if constexpr (sizeof(T) == 2)
    return T{u16(x)};
  else
    return std::bit_cast<T>(x);
}
template <class T>
u32 bits_of(const T& x) {
  u32 r = 0;
  std::memcpy(&r, &x, sizeof(T));
  return r;
}
// A number of the type other than 0, another one for most places.
template <class T>
T value_at(i64 row, i64 col) {
  const u32 x = u32(sim::mix(u64(row), u64(col)) % 2000) + 1;
  return from_bits<T>(sizeof(T) == 2 ? 0x3c00 + x : std::bit_cast<u32>(float(x)));
}

// A matrix whose memory holds NaN wherever the matrix is not.
template <class T>
struct Matrix {
  i32 rows, cols;
  i64 stride, first;  // element (0, 0): 64 bytes on, or `shift` elements more
  std::vector<T> memory;
  Matrix(i32 rows, i32 cols, i64 stride, i64 shift = 0)
      : rows(rows),
        cols(cols),
        stride(stride),
        first(64 / i64(sizeof(T)) + shift),
        memory(std::size_t(rows * stride + 256), from_bits<T>(0x7fffffff)) {}
  void fill() {
    for (i32 i = 0; i < rows; i++)
      for (i32 j = 0; j < cols; j++)
        memory[std::size_t(first + i * stride + j)] = value_at<T>(i, j);
  }
  T* base() { return memory.data() + first; }
  T at(i64 i, i64 j) const {
    return i < rows && j < cols ? memory[std::size_t(first + i * stride + j)] : T{};
  }
  sim::GlobalTensor tensor(Role role) { return sim::matrix("X", base(), rows, cols, stride, role); }
};

template <class T, int Rows, int Cols, class F>
void for_each_element(const SharedTile<T, Rows, Cols>& tile, F f) {  // f(row, col, element)
  constexpr int kPerWord = 4 / int(sizeof(T));
  for (int first = 0; first < Rows * Cols / kPerWord; first += 32) {
    const Lanes<i32> index = (lane_id() + Lanes<i32>(first)) * Lanes<i32>(kPerWord);
    Lanes<u32> word;
    ld_shared(word, tile.address_of(index / Lanes<i32>(Cols), index % Lanes<i32>(Cols)));
    for (int i = 0; i < 32; i++)
      for (int h = 0; h < kPerWord; h++)
        f(index.v[i] / Cols, index.v[i] % Cols + h, from_bits<T>(word.v[i] >> (16 * h)));
  }
}

// ---- TileStream: two tiles, one below the other.

template <Config C, class T, int Cols, int Rows>
void expect_copies() {
  using Tile = SharedTile<T, Rows, Cols>;
  SCOPED_TRACE(::testing::Message() << "chunks " << Tile::kChunks << " warps " << C.warps
                                    << (C.has_cp_async() ? " async" : " through registers"));
  const struct {
    i32 rows, cols, row, col;
  } windows[] = {{2 * Rows, Cols, 0, 0},
                 {2 * Rows + 9, Cols + 8, 3, 8},
                 {Rows + 7, Cols - 3, 0, 0},
                 {Rows - 1, Cols - 9, 0, 0},
                 {3 * Rows - 5, 2 * Cols, Rows, Cols},
                 {1, 1, 0, 0},
                 {5, Cols, 8, 0}};
  for (const auto& w : windows)
    for (const bool in_halves : {true, false}) {
      Matrix<T> x(w.rows, w.cols, (w.cols + 15) / 16 * 16);
      x.fill();
      static T got[2][Rows][Cols];
      const auto body = [&](bool read) {
        return [&, read] {
          const auto ring = SharedMemory().ring<Ring<Tile, 2>>("tiles");
          TileStream<C, const T, Rows, Cols> stream(
              {x.base(), x.stride, w.rows, w.cols, w.row, w.col});
          for (int j = 0; j < 2; j++) {
            if (in_halves)
              stream.start(ring.acquire(j)), stream.finish(ring.acquire(j));
            else
              stream.all(ring.acquire(j));
          }
          commit<C>();
          wait<C, 0>();
          if (!read || warp_id() != C.warps - 1) return;
          for (int j = 0; j < 2; j++)
            for_each_element(ring.ready(j), [&](int r, int c, T e) { got[j][r][c] = e; });
        };
      };
      sim::RunOptions run{.warps = C.warps,
                          .shared_bytes = 2 * Tile::kBytes,
                          .checks = true,
                          .tensors = {x.tensor(Role::input)}};
      const auto outcome = run_kernel(run, body(true));
      for (const auto& f : outcome.findings) ADD_FAILURE() << f.check << " " << f.message;
      for (int j = 0; j < 2; j++)
        for (int r = 0; r < Rows; r++)
          for (int c = 0; c < Cols; c++)
            ASSERT_EQ(bits_of(got[j][r][c]), bits_of(x.at(w.row + j * Rows + r, w.col + c)))
                << "tile " << j << " " << r << "," << c;
      const auto counted = run_kernel(run, body(false)).counters;
      EXPECT_EQ(counted.shared_wavefronts, counted.shared_wavefronts_ideal);
    }
}
template <Arch A, int Warps>
void expect_copies_of_every_width() {
  constexpr Config C{.arch = A, .warps = Warps};
  expect_copies<C, f16, 32, 64>();     // 4 chunks a row
  expect_copies<C, f16, 64, 64>();     // 8
  expect_copies<C, f16, 96, 64>();     // 12
  expect_copies<C, f16, 128, 32>();    // 16
  expect_copies<C, float, 128, 32>();  // 32
}
TEST(TileStream, Asynchronous) {
  expect_copies_of_every_width<Arch::sm_89, 1>();
  expect_copies_of_every_width<Arch::sm_89, 2>();
  expect_copies_of_every_width<Arch::sm_89, 4>();
  expect_copies_of_every_width<Arch::sm_89, 8>();
}
TEST(TileStream, ThroughRegisters) {
  expect_copies_of_every_width<Arch::sm_75, 1>();
  expect_copies_of_every_width<Arch::sm_75, 2>();
  expect_copies_of_every_width<Arch::sm_75, 4>();
  expect_copies_of_every_width<Arch::sm_75, 8>();
}

// Through registers, start() touches no shared memory: what lies there is good until finish().
TEST(TileStream, StartLeavesTheTileAloneOnSm75) {
  constexpr Config C{.arch = Arch::sm_75, .warps = 1};
  using Tile = SharedTile<f16, 32, 64>;
  Matrix<f16> x(64, 64, 64);
  x.fill();
  int wrong = 0;
  run_kernel({.shared_bytes = Tile::kBytes}, [&] {
    const Tile tile = SharedMemory().tile<Tile>("tile");
    TileStream<C, const f16, 32, 64> stream({x.base(), 64, 64, 64, 0, 0});
    const auto expect = [&](int row0) {
      for_each_element(tile,
                       [&](int r, int c, f16 e) { wrong += e.bits != x.at(row0 + r, c).bits; });
    };
    stream.all(tile);
    stream.start(tile);
    expect(0);
    stream.finish(tile);
    expect(32);
  });
  EXPECT_EQ(wrong, 0);
}

// ---- where lanes point for ldmatrix

template <class T, int Cols>
void expect_fragments() {
  using Tile = SharedTile<T, 64, Cols>;
  const Tile tile{4096};
  for (int down = 0; down < 48; down += 8)
    for (int chunks = 0; chunks < Tile::kChunks; chunks += 2) {
      const Lanes<u32> got = tile.template fragment<Tile::Order::rows>(down, chunks);
      for (int lane = 0; lane < 32; lane++) {
        const Lanes<i32> row = lane % 16 + down, chunk = lane / 16 + chunks;
        ASSERT_EQ(got.v[lane], tile.at(row, chunk).v[0])
            << Cols << " columns, " << down << " down, " << chunks << " chunks on, lane " << lane;
      }
    }
}
TEST(SharedTile, FragmentsAreAConstantAway) {
  expect_fragments<f16, 16>(), expect_fragments<f16, 32>(), expect_fragments<f16, 64>();
  expect_fragments<f16, 96>(), expect_fragments<f16, 128>();
  expect_fragments<float, 32>(), expect_fragments<float, 96>(), expect_fragments<float, 128>();
}

// ---- an operand in registers

template <class T, int Depth>
void expect_operand_load() {
  constexpr Config C{.arch = Arch::sm_89, .warps = 2};
  using Tile = SharedTile<T, 64, Depth>;
  Matrix<T> x(64, Depth, Depth);
  x.fill();
  int wrong[2] = {};
  const auto outcome = run_kernel(
      {.warps = 2,
       .shared_bytes = Tile::kBytes,
       .checks = true,
       .tensors = {x.tensor(Role::input)}},
      [&] {
        const Tile tile = SharedMemory().tile<Tile>("tile");
        load<C>(tile, BlockPtr<const T, 64, Depth>{x.base(), Depth, 64, Depth, 0, 0});
        commit<C>();
        wait<C, 0>();
        const int row0 = 32 * warp_id();
        Operand<32, Depth, T> p;
        load(p, tile, row0);
        for (int m = 0; m < 2; m++)
          for (int n = 0; n < Depth / 8; n++)
            for (int lane = 0; lane < 32; lane++)
              for (int i = 0; i < 4; i++) {
                const int row = row0 + 16 * m, col = 8 * n;
                u32 got, want;
                if constexpr (sizeof(T) == 2) {
                  got = u16(p.x[m][n][i / 2].v[lane] >> (16 * (i % 2)));
                  want = bits_of(
                      x.at(row + operand_a_row(lane, i / 2), col + operand_a_col(lane, i % 2)));
                } else {
                  got = bits_of(p.x[m][n][i].v[lane]);
                  want = bits_of(x.at(row + row_of(lane, i), col + col_of(lane, i)));
                }
                wrong[warp_id()] += got != want;
              }
      });
  for (const auto& f : outcome.findings) ADD_FAILURE() << f.check << " " << f.message;
  EXPECT_EQ(wrong[0] + wrong[1], 0) << Depth;
}
TEST(Operand, LoadedFromASharedTile) {
  expect_operand_load<f16, 32>(), expect_operand_load<f16, 64>(), expect_operand_load<f16, 96>();
  expect_operand_load<bf16, 128>();
  expect_operand_load<float, 32>(), expect_operand_load<Fq, 96>();
}

// ---- a tile times 1, -1 or 0

template <class T>
void expect_multiplied() {
  constexpr Config C{.arch = Arch::sm_89, .warps = 2};
  constexpr float kInf = std::numeric_limits<float>::infinity();
  using Tile = SharedTile<T, 16, 64>;
  Matrix<T> x(16, 64, 64);
  x.fill();
  const auto put = [&](int i, float v) {
    x.memory[std::size_t(x.first + i)] = narrow<T>(Lanes<float>(v)).v[0];
  };
  put(0, std::nanf("")), put(1, kInf), put(2, -kInf), put(3, 0.0f), put(4, -0.0f), put(5, 1e-7f);
  for (const float factor : {1.0f, -1.0f, 0.0f}) {
    static T got[16][64];
    const auto outcome = run_kernel(
        {.warps = 2,
         .shared_bytes = Tile::kBytes,
         .checks = true,
         .tensors = {x.tensor(Role::input)}},
        [&] {
          const Tile tile = SharedMemory().tile<Tile>("tile");
          load<C>(tile, BlockPtr<const T, 16, 64>{x.base(), 64, 16, 64, 0, 0});
          commit<C>();
          wait<C, 0>();
          multiply<C>(tile, factor);
          barrier();
          if (warp_id() == 0) for_each_element(tile, [&](int r, int c, T e) { got[r][c] = e; });
        });
    for (const auto& f : outcome.findings) ADD_FAILURE() << f.check << " " << f.message;
    EXPECT_EQ(outcome.counters.shared_wavefronts, outcome.counters.shared_wavefronts_ideal);
    for (int r = 0; r < 16; r++)
      for (int c = 0; c < 64; c++) {
        const float want = widen(Lanes<T>(x.at(r, c))).v[0] * factor,
                    is = widen(Lanes<T>(got[r][c])).v[0];
        ASSERT_TRUE(std::isnan(want) ? std::isnan(is)
                                     : is == want && std::signbit(is) == std::signbit(want))
            << r << "," << c << ": " << is << ", not " << want;
      }
  }
}
TEST(SharedTile, TimesASign) {
  expect_multiplied<f16>();
  expect_multiplied<bf16>();
  expect_multiplied<float>();
}

// ---- stores through a shared tile

TEST(BlockPtr, InChunks) {
  alignas(16) static float x[64];
  const auto in_chunks = [&](i64 offset, i64 stride, i32 cols) {
    return BlockPtr<float, 16, 16>{x + offset, stride, 1, cols, 0, 0}.in_chunks();
  };
  EXPECT_TRUE(in_chunks(0, 64, 64) && in_chunks(4, 4, 4) && in_chunks(0, i64(1) << 40, 8));
  EXPECT_FALSE(in_chunks(1, 64, 64) || in_chunks(2, 64, 64) || in_chunks(0, 63, 4));
  EXPECT_FALSE(in_chunks(0, 64, 63) || in_chunks(0, 6, 4));
}

// Every element inside is written once and is the accumulator rounded, whether by chunks or not;
// all that is outside keeps what it had.
template <class T, int Cols, class Map = MmaMap>
void expect_stores() {
  constexpr int kRows = 64;
  using Tile = SharedTile<T, kRows, Cols>;
  using Acc = std::conditional_t<std::is_same_v<T, Fq>, Fq, float>;
  const struct {
    i32 rows, cols;
    i64 gap, shift;  // of rows, beyond a multiple of 16 elements; of the base
    bool in_chunks;
  } windows[] = {
      {64, Cols, 0, 0, true},      {64, Cols - 16, 0, 0, true}, {17, 8, 16, 0, true},
      {63, Cols, 16, 0, true},     {1, 1, 0, 0, false},         {64, Cols, 1, 0, false},
      {50, Cols - 5, 0, 1, false}, {33, Cols, 3, 1, false},     {64, Cols - 3, 0, 0, false}};
  for (const auto& w : windows) {
    SCOPED_TRACE(::testing::Message() << Cols << ": " << w.rows << "x" << w.cols << " gap " << w.gap
                                      << " shift " << w.shift);
    Matrix<T> x(w.rows, w.cols, (w.cols + 15) / 16 * 16 + w.gap, w.shift);
    std::vector<T> expected = x.memory;
    const auto element = [](i32 i, i32 j) { return i * 3 + j + (i == 7 ? 1000 : 0); };
    for (i32 i = 0; i < w.rows; i++)
      for (i32 j = 0; j < w.cols; j++) {
        T& e = expected[std::size_t(x.first + i * x.stride + j)];
        if constexpr (std::is_same_v<T, Fq>)
          e = Fq::of(element(i, j));
        else
          e = narrow<T>(Lanes<float>(float(element(i, j)) * 1.001f)).v[0];
      }
    const auto outcome = run_kernel(
        {.warps = 2,
         .shared_bytes = Tile::kBytes,
         .checks = true,
         .tensors = {x.tensor(Role::output)}},
        [&] {
          const Tile scratch = SharedMemory().tile<Tile>("scratch");
          const int row0 = 32 * warp_id();
          Accumulator<32, Cols, Acc, Map> a;
          for_each(a, [&](const Lanes<i32>& row, const Lanes<i32>& col, Lanes<Acc>& v) {
            for (int i = 0; i < 32; i++) {
              const i32 number = element(row.v[i] + row0, col.v[i]);
              if constexpr (std::is_same_v<T, Fq>)
                v.v[i] = Fq::of(number);
              else
                v.v[i] = float(number) * 1.001f;
            }
          });
          const BlockPtr<T, kRows, Cols> to{x.base(), x.stride, w.rows, w.cols, 0, 0};
          EXPECT_EQ(to.in_chunks(), w.in_chunks);
          store(to, a, row0, scratch);
        });
    for (const auto& f : outcome.findings) ADD_FAILURE() << f.check << " " << f.message;
    for (std::size_t i = 0; i < expected.size(); i++)
      ASSERT_EQ(bits_of(x.memory[i]), bits_of(expected[i])) << i;
    if (sizeof(T) == 2) {
      EXPECT_EQ(outcome.counters.shared_wavefronts, outcome.counters.shared_wavefronts_ideal);
    }
    const bool has_chunks = Map::kRun * sizeof(T) == 16;  // of a row, in registers
    EXPECT_EQ(outcome.counters.shared_wavefronts > 0, w.in_chunks && !has_chunks);
  }
}
TEST(Store, ChunksInRegisters) {
  using Map = TileMap<WordGrid<8>, 4>;
  expect_stores<float, 32, Map>(), expect_stores<float, 96, Map>(), expect_stores<Fq, 64, Map>();
}
TEST(Store, ThroughASharedTile) {
  expect_stores<f16, 32>(), expect_stores<f16, 64>(), expect_stores<f16, 96>();
  expect_stores<f16, 128>(), expect_stores<bf16, 64>();
  expect_stores<float, 32>(), expect_stores<float, 96>(), expect_stores<float, 128>();
  expect_stores<Fq, 64>();
}

}  // namespace
}  // namespace tessera
