// SPDX-License-Identifier: Apache-2.0
// Faults that real attention kernels had: what lies around tensors, strides, offsets past 32 bits,
// many batches and heads, races, limits of cards.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstdlib>
#include <cstring>

#include "kernels/registry.h"
#include "reference/inputs.h"
#include "sim/loader.h"
#include "tests/kernels/small_case.h"

namespace tessera::testing {
namespace {

class CasesOfMemory : public ::testing::TestWithParam<KernelType> {
 protected:
  Case start() const {
    Case c;
    c.kernel = GetParam().kernel, c.dtype = GetParam().dtype;
    return c;
  }
};
INSTANTIATE_TEST_SUITE_P(Kernels, CasesOfMemory, ::testing::ValuesIn(kernels_and_types()),
                         [](const auto& i) { return kernel_type_name(i.param); });

bool same_bytes(const Bytes& a, const Bytes& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size()) == 0;
}

TEST_P(CasesOfMemory, B20_B27_AnyStridesAndAnythingBetweenRows) {
  for (const i64 head_dim : {64, 37}) {
    Case c = start();
    c.batch = 2, c.heads = 3, c.q_len = 5, c.k_len = 13, c.head_dim = head_dim;
    Tensors t = make_inputs(c);
    run(c, t);
    for (const Layout& l : kLayouts)
      for (const u32 around :
           {0x7fff7fffu, 0x7c007c00u, 0x7f807f80u, 0x70e270e2u}) {  // NaN, inf, about 1e4
        SCOPED_TRACE(std::string(l.name) + " " + std::to_string(around));
        const std::array<i64, 4> qs{2, 3, 5, head_dim}, ks{2, 3, 13, head_dim};
        Placed q = place(t.q, c.dtype, qs, l, around), k = place(t.k, c.dtype, ks, l, around),
               v = place(t.v, c.dtype, ks, l, around), o = place(t.q, c.dtype, qs, l, around);
        Bytes lse(t.lse.size());
        const Tensor lt = contiguous(lse.data(), Dtype::f32, {2, 3, 5});
        AttentionOptions options = options_of(c);
        options.checks = true;
        const Report r = attention(q.tensor, k.tensor, v.tensor, o.tensor, &lt, options);
        for (const Finding& f : r.findings) ADD_FAILURE() << f.check << ": " << f.message;
        EXPECT_TRUE(same_bytes(lse, t.lse));
        EXPECT_TRUE(same_bytes(gather(o.tensor), t.o));
        // Nothing else in O's memory has changed: it is what a placed O would be.
        EXPECT_TRUE(same_bytes(o.memory, place(t.o, c.dtype, qs, l, around).memory));
      }
  }
}

// Over several tiles, and Q, K, V as slices of one packed array (batch, length, 3, heads, dim).
TEST_P(CasesOfMemory, B27_PackedQkvOverSeveralTiles) {
  Case c = start();
  c.batch = 2, c.heads = 2, c.q_len = c.k_len = 150, c.causal = Causal::top_left;
  Tensors t = make_inputs(c);
  run(c, t);
  const i64 es = element_size(c.dtype), row = 3 * c.heads * c.head_dim;
  Bytes packed(std::size_t(c.batch * c.q_len * row * es));
  Tensor slice[3];
  const Bytes* from[3] = {&t.q, &t.k, &t.v};
  for (i64 s = 0; s < 3; s++) {
    slice[s] = {packed.data() + s * c.heads * c.head_dim * es,
                c.dtype,
                4,
                {c.batch, c.heads, c.q_len, c.head_dim},
                {c.q_len * row, c.head_dim, row, 1}};
    for (i64 x = 0; x < c.batch * c.heads * c.q_len; x++)
      std::memcpy(static_cast<char*>(slice[s].data) +
                      (x / c.q_len / c.heads * slice[s].stride[0] +
                       x / c.q_len % c.heads * c.head_dim + x % c.q_len * row) *
                          es,
                  from[s]->data() + x * c.head_dim * es, std::size_t(c.head_dim * es));
  }
  Bytes o(t.o.size()), lse(t.lse.size());
  const Tensor lt = contiguous(lse.data(), Dtype::f32, {c.batch, c.heads, c.q_len});
  attention(slice[0], slice[1], slice[2],
            contiguous(o.data(), c.dtype, {c.batch, c.heads, c.q_len, c.head_dim}), &lt,
            options_of(c));
  EXPECT_TRUE(same_bytes(o, t.o));
  EXPECT_TRUE(same_bytes(lse, t.lse));
}

TEST_P(CasesOfMemory, B27_BroadcastKeysAndValues) {  // stride 0 over the batch
  Case c = start();
  c.batch = 1, c.heads = 3, c.q_len = 5, c.k_len = 9;
  Tensors one = make_inputs(c);
  Case both = c;
  both.batch = 2;
  Tensors t = make_inputs(both);
  const AttentionOptions options = options_of(c);
  Tensor k = contiguous(one.k.data(), c.dtype, {2, 3, 9, 64}),
         v = contiguous(one.v.data(), c.dtype, {2, 3, 9, 64});
  k.stride[0] = v.stride[0] = 0;
  attention(contiguous(t.q.data(), c.dtype, {2, 3, 5, 64}), k, v,
            contiguous(t.o.data(), c.dtype, {2, 3, 5, 64}), nullptr, options);
  const std::size_t half = t.o.size() / 2;
  for (int b = 0; b < 2; b++) {  // each batch entry alone
    Bytes alone(half);
    attention(contiguous(t.q.data() + std::size_t(b) * half, c.dtype, {1, 3, 5, 64}),
              contiguous(one.k.data(), c.dtype, {1, 3, 9, 64}),
              contiguous(one.v.data(), c.dtype, {1, 3, 9, 64}),
              contiguous(alone.data(), c.dtype, {1, 3, 5, 64}), nullptr, options);
    EXPECT_EQ(std::memcmp(alone.data(), t.o.data() + std::size_t(b) * half, half), 0);
  }
}

TEST_P(CasesOfMemory, B27_AStrideInsideRowsIsRefused) {
  Case c = start();
  Tensors t = make_inputs(c);
  Tensor q = contiguous(t.q.data(), c.dtype, {1, 1, 16, 32});
  q.stride = {1024, 1024, 64, 2};
  const Tensor k = contiguous(t.k.data(), c.dtype, {1, 1, 16, 32}),
               o = contiguous(t.o.data(), c.dtype, {1, 1, 16, 32});
  EXPECT_THROW(attention(q, k, k, o, nullptr, options_of(c)), Error);
}

// Strides of 2^30 elements from batch to batch, or 2^29 from row to row: address space that is
// never touched elsewhere.
TEST_P(CasesOfMemory, B25_OffsetsPast32Bits) {
  const struct {
    i64 batch, rows, batch_stride, row_stride;
  } layouts[] = {{5, 3, i64(1) << 30, 64}, {1, 7, i64(7) << 29, i64(1) << 29}};
  for (const auto& l : layouts) {
    Case c = start();
    c.batch = l.batch, c.q_len = c.k_len = l.rows;
    Tensors t = make_inputs(c);
    run(c, t);
    const i64 es = element_size(c.dtype);
    const std::size_t bytes = std::size_t((l.batch - 1) * l.batch_stride +
                                          (l.rows - 1) * l.row_stride + 64) *
                              std::size_t(es);
    Tensor x[4];
    for (Tensor& tensor : x) {
      void* p = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
      ASSERT_NE(p, MAP_FAILED);
      tensor = contiguous(p, c.dtype, {l.batch, 1, l.rows, 64});
      tensor.stride = {l.batch_stride, l.batch_stride, l.row_stride, 1};
    }
    const char* source[3] = {t.q.data(), t.k.data(), t.v.data()};
    for (int i = 0; i < 3; i++)
      for (i64 r = 0; r < l.batch * l.rows; r++)
        std::memcpy(static_cast<char*>(x[i].data) +
                        (r / l.rows * l.batch_stride + r % l.rows * l.row_stride) * es,
                    source[i] + r * 64 * es, std::size_t(64 * es));
    attention(x[0], x[1], x[2], x[3], nullptr, options_of(c));
    EXPECT_TRUE(same_bytes(gather(x[3]), t.o));
    for (const Tensor& tensor : x) munmap(tensor.data, bytes);
  }
}

TEST(CasesOfMemory, B26_MoreThan65535BatchesOrHeads) {
  const i64 shapes[][2] = {{256, 257}, {65536, 1}, {1, 65536}};
  const char* whole = std::getenv("TESSERA_WHOLE");
  for (const char* kernel : kAttentionKernels)
    for (const auto& s : shapes) {
      Case c;
      c.kernel = kernel, c.batch = s[0], c.heads = s[1], c.q_len = c.k_len = 2, c.head_dim = 16;
      // Its tiles are large and almost empty here: one shape takes seconds (cases_whole).
      if (c.kernel == "flash_forward" && !(whole && *whole == '1')) continue;
      if (c.kernel == "flash_forward") c.config = "64x128";
      AttentionOptions o;
      o.numerics = Numerics::fma;
      expect_right(c, o);
    }
}

// Races that no schedule needs to show: the checks decide by the barriers. Every configuration of
// every kernel; bits repeat for every order of blocks and warps.
TEST(CasesOfMemory, B41_NoRacesInAnyConfiguration) {
  for (const char* kernel : kAttentionKernels)
    for (const Configured& config : every_config(kernel)) {
      if (config.bucket % 64) continue;
      Case c = config.start();
      c.q_len = c.k_len = 130;
      std::string first;
      for (const u64 seed : {0, 1, 2}) {
        AttentionOptions o;
        o.checks = true, o.order_seed = seed, o.threads = seed == 2 ? 3 : 1;
        Tensors t = make_inputs(c);
        const Report r = run(c, t, o);
        for (const Finding& f : r.findings) ADD_FAILURE() << c << f.check << ": " << f.message;
        const std::string bits = hash_o(c, t) + hash_lse(c, t);
        EXPECT_EQ(bits, seed ? first : bits) << c;
        if (!seed) first = bits;
      }
    }
}

// What a configuration takes is what its arch's cards have, as many times as the table says it is
// resident; and a smaller card refuses it with its limit, before anything runs.
TEST(CasesOfMemory, B43_ConfigurationsFitTheirCards) {
  int refused = 0;
  for (const char* kernel : kAttentionKernels)
    for (const Configured& config : every_config(kernel)) {
      const ConfigRow& row = *config.row;
      const auto found = sim::find_instance(
          instance_key(find_kernel(kernel), row.arch, config.dtype, config.bucket, row.name,
                       Exp2::of_launch),
          "best");
      const int shared = found.instance->shared_bytes, threads = found.instance->threads;
      EXPECT_EQ(threads, 32 * row.warps) << config;
      EXPECT_LE(threads, 1024) << config;
      EXPECT_LE(shared, shared_limit(row.arch)) << config;
      // Of one multiprocessor: memory (with what the system takes of it for each block), threads.
      const int all = row.arch == Arch::sm_75 ? 64 : row.arch == Arch::sm_89 ? 100 : 228;
      const int system = row.arch == Arch::sm_75 ? 0 : 1024;
      EXPECT_LE(row.blocks * (shared + system), all * 1024) << config;
      EXPECT_LE(row.blocks * threads, row.arch == Arch::sm_75   ? 1024
                                      : row.arch == Arch::sm_89 ? 1536
                                                                : 2048)
          << config;
      if (shared > shared_limit(Arch::sm_75)) {
        AttentionArgs args;  // pointers are null: a block that ran would fault
        args.batch = args.heads = args.heads_kv = args.q_len = args.k_len = args.head_dim = 1;
        sim::Launch l;
        l.args = &args, l.card = sim::find_card("t4");
        const std::string error = found.module->launch(*found.instance, l).error;
        EXPECT_NE(error.find("65536"), std::string::npos) << error;
        refused++;
      }
    }
  EXPECT_GT(refused, 3);
}

}  // namespace
}  // namespace tessera::testing
