# SPDX-License-Identifier: Apache-2.0
"""torch's tensors on a GPU against a float64 reference; CuPy's and others' beside them.

Under pytest, or alone: `TESSERA_LIBRARY=build/libtessera.so python3 tests/python/test_cuda.py`.
"""
import math
import sys
import traceback
import unittest
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "analysis"))


def skip_all(why):
    if __name__ == "__main__":
        print(f"skipped: {why}")
        sys.exit(0)
    raise unittest.SkipTest(why)


try:
    import torch
except ImportError:
    skip_all("torch is not installed")

import tessera

if not torch.cuda.is_available():
    skip_all("torch finds no CUDA device")
try:
    tessera.attention(*(torch.zeros(1, 1, 1, 8, device="cuda") for _ in range(3)))
except tessera.UnsupportedError as error:  # a library without the CUDA part, too old a card
    skip_all(error)

FP32 = 2.0**-24
UNIT_ROUNDOFF = {torch.float32: FP32, torch.float16: 2.0**-11, torch.bfloat16: 2.0**-8}
DTYPES = [
    dtype
    for dtype in UNIT_ROUNDOFF
    if dtype != torch.bfloat16 or torch.cuda.get_device_capability() >= (8, 0)
]
HALF = torch.float16


def draw(*shape, dtype=torch.float32, seed=0):
    generator = torch.Generator(device="cuda").manual_seed(seed)
    return torch.randn(shape, device="cuda", generator=generator).to(dtype)


def draw_qkv(batch, heads, heads_kv, q_len, k_len, head_dim, dtype=torch.float32, seed=0):
    q = draw(batch, heads, q_len, head_dim, dtype=dtype, seed=seed)
    k = draw(batch, heads_kv, k_len, head_dim, dtype=dtype, seed=seed + 1)
    v = draw(batch, heads_kv, k_len, head_dim, dtype=dtype, seed=seed + 2)
    return q, k, v


def within(what, got, want, tolerance):
    error = torch.where(got == want, 0.0, (got - want).abs())  # equal infinities differ by nothing
    wrong = ~(error <= tolerance)  # NaN is wrong
    assert not wrong.any(), (
        f"{what}: {int(wrong.sum())} of {wrong.numel()} wrong, the largest error is "
        f"{error.nan_to_num(math.inf).max().item():.3g}"
    )


def assert_attention(o, lse, q, k, v, causal=False, scale=None, window=None, align=None):
    """Holds O and LSE to the float64 formula: the bounds of test_attention.py."""
    assert o.dtype == q.dtype and o.shape == q.shape and o.device == q.device
    assert lse.dtype == torch.float32 and lse.shape == q.shape[:3] and lse.device == q.device
    if not o.numel():
        return
    unit = UNIT_ROUNDOFF[q.dtype]
    group = q.shape[1] // k.shape[1]
    q, k, v = (x.double() for x in (q, k, v))
    k, v = (x.repeat_interleave(group, dim=1) for x in (k, v))
    q_len, head_dim, k_len = q.shape[2], q.shape[3], k.shape[2]
    if k_len == 0:
        assert (o == 0).all() and (lse == -math.inf).all()
        return
    scale = head_dim**-0.5 if scale is None else scale

    shift = k_len - q_len if "bottom-right" in (causal, align) else 0
    rows = torch.arange(q_len, device=q.device)[:, None]
    offset = torch.arange(k_len, device=q.device) - rows - shift
    left, right = window or (None, None)
    visible = torch.ones_like(offset, dtype=torch.bool)
    if left not in (None, -1):
        visible &= -left <= offset
    if right not in (None, -1):
        visible &= offset <= right
    if causal:
        visible &= offset <= 0
    score = torch.where(visible, scale * (q @ k.mT), -math.inf)
    largest = score.amax(dim=3, keepdim=True)
    largest = torch.where(largest == -math.inf, 0.0, largest)
    weight = torch.exp(score - largest)
    total = weight.sum(dim=3, keepdim=True)
    want_lse = (largest + torch.log(total))[..., 0]
    probability = weight / torch.where(total == 0, 1.0, total)

    largest_q = q.abs().amax(dim=3, keepdim=True)
    largest_k, largest_v = (x.abs().amax(dim=(2, 3), keepdim=True) for x in (k, v))
    score_error = 4 * head_dim * abs(scale) * largest_q * largest_k
    tolerance = 2 * unit * (probability @ v.abs()) + FP32 * (score_error + 16) * largest_v
    if o.dtype == torch.float16:
        tolerance += 2.0**-25  # half the spacing of its subnormals
    within("O", o.double(), probability @ v, tolerance)
    magnitude = torch.where(want_lse.isinf(), 0.0, want_lse.abs()) + math.log(k_len)
    lse_tolerance = FP32 * (score_error[..., 0] + k_len / 2 + 4 + 4 * magnitude)
    within("LSE", lse.double(), want_lse, lse_tolerance)


def check(q, k, v, causal=False, scale=None, window=None, align=None, **options):
    mask = {"causal": causal, "window": window, "align": align, "scale": scale}
    before = torch.cuda.current_device()
    o, lse = tessera.attention(q, k, v, **mask, return_lse=True, **options)
    assert type(o) is torch.Tensor and o.is_contiguous() and not o.requires_grad
    assert torch.cuda.current_device() == before
    assert_attention(o, lse, q, k, v, **mask)
    return o, lse


def assert_same_bits(got, want):
    for g, w in zip(got, want):
        assert g.dtype == w.dtype and g.shape == w.shape
        integer = {2: torch.int16, 4: torch.int32}[g.element_size()]
        assert torch.equal(g.contiguous().view(integer), w.contiguous().view(integer))


def raises(error, *words):
    return _Raises(error, words)


class _Raises:  # pytest may be missing
    def __init__(self, error, words):
        self.error, self.words = error, words

    def __enter__(self):
        return self

    def __exit__(self, kind, value, trace):
        assert kind is not None, f"nothing raised; expected {self.error.__name__}"
        if not issubclass(kind, self.error):
            return False
        assert all(word in str(value) for word in self.words), f"{self.words} not in: {value}"
        return True


# Results


def test_shapes_and_masks():
    shapes = [  # batch, heads, heads_kv, q_len, k_len, head_dim
        (1, 1, 1, 1, 1, 8),
        (2, 2, 2, 16, 16, 64),
        (1, 3, 1, 17, 33, 40),
        (2, 4, 2, 150, 171, 80),
        (1, 2, 2, 333, 666, 128),
        (3, 1, 1, 5, 100, 3),
        (1, 1, 1, 70, 19, 1),
        (2, 8, 2, 1024, 1024, 64),
    ]
    for shape in shapes:
        for dtype in DTYPES:
            for causal in (False, True, "bottom-right"):
                check(*draw_qkv(*shape, dtype), causal=causal)


def test_windows():
    for dtype in DTYPES:
        q, k, v = draw_qkv(1, 4, 2, 200, 300, 64, dtype)
        for window in ((50, 30), (50, -1), (None, 30), (0, 0)):
            for align in (None, "top-left", "bottom-right"):
                check(q, k, v, window=window, align=align)
        check(q, k, v, causal="bottom-right", window=(70, None))


def test_scale():
    for scale in (0.0, 0.3, 1, -0.5):
        check(*draw_qkv(1, 2, 2, 100, 137, 32), causal=True, scale=scale)


def test_empty():
    for shape in ((0, 2, 1, 5, 7, 32), (2, 2, 1, 0, 7, 32), (2, 2, 1, 5, 0, 32)):
        check(*draw_qkv(*shape, HALF))


def test_what_runs():
    q, k, v = draw_qkv(1, 2, 2, 64, 64, 64, HALF)
    check(q, k, v)
    report = tessera.last_report()
    assert report["target"] == "cuda" and report["exp2"] == "hardware"
    assert report["kernel"] == "flash_forward"
    check(q, k, v, exp2="soft")
    assert tessera.last_report()["exp2"] == "soft"
    major, minor = torch.cuda.get_device_capability()
    for kernel in tessera.kernels():
        for row in kernel["configs"]:
            takes = "f16" in row["dtypes"] and 64 in row["head_dims"] and "cuda" in row["targets"]
            arch = int(row["arch"][3:])
            if kernel["name"] == "flash_forward" and takes and arch <= 10 * major + minor:
                check(q, k, v, causal=True, arch=row["arch"], config=row["config"])


def test_same_bits_as_the_emulator():
    if "H200" not in torch.cuda.get_device_name():
        raise unittest.SkipTest("equal bits are claimed for an H200 of the cards with sm_90")
    for dtype in DTYPES:
        q, k, v = draw_qkv(1, 2, 1, 70, 91, 64, dtype)
        got = tessera.attention(q, k, v, causal=True, return_lse=True, exp2="soft", arch="sm_90")
        on_cpu = (x.cpu() for x in (q, k, v))
        try:
            want = tessera.attention(*on_cpu, causal=True, return_lse=True, arch="sm_90",
                                     card="h200")
        except tessera.UnsupportedError as error:
            raise unittest.SkipTest(f"no emulator here: {error}") from None
        assert all(x.device.type == "cpu" for x in want)
        assert_same_bits([x.cpu() for x in got], want)


# Strides


LAYOUTS = {
    "batch, length, heads, head_dim": lambda x: x.transpose(1, 2).contiguous().transpose(1, 2),
    "length outermost": lambda x: x.permute(2, 0, 1, 3).contiguous().permute(1, 2, 0, 3),
    "head_dim outermost": lambda x: x.permute(3, 0, 1, 2).contiguous().permute(1, 2, 3, 0),
    "padded rows": lambda x: torch.nn.functional.pad(x, (0, 8), value=math.nan)[..., :-8],
    "odd rows": lambda x: torch.nn.functional.pad(x, (0, 1), value=math.nan)[..., :-1],
    "innermost stride 2": lambda x: torch.stack([x, x * math.nan], dim=4)[..., 0],
    "offset by an element": lambda x: torch.cat([x.new_zeros(1), x.flatten()])[1:].view(x.shape),
}


def test_layouts_do_not_change_a_bit():
    for dtype in DTYPES:
        for head_dim in (40, 64):
            contiguous = draw_qkv(2, 4, 2, 67, 135, head_dim, dtype)
            want = check(*contiguous, causal=True)
            for name, layout in LAYOUTS.items():
                views = [layout(x) for x in contiguous]
                assert all(torch.equal(view, x) for view, x in zip(views, contiguous)), name
                assert_same_bits(check(*views, causal=True), want)


def test_packed_qkv():
    for dtype in DTYPES:
        packed = draw(2, 121, 3, 4, 64, dtype=dtype)  # B N 3 H D
        q, k, v = (x.transpose(1, 2) for x in packed.unbind(2))
        assert_same_bits(check(q, k, v), check(*(x.contiguous() for x in (q, k, v))))


def test_expanded():
    for dtype in DTYPES:
        q = draw(1, 4, 37, 32, dtype=dtype).expand(3, 4, 37, 32)
        k = draw(3, 1, 26, 32, dtype=dtype, seed=1).expand(3, 2, 26, 32)
        v = draw(3, 2, 26, 1, dtype=dtype, seed=2).expand(3, 2, 26, 32)
        assert_same_bits(check(q, k, v), check(*(x.contiguous() for x in (q, k, v))))


# Outputs that are given


def test_out():
    for dtype in DTYPES:
        q, k, v = draw_qkv(2, 4, 2, 67, 135, 64, dtype)
        want = check(q, k, v)
        out = torch.full((2, 67, 4, 64), math.nan, dtype=dtype, device="cuda").transpose(1, 2)
        lse_out = torch.full((2, 4, 67), math.nan, device="cuda")
        got = tessera.attention(q, k, v, return_lse=True, out=out, lse_out=lse_out)
        assert got[0] is out and got[1] is lse_out
        assert_same_bits(got, want)
        assert tessera.attention(q, k, v, out=out) is out


# Streams and graphs


CYCLES = 100_000_000  # some 50 ms of a GPU's clock: work queued behind it has not run yet


def test_current_stream():
    q, k, v = draw_qkv(1, 2, 2, 100, 100, 64, HALF)
    want = check(q, k, v)
    late = torch.full_like(q, math.nan)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        tessera.attention(q, k, v, return_lse=True)  # leaves memory for the outputs
    torch.cuda.synchronize()
    with torch.cuda.stream(side):
        torch.cuda._sleep(CYCLES)
        late.copy_(q)
        got = tessera.attention(late, k, v, return_lse=True)
    assert not side.query(), "the call waited"
    side.synchronize()
    assert_same_bits(got, want)


def test_given_stream_waits_for_the_current_one():
    q, k, v = draw_qkv(1, 2, 2, 100, 100, 64, HALF)
    want = check(q, k, v)
    side = torch.cuda.Stream()
    for given in (side, side.cuda_stream):
        late = torch.full_like(q, math.nan)
        torch.cuda.synchronize()
        torch.cuda._sleep(CYCLES)
        late.copy_(q)
        got = tessera.attention(late, k, v, return_lse=True, stream=given)
        assert not side.query(), "it did not run there, or the call waited"
        side.synchronize()
        assert_same_bits(got, want)


def test_given_default_stream():
    q, k, v = draw_qkv(1, 2, 2, 100, 100, 64, HALF)
    want = check(q, k, v)
    side = torch.cuda.Stream()
    for given in (0, 1, torch.cuda.default_stream()):
        late = torch.full_like(q, math.nan)
        torch.cuda.synchronize()
        with torch.cuda.stream(side):
            torch.cuda._sleep(CYCLES)
            late.copy_(q)
            got = tessera.attention(late, k, v, return_lse=True, stream=given)
        torch.cuda.default_stream().synchronize()
        assert side.query(), "the default stream did not wait for the arrays"
        assert_same_bits(got, want)


def test_memory_is_kept_for_a_given_stream():
    q, k, v = draw_qkv(1, 2, 2, 1000, 1000, 64, HALF)
    want = check(q, k, v)
    side = torch.cuda.Stream()
    torch.cuda.synchronize()
    with torch.cuda.stream(side):
        torch.cuda._sleep(CYCLES)
    got = tessera.attention(q.clone(), k.clone(), v.clone(), return_lse=True, stream=side)
    reused = [torch.full_like(q, math.nan) for _ in range(8)]  # of the clones, were it free
    side.synchronize()
    assert_same_bits(got, want)
    del reused


def capture(q, k, v, **options):
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):  # once before, as torch's documentation wants it
        tessera.attention(q, k, v, return_lse=True, **options)
    torch.cuda.current_stream().wait_stream(side)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = tessera.attention(q, k, v, return_lse=True, **options)
    return graph, result


def test_graph():
    for dtype in DTYPES:
        q, k, v = draw_qkv(2, 4, 2, 130, 150, 64, dtype)
        graph, result = capture(q, k, v, causal=True)
        for seed in (10, 20):
            fresh = draw_qkv(2, 4, 2, 130, 150, 64, dtype, seed)
            for held, new in zip((q, k, v), fresh):
                held.copy_(new)
            graph.replay()
            assert_same_bits(result, check(*fresh, causal=True))


def test_graph_with_aligned_copies():
    q, k, v = draw_qkv(1, 2, 1, 50, 60, 35, HALF)  # rows that are no multiple of 16 bytes
    graph, result = capture(q, k, v)
    for seed in (10, 20):
        fresh = draw_qkv(1, 2, 1, 50, 60, 35, HALF, seed)
        for held, new in zip((q, k, v), fresh):
            held.copy_(new)
        graph.replay()
        assert_same_bits(result, check(*fresh))


def test_another_device():
    if torch.cuda.device_count() < 2:
        raise unittest.SkipTest("there is one CUDA device")
    q, k, v = draw_qkv(1, 2, 2, 100, 100, 64, HALF)
    want = check(q, k, v)
    there = [x.to("cuda:1") for x in (q, k, v)]
    side = torch.cuda.Stream("cuda:1")
    for options in ({}, {"stream": side}):
        got = tessera.attention(*there, return_lse=True, **options)
        assert torch.cuda.current_device() == 0 and got[0].device == torch.device("cuda:1")
        torch.cuda.synchronize("cuda:1")
        assert_same_bits([x.to("cuda:0") for x in got], want)
    with raises(ValueError, "k: ", "device 1", "device 0"):
        tessera.attention(q, there[1], v)
    with raises(ValueError, "out: ", "device 1", "device 0"):
        tessera.attention(q, k, v, out=torch.empty_like(there[0]))


# Gradients


def test_gradients_are_refused():
    for position, name in enumerate("qkv"):
        tensors = list(draw_qkv(1, 1, 1, 16, 16, 32))
        want = check(*tensors)
        tensors[position] = tensors[position].requires_grad_()
        with raises(tessera.UnsupportedError, f"{name}: ", "backward"):
            tessera.attention(*tensors)
        for off in (torch.no_grad, torch.inference_mode):
            with off():
                assert_same_bits(check(*tensors), want)


# Errors


def test_errors_name_the_argument():
    q, k, v = draw_qkv(1, 2, 2, 16, 16, 32, HALF)
    good = {"q": q, "k": k, "v": v}
    lse = torch.empty(1, 2, 16, device="cuda")
    for changed, error, words in [
        ({"k": k.cpu()}, ValueError, ["k: ", "the CPU", "CUDA device"]),
        ({"q": q.cpu()}, ValueError, ["k: ", "the CPU", "CUDA device"]),
        ({"out": q.cpu()}, ValueError, ["out: ", "the CPU"]),
        ({"v": v.cpu().numpy()}, TypeError, ["v: ", "numpy.ndarray", "torch.Tensor"]),
        ({"q": q.double()}, TypeError, ["q: dtype float64"]),
        ({"k": k.float()}, ValueError, ["k: "]),
        ({"k": k[0]}, ValueError, ["k: rank 3"]),
        ({"out": q}, ValueError, ["out: ", "overlap"]),
        ({"out": q.new_empty(1, 2, 17, 32)}, ValueError, ["out: "]),
        ({"out": q.new_empty(1, 2, 16, 64)[..., ::2]}, ValueError, ["out: ", "stride"]),
        ({"lse_out": lse}, ValueError, ["lse_out: "]),
        ({"lse_out": lse.half(), "return_lse": True}, ValueError, ["lse_out: "]),
        ({"lse_out": lse.mT.contiguous().mT, "return_lse": True}, ValueError, ["lse_out: "]),
        ({"stream": "side"}, TypeError, ["stream: "]),
        ({"stream": -1}, ValueError, ["stream: "]),
        ({"checks": True}, ValueError, ["checks: ", "emulator"]),
        ({"card": "t4"}, ValueError, ["card: ", "emulator"]),
        ({"threads": 2}, ValueError, ["threads: ", "emulator"]),
        ({"config": "16x17"}, tessera.UnsupportedError, ["config"]),
    ]:
        with raises(error, *words):
            tessera.attention(**{**good, **changed})
    check(q, k, v)  # and nothing is left behind


# Other packages


class Producer:
    """A tensor as an unknown package would hand it out."""

    def __init__(self, tensor):
        self.tensor = tensor
        self.streams = []

    def __dlpack_device__(self):
        return self.tensor.__dlpack_device__()

    def __dlpack__(self, stream=None):
        self.streams.append(stream)
        return self.tensor.__dlpack__(stream=stream)


class Interface:
    def __init__(self, tensor):
        self.tensor = tensor  # owns the memory
        self.__cuda_array_interface__ = dict(tensor.__cuda_array_interface__)


def test_dlpack():
    for dtype in DTYPES:
        q, k, v = draw_qkv(1, 4, 2, 40, 50, 64, dtype)
        want = check(q, k, v)
        out, lse = Producer(torch.empty_like(q)), Producer(torch.empty_like(want[1]))
        arrays = [Producer(x.transpose(1, 2).contiguous().transpose(1, 2)) for x in (q, k, v)]
        tessera.attention(*arrays, return_lse=True, out=out, lse_out=lse)
        assert all(array.streams == [1] for array in (*arrays, out, lse))
        torch.cuda.synchronize()
        assert_same_bits((out.tensor, lse.tensor), want)


def test_cuda_array_interface():
    for dtype in (torch.float32, HALF):
        q, k, v = draw_qkv(1, 4, 2, 40, 50, 64, dtype)
        want = check(q, k, v)
        out, lse = torch.empty_like(q), torch.empty_like(want[1])
        arrays = [Interface(x.transpose(1, 2).contiguous().transpose(1, 2)) for x in (q, k, v)]
        torch.cuda.synchronize()
        tessera.attention(*arrays, return_lse=True, out=Interface(out), lse_out=Interface(lse))
        torch.cuda.synchronize()
        assert_same_bits((out, lse), want)


def test_cupy():
    try:
        import cupy

        cupy.zeros(1)
    except Exception as error:  # of its own search for CUDA, too
        raise unittest.SkipTest(f"CuPy is not usable here: {error}") from None
    for dtype in (torch.float32, HALF):
        q, k, v = draw_qkv(1, 4, 2, 40, 50, 64, dtype)
        want = check(q, k, v)
        torch.cuda.synchronize()
        arrays = [cupy.from_dlpack(x) for x in (q, k, v)]
        side = cupy.cuda.Stream(non_blocking=True)
        for options in ({}, {"stream": side}):
            got = tessera.attention(*arrays, return_lse=True, **options)
            assert all(isinstance(x, cupy.ndarray) for x in got)
            side.synchronize()
            cupy.cuda.get_current_stream().synchronize()
            assert_same_bits([torch.from_dlpack(x) for x in got], want)
        with side:
            got = tessera.attention(*arrays, return_lse=True)
        side.synchronize()
        assert_same_bits([torch.from_dlpack(x) for x in got], want)


def main():
    failed = 0
    for name, test in list(globals().items()):
        if not name.startswith("test_"):
            continue
        try:
            test()
            print(f"ok       {name}", flush=True)
        except unittest.SkipTest as why:
            print(f"skipped  {name}: {why}", flush=True)
        except Exception:
            failed += 1
            print(f"FAILED   {name}\n{traceback.format_exc()}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
