// SPDX-License-Identifier: Apache-2.0
// The host interface on a real GPU: streams, graphs, devices, and what is refused. Compiled only
// where there is a CUDA toolkit.
#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <cstring>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "kernels/arguments.h"
#include "kernels/cuda_backend.h"
#include "reference/inputs.h"
#include "tests/kernels/attention_case.h"

namespace tessera::testing {
namespace {

#define TESSERA_NEEDS_GPU() \
  if (const std::string why = cuda::why_no_device(); !why.empty()) GTEST_SKIP() << why
#define TESSERA_NEEDS_TWO_GPUS() \
  TESSERA_NEEDS_GPU();           \
  if (device_count() < 2) GTEST_SKIP() << "this machine has one GPU"
#define TESSERA_OK(call) ASSERT_EQ(cudaGetErrorName(call), std::string("cudaSuccess"))

int device_count() {
  int n = 0;
  cudaGetDeviceCount(&n);
  return n;
}
int current_device() {
  int device = -1;
  cudaGetDevice(&device);
  return device;
}

// The five tensors of a case in device memory, on the device that is current at construction.
class OnDevice {
 public:
  explicit OnDevice(const Case& c) : case_(c), host_(make_inputs(c)) {
    Bytes* all[] = {&host_.q, &host_.k, &host_.v, &host_.o, &host_.lse};
    for (int i = 0; i < 5; i++) {
      buffers_.push_back(std::make_unique<cuda::Buffer>(all[i]->size()));
      buffers_.back()->upload(all[i]->data());
      const i64 heads = i == 1 || i == 2 ? c.kv_heads() : c.heads;
      tensors[i] = i == 4 ? contiguous(buffers_[4]->data(), Dtype::f32, {c.batch, heads, c.q_len})
                          : contiguous(
                                buffers_[std::size_t(i)]->data(), c.dtype,
                                {c.batch, heads, i == 0 || i == 3 ? c.q_len : c.k_len, c.head_dim});
    }
  }

  Report run(void* stream = nullptr) const {
    AttentionOptions o;
    o.target = Target::cuda, o.stream = stream;
    o.exp2 = case_.exp2, o.causal = case_.causal;
    return attention(tensors[0], tensors[1], tensors[2], tensors[3], &tensors[4], o);
  }
  // "" if O and LSE are right for the inputs of the case with `seed`.
  std::string fault(u64 seed) {
    Case c = case_;
    c.seed = seed;
    Tensors t = make_inputs(c);
    buffers_[3]->download(t.o.data());
    buffers_[4]->download(t.lse.data());
    const Verdict v = compare_with_reference(c, t);
    return v.pass() ? "" : v.text();
  }
  // The inputs of another seed, on the device; refill puts them in place, in stream order. (A copy
  // from pageable host memory would wait for the stream.)
  void stage(u64 seed) {
    Case c = case_;
    c.seed = seed;
    const Tensors t = make_inputs(c);
    staged_.clear();
    for (const Bytes* from : {&t.q, &t.k, &t.v}) {
      staged_.push_back(std::make_unique<cuda::Buffer>(from->size()));
      staged_.back()->upload(from->data());
    }
  }
  void refill(cudaStream_t stream) {
    const std::size_t sizes[] = {host_.q.size(), host_.k.size(), host_.v.size()};
    for (std::size_t i = 0; i < 3; i++)
      cudaMemcpyAsync(buffers_[i]->data(), staged_[i]->data(), sizes[i], cudaMemcpyDeviceToDevice,
                      stream);
  }
  void poison() {
    for (std::size_t i = 3; i < 5; i++)
      cudaMemset(buffers_[i]->data(), 0xff, (i == 3 ? host_.o : host_.lse).size());
  }

  Tensor tensors[5];  // q, k, v, o, lse

 private:
  Case case_;
  Tensors host_;
  std::vector<std::unique_ptr<cuda::Buffer>> buffers_, staged_;
};

Case small(i64 head_dim = 64) {
  Case c;
  c.arch = "", c.batch = 2, c.heads = 4, c.heads_kv = 2, c.q_len = 70, c.k_len = 53,
  c.head_dim = head_dim;
  return c;
}

std::string message_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

// A stream of its own whose work waits for `delay` before anything else.
class LateStream {
 public:
  explicit LateStream(std::chrono::milliseconds delay) : delay_(delay) {
    cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
    cudaLaunchHostFunc(
        stream,
        [](void* p) {
          std::this_thread::sleep_for(*static_cast<const std::chrono::milliseconds*>(p));
        },
        &delay_);
  }
  ~LateStream() { cudaStreamDestroy(stream); }
  LateStream(const LateStream&) = delete;
  cudaStream_t stream = nullptr;

 private:
  std::chrono::milliseconds delay_;
};

TEST(GpuApi, HostMemoryIsRefusedByName) {
  TESSERA_NEEDS_GPU();
  int reads_host_memory = 0;
  cudaDeviceGetAttribute(&reads_host_memory, cudaDevAttrPageableMemoryAccess, 0);
  if (reads_host_memory) GTEST_SKIP() << "this GPU reads all host memory";
  const char* names[] = {"q", "k", "v", "o", "lse"};
  std::vector<char> host(1 << 20);
  for (int i = 0; i < 5; i++) {
    OnDevice d(small());
    d.tensors[i].data = host.data();
    const std::string message = message_of([&] { d.run(); });
    EXPECT_EQ(message.find(std::string(names[i]) + ": it is host memory"), 0u) << message;
    EXPECT_NE(message.find("device 0 (" + cuda::device_name()), std::string::npos) << message;
  }
  EXPECT_EQ(cudaPeekAtLastError(), cudaSuccess);
}

TEST(GpuApi, PinnedHostMemoryIsTaken) {
  TESSERA_NEEDS_GPU();
  OnDevice d(small());
  Tensors t = make_inputs(small());
  void* pinned = nullptr;
  TESSERA_OK(cudaMallocHost(&pinned, t.q.size()));
  std::memcpy(pinned, t.q.data(), t.q.size());
  d.tensors[0].data = pinned;
  d.run();
  EXPECT_EQ(d.fault(1), "");
  cudaFreeHost(pinned);
}

TEST(GpuApi, DeviceMemoryIsRefusedByTheEmulator) {
  TESSERA_NEEDS_GPU();
  OnDevice d(small());
  const auto call = [&] {
    attention(d.tensors[0], d.tensors[1], d.tensors[2], d.tensors[3], &d.tensors[4], {});
  };
  EXPECT_EQ(message_of(call).find("q: it is on device 0; target is sim"), 0u) << message_of(call);
  std::string elsewhere;  // a thread without a CUDA context
  std::thread([&] { elsewhere = message_of(call); }).join();
  EXPECT_EQ(elsewhere.find("q: it is on device 0; target is sim"), 0u) << elsewhere;
}

TEST(GpuApi, WorkLandsOnTheCallersStream) {
  TESSERA_NEEDS_GPU();
  for (const i64 head_dim : {64, 37}) {  // 37: through aligned copies
    OnDevice d(small(head_dim));
    d.run();  // a first launch loads the code, and may wait for the device
    d.stage(2), d.poison();
    TESSERA_OK(cudaDeviceSynchronize());
    LateStream late(std::chrono::milliseconds(300));
    d.refill(late.stream);  // inputs that are there only after the delay
    const auto start = std::chrono::steady_clock::now();
    d.run(late.stream);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    EXPECT_EQ(cudaStreamQuery(late.stream), cudaErrorNotReady) << took.count() << " s";
    cudaGetLastError();
    TESSERA_OK(cudaStreamSynchronize(late.stream));
    EXPECT_EQ(d.fault(2), "");
  }
}

TEST(GpuApi, ACallCanBeCapturedIntoAGraphAndReplayed) {
  TESSERA_NEEDS_GPU();
  for (const i64 head_dim : {64, 37})
    for (const auto mode : {cudaStreamCaptureModeGlobal, cudaStreamCaptureModeRelaxed}) {
      OnDevice d(small(head_dim));
      LateStream late(std::chrono::milliseconds(0));
      cudaGraph_t graph = nullptr;
      cudaGraphExec_t exec = nullptr;
      TESSERA_OK(cudaStreamBeginCapture(late.stream, mode));
      d.run(late.stream);
      TESSERA_OK(cudaStreamEndCapture(late.stream, &graph));
      TESSERA_OK(cudaGraphInstantiate(&exec, graph, 0));
      for (const u64 seed : {1, 2, 3}) {
        d.poison(), d.stage(seed);
        TESSERA_OK(cudaDeviceSynchronize());
        d.refill(late.stream);
        TESSERA_OK(cudaGraphLaunch(exec, late.stream));
        TESSERA_OK(cudaStreamSynchronize(late.stream));
        EXPECT_EQ(d.fault(seed), "") << head_dim << " " << seed;
      }
      cudaGraphExecDestroy(exec), cudaGraphDestroy(graph);
    }
}

TEST(GpuApi, ATimedLaunchIsRefusedInACapture) {
  TESSERA_NEEDS_GPU();
  OnDevice d(small());
  LateStream late(std::chrono::milliseconds(0));
  cudaGraph_t graph = nullptr;
  TESSERA_OK(cudaStreamBeginCapture(late.stream, cudaStreamCaptureModeRelaxed));
  AttentionOptions o;
  o.target = Target::cuda, o.stream = late.stream, o.timed = true;
  EXPECT_EQ(message_of([&] {
              attention(d.tensors[0], d.tensors[1], d.tensors[2], d.tensors[3], nullptr, o);
            }).find("timed: "),
            0u);
  TESSERA_OK(cudaStreamEndCapture(late.stream, &graph));  // still valid
  cudaGraphDestroy(graph);
}

// Every way in which a tensor cannot be read 16 bytes at a time, in one call: bases and strides of
// odd element counts, stride 0, heads between positions.
TEST(GpuApi, UnalignedAndBroadcastInputsGoThroughTheCopyKernel) {
  TESSERA_NEEDS_GPU();
  for (const Dtype dtype : {Dtype::f16, Dtype::f32}) {
    Case c = small(37);
    c.dtype = dtype, c.heads_kv = c.heads;
    const i64 es = size_of(dtype), heads = c.heads, dim = c.head_dim;
    OnDevice plain(c);
    Tensors t = make_inputs(c);
    const i64 row = heads * (dim + 2) + 1;  // K as (batch, length, heads, dim), with gaps
    std::vector<char> k(std::size_t((c.batch * c.k_len * row + 3) * es), char(0xff));
    for (i64 b = 0; b < c.batch; b++)
      for (i64 h = 0; h < heads; h++)
        for (i64 n = 0; n < c.k_len; n++)
          std::memcpy(k.data() + (3 + (b * c.k_len + n) * row + h * (dim + 2)) * es,
                      t.k.data() + ((b * heads + h) * c.k_len + n) * dim * es,
                      std::size_t(dim * es));
    cuda::Buffer device_k(k.size());
    device_k.upload(k.data());
    plain.tensors[1].data = static_cast<char*>(device_k.data()) + 3 * es;
    plain.tensors[1].stride = {c.k_len * row, dim + 2, row, 1};
    plain.run();
    EXPECT_EQ(plain.fault(1), "");

    // V of one row for all keys and heads: O is that row whatever the scores are.
    cuda::Buffer device_v(std::size_t(dim * es));
    std::vector<char> v(t.v.data(), t.v.data() + dim * es);
    device_v.upload(v.data());
    plain.tensors[2].data = device_v.data(), plain.tensors[2].stride = {0, 0, 0, 1};
    plain.run();
    std::vector<char> o(std::size_t(c.batch * heads * c.q_len * dim * es));
    TESSERA_OK(cudaMemcpy(o.data(), plain.tensors[3].data, o.size(), cudaMemcpyDeviceToHost));
    const auto got = widen_all(dtype, o.data(), i64(o.size()) / es),
               want = widen_all(dtype, v.data(), dim);
    for (std::size_t i = 0; i < got.size(); i++)
      ASSERT_NEAR(got[i], want[i % std::size_t(dim)],
                  4e-3 * (1 + std::abs(want[i % std::size_t(dim)])))
          << i;
  }
}

TEST(GpuApi, RowsOfAnyLengthAreCopied) {  // longer than one warp's chunk, and a tail of zeros
  TESSERA_NEEDS_GPU();
  for (const i64 inner : {1, 31, 1023, 1025, 5001}) {
    const cuda::StridedRows rows{{2, 3, 5}, {0, inner + 1, 7}, inner};
    const i64 pitch = (inner + 7) / 8 * 8;
    std::vector<u16> from(std::size_t(2 * (inner + 1) + 4 * 7 + inner));
    for (std::size_t i = 0; i < from.size(); i++) from[i] = u16(i * 40503u + 1);
    cuda::Buffer device(from.size() * 2);
    device.upload(from.data());
    void* copy = cuda::copy_compact(device.data(), rows, pitch, 2, nullptr);
    std::vector<u16> to(std::size_t(30 * pitch), 1);
    TESSERA_OK(cudaMemcpy(to.data(), copy, to.size() * 2, cudaMemcpyDeviceToHost));
    cuda::free_async(copy, nullptr);
    for (i64 r = 0; r < 30; r++)
      for (i64 i = 0; i < pitch; i++) {
        const i64 source = r / 5 % 3 * (inner + 1) + r % 5 * 7 + i;
        ASSERT_EQ(to[std::size_t(r * pitch + i)], i < inner ? from[std::size_t(source)] : 0)
            << inner << " " << r << " " << i;
      }
  }
}

TEST(GpuApi, AnEarlierErrorIsNotTakenForOurs) {
  TESSERA_NEEDS_GPU();
  OnDevice d(small());
  void* p = nullptr;
  const cudaError_t error = cudaMalloc(&p, std::size_t(1) << 60);
  ASSERT_NE(error, cudaSuccess);
  const std::string message = message_of([&] { d.run(); });
  EXPECT_NE(message.find("earlier CUDA call"), std::string::npos) << message;
  EXPECT_NE(message.find(cudaGetErrorName(error)), std::string::npos) << message;
  EXPECT_EQ(cudaGetLastError(), error);  // still the caller's to take
  d.run();
  EXPECT_EQ(d.fault(1), "");
}

// A stream whose capture was broken takes no launch, with and without an aligned copy before it.
TEST(GpuApi, AFailedLaunchThrowsAndLeavesNoError) {
  TESSERA_NEEDS_GPU();
  for (const i64 head_dim : {64, 37}) {
    OnDevice d(small(head_dim));
    LateStream late(std::chrono::milliseconds(0));
    TESSERA_OK(cudaStreamSynchronize(late.stream));
    TESSERA_OK(cudaStreamBeginCapture(late.stream, cudaStreamCaptureModeThreadLocal));
    EXPECT_NE(cudaStreamSynchronize(late.stream), cudaSuccess);  // not allowed: it breaks it
    cudaGetLastError();
    const std::string message = message_of([&] { d.run(late.stream); });
    EXPECT_NE(message.find("cudaErrorStreamCaptureInvalidated"), std::string::npos) << message;
    EXPECT_EQ(cudaPeekAtLastError(), cudaSuccess);
    cudaGraph_t graph = nullptr;
    EXPECT_NE(cudaStreamEndCapture(late.stream, &graph), cudaSuccess);
    cudaGetLastError();
    d.run();
    EXPECT_EQ(d.fault(1), "");
  }
}

TEST(GpuApi, RunsOnTheTensorsDevice) {
  TESSERA_NEEDS_TWO_GPUS();
  for (const i64 head_dim : {64, 37}) {
    TESSERA_OK(cudaSetDevice(1));
    OnDevice d(small(head_dim));
    TESSERA_OK(cudaSetDevice(0));
    const Report r = d.run();
    EXPECT_EQ(current_device(), 0);
    TESSERA_OK(cudaSetDevice(1));
    EXPECT_EQ(r.card, cuda::device_name());
    EXPECT_EQ(d.fault(1), "");
    TESSERA_OK(cudaSetDevice(0));
  }
}

TEST(GpuApi, TensorsOnTwoDevicesAreRefused) {
  TESSERA_NEEDS_TWO_GPUS();
  const char* names[] = {"q", "k", "v", "o", "lse"};
  TESSERA_OK(cudaSetDevice(1));
  const OnDevice other(small());
  for (const int current : {0, 1}) {
    TESSERA_OK(cudaSetDevice(0));
    OnDevice d(small());
    TESSERA_OK(cudaSetDevice(current));
    for (std::size_t i = 1; i < 5; i++) {
      const Tensor own = d.tensors[i];
      d.tensors[i].data = other.tensors[i].data;
      const std::string message = message_of([&] { d.run(); });
      EXPECT_EQ(message.find(std::string(names[i]) + ": it is on device 1 ("), 0u) << message;
      EXPECT_NE(message.find("q is on device 0 ("), std::string::npos) << message;
      EXPECT_EQ(current_device(), current);
      d.tensors[i] = own;
    }
  }
  TESSERA_OK(cudaSetDevice(0));
}

TEST(GpuApi, TheCurrentDeviceIsBackAfterAnError) {
  TESSERA_NEEDS_TWO_GPUS();
  TESSERA_OK(cudaSetDevice(1));
  const OnDevice d(small());
  TESSERA_OK(cudaSetDevice(0));
  AttentionOptions o;
  o.target = Target::cuda, o.config = "no such one";
  EXPECT_THROW(attention(d.tensors[0], d.tensors[1], d.tensors[2], d.tensors[3], nullptr, o),
               Error);
  EXPECT_EQ(current_device(), 0);
}

}  // namespace
}  // namespace tessera::testing
