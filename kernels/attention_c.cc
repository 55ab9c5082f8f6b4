// SPDX-License-Identifier: Apache-2.0
#define TESSERA_BUILDING
#include "kernels/attention_c.h"

#include <exception>
#include <optional>

#include "kernels/attention.h"
#include "kernels/cuda_timing.h"
#include "kernels/registry.h"
#include "reference/inputs.h"

namespace {

thread_local std::string last_error;
thread_local std::optional<tessera::Report> last_report;  // JSON costs as much as a launch

// Runs f, which returns a status; what it throws becomes a status and a message.
template <class F>
tessera_status guarded(F f) {
  last_error.clear();
  try {
    return f();
  } catch (const tessera::Error& e) {
    last_error = e.what();
    return tessera_status(int(e.kind));
  } catch (const std::exception& e) {
    last_error = e.what();
    return TESSERA_INTERNAL_ERROR;
  }
}

[[noreturn]] void invalid(const std::string& message) {
  throw tessera::Error(tessera::ErrorKind::invalid_argument, message);
}

tessera::Dtype dtype_of(const char* name, int32_t d) {
  if (d < 0 || d > 3) invalid(std::string(name) + ": unknown dtype " + std::to_string(d));
  return tessera::Dtype(d);
}

tessera::Tensor tensor(const char* name, const tessera_tensor* t) {
  if (!t) invalid(std::string(name) + ": null");
  tessera::Tensor r{t->data, dtype_of(name, t->dtype), t->ndim, {}, {}};
  for (int i = 0; i < 4 && i < t->ndim; i++)
    r.shape[size_t(i)] = t->shape[i], r.stride[size_t(i)] = t->stride[i];
  return r;
}

std::string text(const char* s) { return s ? s : ""; }

tessera::AttentionOptions options_of(const tessera_options* o) {
  tessera::AttentionOptions r;
  if (!o) return r;
  if (o->struct_size != int64_t(sizeof(tessera_options)))
    invalid("options: struct_size " + std::to_string(o->struct_size) + ", expected " +
            std::to_string(sizeof(tessera_options)));
  r.kernel = text(o->kernel), r.arch = text(o->arch), r.card = text(o->card),
  r.config = text(o->config);
  r.exp2 = text(o->exp2), r.isa = text(o->isa);
  const std::string target = text(o->target), numerics = text(o->numerics);
  if (target == "cuda")
    r.target = tessera::Target::cuda;
  else if (!target.empty() && target != "sim")
    tessera::fail_unknown(tessera::ErrorKind::invalid_argument, "target", target, {"sim", "cuda"});
  if (numerics == "fma")
    r.numerics = tessera::Numerics::fma;
  else if (!numerics.empty() && numerics != "exact")
    tessera::fail_unknown(tessera::ErrorKind::invalid_argument, "numerics", numerics,
                          {"exact", "fma"});
  if (o->causal < 0 || o->causal > 2) invalid("causal: unknown value " + std::to_string(o->causal));
  r.causal = tessera::Causal(o->causal);
  if (o->has_left) r.left = o->left;
  if (o->has_right) r.right = o->right;
  if (o->align < 0 || o->align > 2) invalid("align: unknown value " + std::to_string(o->align));
  if (o->align) r.align = tessera::Align(o->align - 1);
  if (o->has_scale) r.scale = o->scale;
  r.threads = o->threads, r.checks = o->checks != 0, r.order_seed = o->order_seed,
  r.stream = o->stream;
  return r;
}

}  // namespace

tessera_status tessera_attention(const tessera_tensor* q, const tessera_tensor* k,
                                 const tessera_tensor* v, const tessera_tensor* o,
                                 const tessera_tensor* lse, const tessera_options* options) {
  last_report.reset();
  return guarded([&] {
    tessera::Tensor l;
    if (lse) l = tensor("lse", lse);
    const tessera::Report& r = last_report.emplace(
        tessera::attention(tensor("q", q), tensor("k", k), tensor("v", v), tensor("o", o),
                           lse ? &l : nullptr, options_of(options)));
    if (r.findings.empty()) return TESSERA_OK;
    last_error = r.findings.front().check + ": " + r.findings.front().message;
    return TESSERA_FINDING;
  });
}

const char* tessera_last_error(void) { return last_error.c_str(); }
const char* tessera_last_report(void) {
  thread_local std::string json;
  json = last_report ? tessera::to_json(*last_report) : "{}";
  return json.c_str();
}

const char* tessera_list(void) {
  static const std::string list = tessera::list_json();
  return list.c_str();
}

tessera_status tessera_fill(void* data, int32_t dtype, int64_t count, uint64_t seed,
                            uint32_t tensor, double scale) {
  return guarded([&] {
    const tessera::Dtype d = dtype_of("dtype", dtype);
    if (count < 0) invalid("count: " + std::to_string(count) + " is negative");
    if (count && !data) invalid("data: null");
    tessera::fill(data, d, count, seed, tensor, scale);
    return TESSERA_OK;
  });
}

tessera_status tessera_cuda_rate_limit(int32_t dtype, double* tflops) {
  return guarded([&] {
    const tessera::Dtype d = dtype_of("dtype", dtype);
    if (!tflops) invalid("tflops: null");
    *tflops = tessera::cuda::rate_limit(d);
    return TESSERA_OK;
  });
}

const char* tessera_version(void) { return TESSERA_VERSION; }
int32_t tessera_abi_version(void) { return TESSERA_ABI_VERSION; }
