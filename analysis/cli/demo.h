// SPDX-License-Identifier: Apache-2.0
// `tessera demo`: the tutorial's first kernel on its author's cases, its mask, and its two bugs.
#pragma once
#include "analysis/cli/report.h"

namespace tessera::cli {

// True if everything turned out as it should: right cases right, bugs found.
bool demo(const CaseOptions& options, Output& out);

// A mask in rows and columns of tiles: what is visible in each, and how many tiles are of which
// kind.
void draw_mask(std::FILE* to, const Problem& problem, std::int64_t block_q, std::int64_t block_k);

}  // namespace tessera::cli
