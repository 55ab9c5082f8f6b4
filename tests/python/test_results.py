# SPDX-License-Identifier: Apache-2.0
"""The speeds that README and docs/results state are those of the committed records."""
from pathlib import Path

import pytest

from tessera.bench.record import read

ROOT = Path(__file__).resolve().parents[2]
CAUSAL = ("no", "yes")


def record(name):
    """{(provider, dtype, head_dim, n, causal): row} of docs/results/h200/NAME.jsonl."""
    return {(row["provider"], row["dtype"], row["head_dim"], row["q_len"],
             CAUSAL[row["causal"] != "none"]): row
            for row in read(ROOT / "docs/results/h200" / f"{name}.jsonl")}


def table(file, header):
    """The cells of the table whose first line begins with HEADER, a list a line."""
    lines = iter((ROOT / file).read_text().splitlines())
    next(line for line in lines if line.startswith(header))
    next(lines)
    cells = []
    for line in lines:
        if not line.startswith("|"):
            return cells
        cells.append([cell.strip() for cell in line.strip("|").split("|")])


def expect_speeds(cells, a, b, digits):
    """CELLS: TFLOP/s of the rows A and B with so many digits, and their ratio."""
    ours, theirs, ratio = cells
    assert [ours, theirs] == [f"{row['tflops']:.{digits}f}" for row in (a, b)]
    assert float(ratio) == pytest.approx(a["tflops"] / b["tflops"], abs=0.0051)


def test_readme():
    rows, lines = record("attention"), table("README.md", "| head_dim | full |")
    assert [int(line[0]) for line in lines] == [64, 128]
    for head_dim, *cells in lines:
        assert cells == [f"{rows[provider, 'bf16', int(head_dim), 4096, causal]['tflops']:.0f}"
                         for causal in CAUSAL for provider in ("tessera", "sdpa:flash")]


def test_attention():
    rows, lines = record("attention"), table("docs/results/README.md", "| D | B x H x N |")
    assert len(lines) * 4 == len(rows)
    for head_dim, shape, causal, ms, *cells in lines:
        n = int(shape.split()[-1])
        for dtype, speeds in zip(("bf16", "f16"), (cells[:3], cells[3:])):
            a, b = (rows[provider, dtype, int(head_dim), n, causal]
                    for provider in ("tessera", "sdpa:flash"))
            assert shape == f"{a['batch']} x {a['heads']} x {n}"
            expect_speeds(speeds, a, b, digits=0)
            assert dtype != "bf16" or ms == f"{a['ms']['median']:.4f}"


def test_f32():
    rows, lines = record("f32"), table("docs/results/README.md", "| N (B = 4; 16384: B = 1) |")
    assert len(lines) * 8 == len(rows)
    for n, *cells in lines:
        groups = [(64, "no"), (64, "yes"), (128, "no"), (128, "yes")]
        for i, (head_dim, causal) in enumerate(groups):
            a, b = (rows[provider, "f32", head_dim, int(n), causal]
                    for provider in ("tessera", "sdpa:efficient"))
            expect_speeds(cells[3 * i:3 * i + 3], a, b, digits=1)
