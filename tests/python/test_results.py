# SPDX-License-Identifier: Apache-2.0
"""The speeds that README and docs/results state are those of the committed records."""
import json
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PLAIN = ("no", "yes")  # causal


def record(name):
    """{(provider, dtype, head_dim, n, causal): row} of docs/results/h200/NAME.jsonl."""
    lines = (ROOT / "docs/results/h200" / f"{name}.jsonl").read_text().splitlines()
    rows = (row for row in map(json.loads, lines) if row["record"] == "row")
    return {(row["provider"], row["dtype"], row["head_dim"], row["q_len"],
             PLAIN[row["causal"] != "none"]): row for row in rows}


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


def test_readme():
    rows, lines = record("attention"), table("README.md", "| head_dim | full |")
    assert [int(line[0]) for line in lines] == [64, 128]
    for head_dim, *cells in lines:
        assert cells == [f"{rows[provider, 'bf16', int(head_dim), 4096, causal]['tflops']:.0f}"
                         for causal in PLAIN for provider in ("tessera", "sdpa:flash")]


def test_attention():
    rows, lines = record("attention"), table("docs/results/README.md", "| D | B x H x N |")
    assert len(lines) * 4 == len(rows)
    for head_dim, shape, causal, ms, *cells in lines:
        n = int(shape.split()[-1])
        for dtype, (ours, theirs, ratio) in zip(("bf16", "f16"), (cells[:3], cells[3:])):
            a, b = (rows[provider, dtype, int(head_dim), n, causal]
                    for provider in ("tessera", "sdpa:flash"))
            assert shape == f"{a['batch']} x {a['heads']} x {n}"
            assert [ours, theirs] == [f"{row['tflops']:.0f}" for row in (a, b)]
            assert float(ratio) == pytest.approx(a["tflops"] / b["tflops"], abs=0.0051)
            assert dtype != "bf16" or ms == f"{a['ms']['median']:.4f}"


def test_f32():
    rows, lines = record("f32"), table("docs/results/README.md", "| N (B = 4; 16384: B = 1) |")
    assert len(lines) * 8 == len(rows)
    for n, *cells in lines:
        groups = [(64, "no"), (64, "yes"), (128, "no"), (128, "yes")]
        for i, (head_dim, causal) in enumerate(groups):
            a, b = (rows[provider, "f32", head_dim, int(n), causal]
                    for provider in ("tessera", "sdpa:efficient"))
            ours, theirs, ratio = cells[3 * i:3 * i + 3]
            assert [ours, theirs] == [f"{row['tflops']:.1f}" for row in (a, b)]
            assert float(ratio) == pytest.approx(a["tflops"] / b["tflops"], abs=0.0051)
