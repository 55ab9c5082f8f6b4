// SPDX-License-Identifier: Apache-2.0
// Products of tiles against scalar products: every type, both forms of each operand, both ways to
// reach the tensor cores. On eighths up to 1 every order and mode is exact; on general numbers the
// bits follow the documented order, k ascending, by the card's rule.
#include "kernels/tile/dot.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <vector>

#include "kernels/tile/global.h"
#include "sim/random.h"
#include "tests/sim/run_kernel.h"

namespace tessera {
namespace {

using sim::run_kernel;

template <class T>
using AccumulatorOf = std::conditional_t<std::is_same_v<T, Fq>, Fq, float>;

template <class T>
T from_number(float x) {
  if constexpr (std::is_same_v<T, Fq>)
    return Fq::of(i32(x * 8));
  else
    return narrow<T>(Lanes<float>(x)).v[0];
}

enum class Numbers { eighths, general };
template <class T>
std::vector<T> numbers(int count, u64 seed, Numbers kind) {
  std::vector<T> x;
  for (int i = 0; i < count; i++) {
    const u64 r = sim::mix(seed, u64(i));
    if (kind == Numbers::eighths)
      x.push_back(from_number<T>(float(i32(r % 17) - 8) / 8));
    else if constexpr (std::is_same_v<T, Fq>)
      x.push_back(Fq{u32(r % kFieldPrime)});
    else
      x.push_back(
          from_number<T>(float(i32(r % 20001) - 10000) * 0x1p-13f * float(1 << (r >> 40) % 4)));
  }
  return x;
}

// c + sum over k of a[k] b[k], in the order that dot promises.
template <Config C>
Fq scalar_product(Fq c, const std::vector<Fq>& a, const std::vector<Fq>& b, const sim::MmaRule&) {
  for (std::size_t k = 0; k < a.size(); k++) c = a[k] * b[k] + c;
  return c;
}
template <Config C>
float scalar_product(float c, const std::vector<float>& a, const std::vector<float>& b,
                     const sim::MmaRule&) {
  for (std::size_t k = 0; k < a.size(); k++) c = std::fma(a[k], b[k], c);
  return c;
}
template <Config C, class T>
requires(sizeof(T) == 2) float scalar_product(float c, const std::vector<T>& a,
                                              const std::vector<T>& b, const sim::MmaRule& rule) {
  std::vector<u16> x, y;
  for (std::size_t k = 0; k < a.size(); k++) x.push_back(a[k].bits), y.push_back(b[k].bits);
  const std::size_t step = std::size_t(std::min(rule.terms, C.mma_k()));
  for (std::size_t k = 0; k < x.size(); k += step)
    c = sim::mma_step_scalar(c, &x[k], &y[k], int(step), std::is_same_v<T, bf16>,
                             rule.fraction_bits);
  return c;
}

template <class T, Arch A, int Rows_, int Cols_, int Depth_, class Map_ = MmaMap>
struct Case {
  using Type = T;
  using Map = Map_;
  static constexpr Config kConfig{.arch = A, .warps = 2};
  static constexpr int kRows = Rows_, kCols = Cols_,
                       kDepth = Depth_;  // Rows: of one of the two warps
};

template <class P>
class Dot : public ::testing::Test {
 public:
  using T = typename P::Type;
  using Acc = AccumulatorOf<T>;
  using Map = typename P::Map;
  // Of a, whether from shared memory or registers, and b as it is stored or transposed. Maps other
  // than the tensor cores' take a from a WordTile alone.
  static constexpr bool kWords = !std::is_same_v<Map, MmaMap>;
  static constexpr int kForms = kWords ? 2 : 4;
  static constexpr Config C = P::kConfig;
  static constexpr int kRows = P::kRows, kCols = P::kCols, kDepth = P::kDepth,
                       kBlockRows = 2 * kRows;
  using ATile = std::conditional_t<kWords, WordTile<T, kBlockRows, kDepth>,
                                   SharedTile<T, kBlockRows, kDepth>>;
  using BTile = SharedTile<T, kDepth, kCols>;
  using BTileTransposed = SharedTile<T, kCols, kDepth>;

  // All four products of (rows, depth) and (depth, cols) matrices, ragged where those are smaller
  // than the tiles.
  static void expect_products(int rows, int cols, int depth, Numbers kind, const sim::Card& card) {
    const auto a = numbers<T>(kBlockRows * kDepth, 1, kind),
               b = numbers<T>(kDepth * kCols, 2, kind);
    std::vector<T> b_transposed(b.size());  // stored (kCols, kDepth)
    for (int k = 0; k < kDepth; k++)
      for (int n = 0; n < kCols; n++)
        b_transposed[std::size_t(n * kDepth + k)] = b[std::size_t(k * kCols + n)];
    const auto start = numbers<T>(kBlockRows * kCols, 3, kind);
    const auto start_at = [&](int i, int j) {
      if constexpr (std::is_same_v<T, Fq>)
        return start[std::size_t(i * kCols + j)];
      else
        return widen(Lanes<T>(start[std::size_t(i * kCols + j)])).v[0];
    };

    static Acc got[4][kBlockRows][kCols];
    sim::RunOptions run{.warps = 2,
                        .shared_bytes = ATile::kBytes + BTile::kBytes + BTileTransposed::kBytes,
                        .checks = true,
                        .card = card};
    run.tensors = {sim::matrix("A", a.data(), rows, depth, kDepth, sim::Role::input),
                   sim::matrix("B", b.data(), depth, cols, kCols, sim::Role::input),
                   sim::matrix("Bt", b_transposed.data(), cols, depth, kDepth, sim::Role::input)};
    const auto outcome = run_kernel(run, [&] {
      SharedMemory shared;
      const ATile a_tile = shared.tile<ATile>("A");
      const BTile b_tile = shared.tile<BTile>("B");
      const BTileTransposed bt_tile = shared.tile<BTileTransposed>("Bt");
      load<C>(a_tile, BlockPtr<const T, kBlockRows, kDepth>{a.data(), kDepth, rows, depth, 0, 0});
      load<C>(b_tile, BlockPtr<const T, kDepth, kCols>{b.data(), kCols, depth, cols, 0, 0});
      load<C>(bt_tile,
              BlockPtr<const T, kCols, kDepth>{b_transposed.data(), kDepth, cols, depth, 0, 0});
      commit<C>();
      wait<C, 0>();
      const int row0 = warp_id() * kRows;
      // The register operand as it comes about in attention: from an accumulator.
      Accumulator<kRows, kDepth, Acc> wide;
      for_each(wide, [&](const Lanes<i32>& row, const Lanes<i32>& col, Lanes<Acc>& x) {
        x = apply(
            [&](i32 i, i32 k) {
              const bool inside = row0 + i < rows && k < depth;
              const T v = inside ? a[std::size_t((row0 + i) * kDepth + k)] : T{};
              if constexpr (std::is_same_v<T, Fq>)
                return v;
              else
                return widen(Lanes<T>(v)).v[0];
            },
            row, col);
      });
      const auto operand = as_operand<T>(wide);
      for (int form = 0; form < kForms; form++) {
        Accumulator<kRows, kCols, Acc, Map> acc;
        for_each(acc, [&](const Lanes<i32>& row, const Lanes<i32>& col, Lanes<Acc>& x) {
          x = apply([&](i32 i, i32 j) { return start_at(row0 + i, j); }, row, col);
        });
        if (form == 0) dot<C>(acc, a_tile, row0, b_tile);
        if (form == 1) dot<C>(acc, a_tile, row0, transpose(bt_tile));
        if constexpr (!kWords) {
          if (form == 2) dot<C>(acc, operand, b_tile);
          if (form == 3) dot<C>(acc, operand, transpose(bt_tile));
        }
        for_each(acc, [&](const Lanes<i32>& row, const Lanes<i32>& col, Lanes<Acc>& x) {
          for (int i = 0; i < 32; i++) got[form][row0 + row.v[i]][col.v[i]] = x.v[i];
        });
      }
    });
    for (const auto& f : outcome.findings) ADD_FAILURE() << f.check << " " << f.message;
    constexpr u64 kWarpProducts = u64(2 * kForms * (kRows / 16) * (kCols / 8));
    if constexpr (sizeof(T) == 2) {
      EXPECT_EQ(outcome.counters.mma, kWarpProducts * u64(kDepth / C.mma_k()));
    } else {
      EXPECT_EQ(outcome.counters.fma, u64(kForms) * kBlockRows * kCols * kDepth);
    }

    for (int i = 0; i < kBlockRows; i++)
      for (int j = 0; j < kCols; j++) {
        std::vector<T> x(std::size_t(kDepth), T{}), y(std::size_t(kDepth), T{});
        double exact = 0;
        for (int k = 0; k < depth; k++) {
          if (i < rows) x[std::size_t(k)] = a[std::size_t(i * kDepth + k)];
          if (j < cols) y[std::size_t(k)] = b[std::size_t(k * kCols + j)];
          if constexpr (!std::is_same_v<T, Fq>)
            exact += double(widen(Lanes<T>(x[std::size_t(k)])).v[0]) *
                     widen(Lanes<T>(y[std::size_t(k)])).v[0];
        }
        const Acc expected = scalar_product<C>(start_at(i, j), x, y, card.mma);
        if constexpr (!std::is_same_v<T, Fq>) {
          if (kind == Numbers::eighths) {
            ASSERT_EQ(expected, float(start_at(i, j) + exact));
          }
        }
        for (int form = 0; form < kForms; form++)
          ASSERT_EQ(got[form][i][j], expected) << "form " << form << " (" << i << ", " << j << ")";
      }
  }
};

template <int RowLanes, int Run>
using Words = TileMap<WordGrid<RowLanes>, Run>;
using Cases =
    ::testing::Types<Case<f16, Arch::sm_75, 16, 64, 64>, Case<f16, Arch::sm_89, 16, 64, 64>,
                     Case<f16, Arch::sm_89, 32, 16, 32>, Case<f16, Arch::sm_75, 32, 32, 96>,
                     Case<bf16, Arch::sm_89, 16, 64, 64>, Case<bf16, Arch::sm_90, 32, 48, 96>,
                     Case<float, Arch::sm_75, 16, 64, 32>, Case<float, Arch::sm_89, 32, 16, 96>,
                     Case<Fq, Arch::sm_89, 16, 32, 64>, Case<Fq, Arch::sm_75, 32, 16, 32>,
                     Case<float, Arch::sm_90, 16, 16, 64, Words<8, 1>>,
                     Case<float, Arch::sm_75, 32, 32, 16, Words<8, 4>>,
                     Case<float, Arch::sm_89, 16, 64, 32, Words<16, 4>>,
                     Case<Fq, Arch::sm_90, 16, 32, 32, Words<16, 1>>>;
TYPED_TEST_SUITE(Dot, Cases);

TYPED_TEST(Dot, ExactDomain) {
  using D = TestFixture;
  D::expect_products(D::kBlockRows, D::kCols, D::kDepth, Numbers::eighths, sim::kCards[1]);
}
TYPED_TEST(Dot, Ragged) {
  using D = TestFixture;
  D::expect_products(D::kBlockRows - 5, D::kCols - 3, D::kDepth - 7, Numbers::eighths,
                     sim::kCards[1]);
  D::expect_products(1, 1, 1, Numbers::eighths, sim::kCards[1]);
}
TYPED_TEST(Dot, GeneralNumbersInTheDocumentedOrder) {
  using D = TestFixture;
  for (const sim::Card& card : sim::kCards) {
    D::expect_products(D::kBlockRows, D::kCols, D::kDepth, Numbers::general, card);
    D::expect_products(D::kBlockRows - 2, D::kCols - 9, D::kDepth - 1, Numbers::general, card);
  }
}

// ---- what must not compile: operands of two types. A cast that is forgotten between two products
// shows up here, at compile time; one that is computed and dropped shows up in the kernel's
// results.

template <class A, class B>
concept can_multiply_registers = requires(Accumulator<16, 16, float> acc, A a, B b) {
  dot<Config{.arch = Arch::sm_89}>(acc, a, b);
};
template <class A, class B>
concept can_multiply_shared = requires(Accumulator<16, 16, float> acc, A a, B b) {
  dot<Config{.arch = Arch::sm_89}>(acc, a, 0, b);
};

static_assert(can_multiply_registers<Operand<16, 32, f16>, SharedTile<f16, 32, 16>>);
static_assert(can_multiply_registers<Operand<16, 32, bf16>, Transposed<SharedTile<bf16, 16, 32>>>);
static_assert(can_multiply_registers<Operand<16, 32, float>, SharedTile<float, 32, 16>>);
static_assert(!can_multiply_registers<Operand<16, 32, f16>, SharedTile<bf16, 32, 16>>);
static_assert(!can_multiply_registers<Operand<16, 32, bf16>, Transposed<SharedTile<f16, 16, 32>>>);
static_assert(!can_multiply_registers<Operand<16, 32, float>, SharedTile<f16, 32, 16>>);
static_assert(!can_multiply_registers<Operand<16, 32, f16>, SharedTile<float, 32, 16>>);
// Scores as they are, fp32, are no operand for a 16-bit V.
static_assert(!can_multiply_registers<Accumulator<16, 32, float>, SharedTile<f16, 32, 16>>);
static_assert(can_multiply_shared<SharedTile<f16, 16, 32>, SharedTile<f16, 32, 16>>);
static_assert(!can_multiply_shared<SharedTile<f16, 16, 32>, SharedTile<bf16, 32, 16>>);
static_assert(!can_multiply_shared<SharedTile<f16, 16, 32>, Transposed<SharedTile<float, 16, 32>>>);

}  // namespace
}  // namespace tessera
