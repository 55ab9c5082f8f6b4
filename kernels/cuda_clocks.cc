// SPDX-License-Identifier: Apache-2.0
// Clocks and the driver's version, by NVML: the driver brings it, and it is loaded at run time, so
// that nothing here needs it to be there.
#include <cuda_runtime.h>
#include <dlfcn.h>

#include "kernels/cuda_backend.h"
#include "kernels/cuda_check.h"
#include "kernels/cuda_rate.h"
#include "kernels/cuda_timing.h"

namespace tessera::cuda {

namespace {

// Of nvml.h, whose functions return 0 when they succeed.
using NvmlDevice = struct nvmlDevice_st*;
enum NvmlClock { kSm = 1, kMemory = 2 };
constexpr int kTemperatureOfGpu = 0;
constexpr unsigned kDriverVersionLength = 80;

class Nvml {
 public:
  Nvml() : library_(dlopen("libnvidia-ml.so.1", RTLD_LAZY)) {
    ready_ = library_ && call<int()>("nvmlInit_v2") == 0;
  }
  ~Nvml() {
    if (ready_) call<int()>("nvmlShutdown");
    if (library_) dlclose(library_);
  }
  Nvml(const Nvml&) = delete;

  bool ready() const { return ready_; }

  // What the function returns; -1 if there is none of this name.
  template <class Function, class... T>
  int call(const char* name, T... arguments) const {
    const auto f = reinterpret_cast<Function*>(dlsym(library_, name));
    return f ? f(arguments...) : -1;
  }

 private:
  void* library_;
  bool ready_;
};

std::optional<Clocks> read(const Nvml& nvml, NvmlDevice device) {
  Clocks c;
  unsigned milliwatts = 0;
  using OfKind = int(NvmlDevice, int, unsigned*);
  const bool read =
      nvml.call<OfKind>("nvmlDeviceGetClockInfo", device, int(kSm), &c.sm_mhz) == 0 &&
      nvml.call<OfKind>("nvmlDeviceGetClockInfo", device, int(kMemory), &c.memory_mhz) == 0 &&
      nvml.call<OfKind>("nvmlDeviceGetMaxClockInfo", device, int(kSm), &c.max_sm_mhz) == 0 &&
      nvml.call<OfKind>("nvmlDeviceGetTemperature", device, kTemperatureOfGpu, &c.temperature_c) ==
          0 &&
      nvml.call<int(NvmlDevice, unsigned*)>("nvmlDeviceGetPowerUsage", device, &milliwatts) == 0;
  c.power_w = milliwatts * 1e-3;
  return read ? std::optional(c) : std::nullopt;
}

}  // namespace

std::optional<Clocks> clocks_under_load() {
  if (!why_no_device().empty()) return std::nullopt;
  const Nvml nvml;
  if (!nvml.ready()) return std::nullopt;
  int id = 0;
  char bus[32];
  NvmlDevice device = nullptr;
  check(cudaGetDevice(&id), "cudaGetDevice");
  check(cudaDeviceGetPCIBusId(bus, sizeof bus, id), "cudaDeviceGetPCIBusId");
  using ByBus = int(const char*, NvmlDevice*);
  if (nvml.call<ByBus>("nvmlDeviceGetHandleByPciBusId_v2", static_cast<const char*>(bus),
                       &device) != 0)
    return std::nullopt;
  // The first launches bring the clocks up, the last is still running while they are read.
  constexpr int kBlocks = 8, kIterations = 1 << 15, kLaunches = 20;
  for (int i = 0; i < kLaunches; i++) {
    check(multiply(Dtype::f16, kBlocks * multiprocessors(), kIterations, nullptr).error,
          "launch of a load");
    if (i == kLaunches - 3) check(cudaStreamSynchronize(nullptr), "run of a load");
  }
  const std::optional<Clocks> clocks = read(nvml, device);
  check(cudaStreamSynchronize(nullptr), "run of a load");
  return clocks;
}

std::string driver_version() {
  const Nvml nvml;
  char version[kDriverVersionLength] = "";
  if (nvml.ready())
    nvml.call<int(char*, unsigned)>("nvmlSystemGetDriverVersion", static_cast<char*>(version),
                                    kDriverVersionLength);
  return version;
}

}  // namespace tessera::cuda
