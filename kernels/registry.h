// SPDX-License-Identifier: Apache-2.0
// The kernels that exist. The command line, the tests and the docs go through this table.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "kernels/attention.h"
#include "kernels/configs.h"

namespace tessera {

enum class KernelKind { attention, matmul, weighted_sum };
enum class KernelLimit { none, masks_with_1e6 };

struct KernelRow {
  std::string_view name;
  KernelKind kind;
  KernelLimit limit;
  std::string_view title;
};

namespace table {
#define TESSERA_KERNEL(name, type, header, kind, limit, title) \
  KernelRow{#name, KernelKind::kind, KernelLimit::limit, title},
constexpr KernelRow kKernels[] = {
#include "kernels/registry.def"
};
#undef TESSERA_KERNEL
}  // namespace table
using table::kKernels;

// ---- names, both ways. Parsers throw Error naming the option, what was given and the nearest
// right name.
std::string_view name_of(Dtype d);
std::string_view name_of(Arch a);
std::string_view name_of(Exp2 e);
std::string_view name_of(QHome q);
std::string_view name_of(KernelKind k);
Dtype parse_dtype(const std::string& s);
Arch parse_arch(const std::string& s);
// The entry of `names` nearest to `given` by edit distance.
std::string nearest(std::string_view given, const std::vector<std::string>& names);
[[noreturn]] void fail_unknown(ErrorKind kind, const std::string& option, const std::string& given,
                               const std::vector<std::string>& names);

// ---- lookup
const KernelRow& find_kernel(const std::string& name);
// The row of a kernel for an arch, type and head_dim (0: the kernel has none); empty `config`: the
// first. Throws when there is none, with what there is.
const ConfigRow& find_config(const KernelRow& kernel, Arch arch, Dtype dtype, int head_dim,
                             const std::string& config);
// The row that a GPU runs where none is asked for: the first; or, where its blocks (of `rows`
// queries of one of `heads`, batch times heads) would leave one of the multiprocessors without any,
// the first whose blocks are smaller.
const ConfigRow& config_to_fill(const KernelRow& kernel, Arch arch, Dtype dtype, int head_dim,
                                std::int64_t q_len, std::int64_t heads, int multiprocessors);
// The smallest head_dim bucket of a row that holds head_dim; -1 if none does; 0 for a row without
// head_dim.
int bucket_of(const ConfigRow& row, int head_dim);
// kernel/arch/dtype[/dBUCKET]/config[/exp2]: the last for attention kernels on CUDA (the emulator
// has one instance for both: of_launch), the dBUCKET for kernels with head_dim the third.
std::string instance_key(const KernelRow& kernel, Arch arch, Dtype dtype, int bucket,
                         std::string_view config, Exp2 exp2);
// Every instance of the table, as CMake builds them for a target: what tests count.
std::vector<std::string> all_instance_keys(Where where);
// JSON array of kernels with their configurations.
std::string list_json();

}  // namespace tessera
