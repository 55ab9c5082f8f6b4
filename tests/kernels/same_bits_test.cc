// SPDX-License-Identifier: Apache-2.0
// One set of O and LSE bits: for every ISA level, thread count and order of blocks and warps.
#include <gtest/gtest.h>

#include "kernels/configs.h"
#include "kernels/registry.h"
#include "sim/loader.h"
#include "tests/kernels/attention_case.h"
#include "tests/kernels/products.h"

namespace tessera::testing {
namespace {

struct Bits {
  std::string o, lse;
  bool operator==(const Bits&) const = default;
};

Bits bits(const Case& c, AttentionOptions o) {
  Tensors t = make_inputs(c);
  run(c, t, o);
  return {hash_o(c, t), hash_lse(c, t)};
}

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const std::string kernel : kAttentionKernels)
    for (const char* arch : {"sm_75", "sm_89", "sm_90"})
      for (const Dtype d : {Dtype::f32, Dtype::f16, Dtype::bf16, Dtype::field}) {
        Case c;
        c.kernel = kernel, c.arch = arch, c.dtype = d, c.magnitude = 2;
        c.batch = 2, c.heads = 2, c.heads_kv = 1, c.q_len = 37, c.causal = Causal::bottom_right;
        c.k_len = kernel == "flash_step1" ? 53 : 140;  // several tiles
        const bool built = d == Dtype::field ? c.arch == "sm_89" : supports(parse_arch(arch), d);
        if (built) all.push_back(c);
      }
  return all;
}

TEST(SameBits, IsaLevelsThreadsAndOrders) {
  const std::vector<std::string> levels = sim::available_isa_levels();
  ASSERT_FALSE(levels.empty());
  for (const std::string& isa : levels) RecordProperty(isa, "compared");
  if (levels.size() < 3) std::cout << "only " << levels.size() << " ISA levels run on this CPU\n";
  for (const Case& c : cases())
    for (const Numerics numerics : {Numerics::exact, Numerics::fma}) {
      AttentionOptions o;
      o.numerics = numerics, o.threads = 1, o.isa = levels.front();
      const Bits first = bits(c, o);
      for (const std::string& isa : levels)
        for (const int threads : {1, 4})
          for (const u64 seed : {0, 1, 2, 3, 4}) {
            // The slowest level (with a library call per fma) need not show every order again.
            if (isa == "v2" && (numerics == Numerics::fma ? threads > 1 || seed > 1 : seed % 3))
              continue;
            o.isa = isa, o.threads = threads, o.order_seed = seed;
            EXPECT_EQ(bits(c, o), first)
                << c << " " << isa << " " << threads << " threads, order " << seed;
          }
    }
}

TEST(SameBits, HardwareExp2IsTheSameOnEveryLevel) {
  for (Case c : cases()) {
    c.exp2 = "hardware";
    const std::vector<std::string> levels = sim::available_isa_levels();
    AttentionOptions o;
    o.isa = levels.front();
    const Bits first = bits(c, o);
    for (const std::string& isa : levels) {
      o.isa = isa;
      EXPECT_EQ(bits(c, o), first) << c << " " << isa;
    }
  }
}

TEST(SameBits, ChecksChangeNothing) {
  for (const Case& c : cases()) {
    AttentionOptions o;
    const Bits first = bits(c, o);
    o.checks = true;
    EXPECT_EQ(bits(c, o), first) << c;
  }
}

TEST(SameBits, Products) {
  for (const ProductCase& c : golden_products()) {
    Options o;
    const std::string first = run_product(c, o).hash;
    for (const std::string& isa : sim::available_isa_levels())
      for (const u64 seed : {0, 3}) {
        o.isa = isa, o.order_seed = seed, o.threads = seed ? 4 : 1;
        EXPECT_EQ(run_product(c, o).hash, first) << c.name() << " " << isa;
      }
  }
}

}  // namespace
}  // namespace tessera::testing
