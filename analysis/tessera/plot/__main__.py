# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from typing import Any

from ..bench import record
from ..bench.cases import DTYPES
from ..bench.options import length


def parser() -> ArgumentParser:
    made = ArgumentParser("python -m tessera.plot",
                          description="Figures from the benchmark's records.")
    made.add_argument("figure", choices=("speed", "sweep"),
                      help="speed: TFLOP/s and %% of SDPA against N, a panel for head_dim and "
                      "mask; "
                      "sweep: a heat map of the configurations")
    made.add_argument("records", nargs="+", metavar="RECORD", help="JSON lines")
    made.add_argument("-o", "--out", required=True, metavar="FILE", help="an .svg or a .png")
    only = made.add_argument_group("which rows (default: all)").add_argument
    only("--dtype", choices=DTYPES)
    only("--arch", action="append", metavar="SM", help="of ours; may be repeated")
    only("--config", action="append", metavar="NAME", help="of ours; may be repeated")
    only("--causal", choices=("none", "top-left", "bottom-right"), action="append")
    only("--head-dim", type=int, action="append", metavar="D")
    only("--n", type=length, help="sweep: the length; default the longest")
    only("--batch", type=int)
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit code: 2 for a file or rows that cannot be drawn, 3 without matplotlib."""
    options = parser().parse_args(arguments)
    try:
        from . import speed, style, sweep
    except ImportError as error:
        print(f"tessera.plot: it needs matplotlib: {error}", file=sys.stderr)
        return 3
    try:
        style.check_format(options.out)
        rows = [row for path in options.records for row in record.read(path)
                if chosen(row, options)]
        if not rows:
            raise ValueError("no row is left to draw")
        if options.figure == "speed":
            speed.draw(rows, options.out)
        else:
            sweep.draw(rows, options.out, options.n, listed())
    except (OSError, ValueError, KeyError) as error:
        missing = "a row lacks " if isinstance(error, KeyError) else ""
        print(f"tessera.plot: {missing}{error}", file=sys.stderr)
        return 2
    return 0


def chosen(row: record.Row, options: Namespace) -> bool:
    masks = options.causal and [mask.replace("-", "_") for mask in options.causal]
    of_all = [(options.dtype and [options.dtype], "dtype"), (masks, "causal"),
              (options.head_dim, "head_dim"), (options.batch and [options.batch], "batch")]
    of_ours = [(options.arch, "arch"), (options.config, "config")]
    checks = of_all + (of_ours if row.get("provider") == "tessera" else [])
    return all(not wanted or row.get(key) in wanted for wanted, key in checks)


def listed() -> list[dict[str, Any]]:
    """What the library says of configurations; nothing where there is no library."""
    import tessera

    try:
        return tessera.kernels()
    except OSError:
        return []


if __name__ == "__main__":
    sys.exit(main())
