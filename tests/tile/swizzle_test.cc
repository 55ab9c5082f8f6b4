// SPDX-License-Identifier: Apache-2.0
// The address map of shared tiles: a bijection, its own inverse, and without bank conflicts on
// every path that reaches it. A swizzle that is left out still gives right results; only counters
// see it.
#include "kernels/tile/swizzle.h"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "kernels/tile/dot.h"
#include "kernels/tile/global.h"
#include "tests/sim/run_kernel.h"

namespace tessera {
namespace {

using sim::lanes_of;
using sim::Outcome;
using sim::Role;
using sim::run_kernel;

static_assert(swizzle(8, 3, 5) == 6 && swizzle(8, 3, 6) == 5);
static_assert(swizzle(12, 2, 0) == 1 && swizzle(1, 7, 0) == 0);

template <class T, int Rows, int Cols>
struct Shape {
  using Tile = SharedTile<T, Rows, Cols>;
  static std::string name() {
    return std::to_string(Rows) + "x" + std::to_string(Cols) + " of " + std::to_string(sizeof(T)) +
           " bytes";
  }
};

// f(Shape) for both element sizes and every number of columns from 16 to 128 in steps of 16.
template <class T, class F, int... I>
void for_columns(F f, std::integer_sequence<int, I...>) {
  (f(Shape<T, 32, 16 * (I + 1)>{}), ...);
}
template <class F>
void for_shapes(F f) {
  for_columns<f16>(f, std::make_integer_sequence<int, 8>{});
  for_columns<float>(f, std::make_integer_sequence<int, 8>{});
}

TEST(Swizzle, IsABijectionAndItsOwnInverse) {
  for_shapes([]<class T, int Rows, int Cols>(Shape<T, Rows, Cols> shape) {
    const SharedTile<T, Rows, Cols> tile{2048};
    std::set<u32> seen;
    for (int row = 0; row < Rows; row++)
      for (int chunk = 0; chunk < tile.kChunks; chunk++) {
        const u32 address = tile.at(Lanes<i32>(row), Lanes<i32>(chunk)).v[0];
        EXPECT_EQ(address % 16, 0u);
        EXPECT_GE(address, tile.base);
        EXPECT_LT(address, tile.base + u32(Rows * tile.kPitch));
        EXPECT_EQ(i32(address - tile.base) / tile.kPitch, row)
            << "a chunk leaves its row: " << shape.name();
        seen.insert(address);
        EXPECT_EQ(swizzle(tile.kChunks, row, swizzle(tile.kChunks, row, chunk)), chunk);
        constexpr int kPerChunk = 16 / int(sizeof(T));
        for (int i = 0; i < kPerChunk; i++)
          EXPECT_EQ(tile.address_of(Lanes<i32>(row), Lanes<i32>(chunk * kPerChunk + i)).v[31],
                    address + u32(i * int(sizeof(T))));
      }
    EXPECT_EQ(seen.size(), std::size_t(Rows * tile.kChunks)) << shape.name();
  });
}

void expect_no_conflict(const Outcome& o, const std::string& what) {
  EXPECT_GT(o.counters.shared_wavefronts_ideal, 0u) << what;
  EXPECT_EQ(o.counters.shared_wavefronts, o.counters.shared_wavefronts_ideal) << what;
}

TEST(Swizzle, OperandsOfTensorCoresMeetNoBankConflict) {
  for_columns<f16>(
      []<class T, int Rows, int Cols>(Shape<T, Rows, Cols> shape) {
        using Tile = SharedTile<T, Rows, Cols>;
        const auto tile = [] { return SharedMemory().tile<Tile>("tile"); };
        const auto as_a = run_kernel({.shared_bytes = Tile::kBytes}, [&] {
          Lanes<u32> a[4];
          for (int m = 0; m < Rows / 16; m++)
            for (int k = 0; k < Cols / 16; k++)
              detail::SharedA<T, Rows, Cols>{tile(), 0}.get(a, m, k);
        });
        expect_no_conflict(as_a, "A " + shape.name());
        const auto as_b = run_kernel({.shared_bytes = Tile::kBytes}, [&] {  // (Rows, Cols)
          Lanes<u32> b[4];
          for (int k = 0; k < Rows / 16; k++)
            for (int n = 0; n < Cols / 8; n += 2) detail::get_b(b, tile(), n, k);
        });
        expect_no_conflict(as_b, "B " + shape.name());
        const auto as_b_transposed = run_kernel({.shared_bytes = Tile::kBytes}, [&] {
          Lanes<u32> b[4];  // (Cols, Rows)
          for (int k = 0; k < Cols / 16; k++)
            for (int n = 0; n < Rows / 8; n += 2) detail::get_b(b, transpose(tile()), n, k);
        });
        expect_no_conflict(as_b_transposed, "B transposed " + shape.name());
      },
      std::make_integer_sequence<int, 8>{});
}

// Operands of the CUDA cores: the maps of flash_forward's scores and output, and that of the tensor
// cores.
template <class Map>
void expect_words_without_conflict(const char* map) {
  for_columns<float>(
      [&]<class T, int Rows, int Cols>(Shape<T, Rows, Cols> shape) {
        using Tile = SharedTile<T, Rows, Cols>;
        const std::string name = shape.name() + ", " + map;
        const auto tile = [] { return SharedMemory().tile<Tile>("tile"); };
        if constexpr (Map::kRowRun == 1) {
          const auto as_a = run_kernel({.shared_bytes = Tile::kBytes}, [&] {
            const detail::WordA<Map, Tile> a(tile(), 0);
            Lanes<T> x[Rows / Map::Grid::kRows][4];
            for (int k = 0; k < Cols / 4; k++) a.get(x, k);
          });
          expect_no_conflict(as_a, "A " + name);
        }
        if constexpr (Cols % Map::kColStep == 0) {
          const auto as_b = run_kernel({.shared_bytes = Tile::kBytes}, [&] {  // (Rows, Cols)
            const detail::WordB<Map, Tile> b(tile());
            Lanes<T> x[4][Map::kRun];
            for (int k = 0; k < Rows / 4; k++)
              for (int j = 0; j < Cols / Map::kColStep; j++) b.get(x, j, k);
          });
          expect_no_conflict(as_b, "B " + name);
        }
        const auto as_b_transposed = run_kernel({.shared_bytes = Tile::kBytes}, [&] {
          const detail::WordB<Map, Transposed<Tile>> b(transpose(tile()));  // (Cols, Rows)
          Lanes<T> x[4][Map::kRun];
          for (int k = 0; k < Cols / 4; k++)
            for (int j = 0; j < Rows / Map::kColStep; j++) b.get(x, j, k);
        });
        if constexpr (Map::kRun < 4) expect_no_conflict(as_b_transposed, "B transposed " + name);
      },
      std::make_integer_sequence<int, 8>{});
}
TEST(Swizzle, OperandsOfCudaCoresMeetNoBankConflict) {
  expect_words_without_conflict<MmaMap>("tensor cores' map");
  expect_words_without_conflict<TileMap<WordGrid<8>, 1>>("scores' map");
  expect_words_without_conflict<TileMap<WordGrid<8>, 4>>("output's map");
  expect_words_without_conflict<TileMap<WordGrid<16>, 1>>("scores' map, 16 lanes");
  expect_words_without_conflict<TileMap<WordGrid<16>, 4>>("output's map, 16 lanes");
}

template <Config C>
void expect_load_without_conflict() {
  for_shapes([]<class T, int Rows, int Cols>(Shape<T, Rows, Cols> shape) {
    using Tile = SharedTile<T, Rows, Cols>;
    alignas(32) static T data[Rows * Cols] = {};
    const auto outcome = run_kernel({.shared_bytes = Tile::kBytes}, [&] {
      load<C>(SharedMemory().tile<Tile>("tile"),
              BlockPtr<const T, Rows, Cols>{data, Cols, Rows, Cols, 0, 0});
    });
    expect_no_conflict(outcome, "load " + shape.name());
    EXPECT_EQ(outcome.counters.global_sectors, outcome.counters.global_sectors_ideal)
        << shape.name();
  });
}
TEST(Swizzle, AsynchronousCopiesMeetNoBankConflict) {
  expect_load_without_conflict<Config{.arch = Arch::sm_89}>();
}
TEST(Swizzle, CopiesThroughRegistersMeetNoBankConflict) {
  expect_load_without_conflict<Config{.arch = Arch::sm_75}>();
}

// The same reads of a tile whose rows lie as they come: the counters must see it.
TEST(Swizzle, ATileWithoutItConflicts) {
  for_shapes([]<class T, int Rows, int Cols>(Shape<T, Rows, Cols> shape) {
    using Tile = SharedTile<T, Rows, Cols>;
    const auto outcome = run_kernel({.shared_bytes = Tile::kBytes}, [] {
      Lanes<u32> r[4];
      const auto plain = lanes_of<u32>([](int i) { return i % 16 * Tile::kPitch + i / 16 * 16; });
      ldmatrix_x4(r, plain);
      ldmatrix_x4_trans(r, plain);
    });
    const u64 ideal = outcome.counters.shared_wavefronts_ideal,
              actual = outcome.counters.shared_wavefronts;
    EXPECT_EQ(ideal, 8u);
    // The pitch in units of a 128-byte line decides: whole lines put eight rows on four banks.
    EXPECT_GE(actual, 2 * ideal) << shape.name();
    if (Tile::kPitch % 128 == 0) {
      EXPECT_EQ(actual, 8 * ideal) << shape.name();
    }
  });
}

// A WordTile: every element has its place and gets it back, and neither an operand read from it nor
// an accumulator stored into it meets a bank twice.
template <int RowLanes, int Rows, int Cols>
void expect_a_word_tile() {
  using Tile = WordTile<float, Rows, Cols>;
  using Map = TileMap<WordGrid<RowLanes>, 1>;
  std::set<int> places;
  for (int row = 0; row < Rows; row++)
    for (int col = 0; col < Cols; col++) {
      const int place = Tile::offset(row, col);
      const TilePosition at = Tile::kPosition(Rows, Cols, 4, u32(place));
      EXPECT_TRUE(place % 4 == 0 && place >= 0 && place < Rows * Cols * 4);
      EXPECT_TRUE(places.insert(place).second);
      EXPECT_TRUE(at.row == row && at.col == col) << at.row << ", " << at.col;
    }
  constexpr int kWarpRows = Rows / 2;
  const auto outcome = run_kernel({.warps = 2, .shared_bytes = Tile::kBytes, .checks = true}, [&] {
    const Tile tile = SharedMemory().tile<Tile>("tile");
    const int row0 = warp_id() * kWarpRows;
    Accumulator<kWarpRows, Cols, float, Map> from;
    for_each(from, [&](const Lanes<i32>& row, const Lanes<i32>& col, Lanes<float>& x) {
      x = Lanes<float>((row + Lanes<i32>(row0)) * 1000 + col);
    });
    store(tile, from, row0);
    const detail::WordA<Map, Tile> a(tile, row0);
    for (int k = 0; k < Cols / 4; k++) {
      Lanes<float> x[kWarpRows / WordGrid<RowLanes>::kRows][4];
      a.get(x, k);
      for (int v = 0; v < kWarpRows / WordGrid<RowLanes>::kRows; v++)
        for (int i = 0; i < 4; i++)
          for (int lane = 0; lane < 32; lane++)
            EXPECT_EQ(x[v][i].v[lane],
                      float((Map::first_row(lane) + Map::down(v) + row0) * 1000 + 4 * k + i));
    }
  });
  expect_no_conflict(outcome, "words");
}
TEST(WordTile, HoldsEveryElementWithoutConflict) {
  expect_a_word_tile<8, 32, 16>(), expect_a_word_tile<8, 64, 64>(),
      expect_a_word_tile<8, 128, 48>();
  expect_a_word_tile<16, 32, 32>(), expect_a_word_tile<16, 64, 128>();
}
TEST(WordTile, MessagesNameTheElement) {
  using Tile = WordTile<float, 32, 16>;
  const auto outcome = run_kernel({.shared_bytes = Tile::kBytes, .checks = true}, [&] {
    const Tile tile = SharedMemory().tile<Tile>("words");
    Lanes<float> x;
    ld_shared(x, tile.at(Lanes<i32>(13), Lanes<i32>(6)));
  });
  ASSERT_EQ(outcome.findings.size(), 1u);
  EXPECT_NE(outcome.findings[0].message.find("words(13, 6)"), std::string::npos)
      << outcome.findings[0].message;
}

}  // namespace
}  // namespace tessera
