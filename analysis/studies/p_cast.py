# SPDX-License-Identifier: Apache-2.0
"""How much of O's error is the cast of P: docs/p-cast.md.

flash_forward on the emulator, in fp32 with its weights kept or rounded before P V, and in fp16 and
bf16, against float64. Inputs are numbers that all three types hold, so nothing else differs.

    python analysis/studies/p_cast.py --json docs/results/cpu/p_cast.json \\
        --figure docs/results/cpu/p_cast.svg

takes some minutes; the same numbers come out on every machine.
"""
from __future__ import annotations

import json
import math
import sys
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # the sources beside this file
import tessera
from p_cast_model import STORAGE, UNIT_ROUNDOFF, Array, Weights, reference, representable, rounded

SEEDS, Q_LEN, HEAD_DIM = 4, 128, 64
LENGTHS = [64 << i for i in range(9)]  # 64 .. 16384
SPREADS = [0.001, 0.01, 0.1, 0.3, 1.0, 3.0, 10.0]  # standard deviations of the scaled scores
MEANS = [0.0, 1.0]  # of V, whose standard deviation is 1
SINK_LENGTH, SINK_SCORES = 4096, list(range(0, 25, 2))  # of the first key; the others: N(0, 1)

# Lines that the emulator runs: (type of the inputs, arch and so the card, configuration, numerics).
# A line's name ends with the type whose unit roundoff measures its error.
RUNS = {
    "kept_f32": ("f32", "sm_89", "64x32", "exact"),
    "cast_f16": ("f32", "sm_89", "64x32-p-f16", "exact"),
    "cast_bf16": ("f32", "sm_89", "64x32-p-bf16", "exact"),
    "cast_bf16x2": ("f32", "sm_89", "64x32-p-bf16x2", "exact"),
    "kernel_f16": ("f16", "sm_89", "128x64", "exact"),
    "kernel_bf16": ("bf16", "sm_89", "128x64", "exact"),
    "kernel_h200_f16": ("f16", "sm_90", "128x64", "exact"),
    "kernel_fma_f16": ("f16", "sm_89", "128x64", "fma"),
}
Inputs = tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.float32], float]
Point = dict[str, Any]


def inputs(k_len: int, spread: float, mean: float, sink: float | None = None) -> Inputs:
    """q, k, v (SEEDS, 1, length, HEAD_DIM) and the scale that gives the scores their spread.

    With a sink, the first key has this score for every query, and the value 0.
    """
    def draw(length: int, tensor: int) -> NDArray[np.float32]:
        one = (1, length, HEAD_DIM)
        return np.stack([tessera.random(one, np.float32, seed, tensor) for seed in range(SEEDS)])

    q, k = representable(draw(Q_LEN, 0)), representable(draw(k_len, 1))
    v = representable(draw(k_len, 2) + np.float32(mean))
    scale = spread / math.sqrt(HEAD_DIM)
    if sink is not None:
        k[:, :, 0, :], v[:, :, 0, :], k[..., -1] = 0.0, 0.0, 0.0
        q[..., -1], k[:, :, 0, -1] = 1.0 / scale, sink
    return q, k, v, scale


def run(line: str, q: Any, k: Any, v: Any, scale: float) -> Array:
    """O (SEEDS, q_len, HEAD_DIM) of one of RUNS."""
    dtype, arch, config, numerics = RUNS[line]
    kind = STORAGE.get(dtype, np.float32)
    o = tessera.attention(*(x.astype(kind) for x in (q, k, v)), scale=scale, arch=arch,
                          config=config, numerics=numerics, exp2="soft")
    return o[:, 0].astype(np.float64)


class Errors:
    """Errors of one line, seed by seed."""

    def __init__(self, unit: float) -> None:
        self.unit, self.largest = unit, 0.0
        self.squares: list[float] = []
        self.norms: list[float] = []

    def add(self, o: Array, want: Array, size: Array) -> None:
        self.add_square(float(((o - want) ** 2).sum()), want)
        self.largest = max(self.largest, float((abs(o - want) / size).max()))

    def add_square(self, square: float, want: Array) -> None:
        self.squares.append(square)
        self.norms.append(float((want**2).sum()))

    def result(self) -> Point:
        """relative: ||O - ref|| / ||ref|| over all seeds; low, high: of single seeds.

        max_u: the greatest |O - ref| / (u sum_j P_ij |V_jd|), u the unit roundoff.
        """
        each = [math.sqrt(s / n) for s, n in zip(self.squares, self.norms)]
        result = {"relative": math.sqrt(sum(self.squares) / sum(self.norms)),
                  "low": min(each), "high": max(each)}
        if self.largest:
            result["max_u"] = self.largest / self.unit
        return {name: digits(x) for name, x in result.items()}


def digits(x: float) -> float:
    return float(f"{x:.4g}")


def measure(k_len: int, spread: float, mean: float, sink: float | None = None) -> Point:
    """All lines at one point. Beside RUNS, for f16 and bf16:

    store: the reference, rounded to the type. model: the kernel's rounding of P, replayed;
    roundedsum: the same, with l summed from the rounded weights; runningmax (without a sink): with
    the running maximum for the reference; raised (with a sink): with weights rounded times 2^7.
    expected: independent rounding errors.
    sum_error: the rounded weights' sum over l, less 1: its mean over all rows, and its rms.
    """
    q, k, v, scale = inputs(k_len, spread, mean, sink)
    o = {line: run(line, q, k, v, scale) for line in RUNS}
    lines: dict[str, Errors] = {}
    sums: dict[str, list[Array]] = {dtype: [] for dtype in STORAGE}
    heaviest = 0.0

    def errors(line: str) -> Errors:
        return lines.setdefault(line, Errors(UNIT_ROUNDOFF[line.rsplit("_", 1)[1]]))

    for seed in range(SEEDS):
        q64, k64, v64 = (x[seed, 0].astype(np.float64) for x in (q, k, v))
        scores = q64 @ k64.T * scale
        want, size = reference(scores, v64)
        lazy = Weights.of(scores)
        running = Weights.of(scores, slack=0.0) if sink is None else None
        heaviest = max(heaviest, float(lazy.w.max()))
        for line in RUNS:
            errors(line).add(o[line][seed], want, size)
        for dtype in STORAGE:
            errors(f"store_{dtype}").add(rounded(want, dtype), want, size)
            errors(f"model_{dtype}").add(lazy.output(v64, dtype), want, size)
            errors(f"roundedsum_{dtype}").add(lazy.output(v64, dtype, rounded_sum=True), want, size)
            if running:
                errors(f"runningmax_{dtype}").add(running.output(v64, dtype), want, size)
            else:
                errors(f"raised_{dtype}").add(lazy.output(v64, dtype, raised=7), want, size)
            errors(f"expected_{dtype}").add_square(lazy.expected_square(v64, dtype), want)
            sums[dtype].append(lazy.sum_error(dtype))
    point: Point = {"k_len": k_len, "spread": spread, "mean": mean}
    if sink is not None:
        point["sink"] = sink
    point["lines"] = {line: e.result() for line, e in lines.items()}
    point["sum_error"] = {
        dtype: {"mean": digits(float(np.mean(s))),
                "rms": digits(math.sqrt(float(np.mean(np.square(s)))))}
        for dtype, s in sums.items()}
    point["heaviest_weight"] = digits(heaviest)
    return point


def study() -> dict[str, Any]:
    """The committed record. One draw of a longer length begins with the shorter one's keys."""
    sweep = [measure(n, spread, mean) for mean in MEANS for spread in SPREADS for n in LENGTHS]
    sinks = [measure(SINK_LENGTH, 1.0, 1.0, float(score)) for score in SINK_SCORES]
    return {"seeds": SEEDS, "q_len": Q_LEN, "head_dim": HEAD_DIM, "runs": RUNS,
            "unit_roundoff": UNIT_ROUNDOFF, "sweep": sweep, "sinks": sinks}


def text_of(record: dict[str, Any]) -> str:
    """JSON, a line a point."""
    def field(name: str, value: Any) -> str:
        if name not in ("sweep", "sinks"):
            return f"{json.dumps(name)}: {json.dumps(value)}"
        points = ",\n".join("  " + json.dumps(point) for point in value)
        return f"{json.dumps(name)}: [\n{points}\n]"

    return "{\n" + ",\n".join(field(*item) for item in record.items()) + "\n}\n"


def main() -> None:
    parser = ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--json", type=Path, required=True, metavar="FILE", help="the record")
    parser.add_argument("--figure", type=Path, metavar="FILE", help="drawn from the record")
    parser.add_argument("--only-draw", action="store_true", help="read the record, do not measure")
    args = parser.parse_args()
    if not args.only_draw:
        args.json.write_text(text_of(study()))
    if args.figure:
        from p_cast_figure import draw  # matplotlib

        draw(json.loads(args.json.read_text()), args.figure)


if __name__ == "__main__":
    main()
