// SPDX-License-Identifier: Apache-2.0
// The value of one register across a warp, on the CPU: 32 values, and loops that compilers turn
// into vector code. A condition on lanes is not a bool: `if (lanes < x)` does not compile, so a
// warp's control flow is uniform by construction.
#pragma once
#include <cstring>
#include <type_traits>

#include "kernels/warp/types.h"

#define TESSERA_FN inline __attribute__((always_inline))
#define TESSERA_UNROLL_FOR for
#define TESSERA_UNROLL_2_FOR for
#define TESSERA_ROLLED_FOR for

namespace tessera {

template <class T>
struct Lanes;

// A predicate: all bits of a lane's word, or none.
template <>
struct Lanes<bool> {
  alignas(64) i32 v[32];

  Lanes() = default;
  TESSERA_FN Lanes(bool x) {
    for (int i = 0; i < 32; i++) v[i] = x ? -1 : 0;
  }
#define TESSERA_LANES_OP(op)                                            \
  friend TESSERA_FN Lanes operator op(const Lanes& a, const Lanes& b) { \
    Lanes r;                                                            \
    for (int i = 0; i < 32; i++) r.v[i] = a.v[i] op b.v[i];             \
    return r;                                                           \
  }
  TESSERA_LANES_OP(&)
  TESSERA_LANES_OP(|)
  TESSERA_LANES_OP(^)
#undef TESSERA_LANES_OP
  friend TESSERA_FN Lanes operator!(const Lanes& a) {
    Lanes r;
    for (int i = 0; i < 32; i++) r.v[i] = ~a.v[i];
    return r;
  }
};

template <class T>
struct Lanes {
  alignas(64) T v[32];

  Lanes() = default;
  TESSERA_FN Lanes(T x) {
    for (int i = 0; i < 32; i++) v[i] = x;
  }
  template <class U>
  TESSERA_FN explicit Lanes(const Lanes<U>& o) {
    for (int i = 0; i < 32; i++) v[i] = T(o.v[i]);
  }

#define TESSERA_LANES_OP(op)                                            \
  friend TESSERA_FN Lanes operator op(const Lanes& a, const Lanes& b) { \
    Lanes r;                                                            \
    for (int i = 0; i < 32; i++) r.v[i] = a.v[i] op b.v[i];             \
    return r;                                                           \
  }
  TESSERA_LANES_OP(+)
  TESSERA_LANES_OP(-)
  TESSERA_LANES_OP(*)
  TESSERA_LANES_OP(/)
  TESSERA_LANES_OP(%)
  TESSERA_LANES_OP(&)
  TESSERA_LANES_OP(|)
  TESSERA_LANES_OP(^)
  TESSERA_LANES_OP(<<)
  TESSERA_LANES_OP(>>)
#undef TESSERA_LANES_OP

#define TESSERA_LANES_OP(op)                                                  \
  friend TESSERA_FN Lanes<bool> operator op(const Lanes& a, const Lanes& b) { \
    Lanes<bool> r;                                                            \
    for (int i = 0; i < 32; i++) r.v[i] = a.v[i] op b.v[i] ? -1 : 0;          \
    return r;                                                                 \
  }
  TESSERA_LANES_OP(<)
  TESSERA_LANES_OP(<=)
  TESSERA_LANES_OP(>)
  TESSERA_LANES_OP(>=)
  TESSERA_LANES_OP(==)
  TESSERA_LANES_OP(!=)
#undef TESSERA_LANES_OP
};

template <class T>
struct Lanes<T*> {
  alignas(64) T* v[32];

  Lanes() = default;
  TESSERA_FN Lanes(T* x) {
    for (int i = 0; i < 32; i++) v[i] = x;
  }
  friend TESSERA_FN Lanes operator+(const Lanes& a, const Lanes<i64>& b) {
    Lanes r;  // through integers: a lane that a predicate turns off may point anywhere
    for (int i = 0; i < 32; i++)
      r.v[i] = reinterpret_cast<T*>(reinterpret_cast<std::uintptr_t>(a.v[i]) +
                                    std::uintptr_t(b.v[i]) * sizeof(T));
    return r;
  }
};
template <class T>
TESSERA_FN Lanes<T*> operator+(T* a, const Lanes<i64>& b) {
  return Lanes<T*>(a) + b;
}

template <class T>
TESSERA_FN Lanes<T> select(const Lanes<bool>& m, const Lanes<T>& a,
                           const std::type_identity_t<Lanes<T>>& b) {
  Lanes<T> r;
  for (int i = 0; i < 32; i++) r.v[i] = m.v[i] ? a.v[i] : b.v[i];
  return r;
}
template <class T>
requires std::is_arithmetic_v<T> TESSERA_FN Lanes<T> select(const Lanes<bool>& m, T a,
                                                            const Lanes<T>& b) {
  return select(m, Lanes<T>(a), b);
}

}  // namespace tessera
