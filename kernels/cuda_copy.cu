// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda_copy.h"

#include <cuda_runtime.h>

#include <algorithm>

namespace tessera::cuda {

namespace {

constexpr int kLanes = 32, kWarps = 8;
constexpr i64 kChunk = 1024;      // elements of a row that one warp copies at a time
constexpr i64 kBlocks = 132 * 8;  // enough to fill the largest of our cards

template <class T>
__global__ void __launch_bounds__(kLanes* kWarps)
    copy_chunks(T* to, const T* from, const __grid_constant__ StridedRows rows, i64 pitch,
                i64 chunks_a_row, i64 chunks) {
  for (i64 n = i64(blockIdx.x) * kWarps + threadIdx.y; n < chunks; n += i64(gridDim.x) * kWarps) {
    const i64 row = n / chunks_a_row, begin = n % chunks_a_row * kChunk;
    const i64 outer = row / rows.extent[2];  // (batch, head)
    const T* source = from + outer / rows.extent[1] * rows.stride[0] +
                      outer % rows.extent[1] * rows.stride[1] +
                      row % rows.extent[2] * rows.stride[2];
    T* target = to + row * pitch;
    const i64 end = begin + kChunk < pitch ? begin + kChunk : pitch;
    for (i64 i = begin + threadIdx.x; i < end; i += kLanes)
      target[i] = i < rows.inner ? source[i] : T(0);
  }
}

template <class T>
int launch(void* to, const void* from, const StridedRows& rows, i64 pitch, void* stream) {
  const i64 a_row = (pitch + kChunk - 1) / kChunk;
  const i64 chunks = rows.extent[0] * rows.extent[1] * rows.extent[2] * a_row;
  if (chunks == 0) return cudaSuccess;
  const i64 blocks = std::min(kBlocks, (chunks + kWarps - 1) / kWarps);
  copy_chunks<<<unsigned(blocks), dim3(kLanes, kWarps), 0, static_cast<cudaStream_t>(stream)>>>(
      static_cast<T*>(to), static_cast<const T*>(from), rows, pitch, a_row, chunks);
  return cudaGetLastError();
}

}  // namespace

int copy_rows(void* to, const void* from, const StridedRows& rows, i64 pitch, int element_size,
              void* stream) {
  return element_size == 2 ? launch<u16>(to, from, rows, pitch, stream)
                           : launch<u32>(to, from, rows, pitch, stream);
}

}  // namespace tessera::cuda
