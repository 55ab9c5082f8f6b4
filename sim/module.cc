// SPDX-License-Identifier: Apache-2.0
#include <vector>

#include "kernels/tile/math.h"
#include "sim/launch.h"

namespace tessera::sim {

void exp2_polynomial(const float* x, float* y) {
  Lanes<float> v;
  std::memcpy(v.v, x, sizeof v.v);
  const Lanes<float> r = exp2_soft(v);
  std::memcpy(y, r.v, sizeof r.v);
}

namespace {

std::vector<const Instance*>& instances() {
  static auto& all = *new std::vector<const Instance*>;  // never destroyed: it holds on to them
  return all;
}

void lanes(LaneFunction f, const u32* in, u32* out) {
  static thread_local Block b;
  if (b.warp.empty()) b.warp.resize(1);
  Block* const outer = current_block;
  current_block = &b;  // functions count what they do
  Lanes<u32> x, y;
  std::memcpy(x.v, in, sizeof x.v);
  const Lanes<float> v = bits_to_float(x);
  switch (f) {
    case LaneFunction::exp2_soft: y = float_to_bits(exp2_soft(v)); break;
    case LaneFunction::exp2_hardware: y = float_to_bits(ex2(v)); break;
    case LaneFunction::log2_soft: y = float_to_bits(log2_soft(v)); break;
    case LaneFunction::narrow_f16: y = narrow_bits<f16>(v); break;
    case LaneFunction::narrow_bf16: y = narrow_bits<bf16>(v); break;
    case LaneFunction::widen_f16:
      y = float_to_bits(widen(apply([](u32 h) { return f16{u16(h)}; }, x)));
      break;
    case LaneFunction::reciprocal_normal: y = float_to_bits(reciprocal_normal(v)); break;
  }
  std::memcpy(out, y.v, sizeof y.v);
  current_block = outer;
}

}  // namespace

Registrar::Registrar(const Instance& i) { instances().push_back(new Instance(i)); }

}  // namespace tessera::sim

const tessera::sim::Module* tessera_sim_module() {
  using namespace tessera::sim;
  static const Module module{
      kModuleAbi,   TESSERA_ISA, instances().data(), int(instances().size()), launch,
      mma_function, lanes};
  return &module;
}
