// SPDX-License-Identifier: Apache-2.0
// The machine: what one warp of 32 lanes can do. Two bodies, and nothing else in the project has
// two: cuda.h (inline PTX) and sim/warp.h (32 values a register, fibers, shadow memory, counters).
//
// Lanes<T> is the value of one register across the warp: T itself under nvcc, 32 values on the CPU.
// A choice between lanes is `select`, never `?:` or `if`; control flow is uniform across a warp.
//
// clang-format off
//   lane_id() warp_id() block_index()          0..31; of the block; of the one-dimensional grid
//   at(site)                                   marks the kernel's line for the emulator's messages
//   shared_base()                              shared-memory address of the block's first byte
//   name_shared(name, base, bytes, ...)        tells the emulator what lies there
//   barrier() barrier(id, warps)               all warps of the block; `warps` of them at barrier id
//   warp_sync()                                orders the warp's own lanes' shared-memory accesses
//   bits_to_float float_to_bits select         registers
//   apply(f, x...)                             a scalar function, lane by lane
//   poison(x)                                  an unwritten register: NaN on the CPU, nothing on the GPU
//   fma max abs                                IEEE; max as PTX max.f32: a NaN loses against a number
//   reciprocal_normal(x)                       IEEE 1 / x for |x| in 2^-100 .. 2^100
//   ex2(x)                                     hardware 2^x (CPU: correctly rounded, 0 below 2^-126)
//   exp2_of_launch(x)                          2^x as the emulator's launch chose (Exp2)
//   shuffle_xor shuffle warp_any               across lanes
//   pack<T>(lo, hi) half_of<T>(x, upper)       two in a register; one of them
//   narrow<T>(x) widen(x)                      fp32 <-> T to nearest even
//   ld_shared st_shared ..._chunk              1, 2 or 4 words a lane; 16 bytes a lane
//   make_chunk(a, b, c, d)                     four words as 16 bytes
//   ldmatrix_x4 ldmatrix_x4_trans              four 8x8 matrices of 16-bit elements
//   cp_async cp_async_commit cp_async_wait<N>  asynchronous 16-byte copies (sm_80 and up)
//   ld_global st_global ..._chunk              one element a lane, predicated; 16 bytes
//   chunk_bytes(left)                          how many of a chunk's 16 bytes are there: what is read
//                                              of it, zeros after (on the GPU all or none)
//   mma_m16n8k8<f16> mma_m16n8k16<T>           tensor cores: sm_75; sm_80 and up
//   count_exp2 count_fma count_tiles           exact counters (nothing on the GPU)
// clang-format on
#pragma once

#if defined(__CUDACC__)
#include "kernels/warp/cuda.h"
#else
#include "sim/warp.h"
#endif
