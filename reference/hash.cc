// SPDX-License-Identifier: Apache-2.0
#include "reference/hash.h"

#include <bit>

namespace tessera {
namespace {

template <class T, class Bits>
std::uint64_t hash_as(std::uint64_t h, const void* data, std::int64_t count, Bits bits) {
  const T* x = static_cast<const T*>(data);
  for (std::int64_t i = 0; i < count; ++i) h = mix64(h ^ bits(x[i]));
  return h;
}

}  // namespace

std::uint64_t hash_elements(Dtype dtype, const void* data, std::int64_t count) {
  std::uint64_t h = mix64(std::uint64_t(count) + 1);  // + 1, as mix64(0) is 0
  h = mix64(h + std::uint64_t(dtype));
  switch (dtype) {
    case Dtype::f32:
      return hash_as<float>(h, data, count,
                            [](float x) { return x != x ? 0x7fffffffu : std::bit_cast<u32>(x); });
    case Dtype::f16:
      return hash_as<f16>(h, data, count, [](f16 x) {
        return (x.bits & 0x7fffu) > 0x7c00u ? 0x7fffu : u32(x.bits);
      });
    case Dtype::bf16:
      return hash_as<bf16>(h, data, count, [](bf16 x) {
        return (x.bits & 0x7fffu) > 0x7f80u ? 0x7fffu : u32(x.bits);
      });
    case Dtype::field: return hash_as<Fq>(h, data, count, [](Fq x) { return x.value; });
  }
  return h;
}

std::string hash_hex(std::uint64_t hash) {
  std::string text(16, '0');
  for (int i = 0; i < 16; ++i) text[i] = "0123456789abcdef"[(hash >> (60 - 4 * i)) & 15];
  return text;
}

}  // namespace tessera
