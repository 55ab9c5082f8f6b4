# SPDX-License-Identifier: Apache-2.0
"""The public functions.

The C library validates the arguments, so that a message reads the same in C, C++ and Python.
Refused here is only what has no C form.
"""
from __future__ import annotations

import ctypes
import functools
import json
import operator
import threading
from collections.abc import Sequence
from typing import Any, Literal, SupportsFloat, SupportsIndex, TypeVar, Union, overload

import numpy as np
from numpy.typing import DTypeLike, NDArray

from . import _arrays
from . import _library as c
from ._errors import FindingError, UnsupportedError

Array = TypeVar("Array")  # of one package: NumPy's, torch's, ...
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
_last = threading.local()  # .library: what ran this thread's last attention(); None: refused here


@overload
def attention(
    q: Array, k: Array, v: Array, *, causal: Causal = ..., window: Window | None = ...,
    align: Align | None = ..., scale: SupportsFloat | None = ..., return_lse: Literal[False] = ...,
    out: Array | None = ..., stream: Any = ...,
    kernel: str | None = ..., arch: str | None = ...,
    card: str | None = ..., config: str | None = ..., exp2: str | None = ..., isa: str | None = ...,
    numerics: str | None = ..., threads: SupportsIndex = ..., order_seed: SupportsIndex = ...,
    checks: bool = ...,
) -> Array: ...


@overload
def attention(
    q: Array, k: Array, v: Array, *, causal: Causal = ..., window: Window | None = ...,
    align: Align | None = ..., scale: SupportsFloat | None = ..., return_lse: Literal[True],
    out: Array | None = ..., lse_out: Array | None = ..., stream: Any = ...,
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
    out: Array | None = None,
    lse_out: Array | None = None,
    stream: Any = None,
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
    """softmax(scale * q @ k.T + mask) @ v, by a GPU kernel: on the GPU, or on the emulator.

    Arrays
        q is (batch, heads, q_len, head_dim); k and v are (batch, heads_kv, k_len, head_dim).
        heads is a multiple of heads_kv: query head h reads key head h // (heads // heads_kv).
        head_dim is at most 128. All have one dtype: float32, float16, or bfloat16 (NumPy: of the
        package ml_dtypes).

        All are of one package and on one device. NumPy's arrays, and any that DLPack says are on
        the CPU, run on the emulator. Arrays on a CUDA device (torch, CuPy, whatever has __dlpack__
        or __cuda_array_interface__) run there, if the library was built with CUDA. The call
        returns once the work is queued, and can be captured into a CUDA graph.

        There is no backward yet: under torch's grad mode, tensors that require a gradient are
        refused.

        Strides are free. Zero strides and transposed views are passed as they are. NumPy's and
        torch's arrays are copied first if the innermost axis is not contiguous, and NumPy's if a
        stride is negative or they are unaligned or byte-swapped; other packages' are refused.

    Options (None or 0: the library chooses)
        causal: False; True or "top-left" (key j is visible to query i if j <= i, as in PyTorch); or
            "bottom-right" (j <= i + k_len - q_len, as in FlashAttention).
        window: (left, right): the query that stands at key p sees the keys p - left .. p + right.
            -1 or None: no limit on that side. Beside causal, which is right = 0, leave right out.
        align: where query i stands: "top-left" (the default, unless causal says otherwise): at key
            i; "bottom-right" (FlashAttention's window_size): at i + k_len - q_len.
        scale: factor of the scores, 1 / sqrt(head_dim) by default.
        out, lse_out: arrays that take O and LSE, on q's device and of its package; on the CPU,
            NumPy's will do as well. O may be strided, innermost 1; LSE is contiguous and needs
            return_lse. Required on a CUDA device if q is neither torch's nor CuPy's.
        stream: of the CUDA device: a cudaStream_t as an integer, or a stream of torch or CuPy. By
            default the current one of torch or CuPy, otherwise the one that
            __cuda_array_interface__ names, otherwise the legacy default stream. A stream that is
            given first waits for the arrays' own, as DLPack has it (__cuda_array_interface__ has
            no such thing). Whoever reads the results waits for it; until it is done, arrays that
            are not torch's must be kept.
        kernel, config: names that kernels() lists; flash_forward by default.
        arch: whose code, "sm_75", "sm_89" or "sm_90"; on a CUDA device its own by default.
        exp2: "soft" (by default on the emulator) or "hardware" (by default on a CUDA device).

    Options of the emulator
        card: whose arithmetic and limits, "t4", "rtx4070" or "h200".
        numerics: "exact" (the card's tensor cores) or "fma" (faster).
        isa: "best", "v2", "v3" or "v4", the CPU's instructions; results do not depend on it.
        threads: one a core by default. order_seed: shuffles blocks and warps; results depend on
            neither.
        checks: look for races, reads of unwritten memory and other faults; slow.

    Returns
        O, shaped as q, in q's dtype; with return_lse also LSE, float32 (batch, heads, q_len): the
        natural log of the sum over the visible keys of exp(score). A row without a visible key has
        O = 0 and LSE = -inf. Both are out and lse_out if given, otherwise new arrays of q's package
        (NumPy's, if q's cannot make one of NumPy's). last_report() tells what ran.

    Raises
        ValueError: an invalid argument; the message names it.
        TypeError: not an array, or one of another dtype or package.
        UnsupportedError: no such kernel, configuration, card or device, or one that cannot do this.
        FindingError: checks found a fault.
        RuntimeError: a launch failed.
    """
    _last.library = None
    if lse_out is not None and not return_lse:
        raise ValueError("lse_out: return_lse is False")
    with _arrays.Call(q, stream) as call:
        inputs = [call.input(name, array) for name, array in (("q", q), ("k", k), ("v", v))]
        if call.cuda:
            _refuse_on_cuda(card=card, isa=isa, numerics=numerics, threads=threads,
                            order_seed=order_seed, checks=checks)
        template = _options(
            window, kernel=kernel, arch=arch, card=card, config=config, exp2=exp2, isa=isa,
            numerics=numerics, causal=causal, align=align, threads=threads, order_seed=order_seed,
            checks=bool(checks), target=b"cuda" if call.cuda else b"sim",
        )
        options = c.Options.from_buffer_copy(template)
        if scale is not None:
            options.has_scale, options.scale = True, _real("scale", scale)
        o = call.empty("out", inputs[0], rank=4) if out is None else out
        lse: Any = lse_out
        if return_lse and lse_out is None:
            lse = call.empty("lse_out", inputs[0], rank=3, dtype="float32")
        o_tensor = call.output("out", o)
        lse_tensor = None if lse is None else call.output("lse_out", lse)
        options.stream = call.stream  # known once every array was seen
        call.order()

        lib = c.library()
        status = lib.tessera_attention(
            *(ctypes.byref(tensor) for tensor in inputs),
            ctypes.byref(o_tensor),
            None if lse_tensor is None else ctypes.byref(lse_tensor),
            ctypes.byref(options),
        )
        _last.library = lib
        _raise_for(status)
        o = call.result(o) if out is None else out
        if return_lse:
            return o, (call.result(lse) if lse_out is None else lse_out)
        return o


def last_report() -> dict[str, Any]:
    """What this thread's last attention() ran: kernel, configuration, card, counters, findings.

    Empty if there was none or it was refused. ``seconds`` are of the launch alone.
    """
    ran = getattr(_last, "library", None)
    report: dict[str, Any] = json.loads(ran.tessera_last_report()) if ran else {}
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
) -> NDArray[Any]:
    """A contiguous NumPy array of about normal values with standard deviation `scale`.

    Element i, in C order, depends on (seed, tensor, i) alone and is the same on every machine.
    dtype is float32, float16 or bfloat16. seed is below 2**64 and tensor below 2**32.
    """
    kind = _arrays.numpy_dtype("dtype", dtype).newbyteorder("=")
    code = _arrays.dtype_code("dtype:", kind.name)
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


def _refuse_on_cuda(**options: Any) -> None:
    for name, value in options.items():
        if value:
            raise ValueError(f"{name}: it is the emulator's, and q is on a CUDA device")


def _options(window: Window | None, **given: Any) -> c.Options:
    """All but the scale and the stream. Not to be changed: other calls may have it too."""
    if window is None and type(given["threads"]) is type(given["order_seed"]) is int:
        try:
            return _kept_options(**given)
        except TypeError:  # not hashable, or whatever is said below
            pass
    return _new_options(*_window(window), **given)


def _new_options(left: int | None, right: int | None, **given: Any) -> c.Options:
    return c.Options(
        struct_size=ctypes.sizeof(c.Options),
        target=given["target"],
        **{name: _string(name, given[name])
           for name in ("kernel", "arch", "card", "config", "exp2", "isa", "numerics")},
        causal=_causal(given["causal"]),
        threads=_integer("threads", given["threads"], -(2**31), 2**31 - 1),
        checks=given["checks"],
        order_seed=_integer("order_seed", given["order_seed"], 0, 2**64 - 1),
        has_left=left is not None,
        has_right=right is not None,
        left=left or 0,
        right=right or 0,
        align=_align(given["align"]),
    )


@functools.lru_cache(maxsize=64, typed=True)
def _kept_options(**given: Any) -> c.Options:
    """They cost more than the rest of a call, and a program's calls have few."""
    return _new_options(None, None, **given)


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
    for name, here in (("o", "out"), ("lse", "lse_out")):
        if message.startswith(f"{name}: "):  # it names the argument as C has it
            message = here + message[len(name):]
    if status == c.INVALID_ARGUMENT:
        raise ValueError(message)
    if status == c.UNSUPPORTED:
        raise UnsupportedError(message)
    raise RuntimeError(message)
