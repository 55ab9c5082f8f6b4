// SPDX-License-Identifier: Apache-2.0
// The CPU body of the warp instructions (kernels/warp/warp.h says what each does). Memory
// instructions call the checker where there is one; that single branch is all that the checks cost
// when they are off.
#pragma once
#include <cmath>
#include <cstring>

#include "kernels/tile/swizzle.h"
#include "sim/block.h"
#include "sim/exp2.h"
#include "sim/lanes.h"
#include "sim/memory.h"

namespace tessera {

// ---- who and where
TESSERA_FN Lanes<i32> lane_id() {
  Lanes<i32> r;
  for (int i = 0; i < 32; i++) r.v[i] = i;
  return r;
}
TESSERA_FN int warp_id() { return sim::self().current; }
TESSERA_FN u32 block_index() { return u32(sim::self().index); }
TESSERA_FN void at(Site site) { sim::self().me().site = site; }

// ---- shared memory layout
TESSERA_FN u32 shared_base() { return 0; }
inline void name_shared(const char* name, u32 base, u32 bytes, int rows, int cols, int element,
                        PositionOf position = swizzled_position) {
  sim::name_shared({name, base, bytes, rows, cols, element, position});
}

// ---- synchronisation
inline void barrier(int id, int warps, Site site = Site::here()) {
  sim::wait_at_barrier(id, warps, site);
}
inline void barrier(Site site = Site::here()) { sim::wait_at_barrier(0, sim::self().warps, site); }
inline void warp_sync(Site site = Site::here()) {
  at(site);
  if (sim::self().checker) sim::checked_warp_sync();
}

// ---- registers
TESSERA_FN Lanes<float> bits_to_float(const Lanes<u32>& x) {
  Lanes<float> r;
  std::memcpy(r.v, x.v, sizeof r.v);
  return r;
}
TESSERA_FN Lanes<u32> float_to_bits(const Lanes<float>& x) {
  Lanes<u32> r;
  std::memcpy(r.v, x.v, sizeof r.v);
  return r;
}
template <class T>
TESSERA_FN void poison(Lanes<T>& x) {
  static_assert(sizeof(T) == 4);
  for (int i = 0; i < 32; i++) std::memcpy(&x.v[i], &sim::kPoisonBits, 4);
}
template <class F, class... T>
TESSERA_FN auto apply(F f, const Lanes<T>&... x) {
  Lanes<decltype(f(x.v[0]...))> r;
  for (int i = 0; i < 32; i++) r.v[i] = f(x.v[i]...);
  return r;
}
// fmaf where the ISA has it; below x86-64-v3 a library call with the same bits.
TESSERA_FN Lanes<float> fma(const Lanes<float>& a, const Lanes<float>& b, const Lanes<float>& c) {
  Lanes<float> r;
  for (int i = 0; i < 32; i++) r.v[i] = __builtin_fmaf(a.v[i], b.v[i], c.v[i]);
  return r;
}
TESSERA_FN Lanes<float> reciprocal_normal(const Lanes<float>& x) { return Lanes<float>(1.0f) / x; }
// PTX max.f32: a NaN loses against a number, and +0 is larger than -0.
TESSERA_FN Lanes<float> max(const Lanes<float>& a, const Lanes<float>& b) {
  const Lanes<float> zero_or_same = bits_to_float(float_to_bits(a) & float_to_bits(b));
  Lanes<float> r;
  for (int i = 0; i < 32; i++) {
    const float x = a.v[i], y = b.v[i];
    const float larger = x > y ? x : y;  // y where either is NaN
    const float kept = y != y ? x : larger;
    r.v[i] = x == y ? zero_or_same.v[i] : kept;
  }
  return r;
}
TESSERA_FN Lanes<float> abs(const Lanes<float>& x) {
  return bits_to_float(float_to_bits(x) & Lanes<u32>(0x7fffffffu));
}
// ex2.approx.ftz.f32, as the correctly rounded value; the GPU is within 2 ulp of it.
inline Lanes<float> ex2(const Lanes<float>& x) {
  Lanes<float> r;
  sim::exp2_rounded(x.v, r.v);
  return r;
}
inline Lanes<float> exp2_of_launch(const Lanes<float>& x) {
  Lanes<float> r;
  sim::self().exp2(x.v, r.v);
  return r;
}
TESSERA_FN void count_exp2() { sim::self().counters.exp2 += 32; }
TESSERA_FN void count_fma(int warp_instructions) {
  sim::self().counters.fma += 32u * u32(warp_instructions);
}
TESSERA_FN void count_tiles(int skipped, int full, int masked) {
  sim::Block& b = sim::self();
  if (b.current) return;  // a tile is the block's: its first warp counts
  b.counters.tiles_skipped += u64(skipped);
  b.counters.tiles_full += u64(full);
  b.counters.tiles_masked += u64(masked);
}

template <class T>
TESSERA_FN Lanes<T> shuffle_xor(const Lanes<T>& x, int mask) {
  Lanes<T> r;
  for (int i = 0; i < 32; i++) r.v[i] = x.v[i ^ mask];
  return r;
}
template <class T>
TESSERA_FN Lanes<T> shuffle(const Lanes<T>& x, const Lanes<i32>& source) {
  Lanes<T> r;
  for (int i = 0; i < 32; i++) r.v[i] = x.v[source.v[i] & 31];
  return r;
}
TESSERA_FN bool warp_any(const Lanes<bool>& b) {
  i32 r = 0;
  for (int i = 0; i < 32; i++) r |= b.v[i];
  return r != 0;
}

// ---- conversions, to nearest even
template <class T>
TESSERA_FN Lanes<u32> narrow_bits(const Lanes<float>& x) {  // 16 bits in the low half
  Lanes<u32> r;
  if constexpr (std::is_same_v<T, bf16>) {
    const Lanes<u32> b = float_to_bits(x);
    for (int i = 0; i < 32; i++) {
      const u32 rounded = (b.v[i] + 0x7fffu + ((b.v[i] >> 16) & 1)) >> 16;
      r.v[i] = (b.v[i] & 0x7fffffffu) > 0x7f800000u ? 0x7fffu : rounded;
    }
  } else {
    sim::f32_to_f16(x.v, r.v);
  }
  return r;
}
// Two values in one register, lo in the lower half: cvt.rn.{f16x2,bf16x2}.f32.
template <class T>
TESSERA_FN Lanes<u32> pack(const Lanes<float>& lo, const Lanes<float>& hi) {
  if constexpr (std::is_same_v<T, bf16>) {
    return narrow_bits<T>(lo) | (narrow_bits<T>(hi) << Lanes<u32>(16u));
  } else {
    Lanes<u32> r;
    sim::pack_f16(lo.v, hi.v, r.v);
    return r;
  }
}
template <class T>
TESSERA_FN Lanes<T> narrow(const Lanes<float>& x) {
  if constexpr (std::is_same_v<T, float>) {
    return x;
  } else {
    const Lanes<u32> b = narrow_bits<T>(x);
    Lanes<T> r;
    for (int i = 0; i < 32; i++) r.v[i] = T{u16(b.v[i])};
    return r;
  }
}
template <class T>
inline Lanes<float> widen(const Lanes<T>& x) {
  if constexpr (std::is_same_v<T, float>) {
    return x;
  } else {
    Lanes<u32> r;
    for (int i = 0; i < 32; i++)
      r.v[i] = std::is_same_v<T, f16> ? f16_to_f32_bits(x.v[i].bits)
                                      : bf16_to_f32_bits(x.v[i].bits);
    return bits_to_float(r);
  }
}

// The lower (0) or upper (1) 16 bits of a register as a T.
template <class T>
TESSERA_FN Lanes<T> half_of(const Lanes<u32>& x, int upper) {
  Lanes<T> r;
  for (int i = 0; i < 32; i++) r.v[i] = T{u16(x.v[i] >> (16 * upper))};
  return r;
}

// ---- shared memory. Addresses in bytes, aligned to the access.
template <class R>  // R: 4, 8 or 16 bytes a lane
TESSERA_FN void ld_shared_as(R* out, const Lanes<u32>& address) {
  sim::Block& b = sim::self();
  sim::count_wavefronts(b, address.v, sizeof(R));
  Lanes<u32> safe;
  const u32* a = address.v;
  if (__builtin_expect(b.checker != nullptr, 0)) {
    sim::shared_access(b, safe.v, a, nullptr, sizeof(R), sim::Access::read);
    a = safe.v;
  }
  for (int i = 0; i < 32; i++) std::memcpy(&out[i], b.shared + a[i], sizeof(R));
}
template <class R>
TESSERA_FN void st_shared_as(const Lanes<u32>& address, const R* x) {
  sim::Block& b = sim::self();
  sim::count_wavefronts(b, address.v, sizeof(R));
  Lanes<u32> safe;
  const u32* a = address.v;
  if (__builtin_expect(b.checker != nullptr, 0)) {
    sim::shared_access(b, safe.v, a, nullptr, sizeof(R), sim::Access::write);
    a = safe.v;
  }
  for (int i = 0; i < 32; i++) std::memcpy(b.shared + a[i], &x[i], sizeof(R));
}
// N consecutive 4-byte values a lane, N = 1, 2 or 4.
template <class T>
TESSERA_FN void ld_shared(Lanes<T>& x, const Lanes<u32>& address) {
  static_assert(sizeof(T) == 4);
  ld_shared_as(x.v, address);
}
template <class T>
TESSERA_FN void ld_shared(Lanes<T> (&x)[2], const Lanes<u32>& address) {
  struct Pair {
    T x[2];
  } t[32];
  ld_shared_as(t, address);
  for (int i = 0; i < 32; i++) x[0].v[i] = t[i].x[0], x[1].v[i] = t[i].x[1];
}
template <class T>
TESSERA_FN void ld_shared(Lanes<T> (&x)[4], const Lanes<u32>& address) {
  struct Quad {
    T x[4];
  } t[32];
  ld_shared_as(t, address);
  for (int i = 0; i < 32; i++)
    for (int j = 0; j < 4; j++) x[j].v[i] = t[i].x[j];
}
template <class T>
TESSERA_FN void st_shared(const Lanes<u32>& address, const Lanes<T>& x) {
  static_assert(sizeof(T) == 4);
  st_shared_as(address, x.v);
}
struct Chunk {  // 16 bytes a lane
  struct alignas(16) Bytes {
    char b[16];
  } v[32];
};
template <class T>
TESSERA_FN Chunk make_chunk(const Lanes<T>& a, const Lanes<T>& b, const Lanes<T>& c,
                            const Lanes<T>& d) {
  static_assert(sizeof(T) == 4);
  Chunk r;
  for (int i = 0; i < 32; i++) {
    const T words[4] = {a.v[i], b.v[i], c.v[i], d.v[i]};
    std::memcpy(&r.v[i], words, 16);
  }
  return r;
}
TESSERA_FN Chunk ld_shared_chunk(const Lanes<u32>& address) {
  Chunk r;
  ld_shared_as(r.v, address);
  return r;
}
TESSERA_FN void st_shared_chunk(const Lanes<u32>& address, const Chunk& x) {
  st_shared_as(address, x.v);
}

// Four 8x8 matrices of 16-bit elements: lane 8i + j gives the address of row j of matrix i, 16
// bytes; register i of lane 4g + t is then elements 2t, 2t + 1 of row g.
TESSERA_FN void ldmatrix_x4(Lanes<u32> (&r)[4], const Lanes<u32>& address) {
  struct Row {
    char b[16];
  } rows[32];
  ld_shared_as(rows, address);
  for (int i = 0; i < 4; i++) std::memcpy(r[i].v, &rows[8 * i], 128);
}
// The same, each matrix transposed on its way.
TESSERA_FN void ldmatrix_x4_trans(Lanes<u32> (&r)[4], const Lanes<u32>& address) {
  struct Row {
    char b[16];
  } rows[32];
  ld_shared_as(rows, address);
  for (int i = 0; i < 4; i++)
    sim::transpose_8x8(reinterpret_cast<const u16*>(&rows[8 * i]), r[i].v);
}

// Bytes that are there of a chunk, `left` before the end of its row.
TESSERA_FN Lanes<i32> chunk_bytes(const Lanes<i32>& left) {
  const Lanes<i32> most = select(left < Lanes<i32>(16), left, Lanes<i32>(16));
  return select(left > Lanes<i32>(0), most, Lanes<i32>(0));
}

// ---- asynchronous copies (sm_80 and up)
// 16 bytes a lane from global to shared memory: `bytes` of them from the source, zeros after.
inline void cp_async(const Lanes<u32>& destination, const Lanes<const char*>& source,
                     const Lanes<i32>& bytes) {
  sim::cp_async(destination.v, source.v, bytes.v);
}
inline void cp_async_commit() { sim::cp_async_commit(); }
template <int Pending>
inline void cp_async_wait() {
  sim::cp_async_wait(Pending);
}

// ---- global memory
template <class T>
TESSERA_FN Lanes<T> ld_global(const Lanes<const T*>& p, const Lanes<bool>& ok, T otherwise) {
  Lanes<bool> mask = ok;
  sim::global_access(reinterpret_cast<const void* const*>(p.v), mask.v, sizeof(T), false);
  Lanes<T> r;
  for (int i = 0; i < 32; i++) r.v[i] = mask.v[i] ? *p.v[i] : otherwise;
  return r;
}
template <class T>
TESSERA_FN void st_global(const Lanes<T*>& p, const Lanes<T>& x, const Lanes<bool>& ok) {
  Lanes<bool> mask = ok;
  sim::global_access(reinterpret_cast<const void* const*>(p.v), mask.v, sizeof(T), true);
  for (int i = 0; i < 32; i++)
    if (mask.v[i]) *p.v[i] = x.v[i];
}
// 16 bytes a lane, of which `bytes` exist in memory; zeros after.
inline Chunk ld_global_chunk(const Lanes<const char*>& p, const Lanes<i32>& bytes) {
  Chunk r;
  sim::ld_global_chunk(p.v, bytes.v, &r.v[0].b[0]);
  return r;
}

inline void st_global_chunk(const Lanes<char*>& p, const Chunk& x, const Lanes<bool>& ok) {
  Lanes<bool> mask = ok;
  sim::global_access(reinterpret_cast<const void* const*>(p.v), mask.v, 16, true);
  for (int i = 0; i < 32; i++)
    if (mask.v[i]) std::memcpy(p.v[i], &x.v[i], 16);
}

// ---- tensor cores: D = A B + C, A (16, K) and B (K, 8) in T, C fp32. Fragments:
// kernels/tile/fragment.h
template <class T>
TESSERA_FN void mma_m16n8k8(Lanes<float> (&c)[4], const Lanes<u32> (&a)[2], const Lanes<u32>& b) {
  static_assert(std::is_same_v<T, f16>, "m16n8k8 exists for fp16 here (sm_75)");
  sim::Block& k = sim::self();
  k.counters.mma++;
  k.mma[0][0](c[0].v, a[0].v, b.v, k.mma_state);
}
template <class T>
TESSERA_FN void mma_m16n8k16(Lanes<float> (&c)[4], const Lanes<u32> (&a)[4],
                             const Lanes<u32> (&b)[2]) {
  sim::Block& k = sim::self();
  k.counters.mma++;
  k.mma[std::is_same_v<T, bf16>][1](c[0].v, a[0].v, b[0].v, k.mma_state);
}

}  // namespace tessera
