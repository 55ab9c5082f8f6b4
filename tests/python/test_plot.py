# SPDX-License-Identifier: Apache-2.0
"""python -m tessera.plot: figures of small records that are made up here."""
import json
import sys
import xml.etree.ElementTree

import pytest

from tessera.bench.cases import Case
from tessera.plot import __main__ as command

matplotlib = pytest.importorskip("matplotlib")

from tessera.plot import speed, style, sweep  # noqa: E402  they need matplotlib

RUN = {"record": "run", "tool": "tessera.bench", "card": "A card", "target": "cuda",
       "limits": {"mma_tflops": {"bf16": 628.0, "f16": 628.0}, "ffma_tflops": 60.0}}


def row(provider="tessera", ms=0.5, n=1024, head_dim=64, causal="none", batch=4, **changed):
    case = Case("bf16", batch, 8, 8, n, n, head_dim, causal)
    ours = provider == "tessera"
    made = {"record": "row", "provider": provider, "kernel": "flash_forward" if ours else None,
            "arch": "sm_90" if ours else None, "config": "128x64" if ours else None,
            "exp2": "hardware" if ours else None, **vars(case), "pairs": case.pairs,
            "flop": case.flop, "launch": "graph", "warm": False, "status": "ok", "reason": None,
            "ms": {"median": ms, "p20": 0.98 * ms, "p80": 1.01 * ms, "min": ms, "count": 20},
            "tflops": case.flop / ms / 1e9, "baseline": "sdpa:flash",
            "percent_of_sdpa": 110.0 if ours else None}
    return {**made, **changed}


def table():
    return [row(provider, n=n, head_dim=head_dim, causal=causal)
            for head_dim in (64, 128) for causal in ("none", "top_left")
            for n in (512, 1024) for provider in ("tessera", "sdpa:flash")]


def configurations(**changed):
    refused = {"status": "refused", "ms": None, "tflops": None}
    return [{**row(config=f"{q}x{k}-w4-s{s}", ms=1 + q / k + s, head_dim=head_dim, **changed),
             **(refused if (q, k) == (128, 64) else {})}
            for head_dim in (64, 128) for q in (64, 128) for k in (32, 64) for s in (1, 2)]


@pytest.fixture
def plot(tmp_path):
    def run(rows, *arguments, figure="speed", name="figure.svg", lines=None):
        path = tmp_path / "record.jsonl"
        lines = [json.dumps(line) for line in (RUN, *rows)] if lines is None else lines
        path.write_text("\n".join(lines))
        out = tmp_path / name
        code = command.main([figure, str(path), "-o", str(out), *arguments])
        return code, out

    return run


@pytest.mark.slow
@pytest.mark.parametrize(("figure", "rows"), [("speed", table()), ("sweep", configurations())])
def test_figures(plot, figure, rows):
    code, out = plot(rows, figure=figure)
    assert code == 0
    first = out.read_bytes()
    root = xml.etree.ElementTree.fromstring(first)
    assert root.tag.endswith("svg") and len(list(root.iter())) > 200
    assert b"<dc:date>" not in first
    assert plot(rows, figure=figure)[1].read_bytes() == first  # the same every time
    code, out = plot(rows, figure=figure, name="figure.png")
    assert code == 0 and out.read_bytes()[:4] == b"\x89PNG"


def test_what_a_sweep_shows(tmp_path, monkeypatch):
    drawn = []
    monkeypatch.setattr(style, "save", lambda figure, path: drawn.append(figure))
    rows = [{**r, "card": "A card"} for r in configurations()]
    sweep.draw([*rows, row(card="A card", n=512, config="16x16-w1-s1")], "x.svg")
    axes = [axis for axis in drawn[0].axes if axis.get_title() or axis.images and axis.texts]
    assert len(axes) == 4  # two head_dims, one and two stages
    shown = [[text.get_text() for text in axis.texts] for axis in axes]
    assert all(texts.count("refused") == 1 and len(texts) == 4 for texts in shown)
    framed = [len(axis.patches) for axis in axes]
    assert framed == [1, 0, 1, 0]  # one stage is faster, made so above
    best = max((r for r in rows if r["head_dim"] == 64 and r["ms"]), key=lambda r: r["tflops"])
    assert f"{best['tflops']:.0f}" in shown[0]


def test_tiles():
    kernels = [{"name": "flash_forward", "configs": [
        {"arch": "sm_90", "config": "128x64", "dtypes": ["bf16"], "head_dims": sizes, "rows": 128,
         "cols": 64, "warps": warps, "stages": 2} for sizes, warps in (([32, 64], 4), ([128], 8))]}]
    assert sweep.tile_of(row(), kernels) == (128, 64, 4, 2)
    assert sweep.tile_of(row(head_dim=100), kernels) == (128, 64, 8, 2)
    assert sweep.tile_of(row(config="64x32-w4-s1")) == (64, 32, 4, 1)
    of_record = {"rows": 1, "cols": 2, "warps": 3, "stages": 4}
    assert sweep.tile_of(row(tile=of_record), kernels) == (1, 2, 3, 4)
    assert sweep.tile_of(row(arch="sm_75"), kernels) is None


def test_lines_are_told_apart_by_what_differs():
    names = speed._line_names([row(), row(arch="sm_89"), row("sdpa:flash"),
                               row(head_dim=128, config="64x64")])
    assert names == ["Tessera sm_90", "Tessera sm_89", "SDPA flash", "Tessera sm_90"]
    default = {"requested_config": "default"}
    names = speed._line_names([row(n=512, config="64x64", **default), row(**default)])
    assert names == ["Tessera", "Tessera"]
    assert speed._line_names([row(config="a"), row(**default)]) == ["Tessera a", "Tessera default"]


@pytest.mark.slow
def test_chosen_rows(plot):
    assert plot([*table(), row(dtype="f16")], "--dtype", "bf16")[0] == 0
    assert plot([*table(), row(n=1024, batch=1)], "--batch", "4", "--causal", "top-left")[0] == 0
    assert plot(configurations(), "--n", "1k", "--head-dim", "64", figure="sweep")[0] == 0


@pytest.mark.parametrize(
    ("figure", "rows", "words"),
    [
        ("speed", [row(), row(dtype="f16")], "dtype: "),
        ("speed", [row(), row(batch=1)], "several rows at N = 1024"),
        ("speed", [{**row(), "ms": None, "status": "refused"}], "no row was timed"),
        ("speed", [], "no row is left"),
        ("speed", [{"record": "row", "provider": "tessera", "ms": {}}], "no row was timed"),
        ("speed", [{"record": "row", "provider": "tessera", "ms": {"median": 1}}], "lacks 'dtype'"),
        ("sweep", [row("sdpa:flash")], "no row of ours"),
        ("sweep", [row(config="a"), row(config="b")], "what a is"),
        ("sweep", [row(), row(arch="sm_89")], "arch: "),
    ],
)
def test_rows_that_make_no_figure(plot, capsys, figure, rows, words):
    code, out = plot(rows, figure=figure)
    assert code == 2 and not out.exists()
    assert words in capsys.readouterr().err


@pytest.mark.parametrize("text", ["{}", "no JSON", '[{"card": "A card"}]', ""])
def test_a_wrong_file(plot, capsys, text):
    assert plot([], lines=[text])[0] == 2
    assert "record.jsonl" in capsys.readouterr().err


def test_wrong_names(plot, tmp_path, capsys):
    assert plot(table(), name="figure.gif")[0] == 2
    assert ".svg, .png" in capsys.readouterr().err
    assert command.main(["speed", str(tmp_path / "none"), "-o", "x.svg"]) == 2
    assert "none" in capsys.readouterr().err


def test_without_matplotlib(monkeypatch, capsys):
    for name in ("style", "speed", "sweep"):
        monkeypatch.delitem(sys.modules, f"tessera.plot.{name}")
        monkeypatch.delattr(sys.modules["tessera.plot"], name)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert command.main(["speed", "x", "-o", "x.svg"]) == 3
    assert "matplotlib" in capsys.readouterr().err
