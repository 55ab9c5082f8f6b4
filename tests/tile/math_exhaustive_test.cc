// SPDX-License-Identifier: Apache-2.0
// Soft exp2 and log2 over all 2^32 inputs.
#include "tests/tile/math_check.h"

namespace tessera {
namespace {

TEST(MathExhaustive, Exp2Soft) { expect_within(exp2_soft_errors(1), kExp2Bound); }
TEST(MathExhaustive, Log2Soft) { expect_within(log2_soft_errors(1), kLog2Bound); }

}  // namespace
}  // namespace tessera
