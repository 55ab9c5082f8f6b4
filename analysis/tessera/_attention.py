# SPDX-License-Identifier: Apache-2.0
"""The public functions, on NumPy arrays.

The C library validates the arguments, so that a message reads the same in C, C++ and Python.
Refused here is only what has no C form.
"""
from __future__ import annotations

import ctypes
import json
import operator
import threading
from collections.abc import Sequence
from typing import Any, Literal, SupportsFloat, SupportsIndex, Union, overload

import numpy as np
from numpy.typing import DTypeLike, NDArray

from . import _library as c

Array = NDArray[Any]
Align = Literal["top-left", "bottom-right"]
Causal = Union[bool, Align]
Limit = Union[SupportsIndex, None]
Window = tuple[Limit, Limit]

_CAUSAL = {
    False: c.CAUSAL_NONE,
    True: c.CAUSAL_TOP_LEFT,
    "top-left": c.CAUSAL_TOP_LEFT,
    "bottom-right": c.CAUSAL_BOTTOM_RIGHT,
}
_ALIGN = {
    None: c.ALIGN_DEFAULT,
    "top-left": c.ALIGN_TOP_LEFT,
    "bottom-right": c.ALIGN_BOTTOM_RIGHT,
}
_last = threading.local()  # .report: JSON of this thread's last attention()


class UnsupportedError(RuntimeError):
    """A valid request that nothing here can run: a kernel, type, configuration or card."""


class FindingError(RuntimeError):
    """The emulator's checks found faults in a kernel.

    ``findings`` lists them all, each a dict with ``check``, ``message`` and ``count``; the error's
    text is the first one's message.
    """

    def __init__(self, findings: list[dict[str, Any]]) -> None:
        super().__init__(findings)  # args, so that the error can be pickled
        self.findings = findings

    def __str__(self) -> str:
        if not self.findings:
            return "the emulator's checks found a fault"
        more = len(self.findings) - 1
        return f"{self.findings[0]['message']}" + (f" (and {more} more)" if more else "")


@overload
def attention(
    q: Array, k: Array, v: Array, *, causal: Causal = ..., window: Window | None = ...,
    align: Align | None = ..., scale: SupportsFloat | None = ..., return_lse: Literal[False] = ...,
    kernel: str | None = ..., arch: str | None = ...,
    card: str | None = ..., config: str | None = ..., exp2: str | None = ..., isa: str | None = ...,
    numerics: str | None = ..., threads: SupportsIndex = ..., order_seed: SupportsIndex = ...,
    checks: bool = ...,
) -> Array: ...


@overload
def attention(
    q: Array, k: Array, v: Array, *, causal: Causal = ..., window: Window | None = ...,
    align: Align | None = ..., scale: SupportsFloat | None = ..., return_lse: Literal[True],
    kernel: str | None = ..., arch: str | None = ...,
    card: str | None = ..., config: str | None = ..., exp2: str | None = ..., isa: str | None = ...,
    numerics: str | None = ..., threads: SupportsIndex = ..., order_seed: SupportsIndex = ...,
    checks: bool = ...,
) -> tuple[Array, Array]: ...


def attention(
    q: Array,
    k: Array,
    v: Array,
    *,
    causal: Causal = False,
    window: Window | None = None,
    align: Align | None = None,
    scale: SupportsFloat | None = None,
    return_lse: bool = False,
    kernel: str | None = None,
    arch: str | None = None,
    card: str | None = None,
    config: str | None = None,
    exp2: str | None = None,
    isa: str | None = None,
    numerics: str | None = None,
    threads: SupportsIndex = 0,
    order_seed: SupportsIndex = 0,
    checks: bool = False,
) -> Array | tuple[Array, Array]:
    """softmax(scale * q @ k.T + mask) @ v, by a GPU kernel on the emulator.

    Arrays
        q is (batch, heads, q_len, head_dim); k and v are (batch, heads_kv, k_len, head_dim).
        heads is a multiple of heads_kv: query head h reads key head h // (heads // heads_kv).
        head_dim is at most 128. All have one dtype: float32, float16, or bfloat16 (of the package
        ml_dtypes).

        Strides are free. Zero strides (np.broadcast_to) and transposed views are passed as they
        are; an array is copied first if its innermost axis is not contiguous, a stride is negative,
        or it is unaligned or byte-swapped.

    Options (None or 0: the library chooses)
        causal: False; True or "top-left" (key j is visible to query i if j <= i, as in PyTorch); or
            "bottom-right" (j <= i + k_len - q_len, as in FlashAttention).
        window: (left, right): the query that stands at key p sees the keys p - left .. p + right.
            -1 or None: no limit on that side. Beside causal, which is right = 0, leave right out.
        align: where query i stands: "top-left" (the default, unless causal says otherwise): at key
            i; "bottom-right" (FlashAttention's window_size): at i + k_len - q_len.
        scale: factor of the scores, 1 / sqrt(head_dim) by default.
        kernel, config: names that kernels() lists; flash_forward by default.
        arch: whose code, "sm_75", "sm_89" or "sm_90".
        card: whose arithmetic and limits, "t4", "rtx4070" or "h200".
        exp2: "soft" or "hardware". numerics: "exact" (the card's tensor cores) or "fma" (faster).
        isa: "best", "v2", "v3" or "v4", the CPU's instructions; results do not depend on it.
        threads: of the emulator, one a core by default. order_seed: shuffles blocks and warps;
            results depend on neither.
        checks: look for races, reads of unwritten memory and other faults; slow.

    Returns
        O, shaped as q, in q's dtype; with return_lse also LSE, float32 (batch, heads, q_len): the
        natural log of the sum over the visible keys of exp(score). A row without a visible key has
        O = 0 and LSE = -inf. last_report() tells what ran.

    Raises
        ValueError: an invalid argument; the message names it.
        TypeError: not an array, or an array of another dtype.
        UnsupportedError: no such kernel, configuration or card, or one that cannot do this.
        FindingError: checks found a fault.
        RuntimeError: a launch failed.
    """
    _last.report = b"{}"
    inputs = [_tensor(name, array) for name, array in (("q", q), ("k", k), ("v", v))]
    left, right = _window(window)
    options = c.Options(
        struct_size=ctypes.sizeof(c.Options),
        kernel=_string("kernel", kernel),
        arch=_string("arch", arch),
        card=_string("card", card),
        config=_string("config", config),
        exp2=_string("exp2", exp2),
        isa=_string("isa", isa),
        numerics=_string("numerics", numerics),
        causal=_causal(causal),
        has_scale=scale is not None,
        scale=0.0 if scale is None else _real("scale", scale),
        threads=_integer("threads", threads, -(2**31), 2**31 - 1),
        checks=bool(checks),
        order_seed=_integer("order_seed", order_seed, 0, 2**64 - 1),
        has_left=left is not None,
        has_right=right is not None,
        left=left or 0,
        right=right or 0,
        align=_align(align),
    )
    o = np.empty(q.shape, q.dtype.newbyteorder("="))
    lse = np.empty(q.shape[:3], np.float32) if return_lse else None

    lib = c.library()
    status = lib.tessera_attention(
        *(ctypes.byref(tensor) for tensor in inputs),
        ctypes.byref(_tensor("o", o)),
        None if lse is None else ctypes.byref(_tensor("lse", lse)),
        ctypes.byref(options),
    )
    _last.report = lib.tessera_last_report()
    _raise_for(status)
    return o if lse is None else (o, lse)


def last_report() -> dict[str, Any]:
    """What this thread's last attention() ran: kernel, configuration, card, counters, findings.

    Empty if there was none or it was refused. ``seconds`` are of the launch alone.
    """
    report: dict[str, Any] = json.loads(getattr(_last, "report", b"{}"))
    return report


def kernels() -> list[dict[str, Any]]:
    """The kernels with their configurations, as `tessera list --json -` prints them."""
    listed: list[dict[str, Any]] = json.loads(c.library().tessera_list())
    return listed


def random(
    shape: SupportsIndex | Sequence[SupportsIndex],
    dtype: DTypeLike,
    seed: SupportsIndex = 0,
    tensor: SupportsIndex = 0,
    scale: SupportsFloat = 1.0,
) -> Array:
    """A contiguous array of about normal values with standard deviation `scale`.

    Element i, in C order, depends on (seed, tensor, i) alone and is the same on every machine.
    dtype is float32, float16 or bfloat16. seed is below 2**64 and tensor below 2**32.
    """
    if isinstance(dtype, str) and dtype == "bfloat16":
        try:
            import ml_dtypes  # noqa: F401  makes the name known to NumPy
        except ImportError:
            raise TypeError("dtype: bfloat16 needs the package ml_dtypes") from None
    kind = np.dtype(dtype).newbyteorder("=")
    code = _dtype_code("dtype:", kind)
    array = np.empty(shape, kind)
    _raise_for(
        c.library().tessera_fill(
            array.ctypes.data,
            code,
            array.size,
            _integer("seed", seed, 0, 2**64 - 1),
            _integer("tensor", tensor, 0, 2**32 - 1),
            _real("scale", scale),
        )
    )
    return array


def _tensor(name: str, array: Array) -> c.Tensor:
    """The C form of `array`, or of a copy where C cannot follow its strides; it owns that copy."""
    if not isinstance(array, np.ndarray):
        raise TypeError(f"{name}: {type(array).__name__} is not a NumPy array")
    code = _dtype_code(f"{name}: dtype", array.dtype)
    if array.ndim > c.MAX_RANK:
        raise ValueError(f"{name}: rank {array.ndim} is above {c.MAX_RANK}")

    # NumPy leaves anything in a stride that no element is reached by: there, say the compact one.
    strides: list[int] = []
    compact = 1
    for length, step in zip(reversed(array.shape), reversed(array.strides)):
        strides.insert(0, step // array.itemsize if length > 1 and array.size else compact)
        compact = strides[0] * max(length, 1)
    # aligned: the base and all strides are multiples of the element's size.
    readable = array.flags.aligned and array.dtype.isnative and strides[-1:] in ([], [1])
    if not readable or any(stride < 0 for stride in strides):
        return _tensor(name, _copy(array))

    tensor = c.Tensor(array.ctypes.data, code, array.ndim, array.shape, tuple(strides))
    tensor.array = array  # the caller may hold no reference to a copy
    return tensor


def _copy(array: Array) -> Array:
    """A native, aligned copy, contiguous but for axes of stride 0, which are not written out."""
    once = tuple(slice(0, 1) if step == 0 else slice(None) for step in array.strides[:-1])
    native = array.dtype.newbyteorder("=")
    return np.broadcast_to(np.array(array[once], native, order="C"), array.shape)


def _dtype_code(what: str, dtype: np.dtype[Any]) -> int:
    if dtype.name not in c.DTYPES:
        raise TypeError(f"{what} {dtype.name} is not one of {', '.join(c.DTYPES)}")
    return c.DTYPES[dtype.name]


def _causal(value: Causal) -> int:
    try:
        return _CAUSAL[value]
    except (KeyError, TypeError):  # TypeError: not hashable
        names = ", ".join(map(repr, _CAUSAL))
        raise ValueError(f"causal: {value!r} is not one of {names}") from None


def _window(value: Window | None) -> tuple[int | None, int | None]:
    """The limits (left, right), None for unlimited."""
    if value is None:
        return None, None
    try:
        left, right = value
    except (TypeError, ValueError):
        raise ValueError(f"window: {value!r} is not a pair (left, right)") from None

    def limit(side: str, given: Limit) -> int | None:
        if given is None:
            return None
        # A band may end before p: the library takes that, but here -1 already means no limit.
        number = _integer(f"window: {side}", given, -1, 2**40)
        return None if number == -1 else number

    return limit("left", left), limit("right", right)


def _align(value: Align | None) -> int:
    try:
        return _ALIGN[value]
    except (KeyError, TypeError):  # TypeError: not hashable
        names = ", ".join(map(repr, _ALIGN))
        raise ValueError(f"align: {value!r} is not one of {names}") from None


def _string(name: str, value: str | None) -> bytes | None:
    if value is None:
        return None
    if not isinstance(value, str):
        raise TypeError(f"{name}: {value!r} is not a string")
    if "\0" in value:  # C would see only what comes before
        raise ValueError(f"{name}: {value!r} holds a NUL")
    try:
        return value.encode()
    except UnicodeEncodeError:
        raise ValueError(f"{name}: {value!r} is not valid text") from None


def _integer(name: str, value: SupportsIndex, low: int, high: int) -> int:
    """`value` as an int that fits the C type; ctypes would drop the upper bits without a word."""
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{name}: {value!r} is not an integer") from None
    if not low <= number <= high:
        raise ValueError(f"{name}: {number} is not within {low}..{high}")
    return number


def _real(name: str, value: SupportsFloat) -> float:
    if isinstance(value, (str, bytes)):  # float() would parse it
        raise TypeError(f"{name}: {value!r} is not a number")
    try:
        return float(value)
    except TypeError:
        raise TypeError(f"{name}: {value!r} is not a number") from None
    except OverflowError:
        raise ValueError(f"{name}: the number is out of range") from None


def _raise_for(status: int) -> None:
    if status == c.OK:
        return
    if status == c.FINDING:
        raise FindingError(last_report().get("findings", []))
    message = c.library().tessera_last_error().decode()
    if status == c.INVALID_ARGUMENT:
        raise ValueError(message)
    if status == c.UNSUPPORTED:
        raise UnsupportedError(message)
    raise RuntimeError(message)
