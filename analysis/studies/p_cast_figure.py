# SPDX-License-Identifier: Apache-2.0
"""The figure of docs/p-cast.md, from the record of p_cast.py."""
from __future__ import annotations

from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from tessera.plot import style

COLOURS = {**dict(zip(("f16", "bf16", "bf16x2"), style.COLOURS)), "f32": "#555555"}
NAMES = {"f16": "fp16", "bf16": "bf16", "bf16x2": "two bf16"}
MARKERS = {"f16": "o", "bf16": "s", "bf16x2": "^", "f32": "D"}
WHOLE: dict[str, Any] = {"linestyle": ":", "linewidth": 1.3}
EXPECTED: dict[str, Any] = {"linewidth": 4.5, "alpha": 0.25}
OTHERWISE: dict[str, Any] = {"linestyle": (0, (5, 2)), "linewidth": 1.1}
Points = list[dict[str, Any]]


def _line(axes: Axes, points: Points, x: str, line: str, **look: Any) -> None:
    axes.plot([p[x] for p in points], [p["lines"][line]["relative"] for p in points],
              color=COLOURS[line.rsplit("_", 1)[1]], **look)


def _casts(axes: Axes, points: Points, x: str, title: str, label: str) -> None:
    """The casts of P alone over their expected errors, P kept, and the 16-bit kernels."""
    for dtype in ("bf16", "f16"):
        _line(axes, points, x, f"expected_{dtype}", **EXPECTED)
        _line(axes, points, x, f"kernel_{dtype}", **WHOLE)
        _line(axes, points, x, f"cast_{dtype}", marker=MARKERS[dtype])
    _line(axes, points, x, "cast_bf16x2", marker=MARKERS["bf16x2"])
    _line(axes, points, x, "kept_f32", marker=MARKERS["f32"], markersize=3)
    axes.set(xscale="log", yscale="log", ylim=(1e-7, 1e-2), xlabel=label)
    axes.set_title(title, loc="left")


def _key() -> list[Line2D]:
    def entry(label: str, colour: str = "#222222", **look: Any) -> Line2D:
        return Line2D([], [], color=colour, label=label, **look)

    return [
        *(entry(f"P cast to {NAMES[d]}", COLOURS[d], marker=MARKERS[d]) for d in NAMES),
        entry("P kept in fp32", COLOURS["f32"], marker=MARKERS["f32"], markersize=3),
        entry("whole error of the 16-bit kernel", **WHOLE),
        entry("expected of independent rounding errors", **EXPECTED),
        entry("c: with the running maximum", **OTHERWISE),
        entry("d: fp16, weights times 2$^7$", **OTHERWISE),
    ]


def draw(record: dict[str, Any], path: Path) -> None:
    sweep: Points = record["sweep"]
    title = "Relative error of O against float64"
    with style.figure(2, 2, title, size=(4.6, 3.3)) as (figure, axes):
        for at, mean, title in ((axes[0, 0], 0, "a   V of mean 0, scores N(0, 1)"),
                                (axes[0, 1], 1, "b   V of mean 1, scores N(0, 1)")):
            points = [p for p in sweep if p["spread"] == 1 and p["mean"] == mean]
            _casts(at, points, "k_len", title, "keys N")
            lengths = [p["k_len"] for p in points]
            at.set_xticks(lengths, [style.tokens(n) for n in lengths])
            at.minorticks_off()

        points = [p for p in sweep if p["k_len"] == 4096 and p["mean"] == 1]
        _casts(axes[1, 0], points, "spread", "c   V of mean 1, N = 4096",
               "standard deviation of the scores")
        for dtype in ("bf16", "f16"):
            _line(axes[1, 0], points, "spread", f"runningmax_{dtype}", **OTHERWISE)

        points = record["sinks"]
        _casts(axes[1, 1], points, "sink", "d   the first key outweighs the others, N = 4096",
               "score of the first key, beside N(0, 1)")
        _line(axes[1, 1], points, "sink", "raised_f16", **OTHERWISE)
        axes[1, 1].set(xscale="linear", ylim=(1e-7, 3))

        figure.legend(handles=_key(), loc="outside lower center", ncols=4, fontsize=8)
        style.save(figure, path)
