// SPDX-License-Identifier: Apache-2.0
// The configuration of a kernel instance, and the table of all that are built (configs.def).
#pragma once
#include <array>
#include <string_view>

#include "kernels/warp/types.h"

namespace tessera {

// What a variant of a kernel does otherwise: famous bugs of a tutorial's first kernel, kept for
// tests and readers, and casts of an fp32 kernel's weights P before P V (docs/p-cast.md).
enum class Variant {
  none,
  padded_keys,   // zero-padded keys past k_len stay in the softmax, each with weight exp(0 - m)
  dropped_cast,  // P.to(storage) is computed and dropped: raw fp32 bits reach the multiplier
  p_f16,         // P rounded to fp16
  p_bf16,        // P rounded to bf16
  p_bf16x2,      // P as the sum of two bf16: P rounded, and the rest rounded
};

enum class QHome { none, shared, registers };  // where the A operand of Q K^T comes from

// It changes speed, never results beyond rounding (a variant other than none: except as it says).
struct Config {
  Arch arch = Arch::sm_75;
  int head_dim = 0;  // bucket: 32, 64, 96 or 128; 0 where the kernel has none
  int rows = 0;      // of the output tile: block_q
  int cols = 0;      // of the score (or output) tile: block_k
  int depth = 0;     // of a product's step, where it is not head_dim
  int warps = 1;
  int stages = 1;  // tiles in flight in a ring
  QHome q = QHome::none;
  int blocks = 1;  // resident on one multiprocessor
  Variant variant = Variant::none;
  Exp2 exp2 = Exp2::soft;

  TESSERA_HD constexpr bool has_cp_async() const { return arch >= Arch::sm_89; }
  TESSERA_HD constexpr int mma_k() const { return arch >= Arch::sm_89 ? 16 : 8; }  // of m16n8kK
  TESSERA_HD constexpr int threads() const { return 32 * warps; }
};

constexpr bool supports(Arch arch, Dtype dtype) {
  return dtype != Dtype::bf16 || arch >= Arch::sm_89;
}

// Shared memory that a block may ask for on the smallest card of an arch, in bytes (CUDA
// programming guide, technical specifications per compute capability: 64, 99 and 227 KB).
constexpr int shared_limit(Arch arch) {
  return (arch == Arch::sm_75 ? 64 : arch == Arch::sm_89 ? 99 : 227) * 1024;
}

// One row of configs.def. dtypes and where are bit sets over Dtype and Where; head_dims names
// buckets.
enum class Where { cuda, sim };
struct ConfigRow {
  std::string_view kernel;
  Arch arch;
  std::string_view name;
  unsigned dtypes;
  unsigned head_dims;  // bit d/32 for bucket d; bit 0: the kernel has no head_dim
  int rows, cols, depth, warps, stages;
  QHome q;
  int blocks, local;
  Variant variant;
  unsigned where;

  constexpr bool has(Dtype d) const { return dtypes >> int(d) & 1; }
  constexpr bool has_bucket(int d) const { return head_dims >> (d / 32) & 1; }
  constexpr bool has(Where w) const { return where >> int(w) & 1; }
};

namespace table {
constexpr unsigned bucket_bits(std::string_view list) {  // "32|64" -> bits 1 and 2
  unsigned bits = 0;
  int value = 0;
  for (std::size_t i = 0; i <= list.size(); i++) {
    if (i < list.size() && list[i] >= '0' && list[i] <= '9') value = value * 10 + (list[i] - '0');
    if (i == list.size() || list[i] == '|') bits |= 1u << (value / 32), value = 0;
  }
  return bits;
}
constexpr unsigned f32 = 1, f16 = 2, bf16 = 4, field = 8;
constexpr unsigned cuda = 1, sim = 2;
#define TESSERA_CONFIG(kernel, arch, name, dtypes, head_dims, rows, cols, depth, warps, stages, q, \
                       blocks, local, variant, where)                                              \
  ConfigRow{                                                                                       \
      #kernel, Arch::arch, #name,  dtypes, bucket_bits(#head_dims), rows, cols, depth, warps,      \
      stages,  QHome::q,   blocks, local,  Variant::variant,        where},
constexpr ConfigRow kRows[] = {
#include "kernels/configs.def"
#ifdef TESSERA_SWEEP
#include "kernels/sweep.def"
#endif
};
#undef TESSERA_CONFIG
}  // namespace table
using table::kRows;

namespace table {
constexpr bool every_type_exists_on_its_arch() {
  for (const ConfigRow& r : kRows)
    if (r.has(Dtype::bf16) && !supports(r.arch, Dtype::bf16)) return false;
  return true;
}
static_assert(every_type_exists_on_its_arch(), "configs.def: bf16 on an arch whose mma has none");
}  // namespace table

}  // namespace tessera
