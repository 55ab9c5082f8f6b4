// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <tuple>

#include "kernels/configs.h"
#include "kernels/registry.h"
#include "reference/inputs.h"
#include "tests/kernels/attention_case.h"

namespace tessera::testing {
namespace {

constexpr i64 kTile = 16;

Case step1() {
  Case c;
  c.kernel = "flash_step1";
  return c;
}

class FlashStep1 : public ::testing::TestWithParam<std::tuple<std::string, Dtype>> {
 protected:
  Case start() const {
    Case c = step1();
    c.arch = std::get<0>(GetParam()), c.dtype = std::get<1>(GetParam());
    return c;
  }
};

std::vector<std::tuple<std::string, Dtype>> all_types() {
  std::vector<std::tuple<std::string, Dtype>> r;
  for (const char* arch : {"sm_75", "sm_89", "sm_90"})
    for (const Dtype d : {Dtype::f32, Dtype::f16, Dtype::bf16})
      if (supports(parse_arch(arch), d)) r.emplace_back(arch, d);
  r.emplace_back("sm_89", Dtype::field);
  return r;
}
std::string type_name(const ::testing::TestParamInfo<std::tuple<std::string, Dtype>>& i) {
  return std::get<0>(i.param) + "_" + std::string(name_of(std::get<1>(i.param)));
}
INSTANTIATE_TEST_SUITE_P(Types, FlashStep1, ::testing::ValuesIn(all_types()), type_name);

// q_len and k_len around one and two tiles, varied apart; causal both ways and not.
TEST_P(FlashStep1, LengthsAroundTheTile) {
  const i64 lengths[] = {1, kTile - 1, kTile, kTile + 1, 2 * kTile - 1, 2 * kTile + 1};
  for (const i64 q_len : lengths)
    for (const i64 k_len : lengths)
      for (const Causal causal : {Causal::none, Causal::top_left, Causal::bottom_right}) {
        Case c = start();
        c.batch = 2, c.heads = 2, c.q_len = q_len, c.k_len = k_len, c.head_dim = 32,
        c.causal = causal;
        if (causal == Causal::bottom_right && q_len > k_len && c.dtype != Dtype::field)
          continue;  // refused: see api_test
        expect_right_with_checks(c);
      }
}

TEST_P(FlashStep1, EveryHeadDim) {
  for (const i64 d : {1, 2, 7, 8, 31, 32, 33, 40, 63, 64, 65, 72, 80, 95, 96, 97, 100, 127, 128}) {
    Case c = start();
    c.q_len = 19, c.k_len = 35, c.head_dim = d;
    expect_right_with_checks(c);
  }
}

TEST_P(FlashStep1, TutorialShapes) {
  const i64 shapes[][4] = {
      {4, 128, 128, 64}, {2, 100, 100, 64}, {1, 37, 53, 32}, {1, 200, 96, 128}};
  for (const auto& s : shapes)
    for (const Causal causal : {Causal::none, Causal::top_left}) {
      Case c = start();
      c.batch = s[0], c.q_len = s[1], c.k_len = s[2], c.head_dim = s[3], c.causal = causal;
      SCOPED_TRACE(c.name());
      Tensors t = make_inputs(c);
      run(c, t);
      const Verdict v = compare_with_reference(c, t);
      EXPECT_TRUE(v.pass()) << v.text();
    }
}

TEST_P(FlashStep1, TutorialsLongShape) {
  Case c = start();
  c.batch = 2, c.q_len = c.k_len = 1024;
  if (c.dtype == Dtype::f32 || c.dtype == Dtype::field) c.batch = 1;
  for (const Causal causal : {Causal::none, Causal::top_left}) {
    c.causal = causal;
    Tensors t = make_inputs(c);
    AttentionOptions o;
    o.numerics = Numerics::fma;
    run(c, t, o);
    const Verdict v = compare_with_reference(c, t);
    EXPECT_TRUE(v.pass()) << v.text();
  }
}

TEST_P(FlashStep1, GroupedQueries) {  // B33: head h reads key head h / (heads / heads_kv)
  const i64 groups[][2] = {{6, 2}, {8, 1}, {4, 4}, {3, 3}};
  for (const auto& g : groups) {
    Case c = start();
    c.batch = 2, c.heads = g[0], c.heads_kv = g[1], c.q_len = 17, c.k_len = 23, c.head_dim = 32;
    expect_right_with_checks(c);
  }
}

TEST_P(FlashStep1, AnyScale) {
  for (const double scale : {1.0, 0.0, 0.3, -0.7}) {
    Case c = start();
    c.q_len = 20, c.k_len = 33, c.head_dim = 48, c.scale = scale, c.magnitude = 0.5;
    expect_right_with_checks(c);
  }
}

// At most twice the error of plain attention that rounds S and P to the storage type.
TEST_P(FlashStep1, NoWorseThanTwicePlainAttention) {
  Case c = start();
  if (c.dtype == Dtype::field) GTEST_SKIP() << "the field has no rounding";
  c.heads = 2, c.q_len = 130, c.k_len = 259, c.head_dim = 64;
  Tensors t = make_inputs(c);
  run(c, t);
  const Errors e = errors_of_o(c, t);
  EXPECT_LE(e.ours, 2 * e.plain);
}

// Weights of exp(-14.2), which fp16 holds as subnormals: the tolerance must know their rounding,
// and no more.
TEST(FlashStep1Fp16, SubnormalWeights) {
  Case c = step1();
  c.q_len = 1, c.k_len = 1024, c.head_dim = 16, c.scale = 1;
  Tensors t = make_inputs(c);
  const auto put = [](Bytes& b, i64 i, float x) {
    const u16 h = f32_to_f16_bits(__builtin_bit_cast(u32, x));
    std::memcpy(b.data() + 2 * i, &h, 2);
  };
  for (i64 d = 0; d < 16; d++) put(t.q, d, d == 0 ? 1.0f : 0.0f);
  for (i64 j = 0; j < 1024; j++)
    for (i64 d = 0; d < 16; d++)
      put(t.k, j * 16 + d, d == 0 && j > 0 ? -14.2f : 0.0f),
          put(t.v, j * 16 + d, j > 0 ? 1.0f : 0.0f);
  run(c, t);
  const Verdict v = compare_with_reference(c, t);
  EXPECT_TRUE(v.pass()) << v.text();
  EXPECT_GT(v.o.max_ratio, 0.2);
}

// Step 1 visits and masks every tile; counters in closed form.
TEST_P(FlashStep1, CountersHaveTheirClosedForm) {
  for (const i64 q_len : {1, 16, 100})
    for (const i64 k_len : {1, 16, 53, 100}) {
      Case c = start();
      c.batch = 2, c.heads = 3, c.q_len = q_len, c.k_len = k_len, c.head_dim = 40,
      c.causal = Causal::top_left;
      SCOPED_TRACE(c.name());
      Tensors t = make_inputs(c);
      const Counters n = run(c, t).counters;
      const u64 blocks = u64(c.batch * c.heads * ((q_len + 15) / 16)),
                tiles = blocks * u64((k_len + 15) / 16);
      const u64 bucket = 64;
      EXPECT_EQ(n.blocks, blocks);
      EXPECT_EQ(n.tiles_masked, tiles);
      EXPECT_EQ(n.tiles_full + n.tiles_skipped, 0u);
      EXPECT_EQ(n.barriers, 2 * tiles);
      EXPECT_EQ(n.shared_wavefronts, n.shared_wavefronts_ideal);
      const bool tensor_cores = c.dtype == Dtype::f16 || c.dtype == Dtype::bf16;
      const u64 k16 = tiles * (2 * (bucket / 16) +
                               bucket / 8);  // S: 2 column tiles a k step; P V: one k step
      EXPECT_EQ(n.mma, tensor_cores ? (c.arch == "sm_75" ? 2 * k16 : k16) : 0u);
      EXPECT_EQ(n.fma, tensor_cores ? 0u : tiles * 2 * 16 * 16 * bucket);
      if (c.dtype != Dtype::field) {
        EXPECT_EQ(n.exp2, tiles * (16 * 16 +
                                   2 * 32));  // weights; rescale, once for each of a row's 4 lanes
      }
      const u64 es = u64(element_size(c.dtype)), d = u64(c.head_dim);
      EXPECT_EQ(n.global_load_bytes, u64(c.batch * c.heads) * d * es *
                                         (u64(q_len) + 2 * u64(k_len) * u64((q_len + 15) / 16)));
      EXPECT_EQ(n.global_store_bytes, u64(c.batch * c.heads * q_len) * (d * es + 4));
    }
}

TEST(FlashStep1Field, TenRaggedShapesEqualTheNaiveFormula) {
  const i64 shapes[][6] = {{1, 1, 1, 1, 1, 1},     {1, 2, 1, 15, 17, 5},   {2, 2, 2, 16, 16, 32},
                           {1, 4, 2, 33, 31, 40},  {1, 1, 1, 37, 53, 32},  {1, 3, 3, 100, 100, 64},
                           {2, 1, 1, 47, 129, 96}, {1, 2, 1, 65, 64, 100}, {1, 1, 1, 200, 96, 128},
                           {3, 2, 2, 18, 5, 64}};
  for (const auto& s : shapes)
    for (const Causal causal : {Causal::none, Causal::top_left, Causal::bottom_right}) {
      Case c = step1();
      c.dtype = Dtype::field, c.causal = causal;
      c.batch = s[0], c.heads = s[1], c.heads_kv = s[2], c.q_len = s[3], c.k_len = s[4],
      c.head_dim = s[5];
      Tensors t = make_inputs(c);
      run(c, t);
      EXPECT_TRUE(compare_with_reference(c, t).pass()) << c;
    }
}

// ---- the famous bugs, switched on

Verdict with_config(const char* config, Dtype d, i64 batch, i64 n) {
  Case c = step1();
  c.config = config, c.dtype = d, c.batch = batch, c.q_len = c.k_len = n;
  Tensors t = make_inputs(c);
  run(c, t);
  return compare_with_reference(c, t);
}

TEST(FamousBugs, PaddedKeysPassOnMultiplesOfTheTileAndFailElsewhere) {
  for (const Dtype d : {Dtype::f32, Dtype::f16, Dtype::bf16}) {
    EXPECT_TRUE(with_config("16x16-padded-keys", d, 4, 128).pass());
    const Verdict ragged = with_config("16x16-padded-keys", d, 2, 100);
    EXPECT_FALSE(ragged.o.pass);
    EXPECT_FALSE(ragged.lse.pass);
    EXPECT_TRUE(with_config("", d, 2, 100).pass());
  }
}

TEST(FamousBugs, ADroppedCastPassesInFp32AndFailsIn16Bits) {
  EXPECT_TRUE(with_config("16x16-dropped-cast", Dtype::f32, 4, 128).pass());
  EXPECT_FALSE(with_config("16x16-dropped-cast", Dtype::f16, 4, 128).o.pass);
  EXPECT_FALSE(with_config("16x16-dropped-cast", Dtype::bf16, 4, 128).o.pass);
  EXPECT_TRUE(with_config("16x16-dropped-cast", Dtype::f16, 4, 128)
                  .lse.pass);  // l is summed before the cast
}

// Its documented limit: with true scores below -1e6 the mask wins over them.
TEST(FamousBugs, MinusAMillionIsNotMinusInfinity) {
  Case c = step1();
  c.dtype = Dtype::f32, c.q_len = c.k_len = 20, c.head_dim = 16, c.magnitude = 3000, c.scale = 1;
  c.causal = Causal::top_left;
  Tensors t = make_inputs(c);
  run(c, t);
  EXPECT_FALSE(compare_with_reference(c, t).pass());
}

}  // namespace
}  // namespace tessera::testing
