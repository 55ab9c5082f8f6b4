// SPDX-License-Identifier: Apache-2.0
// Test inputs that are the same bits on every machine, and elements of any storage type as float64.
#pragma once
#include <cstdint>
#include <vector>

#include "kernels/warp/types.h"

namespace tessera {

// About normal, mean 0, standard deviation `scale`, never beyond 6 * scale. A function of
// (seed, tensor, index) alone: it takes no state, so any part of a tensor can be made in any order.
float input_value(std::uint64_t seed, std::uint32_t tensor, std::uint64_t index, double scale);

// Element i becomes input_value(seed, tensor, i, scale) rounded to the type. Field elements are
// uniform over the integers -4 .. 4, whatever the scale: a dot product over 128 then stays a small
// integer, which a score must be.
void fill(void* data, Dtype dtype, std::int64_t count, std::uint64_t seed, std::uint32_t tensor,
          double scale = 1);

int element_size(Dtype dtype);  // bytes

// Rounded to the nearest number of the storage type, ties to even. Not for field elements.
float round_to(Dtype dtype, float x);

// Element i as float64, exactly. A field element gives its centred integer, kHidden gives -inf.
double widen(Dtype dtype, const void* data, std::int64_t i);
std::vector<double> widen_all(Dtype dtype, const void* data, std::int64_t count);

}  // namespace tessera
