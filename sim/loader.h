// SPDX-License-Identifier: Apache-2.0
// Finding and loading the emulator's modules, one shared library an ISA level. They are looked for
// in $TESSERA_MODULES, beside the library or program that this code is in, one folder up, and where
// the dynamic linker looks: the run path (which the CMake package sets) and the system's folders.
#pragma once
#include <string>
#include <vector>

#include "sim/launch.h"

namespace tessera::sim {

struct Found {
  const Module* module;
  const Instance* instance;
};

// Levels that this CPU runs and whose module is there, best first.
std::vector<std::string> available_isa_levels();
// The module of a level; throws Error if the CPU or the files do not have it.
const Module& load_module(const std::string& isa);
// The key of the sm_89 instance that also serves an sm_90 key (without /exp2) on the emulator:
// their rows agree but for what only a GPU sees, blocks and local memory. "": there is none.
std::string emulator_twin(const std::string& key);
// An instance on the given level, or its twin; on the best level that has one ("best", "").
Found find_instance(const std::string& key, const std::string& isa);

const Card& find_card(const std::string& name);  // throws Error
const Card& card_of(Arch arch);

}  // namespace tessera::sim
