# SPDX-License-Identifier: Apache-2.0
"""Are the results right? All functions take torch's tensors, on whatever device."""
from __future__ import annotations

import sys
from typing import Any

from .cases import Case

ROWS = 64  # of each head's queries, that float64 is computed for
UNIT_ROUNDOFF = {"f32": 2.0**-24, "f16": 2.0**-11, "bf16": 2.0**-8}
# Of SDPA by float64: it may round once more than our kernels do, as its f32 does by 3xTF32.
SDPA_FACTOR = 4.0
Tensor = Any


def sampled(length: int) -> list[int]:
    """Indices of up to ROWS queries, the first and the last among them."""
    count = min(length, ROWS)
    return sorted({i * (length - 1) // max(count - 1, 1) for i in range(count)})


class Reference:
    """O in float64 for sampled queries of every head, and how far from it a kernel may be.

    The bound is reference/attention.h's: P and O are rounded to storage once each; the rest is
    fp32's arithmetic, and for f16 the spacing of its subnormals.
    """

    def __init__(self, case: Case, q: Tensor, k: Tensor, v: Tensor) -> None:
        torch = sys.modules["torch"]
        self.rows = torch.tensor(sampled(case.q_len), device=q.device)
        shift = case.k_len - case.q_len if case.causal == "bottom_right" else 0
        keys = torch.arange(case.k_len, device=q.device)
        visible = keys <= (self.rows + shift)[:, None]
        if case.causal == "none":
            visible = torch.ones_like(visible)
        self.against = f"float64, {len(self.rows)} rows of each head"

        group = case.heads // case.heads_kv
        shape = (case.batch, case.heads, len(self.rows), case.head_dim)
        self.want, self.allowed = (
            torch.empty(shape, dtype=torch.float64, device=q.device) for _ in range(2)
        )
        for b in range(case.batch):
            for h in range(case.heads_kv):  # one at a time: scores of a long case are large
                heads = slice(h * group, (h + 1) * group)
                tensors = (q[b, heads][:, self.rows], k[b, h], v[b, h])
                self.want[b, heads], self.allowed[b, heads] = _attention(
                    case, visible, *(x.double() for x in tensors)
                )

    def error(self, got: Tensor, factor: float = 1.0) -> tuple[dict[str, Any], bool]:
        """The record's `error`, and whether each element is within `factor` times the bound."""
        wrong = (got[:, :, self.rows].double() - self.want).abs()
        passed = bool((wrong <= factor * self.allowed).all())  # False where it is NaN
        relative = wrong.norm() / self.want.norm()
        return {"max_abs": wrong.max().item(), "relative": relative.item(),
                "against": self.against}, passed


def _attention(case: Case, visible: Tensor, q: Tensor, k: Tensor, v: Tensor) -> tuple[Any, Any]:
    """Of one key head, all in float64: q (heads, rows, D), k and v (k_len, D)."""
    torch = sys.modules["torch"]
    scale = case.head_dim**-0.5
    score = (scale * q @ k.T).masked_fill(~visible, -torch.inf)
    largest = score.amax(dim=2, keepdim=True).nan_to_num(neginf=0.0)  # a row may see no key
    weight = torch.exp(score - largest)
    total = weight.sum(dim=2, keepdim=True)
    inverse = torch.where(total > 0, 1 / total, 0.0)
    probability = weight * inverse

    unit, fp32 = UNIT_ROUNDOFF[case.dtype], UNIT_ROUNDOFF["f32"]
    score_size = case.head_dim * scale * q.abs().amax(dim=2, keepdim=True) * k.abs().max()
    allowed = 2 * unit * (probability @ v.abs()) + 4 * fp32 * (score_size + 4) * v.abs().max()
    if case.dtype == "f16":
        allowed += 2.0**-25 * (1 + visible.double() @ v.abs() * inverse)
    return probability @ v, allowed


def difference(got: Tensor, want: Tensor) -> tuple[float, float]:
    """Largest |got - want|; and of blocks of 64 rows the largest norm of that, over want's norm.

    Both NaN where one element is.
    """
    torch = sys.modules["torch"]
    worst = torch.zeros(2, device=got.device)
    for g, w in zip(got.split(64, dim=2), want.split(64, dim=2)):
        error = g.float() - w.float()
        norms = error.norm(dim=(2, 3)) / w.float().norm(dim=(2, 3)).clamp(min=2.0**-60)
        worst = torch.maximum(worst, torch.stack([error.abs().max(), norms.max()]))  # keeps NaN
    largest, relative = worst.tolist()
    return largest, relative


def difference_allowed(dtype: str) -> float:
    """Of difference()'s second: where a tile is wrong, that is about 1."""
    return max(4 * UNIT_ROUNDOFF[dtype], 2.0**-12)


def same_bits(got: Tensor, want: Tensor) -> bool:
    torch = sys.modules["torch"]
    integer = {2: torch.int16, 4: torch.int32}[got.element_size()]
    return torch.equal(got.view(integer), want.view(integer))
