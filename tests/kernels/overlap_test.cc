// SPDX-License-Identifier: Apache-2.0
// Do two strided tensors share a byte? Against brute force, and on the layouts that people use.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "kernels/arguments.h"

namespace tessera::testing {
namespace {

void* at(std::uintptr_t address) { return reinterpret_cast<void*>(address); }

// Every byte of every element.
std::vector<std::uintptr_t> bytes_of(const Tensor& t) {
  std::vector<std::uintptr_t> bytes;
  i64 count = 1;
  for (int i = 0; i < t.rank; i++) count *= t.shape[std::size_t(i)];
  for (i64 e = 0; e < count; e++) {
    i64 rest = e, offset = 0;
    for (int i = t.rank; i-- > 0; rest /= t.shape[std::size_t(i)])
      offset += rest % t.shape[std::size_t(i)] * t.stride[std::size_t(i)];
    const auto base = reinterpret_cast<std::uintptr_t>(t.data) +
                      std::uintptr_t(offset) * std::uintptr_t(size_of(t.dtype));
    for (int b = 0; b < size_of(t.dtype); b++) bytes.push_back(base + std::uintptr_t(b));
  }
  std::sort(bytes.begin(), bytes.end());
  return bytes;
}

bool share_a_byte(const Tensor& a, const Tensor& b) {
  const auto x = bytes_of(a), y = bytes_of(b);
  std::vector<std::uintptr_t> common;
  std::set_intersection(x.begin(), x.end(), y.begin(), y.end(), std::back_inserter(common));
  return !common.empty();
}

TEST(Overlap, EqualsBruteForceOnRandomTensors) {
  std::mt19937 random(1);
  const auto below = [&](int n) { return int(random() % unsigned(n)); };
  const auto draw = [&](int widest) {
    Tensor t;
    t.rank = 1 + below(4), t.dtype = below(2) ? Dtype::f16 : Dtype::f32;
    t.data = at(4096 + std::uintptr_t(size_of(t.dtype) * below(60)));
    for (int i = 0; i < t.rank; i++)
      t.shape[std::size_t(i)] = below(12) ? 1 + below(4) : 0,
      t.stride[std::size_t(i)] = below(widest);
    return t;
  };
  int apart = 0, touching = 0;
  for (int n = 0; n < 60000; n++) {
    const int widest = 1 + below(60);
    const Tensor a = draw(widest), b = draw(widest);
    const bool expected = share_a_byte(a, b);
    ++(expected ? touching : apart);
    ASSERT_EQ(overlap(a, b), expected ? Overlap::yes : Overlap::no) << n;
    ASSERT_EQ(overlap(b, a), overlap(a, b)) << n;
  }
  EXPECT_GT(apart, 10000);
  EXPECT_GT(touching, 10000);
}

constexpr i64 kBatch = 4, kLength = 100000, kHeads = 16, kDim = 64;

// Slice `which` of an array (batch, length, slices, heads, head_dim), as (batch, heads, length,
// head_dim).
Tensor slice(int which, int slices, i64 first_row = 0, i64 rows = kLength) {
  const i64 row = slices * kHeads * kDim;
  const i64 offset = which * kHeads * kDim + first_row * row;
  return {at(4096 + std::uintptr_t(offset) * 2),
          Dtype::f16,
          4,
          {kBatch, kHeads, rows, kDim},
          {kLength * row, kDim, row, 1}};
}

TEST(Overlap, SlicesOfOneArrayDoNotOverlap) {
  for (int a = 0; a < 4; a++)
    for (int b = 0; b < 4; b++)
      EXPECT_EQ(overlap(slice(a, 4), slice(b, 4)), a == b ? Overlap::yes : Overlap::no);
  // rows of one slice: a key cache that grows
  EXPECT_EQ(overlap(slice(0, 2, 0, 500), slice(0, 2, 500, 7)), Overlap::no);
  EXPECT_EQ(overlap(slice(0, 2, 0, 501), slice(0, 2, 500, 7)), Overlap::yes);
}

TEST(Overlap, OneElementTooManyIsFound) {
  Tensor o = slice(1, 4);
  o.data = static_cast<char*>(o.data) + 2;  // the last element of every row is the next slice's
  EXPECT_EQ(overlap(o, slice(2, 4)), Overlap::yes);
  EXPECT_EQ(overlap(o, slice(0, 4)), Overlap::no);
}

TEST(Overlap, AnOutputInTheGapsOfAnInput) {
  // rows of 64 with a gap of 64, which holds another tensor's rows, or 32 rows of 2 fp32
  const Tensor q{at(4096), Dtype::f16, 4, {1, 1, 1000, 64}, {0, 0, 128, 1}};
  Tensor o = q;
  o.data = at(4096 + 128);
  EXPECT_EQ(overlap(o, q), Overlap::no);
  o.shape[3] = 65;
  EXPECT_EQ(overlap(o, q), Overlap::yes);
  o.shape[2] = 1, o.shape[3] = 64;
  EXPECT_EQ(overlap(o, q), Overlap::no);
  const Tensor lse{at(4096 + 128), Dtype::f32, 3, {1, 1, 32}, {32, 32, 1}};
  EXPECT_EQ(overlap(lse, q), Overlap::no);
  const Tensor longer{at(4096 + 128), Dtype::f32, 3, {1, 1, 33}, {33, 33, 1}};
  EXPECT_EQ(overlap(longer, q), Overlap::yes);
}

TEST(Overlap, ExtentsAndStridesOfAnySize) {
  const i64 long_one = i64(1) << 30, wide = i64(1) << 60;
  const Tensor a{at(4096), Dtype::f32, 4, {long_one, long_one, long_one, 1}, {wide, wide, wide, 1}};
  Tensor b{at(4100), Dtype::f32, 4, {long_one, long_one, long_one, 1}, {wide, wide, wide, 1}};
  EXPECT_EQ(overlap(a, b), Overlap::no);
  EXPECT_EQ(overlap(a, a), Overlap::yes);
  b.stride = {0, 0, 0, 0};
  EXPECT_EQ(overlap(a, b), Overlap::no);
}

// Three strides near 2^25 without a common divisor reach this distance in none of 4.5 million ways.
TEST(Overlap, TheSearchGivesUp) {
  const Tensor a{at(4096), Dtype::f16, 3, {3000, 3000, 3000}, {33554467, 33554501, 33554393}};
  const Tensor b{at(4096 + 2 * (i64(3000) * 33554467 + 1234567)), Dtype::f16, 1, {1}, {1}};
  EXPECT_EQ(overlap(a, b), Overlap::undecided);
  try {
    check_apart("o", a, "k", b);
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.kind, ErrorKind::unsupported);
    EXPECT_EQ(std::string(e.what()).find("o: whether it overlaps k"), 0u) << e.what();
  }
}

}  // namespace
}  // namespace tessera::testing
