// SPDX-License-Identifier: Apache-2.0
// The address maps of shared tiles, as plain functions: the tiles use them, and the emulator turns
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
TESSERA_HD constexpr TilePosition swizzled_position(int, int cols, int element, u32 offset) {
  const int pitch = cols * element, row = int(offset) / pitch;
  const int chunk = swizzle(pitch / 16, row, int(offset) % pitch / 16);
  return {row, (chunk * 16 + int(offset) % 16) / element};
}

// WordTile's map, in bytes, for a tile of `rows` rows.
template <class Index>
TESSERA_HD constexpr Index word_tile_offset(int rows, const Index& row, const Index& col) {
  return (col >> 2) * (16 * rows) + (row >> 2) * 64 + (col & 3) * 16 + (row & 3) * 4;
}
TESSERA_HD constexpr TilePosition word_tile_position(int rows, int, int, u32 offset) {
  const int four = int(offset) % (16 * rows);  // columns
  return {four / 64 * 4 + four % 16 / 4, int(offset) / (16 * rows) * 4 + four % 64 / 16};
}

}  // namespace tessera
