# SPDX-License-Identifier: Apache-2.0
"""What is measured: a case is one problem, and contenders take turns at it."""
from __future__ import annotations

import itertools
from argparse import Namespace
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, Optional

DTYPES = ("bf16", "f16", "f32")
MASKS = ("none", "top_left", "bottom_right")
BASELINES = ("flash", "efficient", "cudnn", "math")
OURS = "tessera"


@dataclass(frozen=True)
class Case:
    """One problem: q is (batch, heads, q_len, head_dim), k and v have heads_kv and k_len."""

    dtype: str
    batch: int
    heads: int
    heads_kv: int
    q_len: int
    k_len: int
    head_dim: int
    causal: str  # one of MASKS

    @property
    def pairs(self) -> int:
        """Visible (query, key) pairs of one head."""
        return visible_pairs(self.q_len, self.k_len, self.causal)

    @property
    def flop(self) -> int:
        """Of the two products over the visible pairs."""
        return 4 * self.head_dim * self.pairs * self.batch * self.heads

    def __str__(self) -> str:
        heads = f"{self.heads}" if self.heads == self.heads_kv else f"{self.heads}/{self.heads_kv}"
        length = f"{self.q_len}" if self.q_len == self.k_len else f"{self.q_len}:{self.k_len}"
        return f"{self.dtype} {self.batch}x{heads}x{length} D={self.head_dim} causal={self.causal}"


class Contender(NamedTuple):
    """Who computes a case. None of `config`, `exp2`: the library chooses."""

    provider: str  # OURS, or "sdpa:" and one of BASELINES
    kernel: Optional[str] = None
    arch: Optional[str] = None
    config: Optional[str] = None
    exp2: Optional[str] = None

    @property
    def ours(self) -> bool:
        return self.provider == OURS

    def __str__(self) -> str:
        if not self.ours:
            return self.provider
        return " ".join(filter(None, (self.arch, self.config or "default", self.exp2)))


def visible_pairs(q_len: int, k_len: int, causal: str) -> int:
    """Pairs (i, j), j < k_len, with j <= i (top_left) or j <= i + k_len - q_len (bottom_right)."""
    if causal == "none":
        return q_len * k_len
    shift = k_len - q_len if causal == "bottom_right" else 0

    def up_to(last: int) -> int:  # the sum of min(t, k_len) over t = 1..last
        within = max(min(last, k_len), 0)
        return within * (within + 1) // 2 + max(last - k_len, 0) * k_len

    return up_to(q_len + shift) - up_to(shift)


def cases(options: Namespace) -> Iterator[Case]:
    """In the order in which a table is read."""
    for dtype, head_dim, causal, (batch, heads, length) in itertools.product(
        options.dtype, options.head_dim, options.causal, options.shapes
    ):
        k_len = length if options.k_len is None else options.k_len
        heads_kv = heads if options.heads_kv is None else options.heads_kv
        yield Case(dtype, batch, heads, heads_kv, length, k_len, head_dim, causal)


def contenders(
    case: Case, options: Namespace, kernels: list[dict[str, Any]], own_arch: str
) -> list[Contender]:
    """kernels: as tessera.kernels() lists them. The first baseline is what percentages refer to."""
    ours = [
        Contender(OURS, options.kernel, arch, config, exp2)
        for arch in options.arch or [own_arch]
        for config in _configs(case, options, kernels, arch)
        for exp2 in options.exp2
    ]
    return ours + [Contender(f"sdpa:{name}") for name in baselines(case.dtype, options)]


def baselines(dtype: str, options: Namespace) -> list[str]:
    if options.baseline is not None:
        return list(options.baseline)
    return ["efficient" if dtype == "f32" else "flash"]  # flash has no f32


def _configs(
    case: Case, options: Namespace, kernels: list[dict[str, Any]], arch: str
) -> list[str | None]:
    names: list[str | None] = []
    for name in options.config:
        if name == "all":
            names += built(kernels, options.kernel, arch, case.dtype, case.head_dim)
        else:
            names.append(None if name == "default" else name)
    return list(dict.fromkeys(names))


def built(
    kernels: list[dict[str, Any]], kernel: str, arch: str, dtype: str, head_dim: int
) -> list[str]:
    """The configurations that take such a case on a GPU; the default comes first."""
    rows = [row for found in kernels if found["name"] == kernel for row in found["configs"]]
    sizes = {size for row in rows for size in row["head_dims"] if head_dim <= size}
    return [row["config"] for row in rows if row["arch"] == arch and dtype in row["dtypes"]
            and "cuda" in row["targets"] and sizes and min(sizes) in row["head_dims"]]
