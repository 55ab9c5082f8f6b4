// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "analysis/cli/demo.h"

namespace tessera::cli {
namespace {

constexpr std::int64_t kCellRows = 8, kCellCols = 4;  // (query, key) pairs of one character

struct Count {
  std::int64_t seen = 0, hidden = 0, outside = 0;
};

// The pairs of a rectangle: visible, hidden by the mask, or past the end of a sequence.
Count count(const Problem& p, std::int64_t q0, std::int64_t k0, std::int64_t rows,
            std::int64_t cols) {
  Count c;
  for (std::int64_t i = q0; i < q0 + rows; ++i)
    for (std::int64_t j = k0; j < k0 + cols; ++j)
      ++(i >= p.q_len || j >= p.k_len     ? c.outside
         : visible(p.band, i, j, p.k_len) ? c.seen
                                          : c.hidden);
  return c;
}

char letter(const Count& c) {
  if (c.seen + c.hidden == 0) return ' ';
  if (c.hidden == 0) return '#';
  return c.seen == 0 ? '.' : '\\';
}

}  // namespace

void draw_mask(std::FILE* to, const Problem& p, std::int64_t block_q, std::int64_t block_k) {
  const std::int64_t rows = (p.q_len + block_q - 1) / block_q;
  const std::int64_t cols = (p.k_len + block_k - 1) / block_k;
  std::string border = "  +";
  for (std::int64_t t = 0; t < cols; ++t)
    border += std::string(std::size_t(block_k / kCellCols), '-') + "+";
  for (std::int64_t q0 = 0; q0 < rows * block_q; q0 += kCellRows) {
    if (q0 % block_q == 0) fmt::print(to, "{}\n", border);
    std::string line = "  |";
    for (std::int64_t k0 = 0; k0 < cols * block_k; k0 += kCellCols) {
      line += letter(count(p, q0, k0, kCellRows, kCellCols));
      if ((k0 + kCellCols) % block_k == 0) line += '|';
    }
    fmt::print(to, "{}{}\n", line,
               q0 % block_q == 0
                   ? fmt::format("  queries {}..{}", q0, std::min(q0 + block_q, p.q_len) - 1)
                   : "");
  }
  fmt::print(to, "{}\n", border);

  std::int64_t full = 0, partial = 0, hidden = 0, ragged = 0;
  for (std::int64_t q0 = 0; q0 < p.q_len; q0 += block_q)
    for (std::int64_t k0 = 0; k0 < p.k_len; k0 += block_k) {
      const Count c = count(p, q0, k0, block_q, block_k);
      ++(c.seen == 0 ? hidden : c.hidden ? partial : c.outside ? ragged : full);
    }
  fmt::print(
      to,
      "  # visible   \\ the diagonal runs through   . hidden by the mask   (blank) past the end\n"
      "  {} tiles: {} full, {} that the diagonal crosses, {} hidden entirely, {} visible up to\n"
      "  the end of the sequence\n",
      rows * cols, full, partial, hidden, ragged);
}

}  // namespace tessera::cli
