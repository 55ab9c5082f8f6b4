// SPDX-License-Identifier: Apache-2.0
#include "kernels/registry.h"

#include <algorithm>
#include <cctype>
#include <nlohmann/json.hpp>
#include <numeric>

namespace tessera {

std::string_view name_of(Dtype d) {
  constexpr std::string_view kNames[] = {"f32", "f16", "bf16", "field"};
  return kNames[int(d)];
}
std::string_view name_of(Arch a) {
  return a == Arch::sm_75 ? "sm_75" : a == Arch::sm_89 ? "sm_89" : "sm_90";
}
std::string_view name_of(Exp2 e) {
  constexpr std::string_view kNames[] = {"soft", "hardware", "of_launch"};
  return kNames[int(e)];
}
std::string_view name_of(QHome q) {
  constexpr std::string_view kNames[] = {"none", "shared", "registers"};
  return kNames[int(q)];
}
std::string_view name_of(KernelKind k) {
  constexpr std::string_view kNames[] = {"attention", "matmul", "weighted_sum"};
  return kNames[int(k)];
}

std::string nearest(std::string_view given, const std::vector<std::string>& names) {
  const auto distance = [&](std::string_view a, std::string_view b) {
    std::vector<std::size_t> row(b.size() + 1);
    std::iota(row.begin(), row.end(), std::size_t(0));
    for (std::size_t i = 1; i <= a.size(); i++) {
      std::size_t diagonal = row[0];
      row[0] = i;
      for (std::size_t j = 1; j <= b.size(); j++) {
        const auto same = std::tolower(a[i - 1]) == std::tolower(b[j - 1]);
        const std::size_t best = std::min({row[j] + 1, row[j - 1] + 1, diagonal + !same});
        diagonal = row[j], row[j] = best;
      }
    }
    return row.back();
  };
  const auto best = std::min_element(names.begin(), names.end(), [&](const auto& a, const auto& b) {
    return distance(given, a) < distance(given, b);
  });
  return best == names.end() ? "" : *best;
}

namespace {
std::string listed(const std::vector<std::string>& names) {  // "a, b, c"
  std::string all;
  for (const std::string& n : names) all += (all.empty() ? "" : ", ") + n;
  return all;
}
}  // namespace

void fail_unknown(ErrorKind kind, const std::string& option, const std::string& given,
                  const std::vector<std::string>& names) {
  throw Error(kind, option + ": unknown '" + given + "', did you mean '" + nearest(given, names) +
                        "'? There are: " + listed(names));
}

Dtype parse_dtype(const std::string& s) {
  for (const Dtype d : {Dtype::f32, Dtype::f16, Dtype::bf16, Dtype::field})
    if (s == name_of(d)) return d;
  fail_unknown(ErrorKind::invalid_argument, "dtype", s, {"f32", "f16", "bf16", "field"});
}
Arch parse_arch(const std::string& s) {
  for (const Arch a : {Arch::sm_75, Arch::sm_89, Arch::sm_90})
    if (s == name_of(a)) return a;
  fail_unknown(ErrorKind::invalid_argument, "arch", s, {"sm_75", "sm_89", "sm_90"});
}

const KernelRow& find_kernel(const std::string& name) {
  std::vector<std::string> names;
  for (const KernelRow& k : kKernels) {
    if (k.name == name) return k;
    names.emplace_back(k.name);
  }
  fail_unknown(ErrorKind::unsupported, "kernel", name, names);
}

const ConfigRow& find_config(const KernelRow& kernel, Arch arch, Dtype dtype, int head_dim,
                             const std::string& config) {
  const std::string what = std::string(kernel.name) + " on " + std::string(name_of(arch));
  std::vector<std::string> types, names, elsewhere;
  for (const ConfigRow& r : kRows) {
    if (r.kernel != kernel.name || r.arch != arch) continue;
    for (const Dtype d : {Dtype::f32, Dtype::f16, Dtype::bf16, Dtype::field})
      if (r.has(d) && std::find(types.begin(), types.end(), name_of(d)) == types.end())
        types.emplace_back(name_of(d));
    if (!r.has(dtype)) continue;
    const bool fits = bucket_of(r, head_dim) >= 0;
    if (fits && (config.empty() || config == r.name)) return r;
    std::vector<std::string>& list = fits ? names : elsewhere;
    if (std::find(list.begin(), list.end(), r.name) == list.end()) list.emplace_back(r.name);
  }
  if (names.empty() && elsewhere.empty())
    throw Error(ErrorKind::unsupported, "dtype: " + what + " has no " +
                                            std::string(name_of(dtype)) +
                                            (types.empty() ? "" : "; it has " + listed(types)));
  if (names.empty() || std::find(elsewhere.begin(), elsewhere.end(), config) != elsewhere.end())
    throw Error(ErrorKind::unsupported, (config.empty() ? "head_dim" : "config") +
                                            std::string(": ") + what + ", " +
                                            std::string(name_of(dtype)) + " has no " +
                                            (config.empty() ? "configuration" : config) +
                                            " for head_dim " + std::to_string(head_dim) +
                                            (names.empty() ? "" : "; there are: " + listed(names)));
  fail_unknown(ErrorKind::unsupported, "config", config, names);
}

const ConfigRow& config_to_fill(const KernelRow& kernel, Arch arch, Dtype dtype, int head_dim,
                                std::int64_t q_len, std::int64_t heads, int multiprocessors) {
  const ConfigRow& first = find_config(kernel, arch, dtype, head_dim, "");
  if ((q_len + first.rows - 1) / first.rows * heads >= multiprocessors) return first;
  for (const ConfigRow& r : kRows)
    if (r.kernel == kernel.name && r.arch == arch && r.has(dtype) && r.has(Where::cuda) &&
        r.rows < first.rows && bucket_of(r, head_dim) == bucket_of(first, head_dim))
      return r;
  return first;
}

int bucket_of(const ConfigRow& row, int head_dim) {
  if (row.has_bucket(0)) return 0;
  for (const int d : {32, 64, 96, 128})
    if (row.has_bucket(d) && head_dim <= d) return d;
  return -1;
}

std::string instance_key(const KernelRow& kernel, Arch arch, Dtype dtype, int bucket,
                         std::string_view config, Exp2 exp2) {
  std::string key(kernel.name);
  for (const std::string_view part : {name_of(arch), name_of(dtype)})
    key += "/" + std::string(part);
  if (bucket) key += "/d" + std::to_string(bucket);
  key += "/" + std::string(config);
  if (kernel.kind == KernelKind::attention && exp2 != Exp2::of_launch)
    key += "/" + std::string(name_of(exp2));
  return key;
}

std::vector<std::string> all_instance_keys(Where where) {
  std::vector<std::string> keys;
  for (const ConfigRow& r : kRows) {
    if (!r.has(where)) continue;
    const KernelRow& kernel = find_kernel(std::string(r.kernel));
    std::vector<Exp2> modes{Exp2::of_launch};
    if (where == Where::cuda && kernel.kind == KernelKind::attention)
      modes = {Exp2::soft, Exp2::hardware};
    for (const Dtype d : {Dtype::f32, Dtype::f16, Dtype::bf16, Dtype::field})
      for (const int bucket : {0, 32, 64, 96, 128})
        if (r.has(d) && r.has_bucket(bucket))
          for (const Exp2 e : modes)
            keys.push_back(instance_key(kernel, r.arch, d, bucket, r.name, e));
  }
  return keys;
}

std::string list_json() {
  nlohmann::ordered_json all = nlohmann::ordered_json::array();
  for (const KernelRow& k : kKernels) {
    nlohmann::ordered_json configs = nlohmann::ordered_json::array();
    for (const ConfigRow& r : kRows) {
      if (r.kernel != k.name) continue;
      nlohmann::ordered_json types = nlohmann::ordered_json::array(), buckets = types,
                             targets = types;
      for (const Dtype d : {Dtype::f32, Dtype::f16, Dtype::bf16, Dtype::field})
        if (r.has(d)) types.push_back(name_of(d));
      for (const int d : {32, 64, 96, 128})
        if (r.has_bucket(d)) buckets.push_back(d);
      if (r.has(Where::sim)) targets.push_back("sim");
      if (r.has(Where::cuda)) targets.push_back("cuda");
      configs.push_back({{"arch", name_of(r.arch)},
                         {"config", r.name},
                         {"dtypes", types},
                         {"head_dims", buckets},
                         {"rows", r.rows},
                         {"cols", r.cols},
                         {"depth", r.depth},
                         {"warps", r.warps},
                         {"stages", r.stages},
                         {"q", name_of(r.q)},
                         {"blocks", r.blocks},
                         {"targets", targets}});
    }
    all.push_back(
        {{"name", k.name}, {"kind", name_of(k.kind)}, {"title", k.title}, {"configs", configs}});
  }
  return all.dump();
}

}  // namespace tessera
