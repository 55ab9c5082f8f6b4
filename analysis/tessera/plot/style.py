# SPDX-License-Identifier: Apache-2.0
"""How the figures of the docs look, and how they are written: the same bytes every time.

>>> with style.figure(2, 3, "P rounded to bf16") as (figure, axes):
...     axes[0, 0].plot(x, y, color=style.COLOURS[0])
...     style.save(figure, "docs/results/h200/p_cast.svg")
"""
from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.figure import Figure

# Okabe and Ito's: every kind of colour vision tells them apart. Markers do so without colour.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
GREY = "#d9d9d9"
HEAT = "viridis"  # lightness alone orders it, and none of it looks like GREY
FORMATS = (".svg", ".png")

_RC = {
    "font.family": "DejaVu Sans",  # comes with matplotlib
    "font.size": 9,
    "axes.titlesize": 9.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#e6e6e6",
    "grid.linewidth": 0.7,
    "axes.axisbelow": True,
    "lines.linewidth": 1.6,
    "lines.markersize": 4.5,
    "legend.frameon": False,
    "figure.titlesize": 10.5,
    "figure.facecolor": "white",  # GitHub's dark mode has no other
    "savefig.dpi": 160,
    "svg.hashsalt": "tessera",
}


@contextlib.contextmanager
def figure(
    rows: int, columns: int, title: str, size: tuple[float, float] = (3.2, 2.6), **axes: Any
) -> Iterator[tuple[Figure, Any]]:
    """A figure of rows x columns axes, an array of rank 2, each of `size` inches.

    axes: further arguments of Figure.subplots. Draw and save() inside of the `with` block.
    """
    with matplotlib.rc_context(_RC):
        made = Figure(figsize=(size[0] * columns, size[1] * rows + 0.5), layout="constrained")
        made.suptitle(title)
        yield made, made.subplots(rows, columns, squeeze=False, **axes)


def save(made: Figure, path: str | os.PathLike[str]) -> None:
    """As SVG or PNG, by the name's end. Raises ValueError for another end."""
    kind = check_format(path)
    # Neither a date nor matplotlib's version: a figure changes when what it shows does.
    metadata = {"Date": None, "Creator": None} if kind == ".svg" else {"Software": None}
    made.savefig(path, format=kind[1:], metadata=metadata)


def check_format(path: str | os.PathLike[str]) -> str:
    kind = Path(path).suffix.lower()
    if kind not in FORMATS:
        raise ValueError(f"{path}: a figure is one of {', '.join(FORMATS)}")
    return kind


def tokens(count: int) -> str:
    """512, 4k."""
    return f"{count // 1024}k" if count >= 1024 and count % 1024 == 0 else str(count)
