// SPDX-License-Identifier: Apache-2.0
// Element traits: what a kernel must know of its element type, by the names of online softmax. With
// m the running maximum of a row's scores and l the running sum of weight(s, m):
//   O = sum_j weight(s_j, m) v_j * reciprocal(l)      LSE = make_lse(m, l)
// The folded forms work on scores before they are scaled: weight(s c, m c) is one multiply-add and
// one exp2, with c = scale log2 e; `shift`, the rounded -m c, is the same in weight, rescale and
// LSE. Where |m c| is so large that its rounding would matter (`wide`), m itself is taken from the
// scores first (`base`), and shift is 0.
// A kernel written with these names runs unchanged on fp32, fp16, bf16 and on a finite field, where
// all tilings must agree exactly (research: exact algebra instead of tolerances).
#pragma once
#include "kernels/tile/math.h"

namespace tessera {

// fp32, fp16, bf16: accumulators, statistics and LSE are fp32; exp is natural.
template <class T, Exp2 Mode>
struct Element {
  using storage = T;
  using accumulator = float;
  using lse_type = float;
  static constexpr bool kTensorCores = !std::is_same_v<T, float>;

  static TESSERA_HD constexpr float zero() { return 0.0f; }
  // The score of a key that is not visible. Its weight is 0 against every maximum, -inf included.
  static TESSERA_HD constexpr float hidden() { return -kInfinity; }

  static TESSERA_FN Lanes<float> score(const Lanes<float>& s, float scale) {
    return s * Lanes<float>(scale);
  }
  static TESSERA_FN Lanes<float> weight(const Lanes<float>& s, const Lanes<float>& m) {
    return select(s == Lanes<float>(-kInfinity), Lanes<float>(0.0f), exp<Mode>(s - m));
  }
  // What weights against m_old are multiplied by to become weights against m_new >= m_old.
  static TESSERA_FN Lanes<float> rescale(const Lanes<float>& m_old, const Lanes<float>& m_new) {
    return weight(m_old, m_new);
  }
  // 1 / l; 0 for a row without a visible key. NaN stays. Any other l is between 1 and 2^30 or so:
  // the largest score's weight is 1.
  static TESSERA_FN Lanes<float> reciprocal(const Lanes<float>& l) {
    return select(l == Lanes<float>(0.0f), Lanes<float>(0.0f), reciprocal_normal(l));
  }
  static TESSERA_FN Lanes<float> make_lse(const Lanes<float>& m, const Lanes<float>& l) {
    return select(l == Lanes<float>(0.0f), Lanes<float>(-kInfinity), m + log_soft(l));
  }
  static TESSERA_FN Lanes<float> probability(const Lanes<float>& s, const Lanes<float>& lse) {
    return weight(s, lse);
  }

  // ---- folded
  // The sign of the scale belongs to Q, which turns a minimum into a maximum, and a scale of 0 into
  // scores of 0 (sign); what is left is positive (AttentionArgs::set_scale).
  struct Scaling {
    float magnitude, c;
    TESSERA_FN explicit Scaling(const AttentionArgs& p)
        : magnitude(p.magnitude), c(p.magnitude_log2e) {}
  };
  static TESSERA_HD constexpr float sign(float scale) {
    return scale > 0.0f ? 1.0f : scale < 0.0f ? -1.0f : 0.0f;
  }

  static constexpr float kSlack = 5.0f, kWide = 65536.0f;
  // False where top is NaN, and where both are -inf.
  static TESSERA_FN Lanes<bool> rose(const Lanes<float>& top, const Lanes<float>& m,
                                     const Scaling& a) {
    return (top - m) * Lanes<float>(a.c) > Lanes<float>(kSlack);
  }
  static TESSERA_FN Lanes<bool> wide(const Lanes<float>& m, const Scaling& a) {
    return abs(m * Lanes<float>(a.c)) >= Lanes<float>(kWide);  // -inf, a row without a key yet, too
  }
  static TESSERA_FN Lanes<float> base(const Lanes<float>& m, const Scaling& a) {
    return select(wide(m, a) & (m != Lanes<float>(-kInfinity)), m, Lanes<float>(0.0f));
  }
  static TESSERA_FN Lanes<float> take_base(const Lanes<float>& s, const Lanes<float>& base) {
    return s - base;
  }
  static TESSERA_FN Lanes<float> shift(const Lanes<float>& m, const Scaling& a) {
    return select(wide(m, a), Lanes<float>(0.0f), Lanes<float>(0.0f) - m * Lanes<float>(a.c));
  }
  // A shift that makes every weight, and so their sum, one that does not fit: of a row that is
  // wide.
  static TESSERA_HD constexpr float unfit() { return __builtin_nanf(""); }
  // Whether weights with this sum may be kept: none is larger then, and 8 weights of a row that has
  // not risen (up to 2^kSlack each) always fit. False for NaN.
  static TESSERA_FN Lanes<bool> fits(const Lanes<float>& sum, const Lanes<float>&) {
    return sum <= Lanes<float>(256.0f);
  }
  // s minus base; +inf where a score is so far above the reference
  static TESSERA_FN Lanes<float> folded_weight(const Lanes<float>& s, const Lanes<float>& shift,
                                               const Scaling& a) {
    return exp2<Mode>(fma(s, Lanes<float>(a.c), shift));
  }
  // From sums against the old base and shift to sums against the new ones.
  static TESSERA_FN Lanes<float> folded_rescale(const Lanes<float>& m_old,
                                                const Lanes<float>& shift_old,
                                                const Lanes<float>& m_new,
                                                const Lanes<float>& shift_new, const Scaling& a) {
    const Lanes<float> power = fma(base(m_old, a) - base(m_new, a), Lanes<float>(a.c),
                                   shift_new - shift_old);
    return select(m_old == Lanes<float>(-kInfinity), Lanes<float>(0.0f), exp2<Mode>(power));
  }
  // l counts weights against the rounded shift: what that differs from m c goes back in.
  static TESSERA_FN Lanes<float> make_lse(const Lanes<float>& m, const Lanes<float>& shift,
                                          const Lanes<float>& l, const Scaling& a) {
    const Lanes<float> rest = fma(m - base(m, a), Lanes<float>(a.c), shift);
    const Lanes<float> lse = fma(m, Lanes<float>(a.magnitude),
                                 (log2_soft(l) - rest) * Lanes<float>(kLn2));
    return select(l == Lanes<float>(0.0f), Lanes<float>(-kInfinity), lse);
  }

  static TESSERA_FN Lanes<T> to_storage(const Lanes<float>& x) { return narrow<T>(x); }
};

// Order of scores in the field: hidden is below every score.
TESSERA_FN Lanes<Fq> max(const Lanes<Fq>& a, const Lanes<Fq>& b) {
  return apply(
      [](Fq a, Fq b) {
        if (a.value == Fq::kHidden) return b;
        return b.value == Fq::kHidden || a.centred() > b.centred() ? a : b;
      },
      a, b);
}

// The field: exp(x) is base^x, LSE is the sum of base^s itself (0 for a row without a visible key).
template <Exp2 Mode>
struct Element<Fq, Mode> {
  using storage = Fq;
  using accumulator = Fq;
  using lse_type = Fq;
  static constexpr bool kTensorCores = false;

  static TESSERA_HD constexpr Fq zero() { return Fq{0}; }
  static TESSERA_HD constexpr Fq hidden() { return Fq{Fq::kHidden}; }

  static TESSERA_HD constexpr Fq power_of_base(i32 exponent) {  // |exponent| < p
    return field_power(Fq{kFieldBase},
                       u32(exponent < 0 ? exponent + i32(kFieldPrime) - 1 : exponent));
  }
  static TESSERA_FN Lanes<Fq> score(const Lanes<Fq>& s, float) { return s; }
  static TESSERA_FN Lanes<Fq> weight(const Lanes<Fq>& s, const Lanes<Fq>& m) {
    return apply(
        [](Fq s, Fq m) {
          return s.value == Fq::kHidden ? Fq{0} : power_of_base(s.centred() - m.centred());
        },
        s, m);
  }
  static TESSERA_FN Lanes<Fq> rescale(const Lanes<Fq>& m_old, const Lanes<Fq>& m_new) {
    return weight(m_old, m_new);
  }
  static TESSERA_FN Lanes<Fq> reciprocal(const Lanes<Fq>& l) {
    return apply([](Fq l) { return field_power(l, kFieldPrime - 2); }, l);  // 0 stays 0
  }
  static TESSERA_FN Lanes<Fq> make_lse(const Lanes<Fq>& m, const Lanes<Fq>& l) {
    return apply(
        [](Fq m, Fq l) { return m.value == Fq::kHidden ? Fq{0} : l * power_of_base(m.centred()); },
        m, l);
  }
  static TESSERA_FN Lanes<Fq> probability(const Lanes<Fq>& s, const Lanes<Fq>& lse) {
    return apply(
        [](Fq s, Fq lse) {
          return s.value == Fq::kHidden
                     ? Fq{0}
                     : power_of_base(s.centred()) * field_power(lse, kFieldPrime - 2);
        },
        s, lse);
  }

  // ---- folded: the shift is m itself, and every rise counts
  struct Scaling {
    TESSERA_FN explicit Scaling(const AttentionArgs&) {}
  };
  static TESSERA_HD constexpr float sign(float) { return 1.0f; }
  static TESSERA_FN Lanes<bool> rose(const Lanes<Fq>& top, const Lanes<Fq>& m, const Scaling&) {
    return max(top, m) != m;
  }
  static TESSERA_FN Lanes<bool> wide(const Lanes<Fq>&, const Scaling&) { return false; }
  static TESSERA_FN Lanes<Fq> base(const Lanes<Fq>&, const Scaling&) { return zero(); }
  static TESSERA_FN Lanes<Fq> take_base(const Lanes<Fq>& s, const Lanes<Fq>&) {
    return s;  // 0 from hidden would be a score
  }
  static TESSERA_FN Lanes<Fq> shift(const Lanes<Fq>& m, const Scaling&) { return m; }
  static TESSERA_HD constexpr Fq unfit() { return hidden(); }
  // Any reference that is a score gives the same O: some sums are sent the long way for the test.
  static TESSERA_FN Lanes<bool> fits(const Lanes<Fq>& sum, const Lanes<Fq>& shift) {
    return apply([](Fq sum, Fq m) { return m.value != Fq::kHidden && sum.value % 64 != 0; }, sum,
                 shift);
  }
  static TESSERA_FN Lanes<Fq> folded_weight(const Lanes<Fq>& s, const Lanes<Fq>& shift,
                                            const Scaling&) {
    return weight(s, shift);
  }
  static TESSERA_FN Lanes<Fq> folded_rescale(const Lanes<Fq>& m_old, const Lanes<Fq>&,
                                             const Lanes<Fq>&, const Lanes<Fq>& shift_new,
                                             const Scaling&) {
    return weight(m_old, shift_new);
  }
  static TESSERA_FN Lanes<Fq> make_lse(const Lanes<Fq>& m, const Lanes<Fq>&, const Lanes<Fq>& l,
                                       const Scaling&) {
    return make_lse(m, l);
  }

  static TESSERA_FN Lanes<Fq> to_storage(const Lanes<Fq>& x) { return x; }
};

}  // namespace tessera
