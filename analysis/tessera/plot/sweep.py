# SPDX-License-Identifier: Apache-2.0
"""Every configuration of a sweep: tiles of queries by keys, a panel for warps and stages."""
from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NamedTuple, Optional

from ..bench.record import TILE, described
from . import style
from .speed import MASKS, Row, _heads, _only


class Tile(NamedTuple):
    """Queries and keys of a tile, warps of a block, stages of the ring."""

    rows: int
    cols: int
    warps: int
    stages: int


def tile_of(row: Row, kernels: Sequence[dict[str, Any]] = ()) -> Optional[Tile]:
    """By the record's own field, else by the name (128x64-w4-s2), else as the library lists it."""
    if row.get("tile"):
        return Tile(*(row["tile"][key] for key in TILE))
    named = re.fullmatch(r"(\d+)x(\d+)-w(\d+)-s(\d+)", row["config"] or "")
    if named:
        return Tile(*map(int, named.groups()))
    found = described(kernels, row)
    return Tile(*(found[key] for key in TILE)) if found else None


def draw(
    rows: Sequence[Row], path: str, n: int | None = None, kernels: Sequence[dict[str, Any]] = ()
) -> None:
    """Rows of panels: head_dim and mask; the best of each is marked.

    n: a length; by default the longest. Grey is what was not measured; its text says why, if it
    was tried. Raises ValueError if the rows are not of one card, arch, dtype and batch x heads.
    """
    ours = [row for row in rows if row["provider"] == "tessera"]
    if not ours:
        raise ValueError("there is no row of ours")
    n = n or max(row["q_len"] for row in ours)
    ours = [row for row in ours if row["q_len"] == n]
    if not any(row["ms"] for row in ours):
        raise ValueError(f"no row of N = {n} was timed")
    for key in ("card", "arch", "dtype", "batch", "heads", "heads_kv", "k_len", "exp2", "launch"):
        _only([row for row in ours if row["ms"]], key)

    tiles = [tile_of(row, kernels) for row in ours]
    unknown = [row["config"] for row, tile in zip(ours, tiles) if tile is None and row["ms"]]
    if unknown:
        raise ValueError(f"neither the record nor the library says what {unknown[0]} is")
    known = [(row, tile) for row, tile in zip(ours, tiles) if tile]
    panels = sorted({(tile.warps, tile.stages) for _, tile in known})
    lines = sorted({(row["head_dim"], row["causal"]) for row, _ in known},
                   key=lambda line: (line[0], list(MASKS).index(line[1])))
    queries, keys = (sorted({tile[axis] for _, tile in known}) for axis in (0, 1))

    some = next(row for row in ours if row["ms"])
    title = f"{some['card']}: {some['kernel']}, {some['arch']}, {some['dtype']}, {_heads(ours)}, " \
            f"N = {style.tokens(n)}; TFLOP/s"
    size = (0.55 * len(keys) + 0.45, 0.5 * len(queries) + 0.55)
    shape = (len(lines), len(panels))
    with style.figure(*shape, title, size, sharex=True, sharey=True) as (made, axes):
        for across, (head_dim, causal) in zip(axes, lines):
            of_line = [(row, tile) for row, tile in known
                       if (row["head_dim"], row["causal"]) == (head_dim, causal)]
            best = max((row["tflops"] for row, _ in of_line if row["ms"]), default=None)
            slowest = min((row["tflops"] for row, _ in of_line if row["ms"]), default=None)
            for axis, panel in zip(across, panels):
                cells = _cells([(row, tile) for row, tile in of_line
                                if (tile.warps, tile.stages) == panel])
                image = _panel(axis, cells, queries, keys, slowest, best)
            if best is not None:
                made.colorbar(image, ax=list(across), pad=0.01, aspect=12)
            across[0].set_ylabel(f"D = {head_dim}, {MASKS.get(causal, causal)}\nqueries a tile")
        for axis, (warps, stages) in zip(axes[0], panels):
            axis.set_title(f"{warps} warps, {stages} stage{'s' if stages > 1 else ''}")
        for axis in axes[-1]:
            axis.set_xlabel("keys a tile")
        style.save(made, path)


def _cells(of_panel: Sequence[tuple[Row, Tile]]) -> dict[tuple[int, int], Row]:
    """By (queries, keys): of two configurations with one tile, the faster one."""
    cells: dict[tuple[int, int], Row] = {}
    for row, tile in of_panel:
        other = cells.get(tile[:2])
        if other is None or (row["tflops"] or 0) > (other["tflops"] or 0):
            cells[tile[:2]] = row
    return cells


def _panel(
    axis: Any, cells: dict[tuple[int, int], Row], queries: Sequence[int], keys: Sequence[int],
    slowest: float | None, best: float | None,
) -> Any:
    rate = {place: row["tflops"] for place, row in cells.items() if row["ms"]}
    grid = [[rate.get((q, k), float("nan")) for k in keys] for q in queries]
    axis.set_facecolor(style.GREY)
    axis.grid(False)
    image = axis.imshow(grid, style.HEAT, vmin=slowest, vmax=best, aspect="auto", origin="lower")
    for y, q in enumerate(queries):
        for x, k in enumerate(keys):
            row = cells.get((q, k))
            if row is None:
                continue
            text, colour = row["status"], "#404040"
            if row["ms"]:
                text = f"{row['tflops']:.0f}"
                dark = row["tflops"] - slowest < 0.6 * (best - slowest)
                colour = "white" if dark else "black"
            is_best = bool(row["ms"]) and row["tflops"] == best
            axis.text(x, y, text, ha="center", va="center", color=colour,
                      fontsize=8 if row["ms"] else 5.5, fontweight="bold" if is_best else None)
            if is_best:
                axis.add_patch(_frame(x, y))
    axis.set_xticks(range(len(keys)), keys)
    axis.set_yticks(range(len(queries)), queries)
    axis.tick_params(length=0)
    for line in range(1, len(keys)):
        axis.axvline(line - 0.5, color="white", linewidth=1.5)
    for line in range(1, len(queries)):
        axis.axhline(line - 0.5, color="white", linewidth=1.5)
    return image


def _frame(x: int, y: int) -> Any:
    from matplotlib.patches import Rectangle

    return Rectangle((x - 0.47, y - 0.47), 0.94, 0.94, fill=False, edgecolor=style.COLOURS[1],
                     linewidth=2.5, zorder=3)
