// SPDX-License-Identifier: Apache-2.0
// Soft exp2 and log2: special values, points by hand, and a sample of what
// math_exhaustive_test.cc goes through completely.
#include "tests/tile/math_check.h"

namespace tessera {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr u64 kStep = 1021;  // odd: the sample meets all low bits

float exp2_of(float x) { return exp2_soft(Lanes<float>(x)).v[11]; }
float log2_of(float x) { return log2_soft(Lanes<float>(x)).v[11]; }
std::vector<float> nans() {
  std::vector<float> r;
  for (u32 x :
       {0x7fc00000u, 0xffc00000u, 0x7f800001u, 0xff800001u, 0x7fffffffu, 0xffffffffu, 0x7fc12345u})
    r.push_back(std::bit_cast<float>(x));
  return r;
}

TEST(Exp2Soft, Sample) { expect_within(exp2_soft_errors(kStep), kExp2Bound); }
TEST(Log2Soft, Sample) { expect_within(log2_soft_errors(kStep), kLog2Bound); }

TEST(Exp2Soft, WholeNumbersAreExact) {
  for (int n = -126; n < 128; n++) EXPECT_EQ(exp2_of(float(n)), std::ldexp(1.0f, n));
}
TEST(Exp2Soft, Edges) {
  EXPECT_EQ(exp2_of(-126.0f), 0x1p-126f);
  for (float x : {std::nextafter(-126.0f, -200.0f), -127.0f, -150.0f, -1e30f, -kInf})
    EXPECT_EQ(std::bit_cast<u32>(exp2_of(x)), 0u) << x;
  EXPECT_LT(exp2_of(std::nextafter(128.0f, 0.0f)), kInf);
  EXPECT_GT(exp2_of(std::nextafter(128.0f, 0.0f)), 0x1.fffp127f);
  for (float x : {128.0f, 1e30f, kInf}) EXPECT_EQ(exp2_of(x), kInf);
  EXPECT_EQ(exp2_of(0.0f), 1.0f);
  EXPECT_EQ(exp2_of(-0.0f), 1.0f);
  EXPECT_EQ(exp2_of(0x1p-149f), 1.0f);
}
// The exponent n is added to the bits of the result: added to a NaN's it makes a number, and so
// does select(x >= -126, y, 0), whose condition a NaN fails.
TEST(Exp2Soft, NanStaysNan) {
  for (float x : nans()) {
    EXPECT_TRUE(std::isnan(exp2_of(x)));
    const float among =
        exp2_soft(select(lane_id() == Lanes<i32>(11), Lanes<float>(x), Lanes<float>(1.0f))).v[11];
    EXPECT_TRUE(std::isnan(among));
  }
}

TEST(Log2Soft, PowersOfTwoAreExact) {
  for (int n = -149; n < 128; n++) EXPECT_EQ(log2_of(std::ldexp(1.0f, n)), float(n));
  EXPECT_EQ(std::bit_cast<u32>(log2_of(1.0f)), 0u);
}
TEST(Log2Soft, Edges) {
  EXPECT_EQ(log2_of(0.0f), -kInf);
  EXPECT_EQ(log2_of(-0.0f), -kInf);
  EXPECT_EQ(log2_of(kInf), kInf);
  for (float x : {-1.0f, -0x1p-149f, -0x1p-126f, -1e30f, -kInf})
    EXPECT_TRUE(std::isnan(log2_of(x))) << x;
  for (float x : nans()) EXPECT_TRUE(std::isnan(log2_of(x)));
  // Beside 1 the result is small, and must be right in its own last place.
  EXPECT_EQ(log2_of(std::nextafter(1.0f, 2.0f)), float(std::log2(1 + 0x1p-23)));
  EXPECT_EQ(log2_of(std::nextafter(1.0f, 0.0f)), float(std::log2(1 - 0x1p-24)));
  EXPECT_EQ(log2_of(0x1.8p-149f), log2_of(0x1p-148f));  // a tie on input: 2^-148
}

TEST(NaturalFunctions, FollowFromBaseTwo) {
  for (float x : {-80.0f, -1.0f, 0.0f, 1e-3f, 1.0f, 10.0f, 88.0f}) {
    const float y = exp2_soft(Lanes<float>(x * kLog2E)).v[0];
    EXPECT_NEAR(y / std::exp(double(x)), 1, 1e-7 * (2 + std::fabs(x)));
    if (x > 0) {
      EXPECT_NEAR(log_soft(Lanes<float>(x)).v[0], std::log(double(x)),
                  2e-7 * (1 + std::fabs(std::log(x))));
    }
  }
}

}  // namespace
}  // namespace tessera
