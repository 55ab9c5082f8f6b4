// SPDX-License-Identifier: Apache-2.0
// Bad input: one error that names the argument and the limit, before any memory is touched, and the
// same message in C++ and in C.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include "kernels/attention.h"
#include "kernels/attention_c.h"
#include "kernels/cuda_backend.h"
#include "kernels/registry.h"
#include "sim/loader.h"

namespace tessera::testing {
namespace {

// Addresses that nobody may touch: reading or writing through them faults.
void* forbidden(int i) { return reinterpret_cast<void*>(std::uintptr_t(i + 1) << 36); }

struct Call {
  Tensor q, k, v, o, lse;
  AttentionOptions options;
  bool has_lse = true;

  Call() {
    q = contiguous(forbidden(0), Dtype::f16, {2, 4, 20, 64});
    k = contiguous(forbidden(1), Dtype::f16, {2, 2, 30, 64});
    v = contiguous(forbidden(2), Dtype::f16, {2, 2, 30, 64});
    o = contiguous(forbidden(3), Dtype::f16, {2, 4, 20, 64});
    lse = contiguous(forbidden(4), Dtype::f32, {2, 4, 20});
  }
};

struct Failure {
  int status = 0;
  std::string message;
};

Failure in_cpp(const Call& c) {
  try {
    attention(c.q, c.k, c.v, c.o, c.has_lse ? &c.lse : nullptr, c.options);
  } catch (const Error& e) {
    return {int(e.kind), e.what()};
  }
  return {};
}

Failure in_c(const Call& c) {
  const auto tensor = [](const Tensor& t) {
    tessera_tensor r{t.data, int32_t(t.dtype), t.rank, {}, {}};
    for (int i = 0; i < 4; i++)
      r.shape[i] = t.shape[std::size_t(i)], r.stride[i] = t.stride[std::size_t(i)];
    return r;
  };
  tessera_options o{};
  o.struct_size = sizeof o;
  const AttentionOptions& from = c.options;
  o.kernel = from.kernel.c_str(), o.arch = from.arch.c_str(), o.card = from.card.c_str(),
  o.config = from.config.c_str();
  o.exp2 = from.exp2.c_str(), o.isa = from.isa.c_str();
  o.target = from.target == Target::cuda ? "cuda" : "sim",
  o.numerics = from.numerics == Numerics::fma ? "fma" : "exact";
  o.causal = int32_t(from.causal), o.has_scale = from.scale.has_value(),
  o.scale = from.scale.value_or(0);
  o.threads = from.threads, o.checks = from.checks;
  o.has_left = from.left.has_value(), o.left = from.left.value_or(0);
  o.has_right = from.right.has_value(), o.right = from.right.value_or(0);
  o.align = from.align ? int32_t(*from.align) + 1 : 0;
  const tessera_tensor q = tensor(c.q), k = tensor(c.k), v = tensor(c.v), out = tensor(c.o),
                       lse = tensor(c.lse);
  const int status = tessera_attention(&q, &k, &v, &out, c.has_lse ? &lse : nullptr, &o);
  return {status, tessera_last_error()};
}

struct Bad {
  const char* name;
  std::function<void(Call&)> break_it;
  int status;
  std::vector<std::string> words;  // the argument and the limit
};

const std::vector<Bad> kBad = {
    {"rank", [](Call& c) { c.q.rank = 3; }, 2, {"q: rank 3", "expected 4"}},
    {"rank_of_lse", [](Call& c) { c.lse.rank = 2; }, 2, {"lse: rank 2", "expected 3"}},
    {"batch_of_k", [](Call& c) { c.k.shape[0] = 3; }, 2, {"k: batch 3", "q's 2"}},
    {"batch_of_v", [](Call& c) { c.v.shape[0] = 1; }, 2, {"v: batch 1"}},
    {"heads_of_v", [](Call& c) { c.v.shape[1] = 4; }, 2, {"v: heads 4", "k's 2"}},
    {"heads_not_divisible",
     [](Call& c) { c.k.shape[1] = c.v.shape[1] = 3; },
     2,
     {"q: heads 4", "multiple", "k's heads 3"}},
    {"33_heads_over_2",
     [](Call& c) { c.q.shape[1] = c.o.shape[1] = c.lse.shape[1] = 33; },
     2,
     {"heads 33", "heads 2"}},
    {"no_kv_heads",
     [](Call& c) { c.k.shape[1] = c.v.shape[1] = 0; },
     2,
     {"heads 4", "k's heads 0"}},
    {"length_of_v", [](Call& c) { c.v.shape[2] = 31; }, 2, {"v: length 31", "k's 30"}},
    {"head_dim_of_k", [](Call& c) { c.k.shape[3] = 32; }, 2, {"k: head_dim 32", "q's 64"}},
    {"head_dim_of_v", [](Call& c) { c.v.shape[3] = 32; }, 2, {"v: head_dim 32"}},
    {"head_dim_0",
     [](Call& c) { c.q.shape[3] = c.k.shape[3] = c.v.shape[3] = c.o.shape[3] = 0; },
     2,
     {"q: head_dim 0", "1..128"}},
    {"head_dim_129",
     [](Call& c) { c.q.shape[3] = c.k.shape[3] = c.v.shape[3] = c.o.shape[3] = 129; },
     2,
     {"q: head_dim 129", "1..128"}},
    {"negative_extent", [](Call& c) { c.q.shape[2] = -1; }, 2, {"q: dimension 2 is -1"}},
    {"length_beyond_2_30",
     [](Call& c) { c.k.shape[2] = (i64(1) << 30) + 1; },
     2,
     {"k: dimension 2", "1073741824"}},
    {"dtype_of_k", [](Call& c) { c.k.dtype = Dtype::bf16; }, 2, {"k: dtype bf16", "q's f16"}},
    {"dtype_of_o", [](Call& c) { c.o.dtype = Dtype::f32; }, 2, {"o: dtype f32"}},
    {"dtype_of_lse",
     [](Call& c) { c.lse.dtype = Dtype::f16; },
     2,
     {"lse: dtype f16", "expected f32"}},
    {"unknown_dtype", [](Call& c) { c.q.dtype = Dtype(9); }, 2, {"q: unknown dtype 9"}},
    {"shape_of_o", [](Call& c) { c.o.shape[2] = 21; }, 2, {"o: length 21", "q's 20"}},
    {"shape_of_lse", [](Call& c) { c.lse.shape[2] = 19; }, 2, {"lse: length 19"}},
    {"lse_not_contiguous", [](Call& c) { c.lse.stride[0] = 100; }, 2, {"lse", "contiguous"}},
    {"null_q", [](Call& c) { c.q.data = nullptr; }, 2, {"q: null data"}},
    {"null_v", [](Call& c) { c.v.data = nullptr; }, 2, {"v: null data"}},
    {"null_o", [](Call& c) { c.o.data = nullptr; }, 2, {"o: null data"}},
    {"innermost_stride",
     [](Call& c) { c.v.stride[3] = 2; },
     2,
     {"v: innermost stride 2", "expected 1"}},
    {"negative_stride",
     [](Call& c) { c.k.stride[2] = -64; },
     2,
     {"k: dimension 2", "negative stride -64"}},
    {"output_over_itself", [](Call& c) { c.o.stride[0] = 0; }, 2, {"o: dimension 0 has stride 0"}},
    {"output_rows_over_each_other",
     [](Call& c) { c.o.stride[2] = 1; },
     2,
     {"o: dimension 2 has stride 1"}},
    {"misaligned_elements",
     [](Call& c) { c.k.data = static_cast<char*>(c.k.data) + 1; },
     2,
     {"k: data is not aligned"}},
    {"scale_nan", [](Call& c) { c.options.scale = std::nan(""); }, 2, {"scale", "finite"}},
    {"scale_inf", [](Call& c) { c.options.scale = HUGE_VAL; }, 2, {"scale", "finite"}},
    {"scale_beyond_fp32", [](Call& c) { c.options.scale = 1e300; }, 2, {"scale", "finite"}},
    {"threads", [](Call& c) { c.options.threads = -1; }, 2, {"threads: -1"}},
    {"kernel",
     [](Call& c) { c.options.kernel = "flash_step2"; },
     3,
     {"kernel", "flash_step2", "flash_step1"}},
    {"kernel_of_another_kind",
     [](Call& c) { c.options.kernel = "matmul"; },
     3,
     {"kernel", "matmul", "attention"}},
    {"arch", [](Call& c) { c.options.arch = "sm_80"; }, 2, {"arch", "sm_80", "sm_89"}},
    {"card", [](Call& c) { c.options.card = "rtx4090"; }, 2, {"card", "rtx4090", "rtx4070"}},
    {"config", [](Call& c) { c.options.config = "128x65"; }, 3, {"config", "128x65", "128x64"}},
    {"exp2", [](Call& c) { c.options.exp2 = "softt"; }, 2, {"exp2", "softt", "soft"}},
    {"isa", [](Call& c) { c.options.isa = "v5"; }, 2, {"isa", "v5", "v4"}},
    {"card_older_than_code",
     [](Call& c) { c.options.arch = "sm_90", c.options.card = "t4"; },
     3,
     {"card", "t4", "sm_90"}},
    {"type_the_arch_lacks",
     [](Call& c) {
       c.options.arch = "sm_75";
       c.q.dtype = c.k.dtype = c.v.dtype = c.o.dtype = Dtype::bf16;
     },
     3,
     {"dtype", "sm_75", "bf16"}},
    {"rows_without_a_key",
     [](Call& c) {
       c.options.kernel = "flash_step1";
       c.options.causal = Causal::bottom_right, c.k.shape[2] = c.v.shape[2] = 7;
     },
     3,
     {"causal", "q_len 20", "k_len 7"}},
    {"window_without_a_key",
     [](Call& c) {
       c.options.kernel = "flash_step1";
       c.options.left = 3, c.k.shape[2] = c.v.shape[2] = 7;
     },
     3,
     {"left: 3", "q_len 20", "k_len 7", "without a visible key"}},
    {"window_before_the_keys",
     [](Call& c) {
       c.options.kernel = "flash_step1";
       c.options.right = -1;
     },
     3,
     {"right: -1", "q_len 20", "k_len 30"}},
    {"left_beyond_2_40",
     [](Call& c) { c.options.left = (i64(1) << 40) + 1; },
     2,
     {"left: 1099511627777", "2^40"}},
    {"right_beside_causal",
     [](Call& c) { c.options.causal = Causal::top_left, c.options.right = 5; },
     2,
     {"right: 5", "causal"}},
    {"align_against_causal",
     [](Call& c) { c.options.causal = Causal::top_left, c.options.align = Align::bottom_right; },
     2,
     {"align", "causal is top-left"}},
    {"o_over_q", [](Call& c) { c.o.data = c.q.data; }, 2, {"o: it overlaps q"}},
    {"o_over_the_last_of_k",
     [](Call& c) { c.o.data = static_cast<char*>(c.k.data) + 2 * (2 * 2 * 30 * 64 - 1); },
     2,
     {"o: it overlaps k"}},
    {"o_over_v_of_one_row",
     [](Call& c) {
       c.v.stride = {0, 0, 0, 1}, c.v.data = static_cast<char*>(c.o.data) + 128;
     },
     2,
     {"o: it overlaps v"}},
    {"lse_over_o",
     [](Call& c) { c.lse.data = static_cast<char*>(c.o.data) + 64; },
     2,
     {"lse: it overlaps o"}},
    {"lse_over_q", [](Call& c) { c.lse.data = c.q.data; }, 2, {"lse: it overlaps q"}},
    {"lse_over_k", [](Call& c) { c.lse.data = c.k.data; }, 2, {"lse: it overlaps k"}},
    {"lse_over_v", [](Call& c) { c.lse.data = c.v.data; }, 2, {"lse: it overlaps v"}},
};

class BadInput : public ::testing::TestWithParam<Bad> {};
INSTANTIATE_TEST_SUITE_P(Api, BadInput, ::testing::ValuesIn(kBad),
                         [](const auto& info) { return std::string(info.param.name); });

TEST_P(BadInput, IsNamedBeforeMemoryIsTouched) {
  Call c;
  GetParam().break_it(c);
  const Failure cpp = in_cpp(c), plain_c = in_c(c);
  EXPECT_EQ(cpp.status, GetParam().status) << cpp.message;
  for (const std::string& word : GetParam().words)
    EXPECT_NE(cpp.message.find(word), std::string::npos) << cpp.message;
  EXPECT_EQ(plain_c.status, cpp.status);
  EXPECT_EQ(plain_c.message, cpp.message);
}

TEST(Api, ACudaCallWithoutADeviceSaysWhy) {
  if (!cuda::why_no_device().empty()) {
    Call c;
    c.options.target = Target::cuda;
    EXPECT_EQ(in_cpp(c).status, 3);
    EXPECT_NE(in_cpp(c).message.find("cuda"), std::string::npos);
  }
}

TEST(Api, NullTensorsAndOptionsOfTheCInterface) {
  Call c;
  tessera_tensor t{};
  EXPECT_EQ(tessera_attention(nullptr, &t, &t, &t, nullptr, nullptr), TESSERA_INVALID_ARGUMENT);
  EXPECT_NE(std::string(tessera_last_error()).find("q: null"), std::string::npos);
  tessera_options o{};
  o.struct_size = 8;
  EXPECT_EQ(tessera_attention(&t, &t, &t, &t, nullptr, &o), TESSERA_INVALID_ARGUMENT);
  EXPECT_EQ(tessera_fill(nullptr, 0, 5, 0, 0, 1), TESSERA_INVALID_ARGUMENT);
  EXPECT_EQ(tessera_fill(nullptr, 7, 0, 0, 0, 1), TESSERA_INVALID_ARGUMENT);
  double limit = -1;
  EXPECT_EQ(tessera_cuda_rate_limit(9, &limit), TESSERA_INVALID_ARGUMENT);
  EXPECT_EQ(tessera_cuda_rate_limit(TESSERA_F16, nullptr), TESSERA_INVALID_ARGUMENT);
  EXPECT_EQ(tessera_cuda_rate_limit(TESSERA_FIELD, &limit), TESSERA_UNSUPPORTED);
  if (!cuda::why_no_device().empty()) {
    EXPECT_EQ(tessera_cuda_rate_limit(TESSERA_F16, &limit), TESSERA_UNSUPPORTED);
    EXPECT_NE(std::string(tessera_last_error()).find(cuda::why_no_device()), std::string::npos);
  }
  EXPECT_EQ(limit, -1);
  EXPECT_EQ(tessera_abi_version(), TESSERA_ABI_VERSION);
}

TEST(Api, AnAlignedCopyThatCannotBeIsRefused) {  // its size passes 2^63
  const i64 many = i64(1) << 30;
  Call c;
  c.q = contiguous(forbidden(0), Dtype::f16, {1, many, 1, 1});
  c.o = c.q, c.o.data = forbidden(3), c.q.stride = {0, 0, 0, 1}, c.has_lse = false;
  c.k = contiguous(static_cast<char*>(forbidden(1)) + 2, Dtype::f16, {1, many, many, 1});
  c.k.stride = {0, 0, 0, 1};
  c.v = c.k;
  EXPECT_EQ(in_cpp(c).status, 3);
  EXPECT_NE(in_cpp(c).message.find("k: an aligned copy"), std::string::npos) << in_cpp(c).message;
}

TEST(Api, NamesAreCheckedWhereNothingRuns) {
  Call c;
  c.q.shape[0] = c.k.shape[0] = c.v.shape[0] = c.o.shape[0] = c.lse.shape[0] = 0;
  c.options.isa = "v9";
  EXPECT_EQ(in_cpp(c).status, 2);
}

// Q, K, V and O as slices of one array (batch, length, 4, heads, head_dim), and LSE in the gaps of
// another: none of their elements is shared.
TEST(Api, SlicesOfOneArrayAreAccepted) {
  constexpr i64 kBatch = 2, kLength = 20, kHeads = 3, kDim = 32, kRow = 4 * kHeads * kDim;
  std::vector<float> packed(kBatch * kLength * kRow), apart[4];
  for (std::size_t i = 0; i < packed.size(); i++) packed[i] = float(i * 37 % 101) / 50 - 1;
  const std::vector<float> before = packed;
  const auto slice = [&](int s) {
    return Tensor{packed.data() + s * kHeads * kDim,
                  Dtype::f32,
                  4,
                  {kBatch, kHeads, kLength, kDim},
                  {kLength * kRow, kDim, kRow, 1}};
  };
  attention(slice(0), slice(1), slice(2), slice(3), nullptr, {});
  std::vector<float> o(kBatch * kHeads * kLength * kDim);
  packed.swap(apart[0]), packed = before;
  attention(slice(0), slice(1), slice(2),
            contiguous(o.data(), Dtype::f32, {kBatch, kHeads, kLength, kDim}), nullptr, {});
  for (i64 i = 0; i < i64(before.size()); i++) {
    const i64 b = i / (kLength * kRow), n = i / kRow % kLength, s = i / (kHeads * kDim) % 4,
              h = i / kDim % kHeads, d = i % kDim;
    const float want = s == 3 ? o[std::size_t(((b * kHeads + h) * kLength + n) * kDim + d)]
                              : before[std::size_t(i)];
    ASSERT_EQ(apart[0][std::size_t(i)], want) << i;
  }
}

TEST(Api, ProductsRefuseAnOutputOverAnInput) {
  float x[64];
  const Tensor square = contiguous(x, Dtype::f32, {8, 8}), row = contiguous(x, Dtype::f32, {8});
  const Tensor other = contiguous(forbidden(0), Dtype::f32, {8, 8}),
               rest = contiguous(forbidden(1), Dtype::f32, {8});
  const auto message = [](auto call) -> std::string {
    try {
      call();
    } catch (const Error& e) {
      return e.what();
    }
    return "";
  };
  EXPECT_EQ(message([&] { matmul(other, square, square, {}); }).find("c: it overlaps b"), 0u);
  EXPECT_EQ(message([&] { matmul(square, other, square, {}); }).find("c: it overlaps a"), 0u);
  EXPECT_EQ(message([&] { weighted_sum(square, rest, row, {}); }).find("y: it overlaps x"), 0u);
  EXPECT_EQ(message([&] { weighted_sum(other, row, row, {}); }).find("y: it overlaps w"), 0u);
}

TEST(Api, EmptyTensorsNeedNoMemory) {  // B11
  for (const Dtype d : {Dtype::f32, Dtype::f16, Dtype::bf16}) {
    const auto call = [&](i64 batch, i64 heads, i64 q_len) {
      const Tensor q = contiguous(nullptr, d, {batch, heads, q_len, 16}),
                   lse = contiguous(nullptr, Dtype::f32, {batch, heads, q_len});
      float some[16 * 7] = {};
      const Tensor k = contiguous(some, d, {batch, heads, 7, 16});
      const Report r = attention(q, k, k, q, &lse, {});
      EXPECT_EQ(r.counters.blocks, 0u);
    };
    call(0, 1, 5), call(1, 0, 5), call(1, 1, 0);
  }
}

// A launch beyond the card's limits is refused with the limit, before anything runs.
TEST(Api, LimitsOfTheCard) {
  const sim::Found f = sim::find_instance("matmul/sm_90/f16/128x128x64", "best");
  MatmulArgs args;  // pointers are null: a block that ran would fault
  args.m = args.n = args.k = 1;
  sim::Launch l;
  l.args = &args, l.card = sim::find_card("t4");
  const std::string shared = f.module->launch(*f.instance, l).error;
  EXPECT_NE(shared.find("65536"), std::string::npos) << shared;
  EXPECT_NE(shared.find("t4"), std::string::npos) << shared;
  l.card = sim::find_card("h200");
  args.m = args.n = 1 << 30;
  const std::string grid = f.module->launch(*f.instance, l).error;
  EXPECT_NE(grid.find("2147483647"), std::string::npos) << grid;
}

// One emulated instance serves both archs only where their rows agree: a row of the same name with
// other warps sums in another order.
TEST(Registry, TwinsAgree) {
  EXPECT_EQ(sim::emulator_twin("flash_forward/sm_90/f16/d64/64x128"),
            "flash_forward/sm_89/f16/d64/64x128");
  EXPECT_EQ(sim::emulator_twin("flash_forward/sm_90/f32/d64/128x64"), "");  // 4 warps, 8 on sm_89
  EXPECT_EQ(sim::emulator_twin("flash_forward/sm_90/f32/d64/64x64"), "");   // sm_89 has none
  EXPECT_EQ(sim::emulator_twin("matmul/sm_90/f16/64x64x32"), "matmul/sm_89/f16/64x64x32");
  EXPECT_EQ(sim::emulator_twin("flash_forward/sm_89/f16/d64/64x128"), "");
}

TEST(Registry, EveryInstanceOfTheTableIsBuiltForTheEmulator) {
  const auto keys = all_instance_keys(Where::sim);
  for (const std::string& k : keys) EXPECT_NO_THROW(sim::find_instance(k, "best")) << k;
  const sim::Module& best = sim::load_module(sim::available_isa_levels().front());
  int shared = 0;  // sm_90 rows that run sm_89's instance
  for (const std::string& k : keys) {
    bool found = false;
    for (int i = 0; i < best.count; i++) found = found || k == best.instances[i]->key;
    shared += !found;
  }
  EXPECT_EQ(best.count + shared, int(keys.size()));
}

TEST(Registry, EveryInstanceOfTheTableIsBuiltForCuda) {
  if (!cuda::built()) GTEST_SKIP() << "this build has no CUDA part";
  auto want = all_instance_keys(Where::cuda), have = cuda::instances();
  std::sort(want.begin(), want.end()), std::sort(have.begin(), have.end());
  EXPECT_EQ(want, have);
}

TEST(Registry, NearestNames) {
  EXPECT_EQ(nearest("flash_stpe1", {"matmul", "flash_step1", "weighted_sum"}), "flash_step1");
  EXPECT_EQ(nearest("SM_75", {"sm_75", "sm_89"}), "sm_75");
  EXPECT_EQ(nearest("x", {}), "");
}

// What a GPU runs where no configuration is asked for: the first row, unless its blocks are fewer
// than the card's multiprocessors and there is a smaller one.
TEST(ConfigToFill, TakesSmallerBlocksWhereTheFirstRowLeavesSomeIdle) {
  const KernelRow& kernel = find_kernel("flash_forward");
  const auto rows = [&](Arch arch, Dtype dtype, int head_dim, i64 q_len, i64 heads, int sms) {
    return config_to_fill(kernel, arch, dtype, head_dim, q_len, heads, sms).rows;
  };
  for (const int head_dim : {32, 64, 80, 96, 128}) {
    EXPECT_EQ(rows(Arch::sm_90, Dtype::bf16, head_dim, 512, 33, 132), 128);  // 132 blocks
    EXPECT_EQ(rows(Arch::sm_90, Dtype::bf16, head_dim, 512, 32, 132), 64);
    EXPECT_EQ(rows(Arch::sm_90, Dtype::bf16, head_dim, 1, 132, 132), 128);
    EXPECT_EQ(rows(Arch::sm_90, Dtype::bf16, head_dim, 1, 1, 132), 64);
  }
  EXPECT_EQ(rows(Arch::sm_75, Dtype::f16, 64, 128, 1, 40), 128);  // no row there is smaller
}

}  // namespace
}  // namespace tessera::testing
