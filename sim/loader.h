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
// An instance on the given level, or ("best", "") on the best level that has it. Code for sm_89
// serves sm_90 where the tables agree: the emulator then has one instance for both.
Found find_instance(const std::string& key, const std::string& isa);

const Card& find_card(const std::string& name);  // throws Error
const Card& card_of(Arch arch);

}  // namespace tessera::sim
