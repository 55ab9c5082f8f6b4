# SPDX-License-Identifier: Apache-2.0
"""TFLOP/s, and the percentage of SDPA, against the length."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from . import style

Row = dict[str, Any]
MASKS = {"none": "no mask", "top_left": "causal", "bottom_right": "causal, bottom-right"}
_NAMES = {"sdpa:flash": "SDPA flash", "sdpa:efficient": "SDPA memory-efficient",
          "sdpa:cudnn": "SDPA cuDNN", "sdpa:math": "SDPA math"}


def draw(rows: Sequence[Row], path: str) -> None:
    """Panels: head_dim x mask. Lines: the providers.

    Raises ValueError if the rows are not one table: one dtype and one card; and for one line, panel
    and length one row.
    """
    timed = [row for row in rows if row["ms"]]
    if not timed:
        raise ValueError("no row was timed")
    dtype, card = (_only(timed, key) for key in ("dtype", "card"))
    panels = list(dict.fromkeys((row["head_dim"], row["causal"]) for row in timed))
    names = _line_names(timed)
    lines = list(dict.fromkeys(names))
    lengths = sorted({row["q_len"] for row in timed})
    percent = any(row["percent_of_sdpa"] is not None for row in timed)

    title = f"{card}: forward, {dtype}, {_heads(timed)}"
    with style.figure(1 + percent, len(panels), title, sharex=True, sharey="row") as (made, axes):
        for column, (head_dim, causal) in enumerate(panels):
            axes[0, column].set_title(f"D = {head_dim}, {MASKS.get(causal, causal)}")
            for index, line in enumerate(lines):
                points = [row for row, name in zip(timed, names) if name == line
                          and (row["head_dim"], row["causal"]) == (head_dim, causal)]
                look = {"color": style.COLOURS[index % 7], "marker": style.MARKERS[index % 7]}
                _line(axes[0, column], points, line, look)
                if percent and points and points[0]["provider"] == "tessera":
                    _percent(axes[1, column], points, look)
            _limit(axes[0, column], timed[0], column == 0)
        for axis in axes[-1]:
            axis.set_xscale("log", base=2)
            axis.set_xticks(lengths, [_tick(timed, n) for n in lengths])
            axis.minorticks_off()
            axis.set_xlabel("N, queries and keys")
        axes[0, 0].set_ylabel("TFLOP/s")
        axes[0, 0].set_ylim(bottom=0)
        if percent:
            baseline = next(row["baseline"] for row in timed if row["baseline"])
            axes[1, 0].set_ylabel(f"% of {_NAMES.get(baseline, baseline)}")
            for axis in axes[1]:
                axis.axhline(100, color="#7f7f7f", linewidth=1)
        handles, labels = axes[0, 0].get_legend_handles_labels()
        made.legend(handles, labels, loc="outside lower center", ncols=min(len(labels), 4))
        style.save(made, path)


def _line(axis: Any, points: Sequence[Row], line: str, look: dict[str, Any]) -> None:
    """A median's bar goes from p20 to p80 of the times."""
    points = sorted(points, key=lambda row: row["q_len"])
    rate = [row["tflops"] for row in points]
    by_ms = [row["tflops"] * row["ms"]["median"] for row in points]
    low = [max(r - x / row["ms"]["p80"], 0) for r, x, row in zip(rate, by_ms, points)]
    high = [max(x / row["ms"]["p20"] - r, 0) for r, x, row in zip(rate, by_ms, points)]
    lengths = [row["q_len"] for row in points]
    axis.errorbar(lengths, rate, [low, high], label=line, capsize=2, **look)


def _percent(axis: Any, points: Sequence[Row], look: dict[str, Any]) -> None:
    shown = sorted((row["q_len"], row["percent_of_sdpa"]) for row in points
                   if row["percent_of_sdpa"] is not None)
    axis.plot([n for n, _ in shown], [value for _, value in shown], **look)
    for n, value in shown:
        axis.annotate(f"{value:.0f}", (n, value), (0, 5), textcoords="offset points",
                      ha="center", fontsize=7.5, color=look["color"])
    axis.margins(y=0.2)


def _limit(axis: Any, row: Row, labelled: bool) -> None:
    limits = row.get("limits") or {}
    limit = limits.get("ffma_tflops") if row["dtype"] == "f32" else (
        (limits.get("mma_tflops") or {}).get(row["dtype"]))
    if limit:
        name = "FFMA" if row["dtype"] == "f32" else "mma.sync"
        axis.axhline(limit, color="#7f7f7f", linewidth=1, linestyle=(0, (4, 2)),
                     label=f"{name} alone" if labelled else None)


def _line_names(rows: Sequence[Row]) -> list[str]:
    """What tells the lines apart; ours by what differs among them."""
    ours = [row for row in rows if row["provider"] == "tessera"]

    def said(row: Row, key: str) -> Any:  # which one the default is, may differ with the length
        return row.get("requested_config", row[key]) if key == "config" else row[key]

    panels = [[row for row in ours if (row["head_dim"], row["causal"]) == panel]
              for panel in {(row["head_dim"], row["causal"]) for row in ours}]
    told = [key for key in ("arch", "config", "exp2", "launch", "warm")
            if any(len({said(row, key) for row in panel}) > 1 for panel in panels)]

    def name(row: Row) -> str:
        if row["provider"] != "tessera":
            return _NAMES.get(row["provider"], row["provider"])
        return " ".join(["Tessera", *(f"warm {row[key]}" if key == "warm" else str(said(row, key))
                                      for key in told)])

    names = [name(row) for row in rows]
    met: set[tuple[Any, ...]] = set()
    for row, line in zip(rows, names):
        point = (line, row["head_dim"], row["causal"], row["q_len"])
        if point in met:
            raise ValueError(f"{line} has several rows at N = {row['q_len']}, D = "
                             f"{row['head_dim']}, {row['causal']}: choose one batch, heads, k_len")
        met.add(point)
    return names


def _only(rows: Sequence[Row], key: str) -> Any:
    values = sorted({str(row[key]) for row in rows})
    if len(values) > 1:
        raise ValueError(f"{key}: a figure shows one, and there are {', '.join(values)}")
    return rows[0][key]


def _heads(rows: Sequence[Row]) -> str:
    shapes = sorted({(row["batch"], row["heads"], row["heads_kv"]) for row in rows})
    if len({batch for batch, _, _ in shapes}) > 1:
        return "B by the length"
    batch, heads, heads_kv = shapes[0]
    return f"B = {batch}, H = {heads}" + (f" over {heads_kv}" if heads_kv != heads else "")


def _tick(rows: Sequence[Row], n: int) -> str:
    batches = sorted({row["batch"] for row in rows if row["q_len"] == n})
    several = len({row["batch"] for row in rows}) > 1
    return style.tokens(n) + (f"\nB = {', '.join(map(str, batches))}" if several else "")
