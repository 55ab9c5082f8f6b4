// SPDX-License-Identifier: Apache-2.0
// The CUDA body of the warp instructions (warp.h says what each does). sm_75 has no cp.async and no
// m16n8k16: their bodies trap there, and the configuration tables keep sm_75 code away from them.
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <type_traits>

#include "kernels/warp/types.h"

#define TESSERA_FN __device__ __forceinline__
#define TESSERA_UNROLL_FOR _Pragma("unroll") for
#define TESSERA_UNROLL_2_FOR _Pragma("unroll 2") for
#define TESSERA_ROLLED_FOR _Pragma("unroll 1") for

namespace tessera {

template <class T>
using Lanes = T;

struct Site {
  static constexpr TESSERA_FN Site here() { return {}; }
};

// ---- who and where
TESSERA_FN i32 lane_id() { return i32(threadIdx.x & 31); }
TESSERA_FN int warp_id() { return int(threadIdx.x >> 5); }
// Volatile: what a kernel's end derives from it is worked out there, not kept in registers through
// its loop.
TESSERA_FN u32 block_index() {
  u32 x;
  asm volatile("mov.u32 %0, %%ctaid.x;" : "=r"(x));
  return x;
}
TESSERA_FN void at(Site) {}

// ---- shared memory layout
TESSERA_FN u32 shared_base() {
  extern __shared__ __align__(1024) char tessera_shared[];
  return u32(__cvta_generic_to_shared(tessera_shared));
}
TESSERA_FN void name_shared(const char*, u32, u32, int, int, int, PositionOf) {}

// ---- synchronisation
TESSERA_FN void barrier(Site = {}) { __syncthreads(); }
TESSERA_FN void barrier(int id, int warps, Site = {}) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(warps * 32) : "memory");
}
TESSERA_FN void warp_sync(Site = {}) { __syncwarp(); }

// ---- registers
TESSERA_FN float bits_to_float(u32 x) { return __uint_as_float(x); }
TESSERA_FN u32 float_to_bits(float x) { return __float_as_uint(x); }
template <class T>
TESSERA_FN T select(bool m, T a, std::type_identity_t<T> b) {
  return m ? a : b;
}
template <class T>
TESSERA_FN void poison(T&) {}
template <class F, class... T>
TESSERA_FN auto apply(F f, T... x) {
  return f(x...);
}
TESSERA_FN float fma(float a, float b, float c) { return __fmaf_rn(a, b, c); }
// The compiler's own 1 / x carries a subroutine for extreme operands, and what is live across its
// call is spilled. Without it, one Newton step gives the rounded value.
TESSERA_FN float reciprocal_normal(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return __fmaf_rn(y, __fmaf_rn(-x, y, 1.0f), y);
}
TESSERA_FN float max(float a, float b) { return fmaxf(a, b); }
TESSERA_FN float abs(float x) { return fabsf(x); }
TESSERA_FN float ex2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
TESSERA_FN float exp2_of_launch(float x) {  // no CUDA instance has it
  __trap();
  return x;
}
TESSERA_FN void count_exp2() {}
TESSERA_FN void count_fma(int) {}
TESSERA_FN void count_tiles(int, int, int) {}

template <class T>
TESSERA_FN T shuffle_xor(T x, int mask) {
  static_assert(sizeof(T) == 4);
  return __builtin_bit_cast(T, __shfl_xor_sync(0xffffffffu, __builtin_bit_cast(u32, x), mask));
}
template <class T>
TESSERA_FN T shuffle(T x, i32 source) {
  static_assert(sizeof(T) == 4);
  return __builtin_bit_cast(T, __shfl_sync(0xffffffffu, __builtin_bit_cast(u32, x), source));
}
TESSERA_FN bool warp_any(bool b) { return __any_sync(0xffffffffu, b); }

// ---- conversions, to nearest even
template <class T>
TESSERA_FN u32 pack(float lo, float hi) {
  u32 d;
  if constexpr (std::is_same_v<T, bf16>) {
#if __CUDA_ARCH__ >= 800
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(d) : "f"(hi), "f"(lo));
#else
    d = f32_to_bf16_bits(__float_as_uint(lo)) | u32(f32_to_bf16_bits(__float_as_uint(hi))) << 16;
#endif
  } else {
#if __CUDA_ARCH__ >= 800
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(d) : "f"(hi), "f"(lo));
#else
    u16 l, h;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(l) : "f"(lo));
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(hi));
    d = l | u32(h) << 16;
#endif
  }
  return d;
}
template <class T>
TESSERA_FN T narrow(float x) {
  if constexpr (std::is_same_v<T, float>)
    return x;
  else
    return T{u16(pack<T>(x, 0.0f))};
}
template <class T>
TESSERA_FN float widen(T x) {
  if constexpr (std::is_same_v<T, float>)
    return x;
  else if constexpr (std::is_same_v<T, bf16>)
    return __uint_as_float(u32(x.bits) << 16);
  else
    return __half2float(__ushort_as_half(x.bits));
}

// The lower (0) or upper (1) 16 bits of a register as a T.
template <class T>
TESSERA_FN T half_of(u32 x, int upper) {
  return T{u16(x >> (16 * upper))};
}

// ---- shared memory
template <class T>
TESSERA_FN void ld_shared(T& x, u32 address) {
  static_assert(sizeof(T) == 4);
  u32 r;
  asm volatile("ld.shared.b32 %0, [%1];" : "=r"(r) : "r"(address) : "memory");
  x = __builtin_bit_cast(T, r);
}
template <class T>
TESSERA_FN void ld_shared(T (&x)[2], u32 address) {
  u32 r[2];
  asm volatile("ld.shared.v2.b32 {%0,%1}, [%2];"
               : "=r"(r[0]), "=r"(r[1])
               : "r"(address)
               : "memory");
  TESSERA_UNROLL_FOR (int i = 0; i < 2; i++) x[i] = __builtin_bit_cast(T, r[i]);
}
template <class T>
TESSERA_FN void ld_shared(T (&x)[4], u32 address) {
  u32 r[4];
  asm volatile("ld.shared.v4.b32 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address)
               : "memory");
  TESSERA_UNROLL_FOR (int i = 0; i < 4; i++) x[i] = __builtin_bit_cast(T, r[i]);
}
template <class T>
TESSERA_FN void st_shared(u32 address, T x) {
  static_assert(sizeof(T) == 4);
  asm volatile("st.shared.b32 [%0], %1;" ::"r"(address), "r"(__builtin_bit_cast(u32, x))
               : "memory");
}
struct Chunk {  // 16 bytes
  u32 w[4];
};
template <class T>
TESSERA_FN Chunk make_chunk(T a, T b, T c, T d) {
  static_assert(sizeof(T) == 4);
  return {{__builtin_bit_cast(u32, a), __builtin_bit_cast(u32, b), __builtin_bit_cast(u32, c),
           __builtin_bit_cast(u32, d)}};
}
TESSERA_FN Chunk ld_shared_chunk(u32 address) {
  Chunk r;
  ld_shared(r.w, address);
  return r;
}
TESSERA_FN void st_shared_chunk(u32 address, const Chunk& x) {
  asm volatile("st.shared.v4.b32 [%0], {%1,%2,%3,%4};" ::"r"(address), "r"(x.w[0]), "r"(x.w[1]),
               "r"(x.w[2]), "r"(x.w[3])
               : "memory");
}
TESSERA_FN void ldmatrix_x4(u32 (&r)[4], u32 address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address)
               : "memory");
}
TESSERA_FN void ldmatrix_x4_trans(u32 (&r)[4], u32 address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address)
               : "memory");
}

// Bytes that are there of a chunk, `left` before the end of its row.
TESSERA_FN i32 chunk_bytes(i32 left) { return left > 0 ? 16 : 0; }

// ---- asynchronous copies
// 16 bytes, or zeros: a size in a register costs six instructions a copy.
TESSERA_FN void cp_async(u32 destination, const char* source, i32 bytes) {
#if __CUDA_ARCH__ >= 800
  asm volatile(
      "{ .reg .pred none; setp.eq.s32 none, %2, 0;\n"
      "cp.async.cg.shared.global.L2::128B [%0], [%1], 16, none; }" ::"r"(destination),
      "l"(source), "r"(bytes)
      : "memory");
#else
  __trap();
#endif
}
TESSERA_FN void cp_async_commit() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.commit_group;" ::: "memory");
#else
  __trap();
#endif
}
template <int Pending>
TESSERA_FN void cp_async_wait() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.wait_group %0;" ::"n"(Pending) : "memory");
#else
  __trap();
#endif
}

// ---- global memory
template <class T>
TESSERA_FN T ld_global(const T* p, bool ok, T otherwise) {
  return ok ? *p : otherwise;
}
template <class T>
TESSERA_FN void st_global(T* p, T x, bool ok) {
  if (ok) *p = x;
}
// 16 bytes, or zeros.
TESSERA_FN Chunk ld_global_chunk(const char* p, i32 bytes) {
  Chunk r{};
  asm volatile(
      "{ .reg .pred all; setp.ne.s32 all, %5, 0;\n"
      "@all ld.global.nc.v4.b32 {%0,%1,%2,%3}, [%4]; }"
      : "+r"(r.w[0]), "+r"(r.w[1]), "+r"(r.w[2]), "+r"(r.w[3])
      : "l"(p), "r"(bytes)
      : "memory");
  return r;
}
TESSERA_FN void st_global_chunk(char* p, const Chunk& x, bool ok) {
  if (ok)
    asm volatile("st.global.v4.b32 [%0], {%1,%2,%3,%4};" ::"l"(p), "r"(x.w[0]), "r"(x.w[1]),
                 "r"(x.w[2]), "r"(x.w[3])
                 : "memory");
}

// ---- tensor cores
template <class T>
TESSERA_FN void mma_m16n8k8(float (&c)[4], const u32 (&a)[2], u32 b) {
  static_assert(std::is_same_v<T, f16>, "m16n8k8 exists for fp16 here (sm_75)");
  asm volatile(
      "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5}, {%6}, "
      "{%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(b));
}
template <class T>
TESSERA_FN void mma_m16n8k16(float (&c)[4], const u32 (&a)[4], const u32 (&b)[2]) {
#if __CUDA_ARCH__ >= 800
  if constexpr (std::is_same_v<T, bf16>)
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, "
        "{%8,%9}, "
        "{%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  else
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
        "{%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#else
  __trap();
#endif
}

}  // namespace tessera
