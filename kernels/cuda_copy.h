// SPDX-License-Identifier: Apache-2.0
// Copies a strided tensor into compact rows on a GPU.
#pragma once
#include "kernels/warp/types.h"

namespace tessera::cuda {

// (batch, heads, rows) by strides, each row of `inner` contiguous elements; everything in elements,
// extents and strides of any size, 0 included.
struct StridedRows {
  i64 extent[3], stride[3];
  i64 inner;
};

// to[row * pitch + i] = from[row, i], and 0 where inner <= i < pitch, in stream order. Elements are
// of 2 or 4 bytes. Returns a cudaError_t. May be captured into a graph.
int copy_rows(void* to, const void* from, const StridedRows& rows, i64 pitch, int element_size,
              void* stream);

}  // namespace tessera::cuda
