// SPDX-License-Identifier: Apache-2.0
// The address map of a shared tile, as plain functions: SharedTile uses it, and the emulator turns
// an address back into (row, column) for its messages.
#pragma once
#include "kernels/warp/types.h"

namespace tessera {

// Chunk c (16 bytes) of row r of a tile with `chunks` chunks a row lies at chunk c ^ f(r). Rows
// that share a 128-byte line have the same f; eight rows at one chunk then meet all 32 banks.
TESSERA_HD constexpr int swizzle_group(int chunks) {
  return chunks % 8 == 0 ? 8 : chunks % 4 == 0 ? 4 : chunks % 2 == 0 ? 2 : 1;
}
TESSERA_HD constexpr int swizzle_shift(int chunks) {  // log2(8 / group)
  return chunks % 8 == 0 ? 0 : chunks % 4 == 0 ? 1 : chunks % 2 == 0 ? 2 : 3;
}
template <class Index>
TESSERA_HD constexpr Index swizzle_key(int chunks, const Index& row) {  // f(row)
  return (row >> swizzle_shift(chunks)) & (swizzle_group(chunks) - 1);
}
template <class Index>
TESSERA_HD constexpr Index swizzle(int chunks, const Index& row,
                                   const Index& chunk) {  // its own inverse
  return chunk ^ swizzle_key(chunks, row);
}

}  // namespace tessera
