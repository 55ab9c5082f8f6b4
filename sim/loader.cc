// SPDX-License-Identifier: Apache-2.0
#include "sim/loader.h"

#include <dlfcn.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>
#include <mutex>
#include <tuple>

#include "kernels/registry.h"

namespace tessera::sim {

namespace {

constexpr const char* kLevels[] = {"v4", "v3", "v2"};  // x86-64-v4 ...

bool cpu_runs(const std::string& isa) {
  __builtin_cpu_init();
  if (isa == "v2") return __builtin_cpu_supports("sse4.2") && __builtin_cpu_supports("popcnt");
  if (isa == "v3")
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
           __builtin_cpu_supports("bmi2");
  return cpu_runs("v3") && __builtin_cpu_supports("avx512f") &&
         __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512cd") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}

std::string module_path(const std::string& file) {
  std::vector<std::filesystem::path> folders;
  if (const char* e = std::getenv("TESSERA_MODULES")) folders.emplace_back(e);
  // Of a shared library dladdr knows the path, of a program only what it was called by.
  std::vector<std::filesystem::path> own{"/proc/self/exe"};
  Dl_info info;
  if (dladdr(reinterpret_cast<const void*>(&cpu_runs), &info) && info.dli_fname)
    own.insert(own.begin(), info.dli_fname);
  for (const auto& code : own) {
    std::error_code missing;
    const auto here = std::filesystem::canonical(code, missing).parent_path();
    if (missing) continue;
    folders.push_back(here);
    folders.push_back(here.parent_path());
  }
  for (const auto& f : folders) {
    const auto p = f / file;
    if (std::filesystem::exists(p)) return p.string();
  }
  return "";
}

// Null, with why, if the level cannot be had.
const Module* try_load(const std::string& isa, std::string& why) {
  static std::mutex mutex;
  static std::map<std::string, const Module*> loaded;
  const std::lock_guard<std::mutex> lock(mutex);
  if (const auto it = loaded.find(isa); it != loaded.end()) return it->second;
  if (!cpu_runs(isa)) {
    why = "this CPU does not run x86-64-" + isa;
    return nullptr;
  }
  const std::string file = "libtessera_sim_" + isa + ".so", found = module_path(file);
  // By its bare name it is looked for in the run path of this code, which the CMake package sets,
  // and wherever else the system looks.
  const std::string path = found.empty() ? file : found;
  void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!handle) {
    why = found.empty() ? file +
                              " is not beside the program, nor in $TESSERA_MODULES, nor where "
                              "the system looks for libraries"
                        : dlerror();
    return nullptr;
  }
  const auto entry = reinterpret_cast<const Module* (*)()>(dlsym(handle, "tessera_sim_module"));
  const Module* m = entry ? entry() : nullptr;
  if (!m || m->abi != kModuleAbi) {
    why = path + " belongs to another version";
    return nullptr;
  }
  return loaded[isa] = m;
}

const Instance* find_in(const Module& m, const std::string& key) {
  for (int i = 0; i < m.count; i++)
    if (key == m.instances[i]->key) return m.instances[i];
  return nullptr;
}

}  // namespace

std::vector<std::string> available_isa_levels() {
  std::vector<std::string> r;
  std::string why;
  for (const char* isa : kLevels)
    if (try_load(isa, why)) r.emplace_back(isa);
  return r;
}

const Module& load_module(const std::string& isa) {
  bool known = false;
  for (const char* l : kLevels) known = known || isa == l;
  if (!known) fail_unknown(ErrorKind::invalid_argument, "isa", isa, {"best", "v2", "v3", "v4"});
  std::string why;
  if (const Module* m = try_load(isa, why)) return *m;
  throw Error(ErrorKind::unsupported, "isa: " + isa + " is not available: " + why);
}

std::string emulator_twin(const std::string& key) {
  const auto at = key.find("/sm_90/");
  if (at == std::string::npos) return "";
  const auto tile = [](const ConfigRow& r) {
    return std::tie(r.rows, r.cols, r.depth, r.warps, r.stages, r.q, r.variant);
  };
  // The row of an arch that a key is of.
  const auto row_of_key = [](const std::string& k, Arch arch) -> const ConfigRow* {
    for (const ConfigRow& r : kRows) {
      if (r.arch != arch || !k.starts_with(r.kernel) || !k.ends_with(r.name)) continue;
      for (const Dtype d : {Dtype::f32, Dtype::f16, Dtype::bf16, Dtype::field})
        for (const int bucket : {0, 32, 64, 96, 128})
          if (r.has(d) && r.has_bucket(bucket) &&
              k == instance_key(find_kernel(std::string(r.kernel)), arch, d, bucket, r.name,
                                Exp2::of_launch))
            return &r;
    }
    return nullptr;
  };
  const std::string twin = std::string(key).replace(at, 7, "/sm_89/");
  const ConfigRow *mine = row_of_key(key, Arch::sm_90), *other = row_of_key(twin, Arch::sm_89);
  return mine && other && tile(*mine) == tile(*other) ? twin : "";
}

Found find_instance(const std::string& full_key, const std::string& isa) {
  std::string key = full_key;  // exp2 is the launch's choice
  for (const std::string mode : {"/soft", "/hardware"})
    if (key.ends_with(mode)) key.resize(key.size() - mode.size());
  std::vector<std::string> keys{key};
  if (const std::string twin = emulator_twin(key); !twin.empty()) keys.push_back(twin);
  std::vector<std::string> levels{isa};
  if (isa.empty() || isa == "best") {
    levels = available_isa_levels();
    if (levels.empty()) {
      std::string why;
      try_load("v2", why);
      throw Error(ErrorKind::unsupported, "isa: no emulator module can be loaded: " + why);
    }
  }
  for (const std::string& l : levels) {
    const Module& m = load_module(l);
    for (const std::string& k : keys)
      if (const Instance* i = find_in(m, k)) return {&m, i};
  }
  if (!isa.empty() && isa != "best")
    throw Error(ErrorKind::unsupported, "isa: " + isa + " has no " + key +
                                            "; use best, or build with -DTESSERA_ISA_WHOLE=" + isa);
  throw Error(ErrorKind::unsupported, "config: " + key + " is not built for the emulator");
}

const Card& find_card(const std::string& name) {
  std::vector<std::string> names;
  for (const Card& c : kCards) {
    if (c.name == name) return c;
    names.emplace_back(c.name);
  }
  fail_unknown(ErrorKind::invalid_argument, "card", name, names);
}

const Card& card_of(Arch arch) {
  for (const Card& c : kCards)
    if (c.arch == arch) return c;
  throw Error(ErrorKind::internal, "card: none for this arch");
}

}  // namespace tessera::sim
