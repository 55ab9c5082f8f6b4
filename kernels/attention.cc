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
#include <thread>

#include "kernels/arguments.h"
#include "kernels/cuda_backend.h"
#include "kernels/registry.h"
#include "sim/loader.h"

namespace tessera {

namespace {

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

// q_len and heads (batch times heads): of attention.
Choice choose(const Options& o, KernelKind kind, const char* default_kernel, Dtype dtype,
              int head_dim, i64 q_len = 0, i64 heads = 0) {
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
  c.row = kind == KernelKind::attention && o.target == Target::cuda && o.config.empty()
              ? &config_to_fill(*c.kernel, c.arch, dtype, head_dim, q_len, heads,
                                cuda::multiprocessors())
              : &find_config(*c.kernel, c.arch, dtype, head_dim, o.config);
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
  l.exp2 = c.exp2, l.order_seed = o.order_seed, l.checks = o.checks;
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
    if (empty(t) || !needs_copy(t, o.target)) return;
    const int es = size_of(t.dtype);
    cuda::StridedRows rows{{1, 1, 1}, {0, 0, 0}, t.shape[std::size_t(t.rank - 1)]};
    for (int i = 0; i + 1 < t.rank; i++) {
      const int to = 3 - (t.rank - 1) + i;
      rows.extent[to] = t.shape[std::size_t(i)], rows.stride[to] = t.stride[std::size_t(i)];
    }
    const i64 pitch = (rows.inner * es + 15) / 16 * 16 / es;  // elements
    i64 bytes = pitch * es;
    for (const i64 e : rows.extent)
      if (__builtin_mul_overflow(bytes, e, &bytes))
        throw Error(ErrorKind::unsupported,
                    std::string(name) + ": an aligned copy of it is too large");
    if (o.target == Target::cuda) {
      device_ = cuda::copy_compact(t.data, rows, pitch, es, o.stream);
      t.data = device_;
    } else {
      host_.reset(
          static_cast<char*>(std::aligned_alloc(256, std::size_t((bytes + 255) / 256 * 256))));
      if (!host_) throw Error(ErrorKind::internal, "out of memory for an aligned copy");
      char* to = host_.get();
      for (i64 b = 0; b < rows.extent[0]; b++)
        for (i64 h = 0; h < rows.extent[1]; h++)
          for (i64 r = 0; r < rows.extent[2]; r++, to += pitch * es)
            std::memcpy(to,
                        static_cast<const char*>(t.data) +
                            (b * rows.stride[0] + h * rows.stride[1] + r * rows.stride[2]) * es,
                        std::size_t(rows.inner * es));
      t.data = host_.get();
    }
    i64 step = pitch;
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

std::string short_text(double x) {
  char text[32];
  std::snprintf(text, sizeof text, "%g", x);
  return text;
}

// Looks at where every tensor lies, by its name. For Target::cuda their device is current while
// this object lives.
class Placed {
 public:
  Placed(const Options& o, std::initializer_list<std::pair<const char*, const Tensor*>> tensors) {
    std::vector<cuda::Pointer> pointers;
    for (const auto& [name, t] : tensors)
      if (t && !empty(*t)) pointers.push_back({name, t->data});
    if (o.target == Target::cuda)
      guard_.emplace(cuda::device_of(pointers));
    else
      cuda::require_host(pointers);
  }

 private:
  std::optional<cuda::DeviceGuard> guard_;
};

Strides strides_of(const Tensor& t) { return {t.stride[0], t.stride[1], t.stride[2]}; }

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
    check_contiguous("lse", *lse);
    check_apart("lse", *lse, "o", o);
  }
  for (const auto& [name, input] : {std::pair("q", &q), std::pair("k", &k), std::pair("v", &v)}) {
    check_apart("o", o, name, *input);
    if (lse) check_apart("lse", *lse, name, *input);
  }
  const double scale = options.scale.value_or(1.0 / std::sqrt(double(q.shape[3])));
  if (!std::isfinite(scale) || !std::isfinite(float(scale)))
    invalid("scale: " + short_text(scale) + " is not a finite fp32 number");
  const i64 q_len = q.shape[2], k_len = k.shape[2];
  const Band band = band_of(options, q_len, k_len);

  const Placed placed(options, {{"q", &q}, {"k", &k}, {"v", &v}, {"o", &o}, {"lse", lse}});
  const Choice c = choose(options, KernelKind::attention, "flash_forward", q.dtype, int(q.shape[3]),
                          q_len, q.shape[0] * q.shape[1]);
  if (c.kernel->limit == KernelLimit::masks_with_1e6 && q.dtype != Dtype::field && q_len > 0 &&
      k_len > 0)
    if (const std::string what = what_empties_a_row(options, q_len, k_len); !what.empty())
      throw Error(ErrorKind::unsupported, what + " leaves rows without a visible key, and " +
                                              std::string(c.kernel->name) +
                                              " masks with -1e6, which cannot express them");
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
  a.key_left = band.key_left(), a.key_right = band.key_right();
  a.set_scale(float(scale));

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
  check_apart("c", c, "a", a), check_apart("c", c, "b", b);
  const Placed placed(options, {{"a", &a}, {"b", &b}, {"c", &c}});
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
  check_apart("y", y, "x", x), check_apart("y", y, "w", w);
  const Placed placed(options, {{"x", &x}, {"w", &w}, {"y", &y}});
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

}  // namespace tessera
