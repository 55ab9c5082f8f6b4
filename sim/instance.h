// SPDX-License-Identifier: Apache-2.0
// What a generated translation unit of the emulator says: one kernel, all parameters fixed.
#pragma once
#include "kernels/configs.h"
#include "sim/launch.h"

namespace tessera::sim {

template <class Kernel>
Instance make_instance(const char* key) {
  using Args = typename Kernel::Args;
  return {key, Kernel::kConfig.threads(), Kernel::kSharedBytes,
          [](const void* args) { return Kernel::grid(*static_cast<const Args*>(args)); },
          [](const void* args) { Kernel::run(*static_cast<const Args*>(args)); }};
}

}  // namespace tessera::sim
