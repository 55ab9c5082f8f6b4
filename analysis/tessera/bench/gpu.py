# SPDX-License-Identifier: Apache-2.0
"""All that needs torch and a device. Importing this needs neither."""
from __future__ import annotations

import contextlib
import ctypes
import importlib
import shutil
import statistics
import subprocess
import time
import warnings
from collections.abc import Iterator
from typing import Any, Callable, NamedTuple, Optional

from .. import _library
from .cases import Case

_DTYPES = {"f32": "float32", "f16": "float16", "bf16": "bfloat16"}
_BACKENDS = {
    "flash": "FLASH_ATTENTION",
    "efficient": "EFFICIENT_ATTENTION",
    "cudnn": "CUDNN_ATTENTION",
    "math": "MATH",
}
# Parts of the names of kernels, and of aten's operators, by the backend that runs them.
_TRACES = {
    "cudnn": ("cudnn",),
    "flash": ("flash_fwd", "pytorch_flash", "flash_attention"),
    "efficient": ("fmha_cutlass", "mem_eff", "memeff", "efficient_attention"),
}
_CALLS = 50  # that call_us is the median of
_CLOCKS = {
    "clocks.sm": "sm_mhz",
    "clocks.mem": "memory_mhz",
    "clocks.max.sm": "max_sm_mhz",
    "power.draw": "power_w",
    "temperature.gpu": "temperature_c",
}
Call = Callable[[], Any]  # queues one attention, and returns its result


class Missing(Exception):
    """What this machine lacks."""


class Launch(NamedTuple):
    run: Callable[[], Any]  # queues it once
    out: Any  # where every run writes its result; None: run() returns it
    pin: Optional[str] = None  # the backend of SDPA that run() needs


class Trace(NamedTuple):
    """What a call ran; `backend` is None where nothing could be seen."""

    backend: Optional[str]
    kernels: list[str]


class Gpu:
    def __init__(self) -> None:
        try:
            self.torch = importlib.import_module("torch")
        except ImportError as error:
            raise Missing(f"torch cannot be imported: {error}") from None
        if not self.torch.cuda.is_available():
            raise Missing(f"torch {self.torch.__version__} finds no CUDA device")
        self._flushed = self.torch.empty(0)

    # What there is

    def arch(self) -> str:
        """The newest whose code this card runs."""
        capability = self.torch.cuda.get_device_capability()
        return "sm_90" if capability >= (9, 0) else "sm_89" if capability >= (8, 9) else "sm_75"

    def describe(self) -> dict[str, Any]:
        """The run's `card`, `driver`, `toolkit` and `torch`."""
        nvcc = shutil.which("nvcc") or shutil.which("nvcc", path="/usr/local/cuda/bin")
        version = _output([nvcc, "--version"]).splitlines() if nvcc else []
        return {
            "card": self.torch.cuda.get_device_name(),
            "driver": self._smi("driver_version").get("driver_version"),
            "toolkit": version[-1] if version else None,
            "torch": f"{self.torch.__version__}, CUDA {self.torch.version.cuda}",
        }

    def clocks(self) -> dict[str, float] | None:
        """While the card multiplies: an idle one's clock says nothing. None: no nvidia-smi."""
        a = self.torch.randn(4096, 4096, dtype=self.torch.float16, device="cuda")
        seen = self._smi(*_CLOCKS, meanwhile=lambda: a @ a)
        found = {}
        for name, key in _CLOCKS.items():
            with contextlib.suppress(KeyError, ValueError):  # "[N/A]"
                found[key] = float(seen[name])
        return found or None

    def _smi(self, *fields: str, meanwhile: Callable[[], Any] | None = None) -> dict[str, str]:
        uuid = getattr(self.torch.cuda.get_device_properties("cuda"), "uuid", None)
        query = ["nvidia-smi", "--format=csv,noheader,nounits", f"--query-gpu={','.join(fields)}"]
        text = _output(query + ([f"--id=GPU-{uuid}"] if uuid else []), self._loaded(meanwhile))
        return dict(zip(fields, text.split(", ")))

    def _loaded(self, meanwhile: Callable[[], Any] | None) -> Callable[[], None] | None:
        if meanwhile is None:
            return None

        def work() -> None:
            for _ in range(20):
                meanwhile()
            self.torch.cuda.synchronize()

        return work

    # The contenders' calls

    def inputs(self, case: Case, seed: int) -> tuple[Any, Any, Any]:
        generator = self.torch.Generator("cuda").manual_seed(seed)
        dtype = getattr(self.torch, _DTYPES[case.dtype])
        shapes = [(case.batch, heads, tokens, case.head_dim)
                  for heads, tokens in ((case.heads, case.q_len), (case.heads_kv, case.k_len))]
        q, k, v = (self.torch.randn(shapes[i], generator=generator, device="cuda").to(dtype)
                   for i in (0, 1, 1))
        return q, k, v

    def sdpa(self, case: Case, q: Any, k: Any, v: Any) -> Call:
        """torch's call, by whichever backend is allowed when it is made: see pinned()."""
        options: dict[str, Any] = {}
        if case.causal == "bottom_right" and case.q_len != case.k_len:
            bias = importlib.import_module("torch.nn.attention.bias")
            options["attn_mask"] = bias.causal_lower_right(case.q_len, case.k_len)
        elif case.causal != "none":
            options["is_causal"] = True
        if case.heads != case.heads_kv:
            options["enable_gqa"] = True
        function = self.torch.nn.functional.scaled_dot_product_attention
        return lambda: function(q, k, v, **options)

    @contextlib.contextmanager
    def pinned(self, backend: str | None) -> Iterator[None]:
        """SDPA runs `backend` or raises, torch's reasons in its message. None: changes nothing."""
        if backend is None:
            yield
            return
        module = importlib.import_module("torch.nn.attention")
        kind = getattr(module.SDPBackend, _BACKENDS[backend])
        with warnings.catch_warnings(record=True) as reasons, module.sdpa_kernel([kind]):
            warnings.simplefilter("always")
            try:
                yield
            except RuntimeError as error:
                said = [str(w.message).partition(" (Triggered")[0] for w in reasons]
                raise type(error)("; ".join([str(error), *dict.fromkeys(said)])) from error

    def trace(self, call: Call, pin: str) -> Trace:
        """What `call` runs, by torch's profiler; without kernels' names, by its operators'."""
        profiler = self.torch.profiler
        with self.pinned(pin):
            call()  # raises what a refusal raises
            self.synchronize()
        kinds = [profiler.ProfilerActivity.CPU, profiler.ProfilerActivity.CUDA]
        try:
            with self.pinned(pin), profiler.profile(activities=kinds) as profile:
                call()
                self.synchronize()
            events = list(profile.events())
        except RuntimeError:  # the profiler is not usable here: the call itself ran before
            return Trace(None, [])
        on_device = [e.name for e in events if "CUDA" in str(getattr(e, "device_type", ""))]
        kernels = [name for name in on_device if not name.startswith(("Mem", "aten::"))]
        operators = [e.name for e in events if "attention" in e.name and e.name not in on_device]
        return Trace(seen(kernels, operators), list(dict.fromkeys(kernels)))

    def prepared(self, call: Call, launch: str, out: Any = None, pin: str | None = None) -> Launch:
        """`call`, made once before, as it is to be timed: launch is "graph" or "call".

        out: the array that it writes, if that is always the same one.
        """
        with self.pinned(pin):
            return self._prepared(call, launch, out, pin)

    def _prepared(self, call: Call, launch: str, out: Any, pin: str | None) -> Launch:
        side = self.torch.cuda.Stream()
        side.wait_stream(self.torch.cuda.current_stream())
        with self.torch.cuda.stream(side):  # the first call loads code, which a capture cannot
            call()
        self.torch.cuda.current_stream().wait_stream(side)
        self.synchronize()
        if launch == "call":
            return Launch(call, out, pin)
        graph = self.torch.cuda.CUDAGraph()
        with self.torch.cuda.graph(graph):
            out = call()
        return Launch(graph.replay, out)

    def result(self, launch: Launch) -> Any:
        """Of one run, into memory that held NaN (but for SDPA's own, where no graph keeps it)."""
        if launch.out is not None:
            launch.out.fill_(float("nan"))
        with self.pinned(launch.pin):
            out = launch.run()
        self.synchronize()
        return out if launch.out is None else launch.out

    # Time

    def timer(self, launch: Launch, warm: bool) -> Callable[[], float]:
        """A function that runs it once and returns the device's milliseconds.

        Before that it writes over the L2; or, if warm, it runs the same once more.
        """
        begin, end = (self.torch.cuda.Event(enable_timing=True) for _ in range(2))
        flush = None if warm else self._flush_buffer()

        def took() -> float:
            if flush is not None:
                flush.fill_(1)
            with self.pinned(launch.pin):
                if flush is None:
                    launch.run()
                begin.record()
                launch.run()
                end.record()
            end.synchronize()
            return float(begin.elapsed_time(end))

        return took

    def call_us(self, call: Call, pin: str | None = None) -> float:
        """Median microseconds that the host spends in one call; it waits for none of them."""
        took = []
        self.synchronize()
        with self.pinned(pin):
            for _ in range(_CALLS):
                begin = time.perf_counter_ns()
                call()
                took.append(time.perf_counter_ns() - begin)
        self.synchronize()
        return statistics.median(took) / 1e3

    def synchronize(self) -> None:
        self.torch.cuda.synchronize()

    def _flush_buffer(self) -> Any:
        if self._flushed.numel() == 0:
            properties = self.torch.cuda.get_device_properties("cuda")
            size = 2 * getattr(properties, "L2_cache_size", 128 << 20)
            self._flushed = self.torch.empty(size, dtype=self.torch.int8, device="cuda")
        return self._flushed


def seen(kernels: list[str], operators: list[str]) -> str | None:
    """The backend by its kernels, or where these have names of another kind, by its operators."""
    by_kernels = backend_of(kernels)
    return by_kernels if by_kernels not in (None, "math") else backend_of(operators) or by_kernels


def backend_of(names: list[str]) -> str | None:
    """Whose kernels or operators these are; None if there are none."""
    if not names:
        return None
    text = "\n".join(names).lower()
    for backend, parts in _TRACES.items():
        if any(part in text for part in parts):
            return backend
    return "math"


def rate_limit(dtype: str) -> float | None:
    """TFLOP/s that the card can multiply at most, as the library measures it; None: it cannot."""
    try:
        measure = _library.library().tessera_cuda_rate_limit
    except AttributeError:  # an older library
        return None
    measure.argtypes = [ctypes.c_int32, ctypes.POINTER(ctypes.c_double)]
    measure.restype = ctypes.c_int
    limit = ctypes.c_double()
    status = measure(_library.DTYPES[_DTYPES[dtype]], ctypes.byref(limit))
    return limit.value if status == _library.OK and limit.value > 0 else None


def _output(command: list[str], meanwhile: Callable[[], None] | None = None) -> str:
    """What it prints; "" if it cannot run. `meanwhile` is called until it ends."""
    try:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                                   text=True)
    except OSError:
        return ""
    while meanwhile and process.poll() is None:
        meanwhile()
    text = process.communicate()[0].strip()
    return text if process.returncode == 0 else ""
