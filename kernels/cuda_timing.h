// SPDX-License-Identifier: Apache-2.0
// Timing on the current device, and what the device can do at most; the same in builds with and
// without a CUDA toolkit. Everything throws Error (unsupported) where there is no device.
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "kernels/warp/types.h"

namespace tessera::cuda {

// TFLOP/s that mma.sync reaches here for f16 and bf16 (fp32 sums; m16n8k16, before compute
// capability 8.0 m16n8k8), and FFMA for f32: measured with nothing else in the loop, on zeros,
// which draw least power, and the best of several runs. So no kernel built on these instructions is
// faster. Measured once a process, device and type, in some 50 ms. Throws Error (unsupported) for
// bf16 on a card without it, and for field.
double rate_limit(Dtype dtype);

struct Clocks {
  unsigned sm_mhz = 0, memory_mhz = 0, max_sm_mhz = 0;
  double power_w = 0;
  unsigned temperature_c = 0;
};
// Read while the device multiplies: an idle one shows other clocks. Nothing where the driver's
// library NVML is missing or does not tell.
std::optional<Clocks> clocks_under_load();
std::string driver_version();   // as NVML gives it, 580.65.06; "" if it is missing
std::string toolkit_version();  // what this was built with, 13.0

// Times asynchronous work by events, on a stream of its own.
class Stopwatch {
 public:
  enum class Launch { graph, call };
  // warm: what is timed ran just before, untimed. Otherwise twice the L2's size is written before.
  Stopwatch(Launch launch, bool warm);
  ~Stopwatch();
  Stopwatch(const Stopwatch&) = delete;

  void* stream() const;
  // Something to time; it puts its work on stream(). It is called once here, which loads code; with
  // Launch::graph it is then captured, and not called again. Returns its number, from 0 up.
  int add(std::function<void()> work);
  void run(int number);  // once, and waits
  void wait();
  // Runs each of `order` once, one behind the other, and returns their milliseconds.
  std::vector<double> round(const std::vector<int>& order);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tessera::cuda
