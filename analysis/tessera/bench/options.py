# SPDX-License-Identifier: Apache-2.0
"""The command line of `python -m tessera.bench`."""
from __future__ import annotations

import re
from argparse import ArgumentParser, ArgumentTypeError, Namespace, RawDescriptionHelpFormatter
from collections.abc import Sequence
from typing import Any, Callable

from .cases import BASELINES, DTYPES

_CAUSAL = {
    "none": ("none",),
    "top-left": ("top_left",),
    "bottom-right": ("bottom_right",),
    "both": ("none", "top_left"),
}
_DESCRIPTION = """\
The kernels beside PyTorch's scaled_dot_product_attention, on the same GPU in the same process.

Each call is a CUDA graph, replayed after the L2 was written over. A result is compared with float64
and with SDPA before it is timed, and with itself afterwards; a wrong one, or one faster than the
card can multiply, makes the exit code 1. 2: bad usage. 3: no torch, no library, no CUDA device, or
nothing of the table runs there.
"""


def length(text: str) -> int:
    """512, 4k (4096), 16k."""
    found = re.fullmatch(r"([0-9]+)(k?)", text.strip().lower())
    value = int(found[1]) * (1024 if found[2] else 1) if found else 0
    if not 0 < value < 2**31:
        raise ArgumentTypeError(f"{text!r} is not a length such as 512 or 4k")
    return value


def shape(text: str) -> tuple[int, int, int]:
    """batch x heads x length, as 4x8x16k."""
    parts = text.split("x")
    if len(parts) != 3:
        raise ArgumentTypeError(f"{text!r} is not BATCHxHEADSxLENGTH, such as 4x8x16k")
    batch, heads, tokens = map(length, parts)
    return batch, heads, tokens


def _list(of: Callable[[str], Any]) -> Callable[[str], list[Any]]:
    def parse(text: str) -> list[Any]:
        return [of(part) for part in text.split(",")]

    parse.__name__ = of.__name__  # argparse names it in its errors
    return parse


def _one_of(*names: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if text not in names:
            raise ArgumentTypeError(f"{text!r} is not one of {', '.join(names)}")
        return text

    return parse


def _masks(text: str) -> list[str]:
    masks = [mask for part in text.split(",") for mask in _CAUSAL[_one_of(*_CAUSAL)(part)]]
    return list(dict.fromkeys(masks))


def _baselines(text: str) -> list[str]:
    return [] if text == "none" else _list(_one_of(*BASELINES))(text)


def _number(low: float, high: float) -> Callable[[str], float]:
    def number(text: str) -> float:
        value = float(text)
        if not low <= value <= high:
            raise ArgumentTypeError(f"{text} is not within {low:g}..{high:g}")
        return value

    return number


def parser() -> ArgumentParser:
    made = ArgumentParser("python -m tessera.bench", description=_DESCRIPTION,
                          formatter_class=RawDescriptionHelpFormatter)
    add = made.add_argument_group("what (a comma separates several)").add_argument
    add("--n", type=_list(length), metavar="N", help="q_len = k_len; default 512,1k,2k,4k")
    add("--batch", type=length, metavar="B", help="default 4")
    add("--heads", type=length, metavar="H", help="default 8")
    add("--shape", type=shape, action="append", metavar="BxHxN",
        help="instead of --batch, --heads and --n; may be repeated")
    add("--heads-kv", type=length, metavar="H", help="heads of K and V; default: as many as Q has")
    add("--k-len", type=length, metavar="N", help="length of K and V; default: Q's")
    add("--head-dim", type=_list(length), default=[64], metavar="D", help="default 64")
    add("--dtype", type=_list(_one_of(*DTYPES)), default=["bf16"], metavar="T",
        help=f"{', '.join(DTYPES)}; default bf16")
    add("--causal", type=_masks, default=["none", "top_left"], metavar="MASK",
        help=f"{', '.join(_CAUSAL)}; default both, none and top-left")

    add = made.add_argument_group("whose (a comma separates several)").add_argument
    add("--kernel", default="flash_forward", metavar="NAME", help="default flash_forward")
    add("--arch", type=_list(_one_of("sm_75", "sm_89", "sm_90")), metavar="SM",
        help="whose code: sm_90, sm_89, sm_75; default the card's own")
    add("--config", type=_list(str), default=["default"], metavar="NAME",
        help="a configuration's name, all, or default")
    add("--exp2", type=_list(_one_of("hardware", "soft")), default=["hardware"], metavar="HOW",
        help="hardware (the default), soft")
    add("--baseline", type=_baselines, metavar="NAME",
        help=f"backends of SDPA: {', '.join(BASELINES)}, or none; percentages refer to the first; "
        "default flash, for f32 efficient")

    add = made.add_argument_group("how").add_argument
    add("--launch", choices=("graph", "call"), default="graph",
        help="time a CUDA graph of one call (the default), or the call")
    add("--warm", action="store_true",
        help="run the same call before, instead of writing over the L2")
    add("--noise", type=_number(0, 100), default=2.0, metavar="PERCENT",
        help="repeat until (p80 - p20) / median is at most this; default 2")
    add("--min-repetitions", type=length, default=20, metavar="R", help="default 20")
    add("--max-repetitions", type=length, default=200, metavar="R", help="default 200")
    add("--repeat-runs", type=length, default=1, metavar="R",
        help="the whole table so many times; published are the medians of the runs' medians")
    add("--seed", type=int, default=1, help="of the inputs; default 1")
    add("--peak-tflops", type=_number(0, 1e9), metavar="T",
        help="what the card can multiply at most; default: as the library measures it")

    add = made.add_argument_group("record").add_argument
    add("--json", metavar="FILE", help="JSON lines, complete after every case; -: standard output")
    add("--commit", metavar="HASH", help="of the sources; default: what git says")
    return made


def parse(arguments: Sequence[str] | None = None) -> Namespace:
    """The options, `shapes` among them; exits with 2 and a message if they are wrong."""
    made = parser()
    options = made.parse_args(arguments)
    given = [f"--{name}" for name in ("n", "batch", "heads") if getattr(options, name) is not None]
    if options.shape and given:
        made.error(f"--shape: it takes the place of {', '.join(given)}")
    options.shapes = options.shape or [
        (options.batch or 4, options.heads or 8, n) for n in options.n or (512, 1024, 2048, 4096)
    ]
    if options.min_repetitions > options.max_repetitions:
        made.error("--min-repetitions: it is above --max-repetitions")
    if any(head_dim > 128 for head_dim in options.head_dim):
        made.error("--head-dim: at most 128")
    for _, heads, _ in options.shapes:
        if options.heads_kv and heads % options.heads_kv:
            made.error(f"--heads-kv: {heads} heads are no multiple of {options.heads_kv}")
    return options
