# SPDX-License-Identifier: Apache-2.0
"""Arrays of other packages than NumPy, without a GPU: made up here, and torch's on the CPU.

For CUDA devices, a stub in the library's place records what it is handed. Real ones: test_cuda.py.
"""
import ctypes
import gc
import subprocess
import sys
import types
import weakref
from pathlib import Path

import numpy as np
import pytest
from test_attention import assert_same_bits, check, draw_qkv, every_dtype, raises

import tessera
from tessera import _dlpack, _library

CPU, CUDA, CUDA_HOST, ROCM, MANAGED = 1, 2, 3, 10, 13
TYPES = {"float32": (2, 32), "float16": (2, 16), "bfloat16": (4, 16), "float64": (2, 64)}

new_capsule = ctypes.PYFUNCTYPE(
    ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p
)(("PyCapsule_New", ctypes.pythonapi))
capsule_name = ctypes.PYFUNCTYPE(ctypes.c_char_p, ctypes.py_object)(
    ("PyCapsule_GetName", ctypes.pythonapi)
)
Deleter = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class Producer:
    """NumPy's memory, as another package exports it; by default on the CPU."""

    name = b"dltensor"

    def __init__(self, array, device=(CPU, 0), byte_offset=0, strides=True, lanes=1, dtype=None):
        self.array, self.device = array, device
        self.byte_offset, self.strides, self.lanes = byte_offset, strides, lanes
        self.type = dtype or TYPES[array.dtype.name]
        self.streams = []
        self.lent = 0
        self.capsules = []
        self.deleter = Deleter(self.delete)

    def delete(self, address):
        assert address == ctypes.addressof(self.managed)
        self.lent -= 1

    def __dlpack_device__(self):
        return self.device

    def __dlpack__(self, stream=None):
        self.streams.append(stream)
        array, numbers = self.array, ctypes.c_int64 * self.array.ndim
        self.lengths = numbers(*array.shape)
        self.steps = numbers(*(step // array.itemsize for step in array.strides))
        tensor = _dlpack._DLTensor(
            array.ctypes.data - self.byte_offset, *self.device, array.ndim, *self.type, self.lanes,
            self.lengths, self.steps if self.strides else None, self.byte_offset,
        )
        self.managed = _dlpack._DLManagedTensor(
            tensor, None, ctypes.cast(self.deleter, ctypes.c_void_p)
        )
        self.lent += 1
        self.capsules.append(new_capsule(ctypes.addressof(self.managed), self.name, None))
        return self.capsules[-1]


class Interface:
    """NumPy's memory behind __cuda_array_interface__."""

    def __init__(self, array, **entries):
        self.array = array
        self.__cuda_array_interface__ = {
            "shape": array.shape, "typestr": array.dtype.str, "strides": array.strides,
            "data": (array.ctypes.data, False), "version": 3, **entries,
        }


def given_back(*producers):
    gc.collect()
    return all(
        p.lent == 0 and len(p.capsules) == 1 and capsule_name(p.capsules[0]) == b"used_dltensor"
        for p in producers
    )


# DLPack on the CPU: the emulator


@every_dtype
def test_producers_on_the_cpu(dtype):
    arrays = draw_qkv(2, 4, 2, 19, 35, 40, dtype)
    want = check(*arrays, causal=True)
    for device in ((CPU, 0), (CUDA_HOST, 0)):
        for options in ({}, {"strides": False}, {"byte_offset": 64}):
            producers = [Producer(x, device, **options) for x in arrays]
            got = tessera.attention(*producers, causal=True, return_lse=True)
            for g, w in zip(got, want):
                assert_same_bits(g, w)  # NumPy's, since the producer makes no arrays
            assert given_back(*producers) and producers[0].streams == [None]
    views = [Producer(x.swapaxes(1, 2).copy().swapaxes(1, 2)) for x in arrays]
    assert_same_bits(tessera.attention(*views, causal=True), want[0])


def test_out_of_a_producer():
    arrays = draw_qkv(1, 2, 1, 20, 30, 32)
    want = check(*arrays)
    out = Producer(np.full_like(arrays[0].swapaxes(1, 2), np.nan, order="C").swapaxes(1, 2))
    lse_out = Producer(np.full_like(want[1], np.nan))
    producers = [Producer(x) for x in arrays]
    got = tessera.attention(*producers, return_lse=True, out=out, lse_out=lse_out)
    assert got[0] is out and got[1] is lse_out and given_back(*producers, out, lse_out)
    assert_same_bits(out.array, want[0])
    assert_same_bits(lse_out.array, want[1])
    numpys = np.full_like(want[0], np.nan)
    assert tessera.attention(*map(Producer, arrays), out=numpys) is numpys
    assert_same_bits(numpys, want[0])


def test_results_by_the_array_api():
    class Namespace(types.SimpleNamespace):
        def asarray(self, array):
            return ("made", array)

    class Standard(Producer):
        def __array_namespace__(self):
            return Namespace()

    arrays = draw_qkv(1, 2, 1, 20, 30, 32)
    o, lse = tessera.attention(*map(Standard, arrays), return_lse=True)
    assert (o[0], lse[0]) == ("made", "made")
    assert_same_bits(o[1], tessera.attention(*arrays))


def test_numpys_own_dlpack():
    class Wrapper:
        def __init__(self, array):
            self.__dlpack__, self.__dlpack_device__ = array.__dlpack__, array.__dlpack_device__

    arrays = draw_qkv(1, 2, 1, 20, 30, 32)
    want = tessera.attention(*arrays)
    assert_same_bits(tessera.attention(*map(Wrapper, arrays)), want)
    references = [weakref.ref(x) for x in arrays]
    del arrays
    gc.collect()
    assert not any(reference() is not None for reference in references)  # nothing kept them


def test_a_producer_without_a_deleter():
    arrays = draw_qkv(1, 1, 1, 4, 4, 8)
    producers = [Producer(x) for x in arrays]
    for producer in producers:
        producer.deleter = None
    assert_same_bits(tessera.attention(*producers), tessera.attention(*arrays))


def test_capsules_are_given_back_after_errors():
    q, k, v = draw_qkv(1, 2, 1, 20, 30, 32)
    for wrong in (v[:, :, 1:], v[0], v.astype(np.float64), v.astype(np.float16)):
        producers = [Producer(x) for x in (q, k, wrong)]
        with pytest.raises((TypeError, ValueError), match="^v: "):
            tessera.attention(*producers)
        assert given_back(*producers)


@pytest.mark.parametrize("name, position", [("q", 0), ("k", 1), ("v", 2)])
def test_wrong_producers(name, position):
    def call(producer):
        producers = [Producer(x) for x in draw_qkv(1, 1, 1, 4, 4, 8)]
        producers[position] = producer
        tessera.attention(*producers)

    class Failing(Producer):
        def __dlpack__(self, stream=None):
            raise BufferError("not today")

    class NotACapsule(Producer):
        def __dlpack__(self, stream=None):
            return self.array

    class Versioned(Producer):
        name = b"dltensor_versioned"

    class Used(Producer):
        name = b"used_dltensor"

    class Nowhere(Producer):
        def __dlpack_device__(self):
            raise ValueError("no device")

    x = draw_qkv(1, 1, 1, 4, 4, 8)[0]
    for error, producer, words in [
        (TypeError, Failing(x), ["__dlpack__", "test_dlpack.Failing", "not today"]),
        (TypeError, NotACapsule(x), ["ndarray is not an unused DLPack capsule"]),
        (TypeError, Versioned(x), ["not an unused DLPack capsule"]),
        (TypeError, Used(x), ["not an unused DLPack capsule"]),
        (TypeError, Nowhere(x), ["__dlpack_device__", "no device"]),
        (tessera.UnsupportedError, Producer(x, (ROCM, 0)), ["DLPack device type 10"]),
        (TypeError, Producer(x.astype(np.float64)), ["dtype float64"]),
        (TypeError, Producer(x, dtype=(0, 32)), ["dtype int32"]),
        (TypeError, Producer(x, dtype=(6, 8)), ["dtype bool"]),
        (TypeError, Producer(x, dtype=(10, 8)), ["dtype DLPack type 10, 8"]),
        (TypeError, Producer(x, lanes=2), ["dtype float32x2"]),
        (ValueError, Producer(x[None]), ["rank 5"]),
        (ValueError, Producer(x[0]), ["rank 3"]),
        (ValueError, Producer(np.repeat(x, 2, axis=3)[..., ::2]), ["stride 2"]),
        (ValueError, Producer(x[:, :, ::-1]), ["stride"]),
    ]:
        with raises(error, f"^{name}: ", *words):
            call(producer)
    if position:
        with raises(TypeError, f"^{name}: ", "numpy.ndarray", "test_dlpack.Producer", "package"):
            call(x)


def test_nothing_is_imported():
    code = "import sys, tessera; print(*{'torch', 'cupy', 'jax'} & set(sys.modules))"
    where = {"PYTHONPATH": str(Path(tessera.__file__).parents[1])}
    done = subprocess.run([sys.executable, "-c", code], env=where, capture_output=True, text=True)
    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, "", "")


# out and lse_out of NumPy


def test_out():
    arrays = draw_qkv(2, 4, 2, 19, 35, 40)
    want = check(*arrays)
    out = np.full((2, 19, 4, 40), np.nan, np.float32).swapaxes(1, 2)
    lse_out = np.full((2, 4, 19), np.nan, np.float32)
    got = tessera.attention(*arrays, return_lse=True, out=out, lse_out=lse_out)
    assert got[0] is out and got[1] is lse_out
    assert_same_bits(out, want[0])
    assert_same_bits(lse_out, want[1])
    assert tessera.attention(*arrays, out=out) is out


def test_wrong_out():
    q, k, v = draw_qkv(1, 2, 1, 20, 30, 32)
    read_only = np.empty_like(q)
    read_only.flags.writeable = False
    for out, error, words in [
        (np.empty_like(q[:, :, 1:]), ValueError, ["length"]),
        (np.empty_like(q[0]), ValueError, ["rank 3"]),
        (np.empty_like(q, np.float16), ValueError, ["dtype"]),
        (np.empty_like(q, np.float64), TypeError, ["dtype float64"]),
        (np.empty_like(q).astype(">f4"), ValueError, ["byte-swapped"]),
        (np.broadcast_to(np.empty_like(q[:, :1]), q.shape), ValueError, ["read-only"]),
        (read_only, ValueError, ["read-only"]),
        (np.empty_like(np.repeat(q, 2, axis=3))[..., ::2], ValueError, ["stride 2"]),
        (np.empty_like(q)[:, :, ::-1], ValueError, ["stride"]),
        (q, ValueError, ["overlap"]),
        (Producer(np.empty_like(q)), TypeError, ["test_dlpack.Producer", "numpy.ndarray"]),
        ([], TypeError, ["list"]),
    ]:
        with raises(error, "^out: ", *words):
            tessera.attention(q, k, v, out=out)
    lse = np.empty((1, 2, 20), np.float32)
    for lse_out, error, words in [
        (lse[:, :, :19], ValueError, ["length"]),
        (lse.astype(np.float16), ValueError, ["dtype"]),
        (np.empty((1, 2, 40), np.float32)[:, :, :20], ValueError, ["contiguous"]),
    ]:
        with raises(error, "^lse_out: ", *words):
            tessera.attention(q, k, v, return_lse=True, lse_out=lse_out)
    with raises(ValueError, "^lse_out: ", "return_lse"):
        tessera.attention(q, k, v, lse_out=lse)
    for stream in (0, 7):
        with raises(ValueError, "^stream: ", "CPU"):
            tessera.attention(q, k, v, stream=stream)


# CUDA devices


class Recorder:
    """A library that notes its arguments and succeeds."""

    def __init__(self):
        self.tensors, self.options = None, None

    def tessera_attention(self, *arguments):
        *tensors, options = (x if x is None else x._obj for x in arguments)  # out of byref()
        self.tensors = tensors
        self.options = {name: getattr(options, name) for name, _ in options._fields_}
        return 0

    def tessera_last_report(self):
        return b"{}"


@pytest.fixture
def recorder(monkeypatch):
    stub = Recorder()
    monkeypatch.setattr(_library, "library", lambda: stub)
    return stub


def on_cuda(*arrays, device=(CUDA, 0)):
    return [Producer(x, device) for x in arrays]


@every_dtype
def test_cuda_producers(dtype, recorder):
    q, k, v = draw_qkv(1, 2, 1, 20, 30, 32, dtype)
    lse = np.empty((1, 2, 20), np.float32)
    for stream, at_library, at_producer in [
        ({}, None, 1),  # 1: the legacy default stream, whose other handle 0 DLPack does not allow
        ({"stream": 0}, None, 1),
        ({"stream": 1}, 1, 1),
        ({"stream": 2}, 2, 2),
        ({"stream": types.SimpleNamespace(cuda_stream=2**47)}, 2**47, 2**47),
        ({"stream": types.SimpleNamespace(ptr=2**63)}, 2**63, 2**63),
    ]:
        *inputs, out, lse_out = on_cuda(q, k, v, np.empty_like(q), lse)
        result = tessera.attention(*inputs, return_lse=True, out=out, lse_out=lse_out, **stream)
        assert result[0] is out and result[1] is lse_out
        assert recorder.options["target"] == b"cuda" and recorder.options["exp2"] is None
        assert recorder.options["stream"] == at_library
        for tensor, array in zip(recorder.tensors, (*inputs, out, lse_out)):
            assert tensor.data == array.array.ctypes.data
            assert list(tensor.shape)[: tensor.ndim] == list(array.array.shape)
            assert array.streams == [at_producer]
        assert recorder.tensors[0].dtype == _library.DTYPES[dtype]
        assert given_back(*inputs, out, lse_out)


def test_managed_memory_is_cudas(recorder):
    q, k, v, o = (
        Producer(x, (kind, 0))
        for x, kind in zip(draw_qkv(1, 1, 1, 4, 4, 8) * 2, (CUDA, MANAGED, CUDA, MANAGED))
    )
    tessera.attention(q, k, v, out=o)
    tessera.attention(k, q, v, out=o)
    assert recorder.options["target"] == b"cuda"


def test_devices_must_agree(recorder):
    arrays = draw_qkv(1, 1, 1, 4, 4, 8)
    for position, name in ((1, "k"), (2, "v")):
        for device, words in (((CUDA, 1), "CUDA device 1"), ((CPU, 0), "the CPU")):
            producers = on_cuda(*arrays)
            producers[position].device = device
            with raises(ValueError, f"^{name}: ", f"on {words}", "q is on CUDA device 0"):
                tessera.attention(*producers, out=producers[0])
        producers = on_cuda(*arrays, device=(CPU, 0))
        producers[position].device = (CUDA, 3)
        with raises(ValueError, f"^{name}: ", "on CUDA device 3", "q is on the CPU"):
            tessera.attention(*producers)
    with raises(ValueError, "^out: ", "the CPU"):
        tessera.attention(*on_cuda(*arrays), out=Producer(arrays[0]))
    assert recorder.options is None


def test_unknown_packages_on_cuda_need_out(recorder):
    arrays = on_cuda(*draw_qkv(1, 1, 1, 4, 4, 8))
    with raises(TypeError, "^out: ", "test_dlpack.Producer"):
        tessera.attention(*arrays)
    with raises(TypeError, "^lse_out: "):
        tessera.attention(*arrays, return_lse=True, out=arrays[0])


@pytest.mark.parametrize("option, value", [
    ("card", "t4"), ("isa", "v3"), ("numerics", "fma"), ("threads", 2), ("order_seed", 3),
    ("checks", True),
])
def test_options_of_the_emulator_are_refused_on_cuda(option, value, recorder):
    arrays = on_cuda(*draw_qkv(1, 1, 1, 4, 4, 8))
    with raises(ValueError, f"^{option}: ", "emulator", "CUDA"):
        tessera.attention(*arrays, out=arrays[0], **{option: value})


@pytest.mark.parametrize("value, error", [
    ("7", TypeError), (1.5, TypeError), ([], TypeError), (-1, ValueError), (2**64, ValueError),
])
def test_wrong_streams(value, error, recorder):
    arrays = on_cuda(*draw_qkv(1, 1, 1, 4, 4, 8))
    with raises(error, "^stream: "):
        tessera.attention(*arrays, out=arrays[0], stream=value)


def test_cuda_array_interface(recorder):
    q, k, v = draw_qkv(1, 2, 2, 20, 30, 32, "float16")
    view = k.swapaxes(1, 2).copy().swapaxes(1, 2)
    out = Interface(np.empty_like(q), strides=None)
    assert tessera.attention(Interface(q), Interface(view), Interface(v), out=out) is out
    assert recorder.options["target"] == b"cuda" and recorder.options["stream"] is None
    assert [t.data for t in recorder.tensors[:3]] == [x.ctypes.data for x in (q, view, v)]
    assert list(recorder.tensors[1].stride)[1:] == [32, 64, 1]
    assert list(recorder.tensors[3].stride) == [1280, 640, 32, 1]

    def call(**entries):
        entries = {"k": {}, "out": {}, **entries}
        tessera.attention(Interface(q), Interface(k, **entries["k"]), Interface(v),
                          out=Interface(np.empty_like(q), **entries["out"]))

    call(k={"stream": 9})
    assert recorder.options["stream"] == 9
    with raises(ValueError, "^out: ", "stream"):
        call(k={"stream": 9}, out={"stream": 10})
    with raises(ValueError, "^out: ", "read-only"):
        call(out={"data": (q.ctypes.data, True)})
    with raises(TypeError, "^k: ", "mask"):
        call(k={"mask": q})
    with raises(TypeError, "^k: ", "dtype void16"):
        call(k={"typestr": "<V2"})
    with raises(ValueError, "^k: ", "strides"):
        call(k={"strides": (3841, 1920, 64, 2)})


def test_the_library_says_why_there_is_no_device():
    if any(Path("/dev").glob("nvidia[0-9]*")):
        pytest.skip("there is a CUDA device")
    arrays = on_cuda(*draw_qkv(1, 1, 1, 4, 4, 8))
    with raises(tessera.UnsupportedError, "^target: cuda: ", "no CUDA|NVIDIA driver"):
        tessera.attention(*arrays, out=Producer(np.empty((1, 1, 4, 8), np.float32), (CUDA, 0)))
    assert given_back(*arrays)


# torch: a stand-in for its CUDA devices, and its own tensors on the CPU


class FakeTorch(types.SimpleNamespace):
    """As much of torch as is asked of it for tensors on a CUDA device."""

    def __init__(self):
        log = []

        class Stream:
            def __init__(self, cuda_stream):
                self.cuda_stream = cuda_stream

            def wait_stream(self, other):
                log.append(("wait", self.cuda_stream, other.cuda_stream))

        class Tensor(Producer):
            layout = "strided"
            requires_grad = False
            device = "cuda:0"

            def __init__(self, array):
                super().__init__(array, (CUDA, 0))
                self.dtype, self.shape, self.ndim = array.dtype, array.shape, array.ndim

            def stride(self, axis=None):
                strides = tuple(step // self.array.itemsize for step in self.array.strides)
                return strides if axis is None else strides[axis]

            def is_neg(self):
                return False

            def data_ptr(self):
                return self.array.ctypes.data

            def new_empty(self, shape, dtype):
                return Tensor(np.empty(shape, np.float32))

            def record_stream(self, stream):
                log.append(("record", self, stream.cuda_stream))

        super().__init__(
            log=log, Tensor=Tensor, strided="strided", float32="float32",
            is_grad_enabled=lambda: True, to_dlpack=lambda tensor: tensor.__dlpack__(stream=-1),
            cuda=types.SimpleNamespace(
                current_stream=lambda device: Stream(40),
                default_stream=lambda device: Stream(0),
                ExternalStream=lambda pointer, device: Stream(pointer),
            ),
        )


@pytest.mark.parametrize("stream, at_library, waits", [
    (None, 40, None), (40, 40, None), (50, 50, 50), (0, None, 0), (1, 1, 0),
])
@pytest.mark.parametrize("plain", [True, False])
def test_torchs_streams(plain, stream, at_library, waits, recorder, monkeypatch):
    torch = FakeTorch()
    monkeypatch.setitem(sys.modules, "torch", torch)
    kind = torch.Tensor if plain else type("Subclass", (torch.Tensor,), {})
    tensors = [kind(x) for x in draw_qkv(1, 1, 1, 4, 4, 8)]
    o, lse = tessera.attention(*tensors, return_lse=True, stream=stream)
    assert recorder.options["stream"] == at_library
    assert [t.data for t in recorder.tensors] == [t.data_ptr() for t in (*tensors, o, lse)]
    if not plain:  # a subclass may mean something else by its memory: DLPack knows
        assert given_back(*tensors)
    if waits is None:
        assert torch.log == []
    else:
        assert torch.log == [("wait", waits, 40)] + [
            ("record", tensor, waits) for tensor in (*tensors, o, lse)
        ]


def test_reports_are_read_when_asked_for(recorder, monkeypatch):
    asked = []
    monkeypatch.setattr(recorder, "tessera_last_report",
                        lambda: asked.append(1) or b'{"kernel": "any"}', raising=False)
    arrays = on_cuda(*draw_qkv(1, 1, 1, 4, 4, 8))
    out = Producer(np.empty((1, 1, 4, 8), np.float32), (CUDA, 0))
    tessera.attention(*arrays, out=out)
    assert not asked
    assert tessera.last_report() == {"kernel": "any"} and asked == [1]
    with raises(ValueError, "^causal: "):
        tessera.attention(*arrays, out=out, causal="left")
    assert tessera.last_report() == {}


def test_kept_options_are_the_calls_own(recorder):
    """The C options of a call are kept, and values that are equal in Python may not be in C."""
    arrays = on_cuda(*draw_qkv(1, 1, 1, 4, 4, 8))
    out = Producer(np.empty((1, 1, 4, 8), np.float32), (CUDA, 0))

    def options(**given):
        tessera.attention(*arrays, out=out, **given)
        return recorder.options

    for scale in (0.5, None, 2.0, 0.25):
        got = options(scale=scale, stream=7)
        assert (got["has_scale"], got["scale"]) == (scale is not None, scale or 0)
        assert options()["stream"] is None and options()["has_scale"] == 0
    for config in ("64x64", "64x32", None):
        assert options(config=config)["config"] == (config and config.encode())
    for causal, code in ((True, 1), ("bottom-right", 2), (False, 0), ("top-left", 1)):
        assert options(causal=causal)["causal"] == code
    assert options(window=(3, 4))["left"] == 3 and options()["has_left"] == 0
    for _ in range(2):
        with raises(TypeError, "^order_seed: "):
            options(order_seed=0.0)  # equal to what was kept
        with raises(TypeError, "^kernel: "):
            options(kernel=["flash_forward"])
        with raises(ValueError, "^causal: "):
            options(causal=[])


@every_dtype
def test_torch_on_the_cpu(dtype):
    torch = pytest.importorskip("torch")
    arrays = draw_qkv(2, 4, 2, 19, 35, 40, dtype)
    want = check(*arrays, causal=True)

    def tensor(array):
        return torch.from_numpy(array.view("i2" if array.itemsize == 2 else "i4")).view(
            getattr(torch, dtype)
        )

    def array(tensor):
        bits = tensor.view(torch.int16 if tensor.element_size() == 2 else torch.int32)
        return bits.numpy().view(arrays[0].dtype if tensor.dtype != torch.float32 else "f4")

    tensors = [tensor(x) for x in arrays]
    layouts = [
        tensors,
        [x.transpose(1, 2).contiguous().transpose(1, 2) for x in tensors],
        [torch.stack([x, x], dim=4)[..., 0] for x in tensors],
    ]
    for views in layouts:
        o, lse = tessera.attention(*views, causal=True, return_lse=True)
        assert type(o) is torch.Tensor and type(lse) is torch.Tensor
        assert_same_bits(array(o), want[0])
        assert_same_bits(array(lse), want[1])
    out, lse_out = torch.empty_like(o), torch.empty_like(lse)
    got = tessera.attention(*tensors, causal=True, return_lse=True, out=out, lse_out=lse_out)
    assert got[0] is out and got[1] is lse_out and torch.equal(out, o) and torch.equal(lse_out, lse)


@every_dtype
def test_jax_on_the_cpu(dtype):
    jax = pytest.importorskip("jax")
    arrays = draw_qkv(1, 2, 1, 20, 30, 32, dtype)
    with jax.default_device(jax.devices("cpu")[0]):
        theirs = [jax.numpy.asarray(x) for x in arrays]
        got = tessera.attention(*theirs, return_lse=True)
    for g, w in zip(got, check(*arrays)):
        assert isinstance(g, jax.Array)
        assert_same_bits(np.asarray(g), w)
    with raises(TypeError, "^out: ", "immutable"):
        tessera.attention(*theirs, out=theirs[0])


def test_torch_refuses():
    torch = pytest.importorskip("torch")
    tensors = {name: torch.from_numpy(x) for name, x in zip("qkv", draw_qkv(1, 1, 1, 4, 4, 8))}
    want = tessera.attention(**tensors)
    for name, tensor in tensors.items():
        with_grad = {**tensors, name: tensor.clone().requires_grad_()}
        with raises(tessera.UnsupportedError, f"^{name}: ", "backward", "no_grad"):
            tessera.attention(**with_grad)
        for off in (torch.no_grad, torch.inference_mode):
            with off():
                assert torch.equal(tessera.attention(**with_grad), want)
        for wrong, error, words in [
            (tensor.double(), TypeError, ["float64"]),
            (tensor.to_sparse(), TypeError, ["sparse"]),
            (tensor.to("meta"), TypeError, ["meta"]),
            (torch.complex(tensor, tensor).conj().imag, TypeError, ["negated"]),
        ]:
            with raises(error, f"^{name}: ", *words):
                tessera.attention(**{**tensors, name: wrong})
        if name != "q":
            with raises(TypeError, f"^{name}: ", "numpy.ndarray", "torch.Tensor"):
                tessera.attention(**{**tensors, name: tensor.numpy()})
