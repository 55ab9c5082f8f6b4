// SPDX-License-Identifier: Apache-2.0
// Checks arguments, chooses an instance, copies what cannot be read 16 bytes at a time, and
// launches.
#include "kernels/attention.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <thread>

#include "kernels/cuda_backend.h"
#include "kernels/registry.h"
#include "sim/loader.h"

namespace tessera {

namespace {

constexpr i64 kMaxLength = i64(1) << 30;  // KeyRange compares in 32 bits

[[noreturn]] void invalid(const std::string& message) {
  throw Error(ErrorKind::invalid_argument, message);
}

std::string short_text(double x) {
  char text[32];
  std::snprintf(text, sizeof text, "%g", x);
  return text;
}

int size_of(Dtype d) { return d == Dtype::f16 || d == Dtype::bf16 ? 2 : 4; }

// ---- arguments, each by its name

void check_tensor(const char* name, const Tensor& t, int rank, const char* dims) {
  const std::string n(name);
  if (t.rank != rank)
    invalid(n + ": rank " + std::to_string(t.rank) + ", expected " + std::to_string(rank) + " " +
            dims);
  if (int(t.dtype) < 0 || int(t.dtype) > int(Dtype::field))
    invalid(n + ": unknown dtype " + std::to_string(int(t.dtype)));
  const auto dimension = [&](int i) { return n + ": dimension " + std::to_string(i); };
  bool empty = false;
  for (int i = 0; i < rank; i++) {  // all extents first: a wrong one makes strides wrong as well
    const i64 extent = t.shape[std::size_t(i)];
    if (extent < 0 || extent > kMaxLength)
      invalid(dimension(i) + " is " + std::to_string(extent) + ", outside 0.." +
              std::to_string(kMaxLength));
    empty = empty || extent == 0;
  }
  for (int i = 0; i < rank; i++) {
    const i64 stride = t.stride[std::size_t(i)];
    if (stride < 0) invalid(dimension(i) + " has the negative stride " + std::to_string(stride));
  }
  const i64 inner = t.shape[std::size_t(rank - 1)];
  if (inner > 1 && t.stride[std::size_t(rank - 1)] != 1)
    invalid(n + ": innermost stride " + std::to_string(t.stride[std::size_t(rank - 1)]) +
            ", expected 1");
  if (!empty && !t.data) invalid(n + ": null data for a non-empty tensor");
  if (reinterpret_cast<std::uintptr_t>(t.data) % std::uintptr_t(size_of(t.dtype)))
    invalid(n + ": data is not aligned to its " + std::to_string(size_of(t.dtype)) +
            "-byte elements");
}

// From the innermost dimension outwards, a step must clear all that lies inside.
void check_no_overlap(const char* name, const Tensor& t) {
  std::vector<int> order;
  for (int i = t.rank - 1; i >= 0; i--) {
    if (t.shape[std::size_t(i)] == 0) return;
    if (t.shape[std::size_t(i)] > 1) order.push_back(i);
  }
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
    return t.stride[std::size_t(a)] < t.stride[std::size_t(b)];
  });
  __int128 span = 1;
  for (const int i : order) {
    const i64 extent = t.shape[std::size_t(i)], stride = t.stride[std::size_t(i)];
    if (stride < span)
      invalid(std::string(name) + ": dimension " + std::to_string(i) + " has stride " +
              std::to_string(stride) + ", and outputs must not overlap themselves");
    span += __int128(extent - 1) * stride;
  }
}

void same(const char* name, const char* what, i64 value, const char* of, i64 expected) {
  if (value != expected)
    invalid(std::string(name) + ": " + what + " " + std::to_string(value) + " differs from " + of +
            "'s " + std::to_string(expected));
}
void same_dtype(const char* name, const Tensor& t, const char* of, Dtype expected) {
  if (t.dtype != expected)
    invalid(std::string(name) + ": dtype " + std::string(name_of(t.dtype)) + " differs from " + of +
            "'s " + std::string(name_of(expected)));
}

// ---- choices

struct Choice {
  const KernelRow* kernel;
  Arch arch;
  const sim::Card* card = nullptr;  // emulator
  const ConfigRow* row;
  Exp2 exp2;
  int bucket = 0;
  std::string key;
};

Exp2 choose_exp2(const Options& o) {
  if (o.exp2 == "soft") return Exp2::soft;
  if (o.exp2 == "hardware") return Exp2::hardware;
  if (!o.exp2.empty())
    fail_unknown(ErrorKind::invalid_argument, "exp2", o.exp2, {"soft", "hardware"});
  return o.target == Target::sim ? Exp2::soft : Exp2::hardware;
}

Choice choose(const Options& o, KernelKind kind, const char* default_kernel, Dtype dtype,
              int head_dim) {
  Choice c;
  c.kernel = &find_kernel(o.kernel.empty() ? default_kernel : o.kernel);
  if (c.kernel->kind != kind)
    throw Error(ErrorKind::unsupported, "kernel: " + o.kernel + " is not " +
                                            (kind == KernelKind::attention ? "an " : "a ") +
                                            std::string(name_of(kind)) + " kernel");
  if (o.threads < 0) invalid("threads: " + std::to_string(o.threads) + " is negative");
  if (o.target == Target::cuda) {
    if (o.checks) invalid("checks: they are the emulator's; target is cuda");
    const Arch device = cuda::device_arch();
    c.arch = o.arch.empty() ? device : parse_arch(o.arch);
    if (c.arch > device)
      throw Error(ErrorKind::unsupported, "arch: " + std::string(name_of(c.arch)) +
                                              " code does not run on " + cuda::device_name());
  } else {
    if (!o.isa.empty() && o.isa != "best") sim::load_module(o.isa);
    c.arch = o.arch.empty() ? Arch::sm_89 : parse_arch(o.arch);
    if (!o.card.empty() && o.arch.empty()) c.arch = sim::find_card(o.card).arch;
    c.card = &(o.card.empty() ? sim::card_of(c.arch) : sim::find_card(o.card));
    if (c.arch > c.card->arch)
      throw Error(ErrorKind::unsupported, "card: " + std::string(c.card->name) + " is " +
                                              std::string(name_of(c.card->arch)) +
                                              " and does not run " + std::string(name_of(c.arch)) +
                                              " code");
  }
  c.exp2 = choose_exp2(o);
  c.row = &find_config(*c.kernel, c.arch, dtype, head_dim, o.config);
  c.bucket = bucket_of(*c.row, head_dim);
  c.key = instance_key(*c.kernel, c.arch, dtype, c.bucket, c.row->name, c.exp2);
  return c;
}

int host_threads(const Options& o) {
  return o.threads ? o.threads : std::max(1, int(std::thread::hardware_concurrency()));
}

Report start_report(const Options& o, const Choice& c, Dtype dtype) {
  Report r;
  r.kernel = c.kernel->name, r.instance = c.key,
  r.target = o.target == Target::sim ? "sim" : "cuda";
  r.arch = name_of(c.arch), r.card = c.card ? std::string(c.card->name) : cuda::device_name();
  r.config = c.row->name, r.dtype = name_of(dtype), r.head_dim_bucket = c.bucket;
  r.exp2 = c.kernel->kind == KernelKind::attention ? std::string(name_of(c.exp2)) : "";
  r.threads = o.target == Target::sim ? host_threads(o) : 0;
  return r;
}

void execute(Report& r, const Options& o, const Choice& c, const void* args,
             std::vector<sim::GlobalTensor> tensors, std::string repeat) {
  if (o.target == Target::cuda) {
    r.seconds = cuda::launch(c.key, args, o.stream, o.timed);
    return;
  }
  const sim::Found found = sim::find_instance(c.key, o.isa);
  r.isa = found.module->isa;
  sim::Launch l;
  l.args = args, l.card = *c.card, l.threads = r.threads;
  l.numerics = o.numerics == Numerics::exact ? sim::MmaMode::exact : sim::MmaMode::fma;
  l.order_seed = o.order_seed, l.checks = o.checks;
  l.tensors = std::move(tensors), l.repeat = std::move(repeat);
  sim::Outcome out = found.module->launch(*found.instance, l);
  if (!out.error.empty()) throw Error(ErrorKind::unsupported, out.error);
  r.counters = out.counters, r.findings = std::move(out.findings), r.seconds = out.seconds;
  // A fault that leaves a block unfinished is a finding with or without checks; results are then
  // partial.
}

std::string common_flags(const Options& o, const Choice& c, Dtype d) {
  std::string s = " --dtype " + std::string(name_of(d)) + " --arch " +
                  std::string(name_of(c.arch)) + " --card " +
                  std::string(c.card ? c.card->name : "h200") + " --config " +
                  std::string(c.row->name);
  if (c.kernel->kind == KernelKind::attention && c.exp2 == Exp2::hardware) s += " --exp2 hardware";
  if (o.numerics == Numerics::fma) s += " --numerics fma";
  if (o.order_seed) s += " --order-seed " + std::to_string(o.order_seed);
  return s;
}

sim::GlobalTensor describe(const char* name, const Tensor& t, bool output) {
  sim::GlobalTensor g{name, static_cast<char*>(t.data), size_of(t.dtype), output, t.rank, {}, {}};
  for (int i = 0; i < t.rank; i++)
    g.extent[i] = t.shape[std::size_t(i)], g.stride[i] = t.stride[std::size_t(i)];
  return g;
}

// ---- copies of tensors that cannot be read 16 bytes at a time: base or a stride not a multiple of
// 16 bytes

bool needs_copy(const Tensor& t, Target target) {
  // A row that ends inside a 16-byte chunk: the kernels ask for the bytes that exist, but
  // compute-sanitizer takes every cp.async for 16, so on a GPU the rest of the chunk must be ours
  // as well.
  if (target == Target::cuda && t.shape[std::size_t(t.rank - 1)] * size_of(t.dtype) % 16)
    return true;
  if (reinterpret_cast<std::uintptr_t>(t.data) % 16) return true;
  for (int i = 0; i + 1 < t.rank; i++)
    if (t.shape[std::size_t(i)] > 1 && t.stride[std::size_t(i)] * size_of(t.dtype) % 16)
      return true;
  return false;
}

class AlignedCopy {
 public:
  // Afterwards t is readable 16 bytes at a time: itself, or a copy that lives as long as this
  // object.
  AlignedCopy(const char* name, Tensor& t, const Options& o) : options_(o) {
    bool empty = false;
    for (int i = 0; i < t.rank; i++) empty = empty || t.shape[std::size_t(i)] == 0;
    if (empty || !needs_copy(t, o.target)) return;
    const i64 es = size_of(t.dtype), inner = t.shape[std::size_t(t.rank - 1)],
              pitch = (inner * es + 15) / 16 * 16;
    i64 extent[3] = {1, 1, 1}, stride[3] = {0, 0, 0};
    for (int i = 0; i + 1 < t.rank; i++) {
      const int to = 3 - (t.rank - 1) + i;
      extent[to] = t.shape[std::size_t(i)], stride[to] = t.stride[std::size_t(i)] * es;
    }
    i64 bytes = pitch;
    for (const i64 e : extent)
      if (__builtin_mul_overflow(bytes, e, &bytes))
        throw Error(ErrorKind::unsupported,
                    std::string(name) + ": an aligned copy of it is too large");
    if (o.target == Target::cuda) {
      device_ = cuda::copy_compact(t.data, extent, stride, inner * es, pitch, o.stream);
      t.data = device_;
    } else {
      host_.reset(
          static_cast<char*>(std::aligned_alloc(256, std::size_t((bytes + 255) / 256 * 256))));
      if (!host_) throw Error(ErrorKind::internal, "out of memory for an aligned copy");
      char* to = host_.get();
      for (i64 b = 0; b < extent[0]; b++)
        for (i64 h = 0; h < extent[1]; h++)
          for (i64 r = 0; r < extent[2]; r++, to += pitch)
            std::memcpy(
                to,
                static_cast<const char*>(t.data) + b * stride[0] + h * stride[1] + r * stride[2],
                std::size_t(inner * es));
      t.data = host_.get();
    }
    i64 step = pitch / es;
    for (int i = t.rank - 2; i >= 0; i--)
      t.stride[std::size_t(i)] = step, step *= t.shape[std::size_t(i)];
  }
  ~AlignedCopy() {
    if (device_) cuda::free_async(device_, options_.stream);
  }
  AlignedCopy(const AlignedCopy&) = delete;

 private:
  const Options& options_;
  void* device_ = nullptr;
  std::unique_ptr<char, decltype(&std::free)> host_{nullptr, std::free};
};

Strides strides_of(const Tensor& t) { return {t.stride[0], t.stride[1], t.stride[2]}; }

std::string attention_flags(const Tensor& q, const Tensor& k, const AttentionOptions& o) {
  const auto n = [](i64 x) { return std::to_string(x); };
  std::string s = " --batch " + n(q.shape[0]) + " --heads " + n(q.shape[1]) + " --kv-heads " +
                  n(k.shape[1]) + " --q-len " + n(q.shape[2]) + " --k-len " + n(k.shape[2]) +
                  " --head-dim " + n(q.shape[3]);
  if (o.causal == Causal::top_left) s += " --causal=top-left";
  if (o.causal == Causal::bottom_right) s += " --causal=bottom-right";
  if (o.scale && q.dtype != Dtype::field) {
    char text[64];
    std::snprintf(text, sizeof text, " --scale %.17g", *o.scale);
    s += text;
  }
  return s;
}

}  // namespace

Tensor contiguous(void* data, Dtype dtype, std::initializer_list<std::int64_t> shape) {
  Tensor t{data, dtype, int(shape.size()), {}, {}};
  std::copy(shape.begin(), shape.end(), t.shape.begin());
  i64 step = 1;
  for (int i = t.rank - 1; i >= 0; i--)
    t.stride[std::size_t(i)] = step, step *= t.shape[std::size_t(i)];
  return t;
}

Report attention(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& o,
                 const Tensor* lse, const AttentionOptions& options) {
  constexpr const char* kDims = "(batch, heads, length, head_dim)";
  check_tensor("q", q, 4, kDims);
  check_tensor("k", k, 4, kDims);
  check_tensor("v", v, 4, kDims);
  check_tensor("o", o, 4, kDims);
  same_dtype("k", k, "q", q.dtype), same_dtype("v", v, "q", q.dtype),
      same_dtype("o", o, "q", q.dtype);
  same("k", "batch", k.shape[0], "q", q.shape[0]), same("v", "batch", v.shape[0], "q", q.shape[0]);
  same("v", "heads", v.shape[1], "k", k.shape[1]);
  same("v", "length", v.shape[2], "k", k.shape[2]);
  if (q.shape[3] < 1 || q.shape[3] > 128)
    invalid("q: head_dim " + std::to_string(q.shape[3]) + " is outside 1..128");
  same("k", "head_dim", k.shape[3], "q", q.shape[3]),
      same("v", "head_dim", v.shape[3], "q", q.shape[3]);
  if (q.shape[1] > 0 && (k.shape[1] == 0 || q.shape[1] % k.shape[1]))
    invalid("q: heads " + std::to_string(q.shape[1]) + " is not a multiple of k's heads " +
            std::to_string(k.shape[1]));
  same("o", "batch", o.shape[0], "q", q.shape[0]), same("o", "heads", o.shape[1], "q", q.shape[1]);
  same("o", "length", o.shape[2], "q", q.shape[2]),
      same("o", "head_dim", o.shape[3], "q", q.shape[3]);
  check_no_overlap("o", o);
  if (lse) {
    check_tensor("lse", *lse, 3, "(batch, heads, q_len)");
    same("lse", "batch", lse->shape[0], "q", q.shape[0]),
        same("lse", "heads", lse->shape[1], "q", q.shape[1]);
    same("lse", "length", lse->shape[2], "q", q.shape[2]);
    const Dtype want = q.dtype == Dtype::field ? Dtype::field : Dtype::f32;
    if (lse->dtype != want)
      invalid("lse: dtype " + std::string(name_of(lse->dtype)) + ", expected " +
              std::string(name_of(want)));
    const i64 rows = lse->shape[2], heads = lse->shape[1];
    if (lse->shape[0] > 0 && heads > 0 && rows > 0 &&
        ((heads > 1 && lse->stride[1] != rows) ||
         (lse->shape[0] > 1 && lse->stride[0] != heads * rows) ||
         (rows > 1 && lse->stride[2] != 1)))
      invalid("lse: it must be contiguous");
  }
  const double scale = options.scale.value_or(1.0 / std::sqrt(double(q.shape[3])));
  if (!std::isfinite(scale) || !std::isfinite(float(scale)))
    invalid("scale: " + short_text(scale) + " is not a finite fp32 number");

  const Choice c = choose(options, KernelKind::attention, "flash_step1", q.dtype, int(q.shape[3]));
  const i64 q_len = q.shape[2], k_len = k.shape[2];
  if (c.kernel->limit == KernelLimit::masks_with_1e6 && q.dtype != Dtype::field &&
      options.causal == Causal::bottom_right && q_len > k_len && k_len > 0)
    throw Error(ErrorKind::unsupported,
                "causal: bottom-right with q_len " + std::to_string(q_len) + " > k_len " +
                    std::to_string(k_len) + " leaves rows without a visible key, and " +
                    std::string(c.kernel->name) + " masks with -1e6, which cannot express them");
  if (q.shape[0] * q.shape[1] > 2147483647)
    throw Error(
        ErrorKind::unsupported,
        "q: batch x heads " + std::to_string(q.shape[0] * q.shape[1]) + " is above 2147483647");

  Report report = start_report(options, c, q.dtype);
  if (q.shape[0] == 0 || q.shape[1] == 0 || q_len == 0) return report;  // nothing to compute

  Tensor qc = q, kc = k, vc = v;
  const AlignedCopy keep_q("q", qc, options), keep_k("k", kc, options), keep_v("v", vc, options);
  AttentionArgs a;
  a.q = qc.data, a.k = kc.data, a.v = vc.data, a.o = o.data, a.lse = lse ? lse->data : nullptr;
  a.q_stride = strides_of(qc), a.k_stride = strides_of(kc), a.v_stride = strides_of(vc),
  a.o_stride = strides_of(o);
  a.batch = i32(q.shape[0]), a.heads = i32(q.shape[1]), a.heads_kv = i32(k.shape[1]);
  a.q_len = i32(q_len), a.k_len = i32(k_len), a.head_dim = i32(q.shape[3]);
  if (options.causal != Causal::none) a.band.right = 0;
  if (options.causal == Causal::bottom_right) a.band.shift = k_len - q_len;
  a.scale = float(scale);

  std::vector<sim::GlobalTensor> tensors = {describe("Q", qc, false), describe("K", kc, false),
                                            describe("V", vc, false), describe("O", o, true)};
  if (lse) tensors.push_back(describe("LSE", *lse, true));
  execute(report, options, c, &a, std::move(tensors),
          "tessera check " + std::string(c.kernel->name) + attention_flags(q, k, options) +
              common_flags(options, c, q.dtype));
  return report;
}

Report matmul(const Tensor& a, const Tensor& b, const Tensor& c, const Options& options) {
  check_tensor("a", a, 2, "(m, k)");
  check_tensor("b", b, 2, "(k, n)");
  check_tensor("c", c, 2, "(m, n)");
  same_dtype("b", b, "a", a.dtype), same_dtype("c", c, "a", a.dtype);
  same("b", "rows", b.shape[0], "a's columns: a", a.shape[1]);
  same("c", "rows", c.shape[0], "a", a.shape[0]), same("c", "columns", c.shape[1], "b", b.shape[1]);
  check_no_overlap("c", c);
  const Choice choice = choose(options, KernelKind::matmul, "matmul", a.dtype, 0);
  Report report = start_report(options, choice, a.dtype);
  if (c.shape[0] == 0 || c.shape[1] == 0) return report;
  Tensor ac = a, bc = b;
  const AlignedCopy keep_a("a", ac, options), keep_b("b", bc, options);
  MatmulArgs args{ac.data,     bc.data,         c.data,          ac.stride[0],   bc.stride[0],
                  c.stride[0], i32(c.shape[0]), i32(c.shape[1]), i32(a.shape[1])};
  execute(report, options, choice, &args,
          {describe("A", ac, false), describe("B", bc, false), describe("C", c, true)},
          "tessera check matmul --rows " + std::to_string(c.shape[0]) + " --cols " +
              std::to_string(c.shape[1]) + " --inner " + std::to_string(a.shape[1]) +
              common_flags(options, choice, a.dtype));
  return report;
}

Report weighted_sum(const Tensor& x, const Tensor& w, const Tensor& y, const Options& options) {
  check_tensor("x", x, 2, "(rows, cols)");
  check_tensor("w", w, 1, "(cols)");
  check_tensor("y", y, 1, "(rows)");
  same_dtype("w", w, "x", x.dtype), same_dtype("y", y, "x", x.dtype);
  same("w", "length", w.shape[0], "x's columns: x", x.shape[1]);
  same("y", "length", y.shape[0], "x's rows: x", x.shape[0]);
  const Choice choice = choose(options, KernelKind::weighted_sum, "weighted_sum", x.dtype, 0);
  Report report = start_report(options, choice, x.dtype);
  if (x.shape[0] == 0) return report;
  WeightedSumArgs args{x.data, w.data, y.data, x.stride[0], i32(x.shape[0]), i32(x.shape[1])};
  execute(report, options, choice, &args,
          {describe("X", x, false), describe("w", w, false), describe("y", y, true)},
          "tessera check weighted_sum --rows " + std::to_string(x.shape[0]) + " --cols " +
              std::to_string(x.shape[1]) + common_flags(options, choice, x.dtype));
  return report;
}

std::string to_json(const Report& r) {
  const Counters& c = r.counters;
  nlohmann::ordered_json findings = nlohmann::ordered_json::array();
  for (const Finding& f : r.findings)
    findings.push_back({{"check", f.check}, {"message", f.message}, {"count", f.count}});
  const nlohmann::ordered_json j = {{"kernel", r.kernel},
                                    {"instance", r.instance},
                                    {"target", r.target},
                                    {"arch", r.arch},
                                    {"card", r.card},
                                    {"config", r.config},
                                    {"dtype", r.dtype},
                                    {"exp2", r.exp2},
                                    {"isa", r.isa},
                                    {"head_dim_bucket", r.head_dim_bucket},
                                    {"threads", r.threads},
                                    {"seconds", r.seconds},
                                    {"counters",
                                     {{"blocks", c.blocks},
                                      {"mma", c.mma},
                                      {"fma", c.fma},
                                      {"exp2", c.exp2},
                                      {"barriers", c.barriers},
                                      {"tiles_skipped", c.tiles_skipped},
                                      {"tiles_full", c.tiles_full},
                                      {"tiles_masked", c.tiles_masked},
                                      {"global_load_bytes", c.global_load_bytes},
                                      {"global_store_bytes", c.global_store_bytes},
                                      {"global_sectors", c.global_sectors},
                                      {"global_sectors_ideal", c.global_sectors_ideal},
                                      {"shared_wavefronts", c.shared_wavefronts},
                                      {"shared_wavefronts_ideal", c.shared_wavefronts_ideal},
                                      {"shared_bytes", c.shared_bytes}}},
                                    {"findings", findings}};
  return j.dump();
}

}  // namespace tessera
