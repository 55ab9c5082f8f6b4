// SPDX-License-Identifier: Apache-2.0
#include "kernels/arguments.h"

#include <algorithm>
#include <cstdio>
#include <vector>

#include "kernels/registry.h"

namespace tessera {

namespace {
constexpr i64 kMaxLength = i64(1) << 30;  // KeyRange compares in 32 bits
}  // namespace

void invalid(const std::string& message) { throw Error(ErrorKind::invalid_argument, message); }

int size_of(Dtype d) { return d == Dtype::f16 || d == Dtype::bf16 ? 2 : 4; }

bool empty(const Tensor& t) {
  for (int i = 0; i < t.rank; i++)
    if (t.shape[std::size_t(i)] == 0) return true;
  return false;
}

void check_tensor(const char* name, const Tensor& t, int rank, const char* dims) {
  const std::string n(name);
  if (t.rank != rank)
    invalid(n + ": rank " + std::to_string(t.rank) + ", expected " + std::to_string(rank) + " " +
            dims);
  if (int(t.dtype) < 0 || int(t.dtype) > int(Dtype::field))
    invalid(n + ": unknown dtype " + std::to_string(int(t.dtype)));
  const auto dimension = [&](int i) { return n + ": dimension " + std::to_string(i); };
  for (int i = 0; i < rank; i++) {  // all extents first: a wrong one makes strides wrong as well
    const i64 extent = t.shape[std::size_t(i)];
    if (extent < 0 || extent > kMaxLength)
      invalid(dimension(i) + " is " + std::to_string(extent) + ", outside 0.." +
              std::to_string(kMaxLength));
  }
  for (int i = 0; i < rank; i++) {
    const i64 stride = t.stride[std::size_t(i)];
    if (stride < 0) invalid(dimension(i) + " has the negative stride " + std::to_string(stride));
  }
  const i64 inner = t.shape[std::size_t(rank - 1)];
  if (inner > 1 && t.stride[std::size_t(rank - 1)] != 1)
    invalid(n + ": innermost stride " + std::to_string(t.stride[std::size_t(rank - 1)]) +
            ", expected 1");
  if (!empty(t) && !t.data) invalid(n + ": null data for a non-empty tensor");
  if (reinterpret_cast<std::uintptr_t>(t.data) % std::uintptr_t(size_of(t.dtype)))
    invalid(n + ": data is not aligned to its " + std::to_string(size_of(t.dtype)) +
            "-byte elements");
}

void check_no_overlap(const char* name, const Tensor& t) {
  if (empty(t)) return;
  std::vector<int> order;
  for (int i = t.rank - 1; i >= 0; i--)
    if (t.shape[std::size_t(i)] > 1) order.push_back(i);
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

void check_contiguous(const char* name, const Tensor& t) {
  if (empty(t)) return;
  i64 step = 1;
  for (int i = t.rank - 1; i >= 0; step *= t.shape[std::size_t(i--)])
    if (t.shape[std::size_t(i)] > 1 && t.stride[std::size_t(i)] != step)
      invalid(std::string(name) + ": it must be contiguous");
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

void check_apart(const char* output, const Tensor& t, const char* other, const Tensor& u) {
  switch (overlap(t, u)) {
    case Overlap::no: return;
    case Overlap::yes:
      invalid(std::string(output) + ": it overlaps " + other +
              ", and an output shares no element with another tensor");
    case Overlap::undecided:
      throw Error(ErrorKind::unsupported,
                  std::string(output) + ": whether it overlaps " + other + " was not decided in " +
                      std::to_string(kOverlapSteps) + " steps; give it memory of its own");
  }
}

// ---- masks

Band band_of(const AttentionOptions& o, std::int64_t q_len, std::int64_t k_len) {
  const auto limit = [](const char* name, const std::optional<i64>& given) {
    constexpr i64 kMax = AttentionOptions::kMaxWindow;
    if (!given) return Band::kUnlimited;
    if (*given < -kMax || *given > kMax)
      invalid(std::string(name) + ": " + std::to_string(*given) + " is outside -2^40..2^40");
    return *given;
  };
  Band band;
  band.left = limit("left", o.left), band.right = limit("right", o.right);
  Align align = o.align.value_or(Align::top_left);
  if (o.causal != Causal::none) {
    if (o.right)
      invalid("right: " + std::to_string(*o.right) + " beside causal, which is right = 0");
    const Align own = o.causal == Causal::top_left ? Align::top_left : Align::bottom_right;
    if (o.align && *o.align != own)
      invalid(std::string("align: causal is ") +
              (own == Align::top_left ? "top-left" : "bottom-right"));
    band.right = 0, align = own;
  }
  if (align == Align::bottom_right) band.shift = k_len - q_len;
  return band;
}

// Query i sees max(0, p - left) .. min(k_len - 1, p + right), p = i + shift. That is empty if
// left + right < 0, if p + right < 0 (of all queries the first's p is the smallest), or if
// p - left >= k_len (the last's is the largest).
std::string what_empties_a_row(const AttentionOptions& o, i64 q_len, i64 k_len) {
  const Band band = band_of(o, q_len, k_len);
  if (band.shift + band.right < 0) {
    if (o.causal != Causal::none)
      return "causal: bottom-right with q_len " + std::to_string(q_len) + " > k_len " +
             std::to_string(k_len);
    return "right: " + std::to_string(band.right) + " with q_len " + std::to_string(q_len) +
           " and k_len " + std::to_string(k_len);
  }
  if (q_len - 1 + band.shift - band.left >= k_len || band.left < -band.right)
    return "left: " + std::to_string(band.left) + " with q_len " + std::to_string(q_len) +
           " and k_len " + std::to_string(k_len);
  return "";
}

std::string attention_flags(const Tensor& q, const Tensor& k, const AttentionOptions& o) {
  const auto n = [](i64 x) { return std::to_string(x); };
  std::string s = " --batch " + n(q.shape[0]) + " --heads " + n(q.shape[1]) + " --kv-heads " +
                  n(k.shape[1]) + " --q-len " + n(q.shape[2]) + " --k-len " + n(k.shape[2]) +
                  " --head-dim " + n(q.shape[3]);
  if (o.causal == Causal::top_left) s += " --causal=top-left";
  if (o.causal == Causal::bottom_right) s += " --causal=bottom-right";
  if (o.left) s += " --left=" + n(*o.left);
  if (o.right) s += " --right=" + n(*o.right);
  if (o.align) s += *o.align == Align::top_left ? " --align=top-left" : " --align=bottom-right";
  if (o.scale && q.dtype != Dtype::field) {
    char text[64];
    std::snprintf(text, sizeof text, " --scale %.17g", *o.scale);
    s += text;
  }
  return s;
}

}  // namespace tessera
