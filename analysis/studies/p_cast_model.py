# SPDX-License-Identifier: Apache-2.0
"""What rounding the weights P does to O, in NumPy float64: the reference, the kernel's own rounding
replayed, and the error that independent rounding errors would have.

Arrays of one case: scores (q_len, k_len) are scaled, q.k * scale; v is (k_len, head_dim).
"""
from __future__ import annotations

import dataclasses
import math

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

STORAGE = {"f16": np.float16, "bf16": ml_dtypes.bfloat16}
UNIT_ROUNDOFF = {"f16": 2.0**-11, "bf16": 2.0**-8, "bf16x2": 2.0**-16, "f32": 2.0**-24}
SMALLEST_NORMAL = {"f16": 2.0**-14, "bf16": 2.0**-126}
TILE_KEYS = 32  # of the configuration 64x32
SLACK = 5.0  # powers of two that scores may rise by before the reference follows (element.h)


def representable(x: NDArray[np.float32]) -> NDArray[np.float32]:
    """The nearest numbers, or nearly, that fp32, fp16 and bf16 all hold."""
    for kind in (ml_dtypes.bfloat16, np.float16):  # fp16 only cuts what it holds as subnormal
        x = x.astype(kind).astype(np.float32)
    return x


def rounded(x: Array, dtype: str) -> Array:
    """x to the nearest of "f16" or "bf16"; "bf16x2": that in bf16, and the rest in bf16, added."""
    if dtype == "bf16x2":
        high = rounded(x, "bf16")
        return high + rounded(x - high, "bf16")
    return x.astype(STORAGE[dtype]).astype(np.float64)


def reference(scores: Array, v: Array) -> tuple[Array, Array]:
    """O, and sum_j P_ij |V_jd|, the unit of its errors; both (q_len, head_dim)."""
    p = np.exp(scores - scores.max(axis=1, keepdims=True))
    p /= p.sum(axis=1, keepdims=True)
    return p @ v, p @ abs(v)


@dataclasses.dataclass
class Weights:
    """P before it is divided by l, as the kernel holds it when it is rounded.

    w (q_len, k_len) is each weight against the reference m of its tile; factor (q_len, k_len), what
    later rescaling multiplies it by; l (q_len, 1), the sum of their products.
    """

    w: Array
    factor: Array
    l: Array

    @classmethod
    def of(cls, scores: Array, slack: float = SLACK) -> Weights:
        """slack 0: the reference is the running maximum, as in FlashAttention-2."""
        powers = scores * math.log2(math.e)
        first = np.arange(0, scores.shape[1], TILE_KEYS)
        tops = np.maximum.reduceat(powers, first, axis=1)  # (q_len, tiles)
        m = tops.copy()
        for j in range(1, m.shape[1]):
            m[:, j] = np.where(tops[:, j] - m[:, j - 1] > slack, tops[:, j], m[:, j - 1])
        of_key = np.repeat(m, TILE_KEYS, axis=1)[:, :scores.shape[1]]
        w, factor = np.exp2(powers - of_key), np.exp2(of_key - m[:, -1:])
        return cls(w, factor, (w * factor).sum(axis=1, keepdims=True))

    def output(self, v: Array, dtype: str, *, raised: int = 0, rounded_sum: bool = False) -> Array:
        """O from weights rounded times 2^raised; l is of the unrounded, or of the rounded."""
        p = rounded(self.w * 2.0**raised, dtype) * 2.0**-raised * self.factor
        return (p @ v) / (p.sum(axis=1, keepdims=True) if rounded_sum else self.l)

    def sum_error(self, dtype: str) -> Array:
        """By what share the rounded weights' sum differs from l: (q_len,)."""
        return ((rounded(self.w, dtype) - self.w) * self.factor).sum(axis=1) / self.l[:, 0]

    def expected_square(self, v: Array, dtype: str) -> float:
        """Expected ||error of O||^2, if the weights' errors are uniform and independent.

        A number in [2^e, 2^(e+1)) has an error within u 2^e, so of variance (u 2^e)^2 / 3.
        """
        half = UNIT_ROUNDOFF[dtype] * np.exp2(np.floor(np.log2(
            np.maximum(self.w, SMALLEST_NORMAL[dtype]))))
        error = np.where(self.w == 1.0, 0.0, np.minimum(half / math.sqrt(3.0), self.w))
        return float((((error * self.factor / self.l) ** 2) @ (v**2).sum(axis=1)).sum())
