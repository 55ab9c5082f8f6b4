// SPDX-License-Identifier: Apache-2.0
// What memory instructions do besides moving bytes: counting wavefronts and sectors, landing
// copies.
#pragma once
#include "sim/block.h"

namespace tessera::sim {

void name_shared(const SharedRegion& region);

// Wavefronts of one warp access to shared memory, 32 banks of 4 bytes: 4-byte accesses are served
// 32 lanes at a time, 8-byte 16, 16-byte 8; a phase takes as many wavefronts as its busiest bank
// has distinct words.
int wavefronts_slow(const u32* address, int bytes);
inline __attribute__((always_inline)) void count_wavefronts(Block& b, const u32* address,
                                                            int bytes) {
  int n = 0;
  const int ideal = bytes / 4;
  if (bytes == 16) {  // each phase of 8 lanes hits each of the 8 groups of 4 banks once
    u32 groups[4] = {};
    for (int i = 0; i < 32; i++) groups[i / 8] |= 1u << ((address[i] >> 4) & 7);
    n = (groups[0] & groups[1] & groups[2] & groups[3]) == 0xff ? 4 : 0;
  }
  if (n == 0) n = wavefronts_slow(address, bytes);
  b.counters.shared_wavefronts += u64(n);
  b.counters.shared_wavefronts_ideal += u64(ideal);
}

// Under checks: `safe` gets the addresses of 32 accesses, bad ones moved to a poisoned spare area
// behind shared memory. ok: null or one word a lane, 0 for a lane that is off.
enum class Access { read, write };
void shared_access(Block& b, u32* safe, const u32* address, const i32* ok, int bytes,
                   Access access);
void checked_warp_sync();

// Counts sectors and, under checks, reports lanes whose address is bad and turns them off in
// `mask`.
void global_access(const void* const* address, i32* mask, int bytes, bool write);

void ld_global_chunk(const char* const* address, const i32* bytes,
                     char* out);  // out: 32 x 16 bytes
void cp_async(const u32* destination, const char* const* source, const i32* bytes);
void cp_async_commit();
void cp_async_wait(int pending);

// Row g, elements 2t and 2t + 1 of the transposed 8x8 matrix `m` go to out[4g + t].
void transpose_8x8(const u16* m, u32* out);
// 32 lanes to nearest even, a NaN to 0x7fff: in the low half of out; lo and hi in the two halves.
void f32_to_f16(const float* in, u32* out);
void pack_f16(const float* lo, const float* hi, u32* out);

}  // namespace tessera::sim
