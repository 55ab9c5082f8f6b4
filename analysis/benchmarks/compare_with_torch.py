# SPDX-License-Identifier: Apache-2.0
"""flash_forward against PyTorch's FlashAttention backend, on the same GPU, in the same process.

Every configuration of the card's arch, and the default, take turns with torch's
scaled_dot_product_attention by its flash backend. Each call is a CUDA graph, replayed after the L2
was written over. A result is compared with torch's first: a wrong one, or one faster than the card
can multiply, is not reported as a speed and makes the exit code 1.
"""
from __future__ import annotations

import datetime
import functools
import itertools
import json
import statistics
import subprocess
import sys
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import Any

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # the sources beside this file
import tessera

DTYPES = {"bf16": torch.bfloat16, "f16": torch.float16}
UNIT_ROUNDOFF = {"bf16": 2.0**-8, "f16": 2.0**-11}
FLUSH_BYTES = 256 << 20  # more than any L2
WARM_UP = 5
KERNEL = "flash_forward"
Row = dict[str, Any]


def arguments() -> Namespace:
    parser = ArgumentParser(description=__doc__.split("\n\n")[0])
    add = parser.add_argument
    add("--lengths", default="4096", metavar="N,N", help="q_len = k_len")
    add("--head-dims", default="64,128", metavar="D,D")
    add("--dtypes", default="bf16,f16", metavar="T,T")
    add("--batch", type=int, default=4)
    add("--heads", type=int, default=8)
    add("--repetitions", type=int, default=30)
    add("--arch", help="whose code; the card's own by default")
    add("--peak-tflops", type=float, default=628, help="the card's measured mma peak (628: H200)")
    add("--commit", default="", help="of the sources, for the record")
    add("--json", metavar="FILE", help="where the record goes")
    args = parser.parse_args()
    args.lengths, args.head_dims = ([int(n) for n in text.split(",")]
                                    for text in (args.lengths, args.head_dims))
    args.dtypes = args.dtypes.split(",")
    if args.repetitions < 20 or not set(args.dtypes) <= set(DTYPES):
        parser.error(f"at least 20 --repetitions, and --dtypes of {', '.join(DTYPES)}")
    if not torch.cuda.is_available():
        parser.exit(3, "there is no CUDA device\n")
    if not args.arch:
        card = torch.cuda.get_device_capability()
        args.arch = "sm_90" if card >= (9, 0) else "sm_89" if card >= (8, 9) else "sm_75"
    return args


def command(*words: str, load: torch.cuda.CUDAGraph | None = None) -> str:
    """What a command prints, while the GPU runs `load` again and again; "" if there is none."""
    try:
        process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    except OSError:
        return ""
    while load and process.poll() is None:
        load.replay()
        torch.cuda.synchronize()
    return process.communicate()[0].strip()


def nvidia_smi(*fields: str, load: torch.cuda.CUDAGraph | None = None) -> dict[str, str]:
    card = f"--id=GPU-{torch.cuda.get_device_properties('cuda').uuid}"
    query = ["nvidia-smi", card, "--format=csv,noheader", f"--query-gpu={','.join(fields)}"]
    return dict(zip(fields, command(*query, load=load).split(", ")))


def configs(arch: str, dtype: str, head_dim: int) -> list[str]:
    """The configurations that take this case on a GPU."""
    kernel = next(kernel for kernel in tessera.kernels() if kernel["name"] == KERNEL)
    bucket = next(size for size in (32, 64, 96, 128) if head_dim <= size)
    return [row["config"] for row in kernel["configs"] if row["arch"] == arch
            and dtype in row["dtypes"] and bucket in row["head_dims"] and "cuda" in row["targets"]]


def graph_of(call: Any) -> tuple[torch.cuda.CUDAGraph, torch.Tensor]:
    """A call as a graph, so that no time of the host is measured; and where its result goes."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):  # once before the capture: the first call loads code
        call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = call()
    return graph, result


def difference(got: torch.Tensor, want: torch.Tensor) -> tuple[float, float]:
    """Largest |got - want|; and of blocks of 64 rows the largest norm of that, over want's norm."""
    worst = torch.zeros(2, device=got.device)
    for g, w in zip(got.split(64, dim=2), want.split(64, dim=2)):
        error = g.float() - w.float()
        relative = error.norm(dim=(2, 3)) / w.float().norm(dim=(2, 3))
        worst = torch.maximum(worst, torch.stack([error.abs().max(), relative.max()]))  # keeps NaN
    return tuple(worst.tolist())


def measure(graphs: dict[str, torch.cuda.CUDAGraph], repetitions: int) -> dict[str, list[float]]:
    """Milliseconds of every repetition. In each, all take their turn, every time another first."""
    flush = torch.empty(FLUSH_BYTES, dtype=torch.int8, device="cuda")
    times: dict[str, list[float]] = {name: [] for name in graphs}
    order = list(graphs)
    for repetition in range(WARM_UP + repetitions):
        order.append(order.pop(0))
        for name in order:
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            flush.fill_(repetition % 100)
            begin.record()
            graphs[name].replay()
            end.record()
            end.synchronize()
            times[name].append(begin.elapsed_time(end))
    return {name: all_times[WARM_UP:] for name, all_times in times.items()}


def run_case(args: Namespace, dtype: str, head_dim: int, length: int, causal: bool) -> list[Row]:
    case = {"dtype": dtype, "head_dim": head_dim, "length": length, "causal": causal}
    torch.manual_seed(1)
    shape = (args.batch, args.heads, length, head_dim)
    q, k, v = (torch.randn(shape, dtype=DTYPES[dtype], device="cuda") for _ in range(3))

    def by_torch() -> torch.Tensor:
        with sdpa_kernel([SDPBackend.FLASH_ATTENTION]):
            return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal)

    graph, want = graph_of(by_torch)
    graph.replay()
    graphs = {"torch": graph}
    rows: list[Row] = [{**case, "name": "torch", "max_abs_error": 0.0}]
    for config in [None, *configs(args.arch, dtype, head_dim)]:
        rows.append(row := {**case, "name": config or "default"})
        options = {"kernel": KERNEL, "causal": causal, "arch": args.arch, "config": config}
        try:
            graph, out = graph_of(functools.partial(tessera.attention, q, k, v, **options))
        except RuntimeError as error:  # not built, or it does not launch
            row["refused"] = str(error)
            continue
        row["instance"] = tessera.last_report()["instance"]
        out.fill_(float("nan"))
        graph.replay()
        row["max_abs_error"], row["relative_error"] = difference(out, want)
        # Both round P and O to storage. Where a tile is wrong, the error is about as large as O.
        if row["relative_error"] <= 4 * UNIT_ROUNDOFF[dtype]:
            graphs[row["name"]] = graph
        else:  # NaN too
            row["refused"] = f"wrong: max abs error {row['max_abs_error']:.3g} against torch"

    times = measure(graphs, args.repetitions)
    clocks = nvidia_smi("clocks.sm", "clocks.mem", "power.draw", load=graphs["torch"])
    pairs = length * (length + 1) // 2 if causal else length**2  # visible
    for row in (row for row in rows if "refused" not in row):
        ms = statistics.median(times[row["name"]])
        tflops = 4 * args.batch * args.heads * pairs * head_dim / ms / 1e9
        if not tflops <= args.peak_tflops:
            row["refused"] = f"{tflops:.0f} TFLOP/s, above the peak of {args.peak_tflops:.0f}"
            continue
        row.update(ms=ms, ms_min=min(times[row["name"]]), tflops=tflops, clocks_under_load=clocks,
                   ms_quartiles=statistics.quantiles(times[row["name"]]),
                   times_torch=statistics.median(times["torch"]) / ms)
    return rows


def main() -> int:
    args = arguments()
    record: Row = {
        "card": torch.cuda.get_device_name(),
        **nvidia_smi("driver_version", "clocks.sm", "clocks.max.sm", "power.limit"),
        "torch": f"torch {torch.__version__}, CUDA {torch.version.cuda}",
        "nvcc": command("nvcc", "--version").rpartition("\n")[2],
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "commit": args.commit,
        "options": {k: v for k, v in vars(args).items() if k not in ("json", "commit")},
        "results": [],
    }
    print(f"{record['card']}, {args.arch}; {args.batch} x {args.heads} heads; {record['torch']}\n"
          "dtype   D      N causal config            ms      min  TFLOP/s x torch max error")
    for case in itertools.product(args.dtypes, args.head_dims, args.lengths, (False, True)):
        for row in run_case(args, *case):
            record["results"].append(row)
            line = "{dtype:5} {head_dim:3} {length:6} {causal!s:6} {name:11}".format(**row)
            speed = "{ms:9.4f}{ms_min:9.4f}{tflops:9.1f}{times_torch:8.3f}{max_abs_error:10.1e}"
            print(line + (row.get("refused") or speed.format(**row)), flush=True)
    if args.json:
        Path(args.json).write_text(json.dumps(record, indent=1) + "\n")
    return 1 if any("refused" in row for row in record["results"]) else 0


if __name__ == "__main__":
    sys.exit(main())
