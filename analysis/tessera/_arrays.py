# SPDX-License-Identifier: Apache-2.0
"""The arrays of one call: NumPy's, or those of any package with DLPack or __cuda_array_interface__.

No such package is imported here. If an array is torch's or CuPy's, its package is in sys.modules.
"""
from __future__ import annotations

import contextlib
import operator
import sys
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import DTypeLike, NDArray

from . import _dlpack
from . import _library as c
from ._errors import UnsupportedError

# What isinstance() says of the packages with rules of their own; others go by their module's name.
_KNOWN = {"torch": "Tensor", "cupy": "ndarray", "jax": "Array"}


class Place(NamedTuple):
    cuda: bool
    index: int | None = None  # of the CUDA device; None: only the driver knows

    def __str__(self) -> str:
        if not self.cuda:
            return "the CPU"
        return "a CUDA device" if self.index is None else f"CUDA device {self.index}"


_CPU = Place(cuda=False)
_torch_codes: dict[Any, int] = {}  # of the C interface, by torch's dtype
_torch_places: dict[Any, Place] = {}  # by torch's device


class Call:
    """The arrays of one call as C tensors. They are valid until the `with` block ends.

    q decides: the other arrays must be of its package and on its device.
    """

    def __init__(self, q: Any, stream: Any) -> None:
        self._package = _package("q", q)
        self._torch = sys.modules["torch"] if self._package == "torch" else None
        self._place = _place("q", q) if self._torch is None else _torch_place(q)
        self._q = q
        self._given_stream = None if stream is None else _stream_pointer(stream)
        if self._given_stream is not None and not self._place.cuda:
            raise ValueError("stream: the emulator has none, and q is on the CPU")
        self._interface_stream: int | None = None
        self._held = contextlib.ExitStack()  # gives back what was lent
        self._passed: list[Any] = []  # torch's tensors, copies included
        self.stream = self._given_stream or 0
        if self._place.cuda and self._given_stream is None:
            self.stream = self._current_stream()

    def __enter__(self) -> Call:  # noqa: PYI034  Self is of Python 3.11
        return self

    def __exit__(self, *error: object) -> None:
        self._passed.clear()
        self._held.close()

    @property
    def cuda(self) -> bool:
        return self._place.cuda

    def input(self, name: str, array: Any) -> c.Tensor:
        return self._tensor(name, array, written=False)

    def output(self, name: str, array: Any) -> c.Tensor:
        return self._tensor(name, array, written=True)

    def empty(self, name: str, like: c.Tensor, rank: int, dtype: str = "") -> Any:
        """An array for a result, of q's package and device: `like`'s first `rank` dimensions.

        dtype: a name, or "" for q's.
        """
        if self._torch is not None:
            kind = getattr(self._torch, dtype) if dtype else self._q.dtype
            return self._q.new_empty(self._q.shape[:rank], dtype=kind)
        shape = tuple(like.shape[: min(rank, like.ndim)])
        if self._package == "numpy":
            return np.empty(shape, dtype or self._q.dtype.newbyteorder("="))
        if self._package == "cupy":
            with self._q.device:
                return sys.modules["cupy"].empty(shape, dtype or self._q.dtype)
        if not self.cuda:
            return np.empty(shape, numpy_dtype(name, dtype or c.DTYPE_NAMES[like.dtype]))
        if self._package == "jax":
            raise TypeError(
                "q: JAX's arrays are immutable, so none can take the results on a CUDA device; "
                "pass torch.from_dlpack(q) or cupy.from_dlpack(q), which copy nothing"
            )
        raise TypeError(f"{name}: needed, since arrays like q, {_type(self._q)}, cannot be made")

    def result(self, array: Any) -> Any:
        """`array`, which empty() made, as the caller gets it."""
        foreign = isinstance(array, np.ndarray) and self._package != "numpy"
        if foreign and hasattr(self._q, "__array_namespace__"):
            return self._q.__array_namespace__().asarray(array)
        return array

    def order(self) -> None:
        """Lets a stream that is not torch's current one run after what torch has queued so far.

        Other packages do so in __dlpack__.
        """
        if self._torch is None or not self.cuda or self._given_stream is None:
            return
        cuda, device = self._torch.cuda, self._q.device
        current = cuda.current_stream(device)
        if _legacy(self.stream) == current.cuda_stream:
            return
        if _legacy(self.stream) == 0:
            stream = cuda.default_stream(device)
        else:
            stream = cuda.ExternalStream(self.stream, device=device)
        stream.wait_stream(current)
        for tensor in self._passed:
            tensor.record_stream(stream)  # its memory is not used again before the stream is done

    def _current_stream(self) -> int:
        if self._torch is not None:
            raw = getattr(getattr(self._torch, "_C", None), "_cuda_getCurrentRawStream", None)
            if raw is not None and self._place.index is not None:
                return int(raw(self._place.index))  # makes no Stream
            return int(self._torch.cuda.current_stream(self._q.device).cuda_stream)
        if self._package == "cupy":
            with self._q.device:
                return int(sys.modules["cupy"].cuda.get_current_stream().ptr)
        return 0  # the legacy default stream

    def _tensor(self, name: str, array: Any, written: bool) -> c.Tensor:
        torch = self._torch  # what most calls pass: its plain tensors, all on one device
        if torch is not None and type(array) is torch.Tensor and array.device == self._q.device:
            array, tensor = _torch_tensor(name, array, written)
            self._passed.append(array)
            return tensor
        package = _package(name, array)
        numpys_result = written and package == "numpy" and not self.cuda
        if package != self._package and not numpys_result:
            raise TypeError(
                f"{name}: it is a {_type(array)}, and q is a {_type(self._q)}; "
                f"all arrays must be of one package"
            )
        if package == "numpy":
            return numpy_tensor(name, array, written)
        if package == "jax" and written:
            raise TypeError(f"{name}: {_type(array)} is immutable")
        place = _place(name, array)
        known = place.index is not None and self._place.index is not None
        if place.cuda != self.cuda or known and place != self._place:
            raise ValueError(f"{name}: it is on {place}, and q is on {self._place}")
        if package == "torch":
            array = _plain_torch(name, array, written)
            self._passed.append(array)
        if hasattr(array, "__dlpack__"):
            return self._from_dlpack(name, array)
        return self._from_cuda_interface(name, array, written)

    def _from_dlpack(self, name: str, array: Any) -> c.Tensor:
        try:
            content, give_back = _dlpack.consume(self._capsule(array))
        except Exception as error:  # of the producer, whatever it likes to raise
            raise TypeError(f"{name}: __dlpack__ of {_type(array)}: {error}") from error
        self._held.callback(give_back)
        return _c_tensor(name, content.data, content.dtype, content.shape, content.strides)

    def _capsule(self, array: Any) -> Any:
        if self._package == "torch":
            # Its __dlpack__ refuses every device but the current one; order() sees to the streams.
            return sys.modules["torch"].to_dlpack(array)
        if not self.cuda:
            return array.__dlpack__()
        stream = self.stream or 1  # DLPack does not allow 0; 1 too is the legacy default stream
        with self._q.device if self._package == "cupy" else contextlib.nullcontext():
            return array.__dlpack__(stream=stream)

    def _from_cuda_interface(self, name: str, array: Any, written: bool) -> c.Tensor:
        interface = array.__cuda_array_interface__
        if interface.get("mask") is not None:
            raise TypeError(f"{name}: its __cuda_array_interface__ has a mask")
        address, read_only = interface["data"]
        if written and read_only:
            raise ValueError(f"{name}: it is read-only")
        # The kind V, raw bytes, is how some spell bf16, but others are spelt so as well.
        dtype = np.dtype(interface["typestr"])
        strides = interface.get("strides")
        if strides is not None:
            if any(step % dtype.itemsize for step in strides):
                raise ValueError(f"{name}: its strides are no multiples of the element's size")
            strides = tuple(step // dtype.itemsize for step in strides)

        # Where its contents are made; work on that stream comes after them.
        stream = interface.get("stream")
        if stream is not None and self._given_stream is None:
            if self._interface_stream not in (None, stream):
                raise ValueError(f"{name}: its stream is another than q's; give stream=")
            self.stream = self._interface_stream = stream
        return _c_tensor(name, address or 0, dtype.name, interface["shape"], strides)


def _package(name: str, array: Any) -> str:
    if isinstance(array, np.ndarray):
        return "numpy"
    for package, kind in _KNOWN.items():
        if isinstance(array, getattr(sys.modules.get(package), kind, ())):
            return package
    dlpack = hasattr(array, "__dlpack__") and hasattr(array, "__dlpack_device__")
    if not dlpack and not hasattr(array, "__cuda_array_interface__"):
        raise TypeError(
            f"{name}: {type(array).__name__} is not an array: NumPy's, or one with __dlpack__ or "
            f"__cuda_array_interface__"
        )
    return type(array).__module__.partition(".")[0]


def _place(name: str, array: Any) -> Place:
    if isinstance(array, np.ndarray):
        return _CPU
    if not hasattr(array, "__dlpack_device__"):
        return Place(cuda=True)
    try:
        kind, index = map(int, array.__dlpack_device__())
    except Exception as error:  # as of torch's device "meta"
        raise TypeError(f"{name}: __dlpack_device__ of {_type(array)}: {error}") from error
    if kind in (_dlpack.CPU, _dlpack.CUDA_HOST):
        return _CPU
    if kind in (_dlpack.CUDA, _dlpack.CUDA_MANAGED):
        return Place(True, index if kind == _dlpack.CUDA else None)
    raise UnsupportedError(f"{name}: DLPack device type {kind} is neither the CPU nor CUDA")


def _torch_place(q: Any) -> Place:
    place = _torch_places.get(q.device)
    if place is None:
        place = _torch_places[q.device] = _place("q", q)
    return place


def _type(array: Any) -> str:
    return f"{type(array).__module__.partition('.')[0]}.{type(array).__name__}"


def _legacy(stream: int) -> int:
    """The legacy default stream has two handles, 0 and 1."""
    return 0 if stream == 1 else stream


def _stream_pointer(stream: Any) -> int:
    for attribute in ("cuda_stream", "ptr"):  # torch's, CuPy's
        if hasattr(stream, attribute):
            stream = getattr(stream, attribute)
            break
    try:
        pointer = operator.index(stream)
    except TypeError:
        raise TypeError(
            f"stream: {stream!r} is neither a cudaStream_t as an integer nor a stream of torch or "
            f"CuPy"
        ) from None
    if not 0 <= pointer < 2**64:
        raise ValueError(f"stream: {pointer} is not a cudaStream_t")
    return pointer


def _plain_torch(name: str, tensor: Any, written: bool) -> Any:
    """`tensor` without a gradient, or for an input a copy that the C library can read."""
    torch = sys.modules["torch"]
    if tensor.layout != torch.strided:
        raise TypeError(f"{name}: layout {tensor.layout} is not torch.strided")
    if tensor.is_neg():  # its memory holds the values before they are negated
        raise TypeError(f"{name}: it is a negated view; pass {name}.resolve_neg()")
    if tensor.requires_grad:
        if torch.is_grad_enabled():
            raise UnsupportedError(
                f"{name}: it requires a gradient, and there is no backward yet; "
                f"call under torch.no_grad(), or pass {name}.detach()"
            )
        tensor = tensor.detach()
    if not written and tensor.ndim and tensor.shape[-1] > 1 and tensor.stride(-1) != 1:
        tensor = tensor.contiguous()
    return tensor


def _torch_tensor(name: str, tensor: Any, written: bool) -> tuple[Any, c.Tensor]:
    """_plain_torch() of a plain tensor, and what DLPack would say, for a tenth of its time."""
    torch = sys.modules["torch"]
    shape, strides = tensor.shape, tensor.stride() if tensor.layout == torch.strided else ()
    if tensor.requires_grad or tensor.is_neg() or strides[-1:] != (1,):
        tensor = _plain_torch(name, tensor, written)
        shape, strides = tensor.shape, tensor.stride()
    try:
        address = tensor.data_ptr()
    except RuntimeError as error:  # it has no memory of its own, as under torch.func.vmap
        raise TypeError(f"{name}: data_ptr of {_type(tensor)}: {error}") from error
    code = _torch_codes.get(tensor.dtype)
    if code is None:
        code = dtype_code(f"{name}: dtype", str(tensor.dtype).rpartition(".")[2])
        _torch_codes[tensor.dtype] = code
    return tensor, _tensor_of(name, address, code, shape, strides)


def _c_tensor(
    name: str, data: int, dtype: str, shape: Sequence[int], strides: Sequence[int] | None
) -> c.Tensor:
    return _tensor_of(name, data, dtype_code(f"{name}: dtype", dtype), shape, strides)


def _tensor_of(
    name: str, data: int, code: int, shape: Sequence[int], strides: Sequence[int] | None
) -> c.Tensor:
    if len(shape) > c.MAX_RANK:
        raise ValueError(f"{name}: rank {len(shape)} is above {c.MAX_RANK}")
    return c.tensor(data, code, shape, _plain_strides(shape, strides))


def _plain_strides(shape: Sequence[int], strides: Sequence[int] | None) -> tuple[int, ...]:
    """`strides`, or the compact one where no element is reached by it: it may be anything there."""
    if strides is not None and shape and min(shape) > 1:
        return tuple(strides)
    plain: list[int] = []
    compact = 1
    for axis in reversed(range(len(shape))):
        free = strides is None or shape[axis] <= 1 or 0 in shape
        plain.insert(0, compact if free else strides[axis])
        compact = plain[0] * max(shape[axis], 1)
    return tuple(plain)


def numpy_tensor(name: str, array: NDArray[Any], written: bool = False) -> c.Tensor:
    """The C form of `array`, or of a copy where C cannot follow its strides; it owns that copy."""
    dtype_code(f"{name}: dtype", array.dtype.name)  # other dtypes may have an itemsize of 0
    steps = tuple(step // array.itemsize for step in array.strides)
    strides = _plain_strides(array.shape, steps)
    tensor = _c_tensor(name, array.ctypes.data, array.dtype.name, array.shape, strides)

    # aligned: the base and all strides are multiples of the element's size.
    readable = array.flags.aligned and array.dtype.isnative
    if written:
        if not readable or not array.flags.writeable:
            raise ValueError(f"{name}: it is read-only, unaligned or byte-swapped")
    elif not readable or strides[-1:] not in ((), (1,)) or any(step < 0 for step in strides):
        return numpy_tensor(name, _copy(array))
    tensor.array = array  # the caller may hold no reference to a copy
    return tensor


def _copy(array: NDArray[Any]) -> NDArray[Any]:
    """A native, aligned copy, contiguous but for axes of stride 0, which are not written out."""
    once = tuple(slice(0, 1) if step == 0 else slice(None) for step in array.strides[:-1])
    native = array.dtype.newbyteorder("=")
    return np.broadcast_to(np.array(array[once], native, order="C"), array.shape)


def dtype_code(what: str, dtype: str) -> int:
    if dtype not in c.DTYPES:
        raise TypeError(f"{what} {dtype} is not one of {', '.join(c.DTYPES)}")
    return c.DTYPES[dtype]


def numpy_dtype(what: str, dtype: DTypeLike) -> np.dtype[Any]:
    if isinstance(dtype, str) and dtype == "bfloat16":
        try:
            import ml_dtypes  # noqa: F401  makes the name known to NumPy
        except ImportError:
            raise TypeError(f"{what}: bfloat16 needs the package ml_dtypes") from None
    return np.dtype(dtype)
