// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda_timing.h"

#include <cuda_runtime.h>

#include <algorithm>
#include <map>
#include <mutex>

#include "kernels/cuda_backend.h"
#include "kernels/cuda_check.h"
#include "kernels/cuda_rate.h"

namespace tessera::cuda {

namespace {

int l2_bytes() {
  int device = 0, value = 0;
  check(cudaGetDevice(&device), "cudaGetDevice");
  check(cudaDeviceGetAttribute(&value, cudaDevAttrL2CacheSize, device), "cudaDeviceGetAttribute");
  return value;
}

// Handles that are destroyed on the way out, whichever way that is.
struct Stream {
  cudaStream_t stream = nullptr;
  Stream() { check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreate"); }
  ~Stream() { cudaStreamDestroy(stream); }
  Stream(const Stream&) = delete;
};
struct Event {
  cudaEvent_t event = nullptr;
  Event() { check(cudaEventCreate(&event), "cudaEventCreate"); }
  ~Event() { cudaEventDestroy(event); }
  Event(const Event&) = delete;
};
struct Graph {
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t executable = nullptr;
  ~Graph() {
    if (executable) cudaGraphExecDestroy(executable);
    if (graph) cudaGraphDestroy(graph);
  }
};

double milliseconds(const Event& begin, const Event& end) {
  float ms = 0;
  check(cudaEventElapsedTime(&ms, begin.event, end.event), "cudaEventElapsedTime");
  return ms;
}

double measure_rate(Dtype dtype) {
  constexpr int kBlocks = 8;  // a multiprocessor: 32 warps
  constexpr int kRuns = 20;
  constexpr double kLong = 1;  // ms: launches are then no part of it
  const int blocks = kBlocks * multiprocessors();
  const Stream s;
  const Event begin, end;
  double flop = 0;
  const auto run = [&](int iterations) {
    check(cudaEventRecord(begin.event, s.stream), "cudaEventRecord");
    const Multiplied m = multiply(dtype, blocks, iterations, s.stream);
    check(m.error, "launch of the rate's measurement");
    if (m.flop == 0)
      throw Error(ErrorKind::unsupported, "dtype: no instruction of " + device_name() +
                                              " multiplies it, so it has no rate");
    flop = m.flop;
    check(cudaEventRecord(end.event, s.stream), "cudaEventRecord");
    check(cudaEventSynchronize(end.event), "run of the rate's measurement");
    return milliseconds(begin, end);
  };
  int iterations = 256;
  run(iterations);  // loads the code
  while (run(iterations) < kLong && iterations < 1 << 24) iterations *= 2;
  double least = run(iterations);
  for (int i = 1; i < kRuns; i++) least = std::min(least, run(iterations));
  return flop / least * 1e-9;
}

}  // namespace

double rate_limit(Dtype dtype) {
  require_device();
  static std::mutex mutex;
  static std::map<std::pair<int, Dtype>, double> known;
  const std::lock_guard<std::mutex> lock(mutex);
  int device = 0;
  check(cudaGetDevice(&device), "cudaGetDevice");
  const std::pair<int, Dtype> key{device, dtype};
  if (const auto it = known.find(key); it != known.end()) return it->second;
  return known[key] = measure_rate(dtype);
}

std::string toolkit_version() {
  return std::to_string(CUDART_VERSION / 1000) + "." + std::to_string(CUDART_VERSION % 1000 / 10);
}

struct Stopwatch::State {
  struct Work {
    std::function<void()> call;
    Graph graph;
    Event begin, end;
  };

  State(Launch how, bool warm) : launch(how) {
    if (!warm) {
      flush_bytes = 2 * std::size_t(l2_bytes());
      flush = std::make_unique<Buffer>(flush_bytes);
    }
  }

  void start(Work& w) {
    if (launch == Launch::graph)
      check(cudaGraphLaunch(w.graph.executable, stream.stream), "cudaGraphLaunch");
    else
      w.call();
  }

  void capture(Work& w) {
    // Only this thread is kept from calls that no capture can hold.
    check(cudaStreamBeginCapture(stream.stream, cudaStreamCaptureModeThreadLocal),
          "cudaStreamBeginCapture");
    try {
      w.call();
    } catch (...) {
      cudaStreamEndCapture(stream.stream, &w.graph.graph);
      cudaGetLastError();
      throw;
    }
    check(cudaStreamEndCapture(stream.stream, &w.graph.graph), "cudaStreamEndCapture");
    check(cudaGraphInstantiate(&w.graph.executable, w.graph.graph, 0), "cudaGraphInstantiate");
    check(cudaGraphUpload(w.graph.executable, stream.stream), "cudaGraphUpload");
  }

  Launch launch;
  Stream stream;
  std::size_t flush_bytes = 0;
  std::unique_ptr<Buffer> flush;
  std::vector<std::unique_ptr<Work>> works;
};

Stopwatch::Stopwatch(Launch launch, bool warm) {
  require_device();
  state_ = std::make_unique<State>(launch, warm);
}
Stopwatch::~Stopwatch() {
  if (cudaStreamSynchronize(state_->stream.stream) != cudaSuccess) cudaGetLastError();
}

void* Stopwatch::stream() const { return state_->stream.stream; }

int Stopwatch::add(std::function<void()> work) {
  auto w = std::make_unique<State::Work>();
  w->call = std::move(work);
  w->call();
  wait();
  if (state_->launch == Launch::graph) state_->capture(*w);
  wait();
  state_->works.push_back(std::move(w));
  return int(state_->works.size()) - 1;
}

void Stopwatch::run(int number) {
  state_->start(*state_->works.at(std::size_t(number)));
  wait();
}

void Stopwatch::wait() {
  check(cudaStreamSynchronize(state_->stream.stream), "cudaStreamSynchronize");
}

std::vector<double> Stopwatch::round(const std::vector<int>& order) {
  const cudaStream_t s = state_->stream.stream;
  for (const int number : order) {
    State::Work& w = *state_->works.at(std::size_t(number));
    if (state_->flush)
      check(cudaMemsetAsync(state_->flush->data(), number & 0xff, state_->flush_bytes, s),
            "cudaMemsetAsync");
    else
      state_->start(w);
    check(cudaEventRecord(w.begin.event, s), "cudaEventRecord");
    state_->start(w);
    check(cudaEventRecord(w.end.event, s), "cudaEventRecord");
  }
  wait();
  std::vector<double> times;
  for (const int number : order) {
    const State::Work& w = *state_->works[std::size_t(number)];
    times.push_back(milliseconds(w.begin, w.end));
  }
  return times;
}

}  // namespace tessera::cuda
