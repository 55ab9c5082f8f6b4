# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import datetime
import subprocess
import sys
import time
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import tessera

from . import record
from .cases import DTYPES, Case, Contender, cases, contenders
from .gpu import Gpu, Missing, rate_limit
from .measure import Bench, Outcome
from .options import parse


def main(arguments: Sequence[str] | None = None, make_gpu: Any = Gpu) -> int:
    """The command; returns its exit code."""
    options = parse(arguments)
    try:
        gpu = make_gpu()
        kernels = tessera.kernels()
    except (Missing, OSError) as why:  # OSError: the library
        say(f"tessera.bench: {why}")
        return 3
    if options.kernel not in [kernel["name"] for kernel in kernels]:
        say(f"tessera.bench: --kernel: there is no {options.kernel}")
        return 2

    begin = time.monotonic()
    limits = {dtype: options.peak_tflops or rate_limit(dtype) for dtype in DTYPES}
    lines = [head(gpu, options, limits)]
    say(f"{lines[0]['card']}, driver {lines[0]['driver']}, torch {lines[0]['torch']}, "
        f"commit {lines[0]['commit']}, limits {limits} TFLOP/s")
    plan = [(case, contenders(case, options, kernels, gpu.arch())) for case in cases(options)]
    runs: list[list[list[Outcome]]] = [[] for _ in plan]  # of each case, of each run
    bench = Bench(gpu, options, limits)

    def rows() -> list[record.Row]:
        return [row for (case, by), done in zip(plan, runs) if done
                for row in record.rows_of(case, by, done, options.launch, options.warm,
                                             kernels)]

    for run in range(options.repeat_runs):
        for number, (case, by) in enumerate(plan):
            runs[number].append(bench.run(case, by, options.seed + run))
            progress(run, options.repeat_runs, number, plan, runs[number][-1])
            if options.json not in (None, "-"):
                record.write(options.json, [*lines, *rows()])

    end = {"record": "end", "clocks_after": gpu.clocks(), "seconds": time.monotonic() - begin}
    done = rows()
    if options.json:
        record.write(options.json, [*lines, *done, end])
    text = "\n\n".join(filter(None, (record.table(done), record.summary(done))))
    print(text, file=sys.stderr if options.json == "-" else sys.stdout)
    return verdict(done)


def verdict(rows: Sequence[record.Row]) -> int:
    """The exit code: 1 if a row is wrong or impossible, 3 if all were refused."""
    failed = [row for row in rows if row["status"] in record.FAILED]
    for row in failed:
        name = " ".join(str(row[key]) for key in ("provider", "arch", "config", "exp2") if row[key])
        say(f"{row['status']}: {name}, {case_of(row)}: {row['reason']}")
    if failed:
        return 1
    if not any(row["ms"] for row in rows if row["provider"] == "tessera"):
        say("tessera.bench: nothing of the table runs here")
        return 3
    return 0


def case_of(row: record.Row) -> Case:
    return Case(**{key: row[key] for key in Case.__dataclass_fields__})


def head(gpu: Gpu, options: Namespace, limits: dict[str, float | None]) -> dict[str, Any]:
    """The record's first line."""
    now = datetime.datetime.now(datetime.timezone.utc)
    shown = {key: value for key, value in vars(options).items() if key not in ("json", "commit")}
    known = any(limit is not None for limit in limits.values())
    return {
        "record": "run",
        "tool": "tessera.bench",
        "version": tessera.__version__,
        "commit": options.commit or commit(),
        "date": now.isoformat(timespec="seconds"),
        "target": "cuda",
        **gpu.describe(),
        "clocks_before": gpu.clocks(),
        "limits": {"mma_tflops": {key: limits[key] for key in ("f16", "bf16")},
                   "ffma_tflops": limits["f32"]} if known else None,
        "options": shown,
    }


def commit() -> str | None:
    """Of the checkout that this file is in; None if it is in none."""
    git = ["git", "-C", str(Path(__file__).parent)]
    try:
        described = subprocess.run([*git, "describe", "--always", "--dirty", "--abbrev=40",
                                    "--exclude=*"], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return described.stdout.strip() or None


def progress(
    run: int, run_count: int, number: int, plan: Sequence[tuple[Case, Sequence[Contender]]],
    outcomes: Sequence[Outcome],
) -> None:
    case, by = plan[number]
    runs = f"run {run + 1}/{run_count}, " if run_count > 1 else ""
    say(f"{runs}{number + 1}/{len(plan)} {case}")
    for contender, outcome in zip(by, outcomes):
        speed = ""
        if outcome.times:
            median = record.timing.quantile(outcome.times, 0.5)
            speed = f"{median:9.4f} ms {record.tflops(case, median):7.1f} TFLOP/s"
        note = "" if outcome.status == "ok" else f"{outcome.status}: {outcome.reason}"
        say(f"    {contender!s:28} {speed}  {note}".rstrip())


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
