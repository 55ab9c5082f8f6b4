// SPDX-License-Identifier: Apache-2.0
// The C++ interface: attention forward on either target.
#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>

#include "kernels/report.h"
#include "kernels/warp/types.h"

namespace tessera {

// What went wrong, and the exit code of the command that met it.
enum class ErrorKind { internal = 1, invalid_argument = 2, unsupported = 3 };
class Error : public std::runtime_error {
 public:
  Error(ErrorKind kind, const std::string& message) : std::runtime_error(message), kind(kind) {}
  ErrorKind kind;
};

// A strided tensor. Attention wants rank 4, (batch, heads, length, head_dim), innermost stride 1;
// LSE rank 3, (batch, heads, q_len), contiguous. Strides count elements; 0 broadcasts (inputs
// only). Negative strides are refused.
struct Tensor {
  void* data = nullptr;
  Dtype dtype = Dtype::f32;  // LSE: f32, with field inputs: field
  int rank = 0;
  std::array<std::int64_t, 4> shape{}, stride{};
};
// A contiguous tensor over `data`.
Tensor contiguous(void* data, Dtype dtype, std::initializer_list<std::int64_t> shape);

enum class Causal { none, top_left, bottom_right };  // key j <= query i; or j <= i + k_len - q_len
// Where query i stands among the keys: at i, as PyTorch has it; or, so that the last query stands
// at the last key, at i + k_len - q_len, as FlashAttention has it.
enum class Align { top_left, bottom_right };
enum class Target { sim, cuda };
enum class Numerics { exact, fma };  // the card's tensor-core rounding; or plain FMA, faster

// An empty string means "choose": the kernel flash_forward; on the emulator sm_89, on a GPU its own
// arch; the arch's card; the first configuration of the table, on a GPU the first that gives each
// multiprocessor a block (config_to_fill); soft exp2 on the emulator and
// hardware exp2 on a GPU; the best ISA level of this CPU.
struct Options {
  std::string kernel;
  std::string arch;    // sm_75 | sm_89 | sm_90: whose code
  std::string card;    // t4 | rtx4070 | h200: whose arithmetic and limits (emulator)
  std::string config;  // a configuration's name, as `tessera list` shows it
  std::string exp2;    // soft | hardware
  std::string isa;     // best | v2 | v3 | v4
  Target target = Target::sim;
  Numerics numerics = Numerics::exact;
  int threads = 0;               // of the emulator; 0: one a core
  std::uint64_t order_seed = 0;  // order of blocks and warps; 0: ascending
  bool checks = false;           // the emulator's checks (docs/emulator.md)
  bool timed = false;            // a GPU launch waits and reports its seconds
  void* stream = nullptr;        // cudaStream_t
};
struct AttentionOptions : Options {
  static constexpr std::int64_t kMaxWindow = std::int64_t(1) << 40;
  Causal causal = Causal::none;  // short for right = 0 with that alignment
  // A sliding window: a query that stands at key p sees the keys p - left .. p + right. Unset: no
  // limit on that side. Negative limits are limits too (left = -1: later keys only), up to
  // kMaxWindow in magnitude. `right` beside causal, or another alignment than causal's, is an
  // error.
  std::optional<std::int64_t> left, right;
  std::optional<Align> align;   // default: causal's, else top_left
  std::optional<double> scale;  // default 1/sqrt(head_dim)
};
// The band of visible keys that the options mean. Throws Error naming the option.
Band band_of(const AttentionOptions& options, std::int64_t q_len, std::int64_t k_len);

// O = softmax(scale Q K^T + mask) V and LSE (natural log of the sum of exp of the scaled scores;
// -inf for a row without a visible key, whose O is 0). q, o (B, H, Nq, D); k, v (B, Hkv, Nk, D), H
// a multiple of Hkv; lse may be null. A tensor that cannot be read 16 bytes at a time (base or a
// stride not a multiple of 16 bytes) is copied. The tutorial's kernel flash_step1 masks with
// -1e6: a row whose scores are near or below that is wrong, and a mask that leaves a row no key is
// refused.
//
// Pointers are host memory for the emulator. For Target::cuda they are memory that one device
// reaches; that device runs the kernel, whichever is current, all work is put on `stream`, and the
// call may be captured into a graph. Memory on the other side, or tensors on two devices, are
// errors.
//
// Outputs share no element with another tensor; slices of one array that lie between each other
// (packed Q, K, V, O) do not. Throws Error naming the argument and its limit before any memory is
// touched. Findings do not throw.
Report attention(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& o,
                 const Tensor* lse, const AttentionOptions& options);

// C (m, n) = A (m, k) . B (k, n), sums in fp32, rounded once. Rank 2, innermost stride 1.
Report matmul(const Tensor& a, const Tensor& b, const Tensor& c, const Options& options);

// y (rows) = X (rows, cols) . w (cols), sums in fp32. X rank 2, w and y rank 1 contiguous.
Report weighted_sum(const Tensor& x, const Tensor& w, const Tensor& y, const Options& options);

}  // namespace tessera
