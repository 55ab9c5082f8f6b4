# SPDX-License-Identifier: Apache-2.0
"""The Python package against a float64 reference.

`pytest tests/python` from the repository's root tests the sources with build/libtessera.so, or with
the library that TESSERA_LIBRARY names; `pytest -o pythonpath= tests/python` an installed wheel.
"""
import ctypes
import ctypes.util
import json
import pickle
import re
import threading
import types
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import tessera
from tessera import _arrays, _library

try:
    import ml_dtypes
except ImportError:
    ml_dtypes = None

needs_bf16 = pytest.mark.skipif(ml_dtypes is None, reason="ml_dtypes is not installed")
every_dtype = pytest.mark.parametrize(
    "dtype", ["float32", "float16", pytest.param("bfloat16", marks=needs_bf16)]
)
UNIT_ROUNDOFF = {"float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8}
FP32 = UNIT_ROUNDOFF["float32"]
# The C interface leaves open which of the two statuses an unknown name gets.
REFUSED = (ValueError, tessera.UnsupportedError)


@pytest.fixture(autouse=True)
def poisoned_outputs(monkeypatch):
    """Outputs start as NaN, so that an element which nobody writes fails its comparison."""
    empty = np.empty

    def poisoned(*args, **kwargs):
        array = empty(*args, **kwargs)
        if array.dtype.name in UNIT_ROUNDOFF:
            array.fill(np.nan)
        return array

    monkeypatch.setattr(np, "empty", poisoned)


def draw(shape, dtype="float32", seed=0):
    kind = ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype
    return np.random.default_rng(seed).standard_normal(shape).astype(kind)


def draw_qkv(batch, heads, heads_kv, q_len, k_len, head_dim, dtype="float32", seed=0):
    q = draw((batch, heads, q_len, head_dim), dtype, seed)
    k = draw((batch, heads_kv, k_len, head_dim), dtype, seed + 1)
    v = draw((batch, heads_kv, k_len, head_dim), dtype, seed + 2)
    return q, k, v


def bits(array):
    return np.ascontiguousarray(array).view(f"u{array.dtype.itemsize}")


def assert_same_bits(got, want):
    assert got.dtype == want.dtype and got.shape == want.shape
    assert np.array_equal(bits(got), bits(want))


def assert_within(got, want, tolerance):
    with np.errstate(invalid="ignore", divide="ignore"):
        error = np.where(got == want, 0.0, abs(got - want))  # equal infinities differ by nothing
        worst = np.nanmax(error / tolerance, initial=0.0)
    assert np.all(error <= tolerance), f"{worst} times the tolerance, {np.isnan(error).sum()} NaN"


def assert_attention(o, lse, q, k, v, causal=False, scale=None, window=None, align=None):
    """Holds O and LSE (float32) to the float64 formula, within what the arithmetic may lose."""
    assert type(o) is np.ndarray and o.dtype == q.dtype and o.shape == q.shape
    assert lse.dtype == np.float32 and lse.shape == q.shape[:3]
    unit = UNIT_ROUNDOFF[q.dtype.name]
    q, k, v = (x.astype(np.float64) for x in (q, k, v))
    group = q.shape[1] // k.shape[1]
    k, v = np.repeat(k, group, axis=1), np.repeat(v, group, axis=1)
    q_len, head_dim = q.shape[2:]
    k_len = k.shape[2]
    scale = head_dim**-0.5 if scale is None else scale

    shift = k_len - q_len if "bottom-right" in (causal, align) else 0
    offset = np.arange(k_len) - np.arange(q_len)[:, None] - shift
    left, right = window or (None, None)
    visible = np.ones((q_len, k_len), bool)
    if left not in (None, -1):
        visible &= -left <= offset
    if right not in (None, -1):
        visible &= offset <= right
    if causal:
        visible &= offset <= 0
    score = np.where(visible, scale * (q @ k.swapaxes(2, 3)), -np.inf)
    largest = score.max(axis=3, keepdims=True, initial=-np.inf)
    largest = np.where(np.isinf(largest), 0.0, largest)
    weight = np.exp(score - largest)
    total = weight.sum(axis=3, keepdims=True)
    with np.errstate(divide="ignore"):
        want_lse = (largest + np.log(total))[..., 0]
    probability = weight / np.where(total == 0, 1.0, total)

    # The bounds of reference/attention.h. P and O are rounded to storage once each. A score sums
    # head_dim products, and l sums k_len weights; in fp32 the rest is a few roundings more.
    largest_q, largest_k, largest_v = (
        abs(x).max(axis=axes, keepdims=True, initial=0.0)
        for x, axes in ((q, 3), (k, (2, 3)), (v, (2, 3)))
    )
    score_error = 4 * head_dim * abs(scale) * largest_q * largest_k
    tolerance = 2 * unit * (probability @ abs(v)) + FP32 * (score_error + 16) * largest_v
    if o.dtype == np.float16:
        tolerance += 2.0**-25  # half the spacing of its subnormals
    assert_within(o.astype(np.float64), probability @ v, tolerance)
    magnitude = np.where(np.isinf(want_lse), 0.0, abs(want_lse)) + np.log(max(k_len, 1))
    assert_within(lse, want_lse, FP32 * (score_error[..., 0] + k_len / 2 + 4 + 4 * magnitude))


def check(q, k, v, causal=False, scale=None, window=None, align=None, **options):
    mask = {"causal": causal, "window": window, "align": align}
    o, lse = tessera.attention(q, k, v, **mask, scale=scale, return_lse=True, **options)
    assert_attention(o, lse, q, k, v, scale=scale, **mask)
    return o, lse


# Results


SHAPES = [  # batch, heads, heads_kv, q_len, k_len, head_dim
    (1, 1, 1, 1, 1, 8),
    (2, 2, 2, 16, 16, 64),
    (1, 3, 1, 17, 33, 40),
    (2, 4, 2, 50, 71, 80),
    (1, 2, 2, 33, 66, 128),
    (3, 1, 1, 5, 100, 3),
    (1, 1, 1, 70, 19, 1),
]


@every_dtype
@pytest.mark.parametrize("causal", [False, True, "top-left", "bottom-right"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_matches_the_formula(shape, causal, dtype):
    q_len, k_len = shape[3:5]
    if causal == "bottom-right" and q_len > k_len:
        return  # test_rows_without_a_visible_key
    check(*draw_qkv(*shape, dtype), causal=causal)


def test_without_lse_returns_the_same_array():
    q, k, v = draw_qkv(1, 2, 1, 20, 30, 32)
    o = tessera.attention(q, k, v)
    assert_same_bits(o, tessera.attention(q, k, v, return_lse=True)[0])


def test_true_is_top_left():
    q, k, v = draw_qkv(1, 1, 1, 20, 30, 32)
    top_left = tessera.attention(q, k, v, causal="top-left")
    assert_same_bits(tessera.attention(q, k, v, causal=True), top_left)
    assert_same_bits(tessera.attention(q, k, v, causal=np.True_), top_left)
    assert not np.array_equal(tessera.attention(q, k, v, causal="bottom-right"), top_left)


@pytest.mark.parametrize("causal, window, align", [
    (False, (5, 3), None),
    (False, (5, -1), "bottom-right"),
    (False, (None, 3), "bottom-right"),
    (False, [0, 0], "top-left"),
    (True, (np.int64(5), None), None),
    ("bottom-right", (5, -1), "bottom-right"),
])
def test_windows(causal, window, align):
    check(*draw_qkv(1, 2, 1, 20, 30, 32), causal=causal, window=window, align=align)


def test_a_window_without_limits_hides_nothing():
    q, k, v = draw_qkv(1, 1, 1, 20, 30, 32)
    assert_same_bits(tessera.attention(q, k, v, window=(-1, None)), tessera.attention(q, k, v))


@pytest.mark.parametrize("scale", [0.0, 0.3, 1, -0.5, 4.0, np.float32(0.25)])
def test_scale(scale):
    check(*draw_qkv(1, 2, 2, 20, 37, 32), causal=True, scale=scale)


@every_dtype
def test_grouped_heads_read_the_key_head_of_their_group(dtype):
    q, k, v = draw_qkv(1, 6, 2, 10, 20, 32, dtype)
    o, lse = check(q, k, v)
    again = tessera.attention(q, k.repeat(3, axis=1), v.repeat(3, axis=1), return_lse=True)
    assert_same_bits(o, again[0])
    assert_same_bits(lse, again[1])


@pytest.mark.parametrize("shape", [(0, 2, 1, 5, 7, 32), (2, 2, 1, 0, 7, 32)], ids=str)
def test_empty_output(shape):
    o, lse = check(*draw_qkv(*shape))
    assert o.size == 0 and lse.size == 0


def test_rows_without_a_visible_key():
    names = [kernel["name"] for kernel in tessera.kernels()]
    q, k, v = draw_qkv(1, 2, 1, 40, 23, 32)
    for name in (name for name in names if name.startswith("flash")):
        if name == "flash_step1":  # masks with -1e6, for which such a row is an ordinary one
            with raises(tessera.UnsupportedError, "causal|q_len"):
                tessera.attention(q, k, v, causal="bottom-right", kernel=name)
            continue
        o, lse = check(q, k, v, causal="bottom-right", kernel=name)
        assert np.all(o[:, :, :17] == 0) and np.all(lse[:, :, :17] == -np.inf)


def test_no_keys():
    q, k, v = draw_qkv(1, 2, 1, 5, 0, 32)
    try:
        o, lse = check(q, k, v)
    except tessera.UnsupportedError:  # of flash_step1 alone, see above
        with raises(tessera.UnsupportedError, "k_len|visible"):
            tessera.attention(q, k, v, kernel="flash_step1")
        return
    assert np.all(o == 0) and np.all(lse == -np.inf)


def test_a_nan_reaches_every_row_that_sees_it():
    q, k, v = draw_qkv(2, 2, 2, 40, 40, 32)
    v[0, 1, 20, 3] = np.nan
    o = tessera.attention(q, k, v, causal=True)
    assert np.all(np.isnan(o[0, 1, 20:, 3]))
    assert np.all(np.isfinite(o[0, 0])) and np.all(np.isfinite(o[1]))  # and no other head or batch


@pytest.mark.parametrize(
    "options",
    [
        {"threads": 1},
        {"threads": 2, "order_seed": 1},
        {"order_seed": 2**64 - 1},
        {"isa": "best"},
        {"checks": True},
        {"kernel": "flash_forward", "arch": "sm_89", "card": "rtx4070", "exp2": "soft"},
    ],
    ids=str,
)
@every_dtype
def test_options_that_leave_the_bits_alone(options, dtype):
    q, k, v = draw_qkv(2, 2, 1, 37, 50, 64, dtype)
    plain = check(q, k, v, causal=True)
    for got, want in zip(check(q, k, v, causal=True, **options), plain):
        assert_same_bits(got, want)


@pytest.mark.parametrize("options", [{"numerics": "fma"}, {"exp2": "hardware"}], ids=str)
@every_dtype
def test_options_within_rounding(options, dtype):
    check(*draw_qkv(2, 2, 1, 37, 50, 64, dtype), causal=True, **options)


# Strides


def padded(x):
    """A window into storage that is NaN around it."""
    batch, heads, length, head_dim = x.shape
    storage = np.full((batch, heads, length + 3, head_dim + 8), np.nan, x.dtype)
    storage[:, :, :length, :head_dim] = x
    return storage[:, :, :length, :head_dim]


def odd_rows(x):
    """Rows one element longer than head_dim, so that few of them start at 16 bytes."""
    storage = np.full(x.shape[:3] + (x.shape[3] + 1,), np.nan, x.dtype)
    storage[..., :-1] = x
    return storage[..., :-1]


def every_other(x):
    """Innermost stride 2."""
    storage = np.full(x.shape[:3] + (2 * x.shape[3],), np.nan, x.dtype)
    storage[..., ::2] = x
    return storage[..., ::2]


def offset(x):
    """A base one element past an aligned address."""
    storage = np.full(x.size + 1, np.nan, x.dtype)
    storage[1:] = x.ravel()
    return storage[1:].reshape(x.shape)


def unaligned(x):
    """A base one byte past an aligned address."""
    storage = np.zeros(x.nbytes + 1, np.uint8)
    view = np.ndarray(x.shape, x.dtype, storage, offset=1)
    view[...] = x
    return view


def records(x):
    """Strides that are no multiple of the element's size."""
    storage = np.zeros(x.shape, [("tag", "u1"), ("value", x.dtype)])
    storage["value"] = x
    return storage["value"]


def swapped(x):
    return x.astype(x.dtype.newbyteorder("S"))


def reversed_axis(axis):
    return lambda x: np.flip(np.flip(x, axis).copy(), axis)


LAYOUTS = {
    "batch, length, heads, head_dim": lambda x: x.swapaxes(1, 2).copy().swapaxes(1, 2),
    "length, batch, heads, head_dim": lambda x: np.moveaxis(np.moveaxis(x, 2, 0).copy(), 0, 2),
    "head_dim outermost": np.asfortranarray,
    "padded": padded,
    "odd rows": odd_rows,
    "innermost stride 2": every_other,
    "batch reversed": reversed_axis(0),
    "heads reversed": reversed_axis(1),
    "length reversed": reversed_axis(2),
    "head_dim reversed": reversed_axis(3),
    "offset by an element": offset,
    "offset by a byte": unaligned,
    "records": records,
    "byte-swapped": swapped,
}


@every_dtype
@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
def test_layouts_do_not_change_a_bit(layout, dtype):
    contiguous = draw_qkv(2, 4, 2, 19, 35, 40, dtype)
    want = check(*contiguous, causal=True)
    views = [layout(x) for x in contiguous]
    for view in views:
        view.flags.writeable = False
    got = tessera.attention(*views, causal=True, return_lse=True)
    for x, view in zip(contiguous, views):
        assert np.array_equal(view, x)  # the layout is what it says, and the call left it alone
    assert_same_bits(got[0], want[0])
    assert_same_bits(got[1], want[1])
    assert got[0].flags.c_contiguous and got[0].flags.writeable


@every_dtype
@pytest.mark.parametrize("order", ["BN3HD", "B3HND", "BHN3D"])
def test_packed_qkv(order, dtype):
    sizes = {"B": 2, "N": 21, "3": 3, "H": 2, "D": 24}
    packed = draw([sizes[axis] for axis in order], dtype)
    q, k, v = np.moveaxis(packed, [order.index(axis) for axis in "3BHND"], range(5))
    got = check(q, k, v)
    want = tessera.attention(q.copy(), k.copy(), v.copy(), return_lse=True)
    assert_same_bits(got[0], want[0])
    assert_same_bits(got[1], want[1])


BROADCASTS = [  # of q and of k, v, from shape to (3, 4, 17, 24) and (3, 2, 26, 24)
    ((3, 4, 17, 24), (1, 2, 26, 24)),
    ((1, 4, 17, 24), (3, 2, 26, 24)),
    ((3, 1, 17, 24), (3, 1, 26, 24)),
    ((3, 4, 1, 24), (3, 2, 26, 24)),
    ((1, 1, 1, 24), (1, 1, 1, 24)),
    ((3, 4, 17, 1), (3, 2, 26, 1)),
    ((1, 1, 1, 1), (1, 1, 1, 1)),
]


@every_dtype
@pytest.mark.parametrize("q_shape, k_shape", BROADCASTS, ids=str)
def test_broadcast(q_shape, k_shape, dtype):
    q = np.broadcast_to(draw(q_shape, dtype, 0), (3, 4, 17, 24))
    k, v = (np.broadcast_to(draw(k_shape, dtype, seed), (3, 2, 26, 24)) for seed in (1, 2))
    got = check(q, k, v, causal=True)
    want = tessera.attention(q.copy(), k.copy(), v.copy(), causal=True, return_lse=True)
    assert_same_bits(got[0], want[0])
    assert_same_bits(got[1], want[1])


def test_overlapping_windows_of_keys():
    stream = draw((30, 32))
    k = np.lib.stride_tricks.sliding_window_view(stream, 12, axis=0)  # (19, 32, 12)
    k = k.transpose(0, 2, 1)[:, None]  # (19, 1, 12, 32): batch and length step through one axis
    q = draw((19, 1, 4, 32), seed=1)
    got = tessera.attention(q, k, k)
    assert_same_bits(got, tessera.attention(q, k.copy(), k.copy()))


def c_view(array):
    tensor = _arrays.numpy_tensor("q", array)
    return tensor, list(tensor.shape)[: array.ndim], list(tensor.stride)[: array.ndim]


def test_readable_arrays_are_passed_as_they_are():
    base = draw((3, 5, 4, 8))
    window = np.lib.stride_tricks.sliding_window_view(draw(40), 8)  # (33, 8), strides 1, 1
    for view, strides in [
        (base, [160, 32, 8, 1]),
        (base.swapaxes(1, 2), [160, 8, 32, 1]),
        (base[::2, 1:, :2, 2:5], [320, 32, 8, 1]),
        (np.broadcast_to(base[:1], (7, 5, 4, 8)), [0, 32, 8, 1]),
        (window, [1, 1]),
    ]:
        tensor, shape, stride = c_view(view)
        assert tensor.data == view.ctypes.data
        assert (shape, stride) == (list(view.shape), strides)


def test_strides_of_single_elements_are_made_compact():
    base = draw((2, 3, 4, 8))
    tensor, _, stride = c_view(base[::-1, :, ::-1, ::-3][1:, :, 3:, 2:])
    assert tensor.data == base[:1, :, :1, 1:2].ctypes.data  # shape (1, 3, 1, 1)
    assert stride == [96, 32, 1, 1]


def test_a_copy_does_not_write_out_a_broadcast():
    few = draw((1, 2, 6, 16))[..., ::2]
    tensor, shape, stride = c_view(np.broadcast_to(few, (10**9, 2, 6, 8)))
    assert (shape, stride) == ([10**9, 2, 6, 8], [0, 48, 8, 1])
    assert tensor.data != few.ctypes.data


# Errors


def raises(error, *words):
    """Expects `error`, with each of `words` (regular expressions) in its message."""
    return pytest.raises(error, match="(?s)" + "".join(f"(?=.*(?:{word}))" for word in words))


@pytest.mark.parametrize("name, position", [("q", 0), ("k", 1), ("v", 2)])
def test_wrong_arrays(name, position):
    def call(array):
        arrays = list(draw_qkv(1, 1, 1, 4, 4, 8))
        arrays[position] = array
        with np.errstate(all="ignore"):
            tessera.attention(*arrays)

    good = draw((1, 1, 4, 8))
    for wrong in ("int64", "float64", "complex64", "bool", "<U3", "uint16"):
        kind = np.dtype(wrong).name
        message = f"{name}: dtype {kind} is not one of float32, float16, bfloat16"
        with pytest.raises(TypeError, match=re.escape(message)):
            call(np.zeros((1, 1, 4, 8), wrong))
    for wrong in (good.tolist(), None, 3.0, memoryview(good)):
        with raises(TypeError, rf"^{name}: {type(wrong).__name__} "):
            call(wrong)
    with raises(ValueError, f"^{name}: rank 5"):
        call(good[None])
    for wrong in (good[0], good[0, 0], good[0, 0, 0], good[0, 0, 0, :1].reshape(())):
        with raises(ValueError, rf"\b{name}\b", "rank|4"):
            call(wrong)
    if position:
        with raises(ValueError, rf"\b{name}\b"):
            call(good.astype(np.float16))


@pytest.mark.parametrize(
    "q_shape, k_shape, v_shape, words",
    [
        ((2, 2, 4, 8), (3, 2, 6, 8), (3, 2, 6, 8), [r"\bk\b", "batch"]),
        ((2, 2, 4, 8), (2, 2, 6, 8), (3, 2, 6, 8), [r"\bv\b", "batch"]),
        ((2, 2, 4, 8), (2, 2, 6, 8), (2, 1, 6, 8), [r"\bv\b", "heads"]),
        ((2, 4, 4, 8), (2, 3, 6, 8), (2, 3, 6, 8), ["heads", "4", "3"]),
        ((2, 2, 4, 8), (2, 4, 6, 8), (2, 4, 6, 8), ["heads", "2", "4"]),
        ((2, 2, 4, 8), (2, 0, 6, 8), (2, 0, 6, 8), ["heads"]),
        ((2, 2, 4, 8), (2, 2, 6, 9), (2, 2, 6, 9), [r"\bk\b", "head_dim"]),
        ((2, 2, 4, 8), (2, 2, 6, 8), (2, 2, 6, 9), [r"\bv\b", "head_dim"]),
        ((2, 2, 4, 8), (2, 2, 6, 8), (2, 2, 7, 8), [r"\bv\b", "6", "7"]),
        ((2, 2, 4, 0), (2, 2, 6, 0), (2, 2, 6, 0), ["head_dim"]),
        ((2, 2, 4, 129), (2, 2, 6, 129), (2, 2, 6, 129), ["head_dim", "129", "128"]),
    ],
    ids=str,
)
def test_wrong_shapes(q_shape, k_shape, v_shape, words):
    with raises(ValueError, *words):
        tessera.attention(draw(q_shape), draw(k_shape), draw(v_shape))
    assert tessera.last_report() == {}


@pytest.mark.parametrize(
    "option, value, error, words",
    [
        ("kernel", "flash_stpe1", tessera.UnsupportedError, ["kernel", "flash_step1"]),
        ("config", "64x33", tessera.UnsupportedError, ["config", "64x32"]),
        ("arch", "sm_98", REFUSED, ["arch", "sm_90|sm_89"]),
        ("card", "rtx4071", REFUSED, ["card", "rtx4070"]),
        ("exp2", "sofd", REFUSED, ["exp2", "soft"]),
        ("isa", "v5", REFUSED, ["isa", "v4|v3|v2"]),
        ("numerics", "exakt", REFUSED, ["numerics", "exact"]),
        ("kernel", b"flash_step1", TypeError, ["^kernel: "]),
        ("arch", 89, TypeError, ["^arch: "]),
        ("card", "t4\0", ValueError, ["^card: "]),
        ("scale", float("nan"), ValueError, ["scale"]),
        ("scale", float("inf"), ValueError, ["scale"]),
        ("scale", "0.5", TypeError, ["^scale: "]),
        ("scale", [], TypeError, ["^scale: "]),
        ("causal", "top_left", ValueError, ["^causal: ", "top-left", "bottom-right"]),
        ("causal", [True], ValueError, ["^causal: "]),
        ("causal", None, ValueError, ["^causal: "]),
        ("window", (-2, 0), ValueError, ["^window: left", "-1"]),
        ("window", (0, 2**40 + 1), ValueError, ["^window: right"]),
        ("window", (0, 1.5), TypeError, ["^window: right"]),
        ("window", 3, ValueError, ["^window: ", "left, right"]),
        ("window", (1, 2, 3), ValueError, ["^window: ", "left, right"]),
        ("align", "bottom_right", ValueError, ["^align: ", "bottom-right"]),
        ("align", True, ValueError, ["^align: "]),
        ("threads", -1, ValueError, ["threads"]),
        ("threads", 2**32, ValueError, ["^threads: "]),
        ("threads", 1.5, TypeError, ["^threads: "]),
        ("order_seed", -1, ValueError, ["^order_seed: "]),
        ("order_seed", 2**64, ValueError, ["^order_seed: "]),
        ("order_sed", 1, TypeError, ["order_sed"]),
    ],
)
def test_wrong_options(option, value, error, words):
    arrays = draw_qkv(1, 1, 1, 4, 4, 8)
    tessera.attention(*arrays)
    with raises(error, *words):
        tessera.attention(*arrays, **{option: value})
    if option != "order_sed":
        assert tessera.last_report() == {}


@needs_bf16
def test_bf16_is_not_for_sm_75():
    with raises(tessera.UnsupportedError, "bf16|bfloat16", "sm_75"):
        tessera.attention(*draw_qkv(1, 1, 1, 4, 4, 8, "bfloat16"), arch="sm_75")


class StubLibrary(types.SimpleNamespace):
    """Answers as the library would where a kernel or a launch is at fault, which no release is."""

    def __init__(self, status, error=b"", report=b"{}"):
        super().__init__(
            tessera_attention=lambda *_: status,
            tessera_last_error=lambda: error,
            tessera_last_report=lambda: report,
        )


def test_findings(monkeypatch):
    findings = [
        {"check": "races", "message": "two warps, one word", "count": 3},
        {"check": "bounds", "message": "row 64 of 64", "count": 1},
    ]
    stub = StubLibrary(4, report=json.dumps({"findings": findings}).encode())
    monkeypatch.setattr(_library, "library", lambda: stub)
    with raises(tessera.FindingError, "two warps, one word", "1 more") as caught:
        tessera.attention(*draw_qkv(1, 1, 1, 4, 4, 8), checks=True)
    assert caught.value.findings == findings == tessera.last_report()["findings"]
    again = pickle.loads(pickle.dumps(caught.value))
    assert str(again) == str(caught.value) and again.findings == findings


def test_internal_error(monkeypatch):
    monkeypatch.setattr(_library, "library", lambda: StubLibrary(1, "größer".encode()))
    with raises(RuntimeError, "^größer$") as caught:
        tessera.attention(*draw_qkv(1, 1, 1, 4, 4, 8))
    assert caught.type is RuntimeError


# The report, the list, the inputs, the library


def test_report_tells_what_was_asked_for():
    assert isinstance(tessera.attention(*draw_qkv(1, 1, 1, 20, 20, 40, "float16")), np.ndarray)
    report = tessera.last_report()
    assert report["kernel"] == "flash_forward" and report["target"] == "sim"
    assert (report["arch"], report["card"], report["exp2"]) == ("sm_89", "rtx4070", "soft")
    assert report["isa"] in ("v2", "v3", "v4") and report["head_dim_bucket"] == 64
    assert report["seconds"] >= 0 and report["findings"] == []
    assert report["counters"]["blocks"] >= 1

    options = {"kernel": "flash_step1", "arch": "sm_75", "card": "h200", "config": "16x16"}
    options["exp2"] = "hardware"
    check(*draw_qkv(1, 1, 1, 20, 20, 40, "float16"), threads=1, **options)
    report = tessera.last_report()
    assert {name: report[name] for name in options} == options
    assert report["threads"] == 1


def test_each_thread_has_its_own_report_and_error():
    tessera.attention(*draw_qkv(1, 1, 1, 4, 4, 8))
    together = threading.Barrier(4)

    def work(index):
        assert tessera.last_report() == {}
        head_dim = (32, 64, 96, 129)[index]
        try:
            tessera.attention(*draw_qkv(1, 1, 1, 20, 20, head_dim), threads=1)
        except ValueError as error:
            assert index == 3 and "129" in str(error)
        else:
            assert index != 3
        together.wait(timeout=60)
        return tessera.last_report().get("head_dim_bucket")

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(work, range(4))) == [32, 64, 96, None]
    assert tessera.last_report()["head_dim_bucket"] == 32


def test_report_outlives_other_calls():
    tessera.attention(*draw_qkv(1, 1, 1, 4, 4, 8))
    report = tessera.last_report()
    tessera.random(3, "float32")
    tessera.kernels()
    assert tessera.last_report() == report


def test_kernels():
    listed = tessera.kernels()
    assert isinstance(listed, list) and all(isinstance(kernel, dict) for kernel in listed)
    assert "flash_step1" in [kernel["name"] for kernel in listed]


@every_dtype
def test_random(dtype):
    x = tessera.random((2, 3, 1000), dtype, seed=5, tensor=1)
    assert x.shape == (2, 3, 1000) and x.dtype.name == dtype and x.flags.c_contiguous
    values = x.astype(np.float64)
    assert abs(values.mean()) < 0.1 and 0.9 < values.std() < 1.1
    assert_same_bits(tessera.random(6000, x.dtype, 5, 1).reshape(x.shape), x)
    assert_same_bits(tessera.random(10, dtype, 5, 1), x.ravel()[:10])
    assert np.any(tessera.random(x.shape, dtype, seed=6, tensor=1) != x)
    assert np.any(tessera.random(x.shape, dtype, seed=5, tensor=2) != x)
    assert 0.2 < tessera.random(6000, dtype, scale=0.25).astype(np.float64).std() < 0.3
    assert tessera.random((0, 4), dtype).shape == (0, 4)
    assert tessera.random((), dtype, 2**64 - 1, 2**32 - 1).shape == ()


def test_random_refuses():
    with raises(TypeError, "^dtype: int64 is not one of float32, float16, bfloat16$"):
        tessera.random(3, "int64")
    with raises(ValueError, "^seed: "):
        tessera.random(3, "float32", seed=2**64)
    with raises(ValueError, "^tensor: "):
        tessera.random(3, "float32", tensor=-1)
    with raises(TypeError, "^scale: "):
        tessera.random(3, "float32", scale="1")


def test_version():
    assert _library.library().tessera_version().decode() == tessera.__version__


def test_a_missing_library_is_named(monkeypatch, tmp_path):
    monkeypatch.setenv("TESSERA_LIBRARY", str(tmp_path / "libtessera.so"))
    with raises(FileNotFoundError, "TESSERA_LIBRARY", re.escape(str(tmp_path))):
        _library.find_library()
    monkeypatch.delenv("TESSERA_LIBRARY")
    monkeypatch.setattr(_library, "NAME", "libtessera-of-nowhere.so")
    with raises(FileNotFoundError, "libtessera-of-nowhere.so", "tessera_shared", "TESSERA_LIBRARY"):
        _library.find_library()


def test_a_library_beside_the_package_is_found(monkeypatch, tmp_path):
    monkeypatch.delenv("TESSERA_LIBRARY", raising=False)
    (tmp_path / "libtessera.so").touch()
    monkeypatch.setattr(tessera, "__path__", [str(tmp_path / "sources"), str(tmp_path)])
    assert _library.find_library() == tmp_path / "libtessera.so"


def test_another_library_is_refused(monkeypatch):
    load = _library.library.__wrapped__  # past the cache
    abi = _library.ABI_VERSION
    monkeypatch.setattr(_library, "ABI_VERSION", 99)
    with raises(OSError, f"ABI version {abi}", "99"):
        load()
    other = ctypes.CDLL(ctypes.util.find_library("c"))
    monkeypatch.setattr(ctypes, "CDLL", lambda path: other)
    with raises(OSError, "not a Tessera library"):
        load()
