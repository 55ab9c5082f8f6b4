# SPDX-License-Identifier: Apache-2.0
"""The record, JSON lines, and the table. docs/python.md describes them."""
from __future__ import annotations

import json
import math
import os
import statistics
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from . import timing
from .cases import Case, Contender
from .measure import Outcome, tflops

Row = dict[str, Any]
# The worst of several runs is what a row gets.
_WORST = ("wrong", "impossible", "fell_back", "refused", "noisy", "ok")
FAILED = ("wrong", "impossible")
TILE = ("rows", "cols", "warps", "stages")  # of a configuration
_OF_RUN = ("card", "target", "tool", "limits", "torch", "commit")


def rows_of(
    case: Case, contenders: Sequence[Contender], runs: Sequence[Sequence[Outcome]], launch: str,
    warm: bool, kernels: Sequence[dict[str, Any]],
) -> list[Row]:
    """The rows of a case: runs holds, of every run so far, each contender's outcome.

    kernels: as tessera.kernels() lists them, for the tiles.
    """
    rows = [_row(case, contender, [run[i] for run in runs], launch, warm)
            for i, contender in enumerate(contenders)]
    for row in rows:
        if row["provider"] == "tessera":
            found = described(kernels, row)
            row["tile"] = found and {key: found[key] for key in TILE}
    first = next((row for row in rows if row["provider"] != "tessera"), None)
    for row in rows:
        row["baseline"] = first and first["provider"]
        if first and first["ms"] and row["ms"]:
            row["percent_of_sdpa"] = 100 * first["ms"]["median"] / row["ms"]["median"]
    return rows


def described(kernels: Sequence[dict[str, Any]], row: Row) -> dict[str, Any] | None:
    """The configuration of a row of ours, as tessera.kernels() lists it."""
    of_kernel = [found for kernel in kernels if kernel["name"] == row["kernel"]
                 for found in kernel["configs"]]
    fits = [found for found in of_kernel
            if all(found[key] == row[key] for key in ("arch", "config"))
            and row["dtype"] in found["dtypes"]
            and any(size >= row["head_dim"] for size in found["head_dims"])]
    return min(fits, default=None,
               key=lambda found: min(d for d in found["head_dims"] if d >= row["head_dim"]))


def _row(
    case: Case, contender: Contender, outcomes: Sequence[Outcome], launch: str, warm: bool
) -> Row:
    worst = min(outcomes, key=lambda outcome: _WORST.index(outcome.status))
    ran = next((outcome.ran for outcome in outcomes if outcome.ran), {})
    row: Row = {
        "record": "row",
        "provider": contender.provider,
        **{key: ran.get(key, getattr(contender, key))
           for key in ("kernel", "arch", "config")},
        "instance": ran.get("instance"),
        "exp2": ran.get("exp2", contender.exp2),
        **vars(case),
        "pairs": case.pairs,
        "flop": case.flop,
        "launch": launch,
        "warm": warm,
        "status": worst.status,
        "reason": worst.reason,
        "ms": None,
        "tflops": None,
        "error": worst.error,
        "difference": worst.difference,
        "call_us": None,
        "baseline": None,
        "percent_of_sdpa": None,
        "counters": None,
        "run_medians": None,
    }
    if contender.ours:
        row["requested_config"] = contender.config or "default"
    else:
        row["backend"], row["kernels"] = worst.backend, worst.kernels
    if worst.timed:
        medians = [timing.quantile(outcome.times, 0.5) for outcome in outcomes]
        every = [ms for outcome in outcomes for ms in outcome.times]
        row["ms"] = {**timing.statistics(every), "median": statistics.median(medians)}
        row["tflops"] = tflops(case, row["ms"]["median"])
        row["call_us"] = statistics.median(outcome.call_us for outcome in outcomes)
        row["run_medians"] = medians
    return row


def write(path: str, lines: Iterable[Row]) -> None:
    """All lines at once, so that a reader never sees half of a record. "-": standard output."""
    text = "".join(json.dumps(line, allow_nan=False, default=str) + "\n"
                   for line in map(_without_nan, lines))
    if path == "-":
        sys.stdout.write(text)
        return
    beside = Path(f"{path}.partial")
    beside.write_text(text, encoding="utf-8")
    os.replace(beside, path)


def _without_nan(value: Any) -> Any:
    """JSON has no NaN and no infinity: null and a text."""
    if isinstance(value, dict):
        return {key: _without_nan(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_without_nan(inner) for inner in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


def read(path: str | os.PathLike[str]) -> list[Row]:
    """The rows of a record, each with what its run says of itself (_OF_RUN).

    Raises ValueError naming the file, and the line, if it is none. Several runs may follow each
    other in one file.
    """
    rows: list[Row] = []
    run: Row | None = None
    with open(path, encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                entry = json.loads(line)
            except ValueError as error:
                raise ValueError(f"{path}:{number}: it is not JSON: {error}") from None
            kind = entry.get("record") if isinstance(entry, dict) else None
            if kind == "run":
                run = entry
            elif run is None:
                raise ValueError(f"{path}:{number}: a record begins with its run: "
                                 '{"record": "run", ...}')
            elif kind == "row":
                rows.append({**entry, **{key: run.get(key) for key in _OF_RUN}})
            elif kind != "end":
                raise ValueError(f"{path}:{number}: \"record\" is {kind!r}, none of run, row, end")
    if run is None:
        raise ValueError(f"{path}: it is empty")
    return rows


# The table


_NAMES = {"dtype": "type", "batch": "B", "heads": "H", "heads_kv": "Hkv", "q_len": "N",
          "k_len": "Nk", "head_dim": "D", "causal": "causal", "arch": "arch", "config": "config",
          "exp2": "exp2"}
_ALWAYS = ("q_len", "causal")


def table(rows: Sequence[Row]) -> str:
    """Ours beside each baseline. What is the same in all rows stands once, above."""
    ours = [row for row in rows if row["provider"] == "tessera"]
    theirs = list(dict.fromkeys(row["provider"] for row in rows if row["provider"] != "tessera"))
    shown = ours or rows
    if not shown:
        return "nothing was measured"
    same = {key for key in _NAMES if key not in _ALWAYS
            and len({str(row[key]) for row in shown}) == 1}
    same |= {key for key, like in (("k_len", "q_len"), ("heads_kv", "heads"))
             if all(row[key] == row[like] for row in shown)}
    varying = [key for key in _NAMES if key not in same]

    head = [_NAMES[key] for key in varying] + ["ours ms", "TFLOP/s"]
    for provider in theirs:
        name = provider.replace("sdpa:", "SDPA " if len(theirs) == 1 else "")
        head += [f"{name} ms", "TFLOP/s", "% of it"]
    lines = [head]
    for row in ours:
        line = [str(row[key]) if row[key] is not None else "-" for key in varying]
        line += _speed(row)
        notes = [_note("", row)]
        for provider in theirs:
            other = next((r for r in rows if r["provider"] == provider and same_case(r, row)), None)
            if other is None:  # not every type has every baseline
                line += ["-"] * 3
                continue
            both = row["ms"] and other["ms"]
            percent = f"{100 * other['ms']['median'] / row['ms']['median']:.1f}" if both else "-"
            line += [*_speed(other), percent]
            notes.append(_note(f"{provider}: ", other))
        lines.append([*line, "; ".join(filter(None, notes))])
    constant = ", ".join(f"{_NAMES[key]} {shown[0][key]}" for key in _NAMES
                         if key in same and shown[0][key] is not None
                         and not (key in ("k_len", "heads_kv")))
    return f"{constant}\n{_aligned(lines)}"


def _speed(row: Row) -> list[str]:
    return [f"{row['ms']['median']:.4f}", f"{row['tflops']:.1f}"] if row["ms"] else ["-", "-"]


def _note(whose: str, row: Row) -> str:
    if row["status"] == "ok":
        return ""
    reason = " ".join((row["reason"] or "").split())
    return f"{whose}{row['status']}: {reason[:90]}{'...' if len(reason) > 90 else ''}"


def _aligned(lines: Sequence[Sequence[str]]) -> str:
    count = len(lines[0])
    widths = [max(len(line[i]) for line in lines) for i in range(count)]
    cells = ([cell.rjust(width) for cell, width in zip(line, widths)] + list(line[count:])
             for line in lines)
    return "\n".join("  ".join(line).rstrip() for line in cells)


def same_case(a: Row, b: Row) -> bool:
    keys = ("dtype", "batch", "heads", "heads_kv", "q_len", "k_len", "head_dim", "causal")
    return all(a[key] == b[key] for key in keys)


def summary(rows: Sequence[Row]) -> str:
    """Geometric means of ours as a percentage of the first baseline, by arch, type and mask.

    Of several configurations of a case, the fastest counts.
    """
    best: dict[tuple[Any, ...], dict[tuple[Any, ...], float]] = {}
    several = False
    for row in rows:
        if row["provider"] != "tessera" or row["percent_of_sdpa"] is None:
            continue
        group = (row["arch"], row["dtype"], row["causal"], row["baseline"])
        case = tuple(row[key] for key in ("batch", "heads", "heads_kv", "q_len", "k_len",
                                          "head_dim"))
        cases = best.setdefault(group, {})
        several = several or case in cases
        cases[case] = max(row["percent_of_sdpa"], cases.get(case, 0.0))
    if not best:
        return ""
    title = "geometric mean of ours, as a percentage of SDPA"
    title += " (of each case the fastest configuration)" if several else ""
    lines = [["arch", "type", "causal", "cases", "%", "of"]]
    lines += [[*map(str, group[:3]), str(len(cases)), f"{geometric_mean(cases.values()):.1f}",
               group[3]] for group, cases in best.items()]
    return f"{title}\n{_aligned(lines)}"


def geometric_mean(values: Iterable[float]) -> float:
    logs = [math.log(value) for value in values]
    return math.exp(sum(logs) / len(logs))
