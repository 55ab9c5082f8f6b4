// SPDX-License-Identifier: Apache-2.0
// Windows into global memory: ragged both ways, padded, broadcast and beyond 2^31; into shared
// tiles and registers, and back. What lies outside a matrix is NaN here and must never matter.
#include "kernels/tile/global.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "sim/random.h"
#include "tests/sim/run_kernel.h"

namespace tessera {
namespace {

using sim::Role;
using sim::run_kernel;

template <class T>
T nan_of() {
  if constexpr (std::is_same_v<T, float>)
    return std::bit_cast<float>(0x7fffffffu);
  else if constexpr (std::is_same_v<T, Fq>)
    return Fq{0x7fffffffu};
  else
    return T{0x7fff};
}
template <class T>
T value_at(i64 row, i64 col) {
  const int x = int(sim::mix(u64(row), u64(col)) % 2000) + 1;
  if constexpr (std::is_same_v<T, float>)
    return float(x);
  else if constexpr (std::is_same_v<T, Fq>)
    return Fq::of(x);
  else if constexpr (std::is_same_v<T, f16>)
    return f16{f32_to_f16_bits(std::bit_cast<u32>(float(x)))};
  else
    return bf16{u16(0x3f80 + x % 512)};
}
template <class T>
bool same(const T& a, const T& b) {
  return std::memcmp(&a, &b, sizeof(T)) == 0;
}

// A matrix in memory that holds NaN wherever the matrix is not: padding of the rows, rows before
// and after.
template <class T>
struct Matrix {
  i32 rows, cols;
  i64 stride;
  std::vector<T> memory;
  i64 first;  // element (0, 0)

  Matrix(i32 rows, i32 cols, i64 stride)
      : rows(rows),
        cols(cols),
        stride(stride),
        memory(std::size_t((rows + 2) * std::max<i64>(stride, cols) + 64), nan_of<T>()) {
    first = 32;  // 16-byte aligned, as allocations are
    for (i32 i = 0; i < rows; i++)
      for (i32 j = 0; j < cols; j++)
        memory[std::size_t(first + i * stride + j)] = value_at<T>(stride ? i : 0, j);
  }
  T* base() { return memory.data() + first; }
  // What a window must see: zero outside.
  T expected(i64 row, i64 col) const {
    return row < rows && col < cols ? memory[std::size_t(first + row * stride + col)] : T{};
  }
  sim::GlobalTensor tensor(Role role) { return sim::matrix("X", base(), rows, cols, stride, role); }
};

// Reads a tile back, element by element, through its own addresses.
template <class T, int Rows, int Cols>
void read_tile(const SharedTile<T, Rows, Cols>& tile, T (&out)[Rows][Cols]) {
  constexpr int kPerWord = 4 / int(sizeof(T)), kWords = Rows * Cols / kPerWord;
  for (int first = 0; first < kWords; first += 32) {
    const Lanes<i32> index = (lane_id() + Lanes<i32>(first)) * Lanes<i32>(kPerWord);
    Lanes<u32> word;
    ld_shared(word, tile.address_of(index / Lanes<i32>(Cols), index % Lanes<i32>(Cols)));
    for (int i = 0; i < 32; i++)
      std::memcpy(&out[index.v[i] / Cols][index.v[i] % Cols], &word.v[i], 4);
  }
}

struct Window {
  i32 rows, cols;  // of the matrix
  i64 stride;
  i32 row, col;  // of the window
};
// Inside; ending inside a window, inside a chunk, at one element; beyond the end; padded;
// broadcast.
const Window kWindows[] = {
    {64, 96, 96, 0, 0},   {64, 96, 96, 32, 48}, {33, 80, 80, 32, 48}, {37, 51, 64, 32, 48},
    {40, 49, 56, 16, 48}, {1, 1, 16, 0, 0},     {31, 47, 48, 0, 0},   {16, 8, 8, 0, 0},
    {32, 33, 40, 0, 0},   {20, 30, 128, 32, 0}, {20, 30, 32, 0, 32},  {50, 30, 0, 16, 0},
    {100, 48, 0, 64, 0},
};

template <Config C, class T>
void expect_shared_load() {
  constexpr int kRows = 32, kCols = 48;
  using Tile = SharedTile<T, kRows, kCols>;
  for (const Window& w : kWindows) {
    SCOPED_TRACE(::testing::Message() << w.rows << "x" << w.cols << " stride " << w.stride << " at "
                                      << w.row << "," << w.col);
    Matrix<T> x(w.rows, w.cols, w.stride);
    static T got[kRows][kCols];
    const auto outcome = run_kernel(
        {.warps = C.warps,
         .shared_bytes = Tile::kBytes,
         .checks = true,
         .tensors = {x.tensor(Role::input)}},
        [&] {
          const Tile tile = SharedMemory().tile<Tile>("tile");
          load<C>(tile, BlockPtr<const T, kRows, kCols>{x.base(), w.stride, w.rows, w.cols, w.row,
                                                        w.col});
          commit<C>();
          wait<C, 0>();
          if (warp_id() == C.warps - 1) read_tile(tile, got);
        });
    for (const auto& f : outcome.findings) ADD_FAILURE() << f.check << " " << f.message;
    for (int i = 0; i < kRows; i++)
      for (int j = 0; j < kCols; j++)
        ASSERT_TRUE(same(got[i][j], x.expected(w.row + i, w.col + j))) << i << "," << j;
  }
}
TEST(SharedLoad, Asynchronous) {
  constexpr Config C{.arch = Arch::sm_89, .warps = 2};
  expect_shared_load<C, f16>();
  expect_shared_load<C, bf16>();
  expect_shared_load<C, float>();
  expect_shared_load<C, Fq>();
}
TEST(SharedLoad, ThroughRegisters) {
  constexpr Config C{.arch = Arch::sm_75, .warps = 2};
  expect_shared_load<C, f16>();
  expect_shared_load<C, float>();
  expect_shared_load<C, Fq>();
}
TEST(SharedLoad, OneWarp) {
  expect_shared_load<Config{.arch = Arch::sm_89}, f16>();
  expect_shared_load<Config{.arch = Arch::sm_75}, f16>();
}

// A row of 2^30 elements: only its first window exists in memory. Byte counts do not fit 32 bits.
template <Config C, class T>
void expect_long_rows() {
  constexpr int kRows = 8, kCols = 64;
  using Tile = SharedTile<T, kRows, kCols>;
  alignas(16) static T data[kCols], got[kRows][kCols];
  for (int j = 0; j < kCols; j++) data[j] = value_at<T>(0, j);
  for (const i32 cols : {(1 << 29) - 1, 1 << 29, 1 << 30, 0x7fffffff}) {
    run_kernel({.shared_bytes = Tile::kBytes}, [&] {
      const Tile tile = SharedMemory().tile<Tile>("tile");
      load<C>(tile, BlockPtr<const T, kRows, kCols>{data, 0, 100, cols, 3, 0});
      commit<C>();
      wait<C, 0>();
      read_tile(tile, got);
    });
    for (int i = 0; i < kRows; i++)
      for (int j = 0; j < kCols; j++)
        ASSERT_TRUE(same(got[i][j], data[j])) << cols << ": " << i << "," << j;
  }
}
TEST(SharedLoad, RowsLongerThanTwoGigabytes) {
  expect_long_rows<Config{.arch = Arch::sm_89}, float>();
  expect_long_rows<Config{.arch = Arch::sm_89}, f16>();
  expect_long_rows<Config{.arch = Arch::sm_75}, f16>();
}

// Offsets beyond 2^31 elements: a stride so large that row 3 lies 6 GB on, in memory reserved and
// touched nowhere else.
TEST(SharedLoad, OffsetsBeyondTwoToThe31) {
  constexpr int kRows = 16, kCols = 16;
  using Tile = SharedTile<f16, kRows, kCols>;
  constexpr Config C{.arch = Arch::sm_89};
  alignas(16) static f16 data[kCols], got[kRows][kCols];
  for (int j = 0; j < kCols; j++) data[j] = value_at<f16>(0, j);
  constexpr i64 kStride = i64(1) << 33;
  f16* const base = reinterpret_cast<f16*>(reinterpret_cast<std::uintptr_t>(data) -
                                           5 * std::uintptr_t(kStride) * sizeof(f16));
  float widened = 0;
  f16* const out = base;
  run_kernel({.shared_bytes = Tile::kBytes}, [&] {
    const Tile tile = SharedMemory().tile<Tile>("tile");
    load<C>(tile, BlockPtr<const f16, kRows, kCols>{base, kStride, 6, kCols, 5, 0});  // row 5 alone
    commit<C>();
    wait<C, 0>();
    read_tile(tile, got);
    Accumulator<16, 16> a;
    load(a, BlockPtr<const f16, 16, 16>{base, kStride, 6, kCols, 5, 0});
    widened = a.x[0][0][0].v[0];
    fill(a, 2.0f);
    store(BlockPtr<f16, 16, 16>{out, kStride, 6, 1, 5, 0}, a, 0,
          [](const Lanes<float>& x) { return narrow<f16>(x); });
  });
  EXPECT_EQ(data[0].bits, 0x4000);
  EXPECT_EQ(widened, std::bit_cast<float>(f16_to_f32_bits(value_at<f16>(0, 0).bits)));
  for (int j = 1; j < kCols; j++) EXPECT_EQ(got[0][j].bits, data[j].bits);
}

// ---- registers

template <class T>
void expect_register_load() {
  constexpr int kRows = 16, kCols = 24;
  for (const Window& w : kWindows) {
    SCOPED_TRACE(::testing::Message() << w.rows << "x" << w.cols << " stride " << w.stride << " at "
                                      << w.row << "," << w.col);
    Matrix<T> x(w.rows, w.cols, w.stride);
    float got[kRows][kCols];
    const auto outcome = run_kernel({.checks = true, .tensors = {x.tensor(Role::input)}}, [&] {
      Accumulator<kRows, kCols> a;
      load(a, BlockPtr<const T, kRows, kCols>{x.base(), w.stride, w.rows, w.cols, w.row, w.col});
      for_each(a, [&](const Lanes<i32>& row, const Lanes<i32>& col, Lanes<float>& v) {
        for (int i = 0; i < 32; i++) got[row.v[i]][col.v[i]] = v.v[i];
      });
    });
    for (const auto& f : outcome.findings) ADD_FAILURE() << f.check << " " << f.message;
    for (int i = 0; i < kRows; i++)
      for (int j = 0; j < kCols; j++)
        ASSERT_EQ(got[i][j], widen(Lanes<T>(x.expected(w.row + i, w.col + j))).v[0])
            << i << "," << j;
  }
}
TEST(RegisterLoad, RaggedPaddedAndBroadcast) {
  expect_register_load<float>();
  expect_register_load<f16>();
  expect_register_load<bf16>();
}

TEST(RegisterLoad, ColumnVector) {
  for (const i32 size : {0, 1, 7, 32, 33, 64, 70}) {
    std::vector<f16> x(std::size_t(size) + 64, f16{0x7fff});
    for (i32 j = 0; j < size; j++) x[std::size_t(j)] = value_at<f16>(0, j);
    ColVector<32> v;
    const auto outcome = run_kernel(
        {.checks = true, .tensors = {sim::vector("x", x.data(), size, Role::input)}}, [&] {
          VectorPtr<const f16, 32> p{x.data(), size, 0};
          p.advance(32);
          load(v, p);
        });
    EXPECT_TRUE(outcome.findings.empty());
    for (int n = 0; n < 4; n++)
      for (int i = 0; i < 2; i++)
        for (int lane = 0; lane < 32; lane++) {
          const int col = 32 + 8 * n + lane % 4 * 2 + i;
          const u16 bits = col < size ? x[std::size_t(col)].bits : u16(0);
          EXPECT_EQ(v.x[n][i].v[lane], std::bit_cast<float>(f16_to_f32_bits(bits)));
        }
  }
}

// Every element inside the matrix is written, once, and nothing else: padding keeps its NaN.
template <class T>
void expect_store() {
  constexpr int kRows = 32, kCols = 48;
  for (const Window& w : kWindows) {
    if (w.stride == 0) continue;  // a broadcast tensor is never written
    SCOPED_TRACE(::testing::Message() << w.rows << "x" << w.cols << " stride " << w.stride << " at "
                                      << w.row << "," << w.col);
    Matrix<T> x(w.rows, w.cols, w.stride);
    const std::vector<T> before = x.memory;
    const auto outcome = run_kernel(
        {.warps = 2, .checks = true, .tensors = {x.tensor(Role::output)}}, [&] {
          const int row0 = 16 * warp_id();
          Accumulator<16, kCols> a;
          for_each(a, [&](const Lanes<i32>& row, const Lanes<i32>& col, Lanes<float>& v) {
            v = Lanes<float>((row + Lanes<i32>(row0)) * Lanes<i32>(kCols) + col);
          });
          store(BlockPtr<T, kRows, kCols>{x.base(), w.stride, w.rows, w.cols, w.row, w.col}, a,
                row0, [](const Lanes<float>& v) { return narrow<T>(v); });
        });
    bool whole = true;  // does the window cover the matrix?
    std::vector<T> expected = before;
    for (i32 i = 0; i < w.rows; i++)
      for (i32 j = 0; j < w.cols; j++) {
        const i32 r = i - w.row, c = j - w.col;
        if (r < 0 || c < 0 || r >= kRows || c >= kCols)
          whole = false;
        else
          expected[std::size_t(x.first + i * w.stride + j)] =
              narrow<T>(Lanes<float>(float(r * kCols + c))).v[0];
      }
    for (std::size_t i = 0; i < expected.size(); i++)
      ASSERT_TRUE(same(x.memory[i], expected[i])) << i;
    ASSERT_EQ(outcome.findings.size(), whole ? 0u : 1u);
    if (!whole) {
      EXPECT_EQ(outcome.findings[0].check, "coverage");
    }
  }
}
TEST(Store, RaggedAndPadded) {
  expect_store<float>();
  expect_store<f16>();
  expect_store<bf16>();
}

template <class Grid>
void expect_row_vector() {
  using Map = TileMap<Grid, 1>;
  for (const i32 size : {0, 1, 8, 17, 32, 40}) {
    std::vector<float> y(48, -1.0f);
    const auto outcome = run_kernel(
        {.warps = 2,
         .checks = true,
         .tensors = {sim::vector("y", y.data(), std::min(size, 32), Role::output)}},
        [&] {
          RowVector<16, float, Grid> v;
          for (int i = 0; i < 16 / Grid::kRows; i++)
            v.x[i / 2][i % 2] = Lanes<float>(Map::first_row(lane_id()) +
                                             Lanes<i32>(Map::down(i) + 16 * warp_id()));
          store(VectorPtr<float, 32>{y.data(), size, 0}, v, 16 * warp_id(),
                [](const Lanes<float>& x) { return x; });
        });
    EXPECT_TRUE(outcome.findings.empty());
    for (int i = 0; i < 48; i++)
      EXPECT_EQ(y[std::size_t(i)], i < std::min(size, 32) ? float(i) : -1.0f);
  }
}

TEST(Store, RowVector) {
  expect_row_vector<MmaGrid>();
  expect_row_vector<WordGrid<8>>();
  expect_row_vector<WordGrid<16>>();
}

TEST(BlockPtr, Advance) {
  BlockPtr<const float, 16, 16> p{nullptr, 8, 100, 200, 1, 2};
  p.advance(16, 0);
  p.advance(0, 32);
  EXPECT_EQ(p.row, 17);
  EXPECT_EQ(p.col, 34);
}

TEST(Grid, PositionOfABlock) {
  std::vector<std::pair<i32, i32>> at(12);
  run_kernel({.blocks = 12}, [&] {
    const GridPosition p = grid_position(4);
    at[block_index()] = {p.x, p.y};
  });
  for (i32 i = 0; i < 12; i++) EXPECT_EQ(at[std::size_t(i)], std::pair(i % 4, i / 4));
  EXPECT_EQ(ceil_div(0, 16), 0);
  EXPECT_EQ(ceil_div(1, 16), 1);
  EXPECT_EQ(ceil_div(16, 16), 1);
  EXPECT_EQ(ceil_div(17, 16), 2);
}

}  // namespace
}  // namespace tessera
