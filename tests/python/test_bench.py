# SPDX-License-Identifier: Apache-2.0
"""python -m tessera.bench: what needs no torch, and with torch all of it but the device.

Where torch is installed, its CPU stands in for the GPU and the emulator for our kernels: the
checks, the statuses and the record are the same.
"""
import contextlib
import importlib.util
import itertools
import json
import math
import subprocess
import sys
from pathlib import Path

import pytest

import tessera
from tessera.bench import __main__ as command
from tessera.bench import cases, gpu, options, record, timing

needs_torch = pytest.mark.skipif(not importlib.util.find_spec("torch"), reason="no torch here")


def visible(q_len, k_len, causal):
    shift = k_len - q_len if causal == "bottom_right" else 0
    return sum(causal == "none" or j <= i + shift for i in range(q_len) for j in range(k_len))


def test_pairs():
    lengths = (1, 2, 3, 7, 8)
    for q_len, k_len, causal in itertools.product(lengths, lengths, cases.MASKS):
        assert cases.visible_pairs(q_len, k_len, causal) == visible(q_len, k_len, causal)


def test_flop():
    causal = cases.Case("bf16", 4, 8, 2, 4096, 4096, 64, "top_left")
    assert causal.flop == 4 * 64 * (4096 * 4097 // 2) * 4 * 8
    assert cases.Case("bf16", 4, 8, 2, 100, 200, 64, "none").flop == 4 * 64 * 100 * 200 * 32


def test_lengths():
    assert [options.length(text) for text in ("512", "1k", "16K")] == [512, 1024, 16384]
    for text in ("", "k", "1.5k", "-1", "0", "1m", "99999999999"):
        with pytest.raises(options.ArgumentTypeError, match="length"):
            options.length(text)


def test_defaults():
    parsed = options.parse([])
    assert parsed.shapes == [(4, 8, 512), (4, 8, 1024), (4, 8, 2048), (4, 8, 4096)]
    found = list(cases.cases(parsed))
    assert len(found) == 8 and {case.causal for case in found} == {"none", "top_left"}
    assert {(case.dtype, case.head_dim, case.heads_kv) for case in found} == {("bf16", 64, 8)}


def test_shapes():
    parsed = options.parse(["--shape", "4x8x512", "--shape", "1x8x16k", "--heads-kv", "2"])
    assert parsed.shapes == [(4, 8, 512), (1, 8, 16384)]
    assert all(case.heads_kv == 2 for case in cases.cases(parsed))


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["--shape", "4x8"], "BATCHxHEADSxLENGTH"),
        (["--shape", "4x8x512", "--batch", "2"], "--batch"),
        (["--n", "512,1q"], "1q"),
        (["--dtype", "fp8"], "fp8"),
        (["--causal", "left"], "left"),
        (["--baseline", "flash,best"], "best"),
        (["--arch", "sm_80"], "sm_80"),
        (["--heads", "6", "--heads-kv", "4"], "--heads-kv"),
        (["--min-repetitions", "300"], "--max-repetitions"),
        (["--head-dim", "256"], "--head-dim"),
        (["--noise", "-1"], "-1"),
    ],
)
def test_usage(arguments, word, capsys):
    with pytest.raises(SystemExit) as stopped:
        options.parse(arguments)
    assert stopped.value.code == 2 and word in capsys.readouterr().err


KERNELS = [{"name": "flash_forward", "configs": [
    {"arch": arch, "config": config, "dtypes": dtypes, "head_dims": sizes, "targets": targets}
    for arch, config, dtypes, sizes, targets in (
        ("sm_90", "128x64", ["bf16"], [32, 64], ["sim", "cuda"]),
        ("sm_90", "64x64", ["bf16"], [32, 64], ["sim", "cuda"]),
        ("sm_90", "64x32", ["bf16"], [96, 128], ["sim", "cuda"]),
        ("sm_90", "16x16", ["bf16"], [64], ["sim"]),
        ("sm_89", "64x128", ["bf16"], [64], ["sim", "cuda"]),
    )
]}]


def test_contenders():
    def named(case, *arguments):
        found = cases.contenders(case, options.parse(arguments), KERNELS, "sm_90")
        return [str(contender) for contender in found]

    case = cases.Case("bf16", 1, 1, 1, 64, 64, 40, "none")
    assert named(case) == ["sm_90 default hardware", "sdpa:flash"]
    assert named(case, "--config", "all", "--baseline", "none") == [
        "sm_90 128x64 hardware", "sm_90 64x64 hardware"]
    assert named(case, "--config", "default,all", "--arch", "sm_89", "--exp2", "soft") == [
        "sm_89 default soft", "sm_89 64x128 soft", "sdpa:flash"]
    long = cases.Case("f32", 1, 1, 1, 64, 64, 100, "none")
    assert named(long, "--config", "64x32") == ["sm_90 64x32 hardware", "sdpa:efficient"]
    assert named(long, "--baseline", "math,cudnn")[1:] == ["sdpa:math", "sdpa:cudnn"]
    assert cases.built(KERNELS, "flash_forward", "sm_90", "bf16", 100) == ["64x32"]


# Times


def test_statistics():
    got = timing.statistics([5.0, 1.0, 2.0, 3.0, 4.0])
    assert got == pytest.approx({"median": 3, "p20": 1.8, "p80": 4.2, "min": 1, "count": 5})
    assert timing.spread([5.0, 1.0, 2.0, 3.0, 4.0]) == pytest.approx(2.4 / 3)


def test_stops_when_everybody_is_quiet():
    rule = timing.StopRule(noise=0.02, minimum=20, maximum=50)
    loud = itertools.cycle([1.0, 2.0])
    for timers, count in (
        ({"a": lambda: 1.0, "b": lambda: 2.0}, 20),
        ({"a": lambda: 1.0, "b": lambda: next(loud)}, 50),
    ):
        times = timing.measure(timers, rule)
        assert {name: len(taken) for name, taken in times.items()} == {"a": count, "b": count}
    assert rule.quiet(times["a"]) and not rule.quiet(times["b"])
    assert timing.measure({}, rule) == {}


def test_everybody_is_first_as_often():
    order = []
    timers = {name: lambda name=name: order.append(name) or 1.0 for name in "abc"}
    timing.measure(timers, timing.StopRule(minimum=25, maximum=25))
    firsts = order[::3]
    assert len(firsts) == 30 and all(firsts.count(name) == 10 for name in "abc")
    assert all(set(order[i : i + 3]) == set("abc") for i in range(0, 90, 3))


# What SDPA ran


@pytest.mark.parametrize(
    ("names", "backend"),
    [
        ([], None),
        (["void pytorch_flash::flash_fwd_kernel<Flash_fwd_kernel_traits<64, 128>>()"], "flash"),
        (["fmha_cutlassF_f32_aligned_64x64_rf_sm80(PyTorchMemEffAttention)"], "efficient"),
        (["cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_6"], "cudnn"),
        (["void cutlass::Kernel2<gemm_bf16>", "softmax_warp_forward"], "math"),
        (["aten::scaled_dot_product_attention", "aten::_scaled_dot_product_flash_attention"],
         "flash"),
        (["aten::_scaled_dot_product_efficient_attention"], "efficient"),
        (["aten::_scaled_dot_product_attention_math"], "math"),
    ],
)
def test_backend_of(names, backend):
    assert gpu.backend_of(names) == backend


def test_operators_where_kernels_say_nothing():
    flash = ["aten::_scaled_dot_product_flash_attention"]
    assert gpu.seen(["device_kernel<FlashAttnFwdSm90>"], flash) == "flash"
    assert gpu.seen(["fmha_cutlassF"], flash) == "efficient"
    assert gpu.seen([], flash) == "flash" and gpu.seen([], []) is None
    assert gpu.seen(["gemm"], []) == "math"


# Records


def row(**changed):
    made = {"record": "row", "provider": "tessera", "kernel": "flash_forward", "arch": "sm_90",
            "config": "128x64", "instance": "i", "exp2": "hardware", "dtype": "bf16", "batch": 4,
            "heads": 8, "heads_kv": 8, "q_len": 512, "k_len": 512, "head_dim": 64,
            "causal": "none", "status": "ok", "reason": None, "ms": {"median": 0.5},
            "tflops": 300.0, "baseline": "sdpa:flash", "percent_of_sdpa": 120.0}
    return {**made, **changed}


def sdpa(**changed):
    of_ours = dict.fromkeys(("kernel", "arch", "config", "instance", "exp2", "percent_of_sdpa"))
    return row(**{**of_ours, "provider": "sdpa:flash", "ms": {"median": 0.6}, **changed})


def test_table():
    rows = [row(), sdpa(), row(q_len=1024, k_len=1024, config="64x64"),
            sdpa(q_len=1024, k_len=1024, status="refused", reason="No\nkernel", ms=None)]
    constant, head, first, second = record.table(rows).splitlines()
    assert constant == "type bf16, B 4, H 8, D 64, arch sm_90, exp2 hardware"
    assert head.split() == ["N", "causal", "config", "ours", "ms", "TFLOP/s", "SDPA", "flash", "ms",
                            "TFLOP/s", "%", "of", "it"]
    assert first.split() == ["512", "none", "128x64", "0.5000", "300.0", "0.6000", "300.0", "120.0"]
    assert second.split()[:8] == ["1024", "none", "64x64", "0.5000", "300.0", "-", "-", "-"]
    assert second.endswith("sdpa:flash: refused: No kernel")


def test_table_of_several_baselines():
    rows = [row(), sdpa(), sdpa(provider="sdpa:cudnn", ms={"median": 0.25})]
    line = record.table(rows).splitlines()[-1].split()
    assert line[-6:] == ["0.6000", "300.0", "120.0", "0.2500", "300.0", "50.0"]


def test_table_where_each_type_has_its_own_baseline():
    rows = [row(), sdpa(), row(dtype="f32"), sdpa(dtype="f32", provider="sdpa:efficient")]
    first, second = (line.split() for line in record.table(rows).splitlines()[-2:])
    assert first[-6:] == ["0.6000", "300.0", "120.0", "-", "-", "-"]
    assert second[-6:] == ["-", "-", "-", "0.6000", "300.0", "120.0"]


def test_summary():
    rows = [row(percent_of_sdpa=50.0), row(config="64x64", percent_of_sdpa=80.0), sdpa(),
            row(q_len=64, percent_of_sdpa=125.0), row(causal="top_left", percent_of_sdpa=None)]
    title, _, line = record.summary(rows).splitlines()
    assert "fastest configuration" in title  # 80 of the first case
    assert line.split() == ["sm_90", "bf16", "none", "2", "100.0", "sdpa:flash"]
    assert record.summary([sdpa()]) == ""
    assert record.geometric_mean([2.0, 8.0]) == pytest.approx(4)


def test_verdict(capsys):
    assert command.verdict([row(), sdpa(status="refused", ms=None)]) == 0
    assert command.verdict([row(status="noisy")]) == 0
    assert command.verdict([row(), row(status="wrong", ms=None, reason="NaN")]) == 1
    assert command.verdict([row(), sdpa(status="impossible", ms=None)]) == 1
    assert command.verdict([row(status="refused", ms=None), sdpa()]) == 3
    assert "nothing of the table runs here" in capsys.readouterr().err


def test_read_what_was_written(tmp_path):
    path = tmp_path / "record.jsonl"
    run = {"record": "run", "tool": "tessera.bench", "card": "H200", "target": "cuda"}
    record.write(str(path), [run, row(error={"max_abs": math.nan}), {"record": "end"}])
    (got,) = record.read(path)
    assert got["card"] == "H200" and got["error"]["max_abs"] == "nan"
    assert [entry.name for entry in tmp_path.iterdir()] == ["record.jsonl"]
    for text, words in (("{", ":1: it is not JSON"), ('{"record": "row"}', ":1: .* its run"),
                        ("", "empty"), ('{"record": "run"}\n[]', ":2: "), ("[1]", ":1: ")):
        path.write_text(text)
        with pytest.raises(ValueError, match=words):
            record.read(path)


# The command


def test_help_and_what_is_missing():
    python = [sys.executable, "-m", "tessera.bench"]
    for arguments, code, words in ((["--help"], 0, "--shape"), (["--n", "x"], 2, "--n")):
        done = subprocess.run([*python, *arguments], capture_output=True, text=True,
                              cwd=Path(tessera.__file__).parents[1])
        assert done.returncode == code and words in done.stdout + done.stderr


def test_without_torch(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "torch", None)  # an import of it raises ImportError
    assert command.main([]) == 3
    assert "torch cannot be imported" in capsys.readouterr().err


class Cpu(gpu.Gpu):
    """torch's CPU and the emulator as a device: a graph is a call whose result is kept."""

    def __init__(self):
        self.torch = importlib.import_module("torch")

    def arch(self):
        return "sm_90"

    def describe(self):
        return {"card": "a CPU", "driver": None, "toolkit": None, "torch": self.torch.__version__}

    def clocks(self):
        return None

    def inputs(self, case, seed):
        self.torch.manual_seed(seed)
        dtype = getattr(self.torch, gpu._DTYPES[case.dtype])
        return [self.torch.randn(case.batch, heads, tokens, case.head_dim).to(dtype)
                for heads, tokens in ((case.heads, case.q_len),
                                      (case.heads_kv, case.k_len), (case.heads_kv, case.k_len))]

    def prepared(self, call, launch, out=None, pin=None):
        with self.pinned(pin):
            kept = call()
        return gpu.Launch(lambda: kept.copy_(call()), kept, pin)

    def trace(self, call, pin):
        with self.pinned(pin):
            call()
        return gpu.Trace(pin, [])

    def timer(self, launch, warm):
        ticks = itertools.cycle([1.0, 1.5, 1.25])  # this machine's own times would be noisy

        def took():
            with self.pinned(launch.pin):
                launch.run()
            return next(ticks) * (2 if launch.pin else 1)

        return took

    def synchronize(self):
        pass


SMALL = ["--shape", "1x2x70", "--exp2", "soft", "--dtype", "f32", "--min-repetitions", "2",
         "--max-repetitions", "3", "--noise", "100", "--peak-tflops", "1000"]


@pytest.fixture
def on_cpu(monkeypatch):
    monkeypatch.setattr(gpu, "_CALLS", 2)


def run_on_cpu(path, *arguments, device=Cpu):
    code = command.main([*SMALL, "--json", str(path), *arguments], make_gpu=device)
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [lines[0]["record"], lines[-1]["record"]] == ["run", "end"]
    return code, lines[1:-1]


@needs_torch
def test_whole_on_a_cpu(on_cpu, tmp_path, capsys):
    code, rows = run_on_cpu(tmp_path / "r", "--baseline", "flash,math", "--repeat-runs", "3",
                            "--heads-kv", "1")
    assert code == 0 and len(rows) == 6
    for ours, flash, slow in (rows[:3], rows[3:]):
        assert ours["provider"] == "tessera" and ours["instance"].endswith("/soft")
        assert (ours["config"], ours["requested_config"]) == ("64x32", "default")
        assert [flash["provider"], slow["provider"]] == ["sdpa:flash", "sdpa:math"]
        for each in (ours, flash, slow):
            assert each["status"] == "ok" and each["call_us"] > 0 and len(each["run_medians"]) == 3
            assert each["ms"]["median"] == sorted(each["run_medians"])[1]
            assert each["ms"]["count"] == 6 and each["ms"]["min"] >= 1
            assert each["tflops"] == pytest.approx(each["flop"] / each["ms"]["median"] / 1e9)
            assert 0 < each["error"]["max_abs"] < 1e-5
        assert ours["difference"]["against"] == ours["baseline"] == "sdpa:flash"
        percent = 100 * flash["ms"]["median"] / ours["ms"]["median"]
        assert ours["percent_of_sdpa"] == pytest.approx(percent)
        assert percent > 150 and flash["percent_of_sdpa"] == pytest.approx(100)
    assert "geometric mean" in capsys.readouterr().out


@needs_torch
def test_lengths_that_differ(on_cpu, tmp_path):
    code, rows = run_on_cpu(tmp_path / "r", "--k-len", "100", "--causal",
                            "none,top-left,bottom-right", "--baseline", "math")
    assert code == 0 and [row["status"] for row in rows] == ["ok"] * 6


@needs_torch
def test_a_row_that_fails_stops_no_other(on_cpu, tmp_path):
    code, rows = run_on_cpu(tmp_path / "r", "--config", "64x64,64x32", "--baseline",
                            "cudnn,flash", "--causal", "none")
    assert code == 0
    assert [row["status"] for row in rows] == ["refused", "ok", "refused", "ok"]
    assert "64x64" in rows[0]["reason"] and "backend" in rows[2]["reason"]
    assert rows[1]["percent_of_sdpa"] is None  # the baseline did not run


@needs_torch
@pytest.mark.parametrize("how", ["nan", "one", "later"])
def test_wrong_results(on_cpu, tmp_path, monkeypatch, capsys, how):
    import tessera

    attention, count = tessera.attention, itertools.count()

    def broken(*args, **options):
        out = attention(*args, **options)
        late = next(count) > 4  # 1: prepared, 2: checked, then timed
        if how == "nan" or how == "later" and late:
            out[0, 0, 3, 5] = math.nan
        elif how == "one":
            out[0, 0, 1] += 1e-3
        return out

    monkeypatch.setattr(tessera, "attention", broken)
    code, (ours, flash) = run_on_cpu(tmp_path / "r", "--causal", "none", "--baseline", "flash")
    assert code == 1 and flash["status"] == "ok"
    assert ours["status"] == "wrong" and ours["ms"] is None
    assert "wrong: tessera sm_90" in capsys.readouterr().err


@needs_torch
def test_noisy(on_cpu, tmp_path):
    code, rows = run_on_cpu(tmp_path / "r", "--causal", "none", "--noise", "2")
    assert code == 0 and [row["status"] for row in rows][0] == "noisy"
    assert rows[0]["ms"]["count"] == 3 and "after 3 repetitions" in rows[0]["reason"]


@needs_torch
def test_impossible(on_cpu, tmp_path):
    code, rows = run_on_cpu(tmp_path / "r", "--causal", "none", "--peak-tflops", "1e-9")
    assert code == 1 and [row["status"] for row in rows][0] == "impossible"
    assert "above the limit" in rows[0]["reason"] and rows[0]["ms"] is None


@needs_torch
def test_fell_back(on_cpu, tmp_path):
    class Falling(Cpu):
        def trace(self, call, pin):
            return gpu.Trace("math", ["gemm", "softmax"])

    code, (ours, other) = run_on_cpu(tmp_path / "r", "--causal", "none", device=Falling)
    assert code == 0 and (ours["status"], other["status"]) == ("ok", "fell_back")
    assert other["ms"] is None and "gemm" in other["reason"]


@needs_torch
def test_a_case_without_memory(on_cpu, tmp_path):
    class Full(Cpu):
        def inputs(self, case, seed):
            if case.causal == "none":
                raise self.torch.OutOfMemoryError("no memory")
            return super().inputs(case, seed)

    code, rows = run_on_cpu(tmp_path / "r", "--baseline", "flash", device=Full)
    assert code == 0
    assert [row["status"] for row in rows] == ["refused", "refused", "ok", "ok"]


@needs_torch
def test_operators_tell_the_backend():
    device = Cpu()
    case = cases.Case("f32", 1, 2, 2, 32, 32, 64, "none")
    call = device.sdpa(case, *device.inputs(case, 0))
    for pin in ("flash", "math"):
        with contextlib.suppress(KeyError):
            assert gpu.Gpu.trace(device, call, pin).backend == pin
