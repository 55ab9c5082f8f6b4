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

TEST(Swizzle, OperandsMeetNoBankConflict) {
  for_shapes([]<class T, int Rows, int Cols>(Shape<T, Rows, Cols> shape) {
    using Tile = SharedTile<T, Rows, Cols>;
    const auto tile = [] { return SharedMemory().tile<Tile>("tile"); };
    const auto as_a = run_kernel({.shared_bytes = Tile::kBytes}, [&] {
      if constexpr (sizeof(T) == 2) {
        Lanes<u32> a[4];
        for (int m = 0; m < Rows / 16; m++)
          for (int k = 0; k < Cols / 16; k++)
            detail::SharedA<T, Rows, Cols>{tile(), 0}.get(a, m, k);
      } else {
        Lanes<T> a[2][4];
        for (int m = 0; m < Rows / 16; m++)
          for (int k = 0; k < Cols / 4; k++)
            detail::SharedWordA<T, Rows, Cols>{tile(), 0}.get(a, m, k);
      }
    });
    expect_no_conflict(as_a, "A " + shape.name());
    const auto as_b = run_kernel({.shared_bytes = Tile::kBytes}, [&] {  // (Rows, Cols)
      for (int k = 0; k < Rows / 16; k++)
        for (int n = 0; n < Cols / 8; n += 2) {
          if constexpr (sizeof(T) == 2) {
            Lanes<u32> b[4];
            detail::get_b(b, tile(), n, k);
          } else {
            Lanes<T> b[4][2];
            for (int i = 0; i < 4; i++) detail::get_words_b(b, tile(), n + i % 2, 4 * k + i);
          }
        }
    });
    expect_no_conflict(as_b, "B " + shape.name());
    const auto as_b_transposed = run_kernel({.shared_bytes = Tile::kBytes}, [&] {  // (Cols, Rows)
      for (int k = 0; k < Cols / 16; k++)
        for (int n = 0; n < Rows / 8; n += 2) {
          if constexpr (sizeof(T) == 2) {
            Lanes<u32> b[4];
            detail::get_b(b, transpose(tile()), n, k);
          } else {
            Lanes<T> b[4][2];
            for (int i = 0; i < 4; i++)
              detail::get_words_b(b, transpose(tile()), n + i % 2, 4 * k + i);
          }
        }
    });
    expect_no_conflict(as_b_transposed, "B transposed " + shape.name());
  });
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

}  // namespace
}  // namespace tessera
