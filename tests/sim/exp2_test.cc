// SPDX-License-Identifier: Apache-2.0
// The emulator's stand-in for ex2.approx over all 2^32 inputs.
#include "tests/sim/exp2_check.h"

namespace tessera::sim {
namespace {

TEST(Exp2Rounded, EveryFloat) { expect_correctly_rounded(1); }

}  // namespace
}  // namespace tessera::sim
