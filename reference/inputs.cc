// SPDX-License-Identifier: Apache-2.0
#include "reference/inputs.h"

#include <bit>
#include <limits>
#include <stdexcept>

#include "reference/hash.h"

namespace tessera {
namespace {

// 64 hashed bits; an element owns the words 4 * index .. 4 * index + 3 of its tensor's stream.
struct Stream {
  Stream(std::uint64_t seed, std::uint32_t tensor)
      : key(mix64(mix64(seed + 0x5851f42d4c957f2du) + tensor)) {}
  std::uint64_t word(std::uint64_t index, int n) const { return mix64(key + 4 * index + n); }
  std::uint64_t key;
};

float normal(const Stream& stream, std::uint64_t index, double scale) {
  // Twelve uniform 21-bit pieces: their sum has the variance 12 * (2^42 - 1) / 12, so its standard
  // deviation is 2^21: fp32 inputs use all their bits. Only the last line leaves the integers.
  constexpr int kPiece = (1 << 21) - 1;
  int sum = -6 * kPiece;
  for (int n = 0; n < 4; ++n) {
    const std::uint64_t word = stream.word(index, n);
    sum += int(word & kPiece) + int((word >> 21) & kPiece) + int((word >> 42) & kPiece);
  }
  return float(double(sum) * 0x1p-21 * scale);
}

Fq small_integer(const Stream& stream, std::uint64_t index) {
  const std::uint64_t high = stream.word(index, 3) >> 32;
  return Fq::of(i32((high * 9) >> 32) - 4);
}

}  // namespace

float input_value(std::uint64_t seed, std::uint32_t tensor, std::uint64_t index, double scale) {
  return normal(Stream(seed, tensor), index, scale);
}

void fill(void* data, Dtype dtype, std::int64_t count, std::uint64_t seed, std::uint32_t tensor,
          double scale) {
  const Stream stream(seed, tensor);
  for (std::int64_t i = 0; i < count; ++i) {
    if (dtype == Dtype::field) {
      static_cast<Fq*>(data)[i] = small_integer(stream, i);
      continue;
    }
    const float x = normal(stream, i, scale);
    if (dtype == Dtype::f32) static_cast<float*>(data)[i] = x;
    if (dtype == Dtype::f16)
      static_cast<f16*>(data)[i] = f16{f32_to_f16_bits(std::bit_cast<u32>(x))};
    if (dtype == Dtype::bf16)
      static_cast<bf16*>(data)[i] = bf16{f32_to_bf16_bits(std::bit_cast<u32>(x))};
  }
}

int element_size(Dtype dtype) {
  switch (dtype) {
    case Dtype::f32: return sizeof(float);
    case Dtype::f16: return sizeof(f16);
    case Dtype::bf16: return sizeof(bf16);
    case Dtype::field: return sizeof(Fq);
  }
  throw std::invalid_argument("element_size: unknown dtype");
}

float round_to(Dtype dtype, float x) {
  const u32 bits = std::bit_cast<u32>(x);
  switch (dtype) {
    case Dtype::f32: return x;
    case Dtype::f16: return std::bit_cast<float>(f16_to_f32_bits(f32_to_f16_bits(bits)));
    case Dtype::bf16: return std::bit_cast<float>(bf16_to_f32_bits(f32_to_bf16_bits(bits)));
    case Dtype::field: break;
  }
  throw std::invalid_argument("round_to: not a floating-point dtype");
}

double widen(Dtype dtype, const void* data, std::int64_t i) {
  switch (dtype) {
    case Dtype::f32: return static_cast<const float*>(data)[i];
    case Dtype::f16:
      return std::bit_cast<float>(f16_to_f32_bits(static_cast<const f16*>(data)[i].bits));
    case Dtype::bf16:
      return std::bit_cast<float>(bf16_to_f32_bits(static_cast<const bf16*>(data)[i].bits));
    case Dtype::field: {
      const Fq x = static_cast<const Fq*>(data)[i];
      return x.value == Fq::kHidden ? -std::numeric_limits<double>::infinity() : x.centred();
    }
  }
  throw std::invalid_argument("widen: unknown dtype");
}

std::vector<double> widen_all(Dtype dtype, const void* data, std::int64_t count) {
  std::vector<double> all(count);
  for (std::int64_t i = 0; i < count; ++i) all[i] = widen(dtype, data, i);
  return all;
}

}  // namespace tessera
