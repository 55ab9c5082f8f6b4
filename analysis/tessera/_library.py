# SPDX-License-Identifier: Apache-2.0
"""Finds and loads libtessera.so, and declares its C interface (kernels/attention_c.h)."""
from __future__ import annotations

import ctypes
import functools
import os
import struct
import sys
from collections.abc import Sequence
from pathlib import Path

ABI_VERSION = 2
NAME = "libtessera.so"

OK, INTERNAL_ERROR, INVALID_ARGUMENT, UNSUPPORTED, FINDING = range(5)  # tessera_status
DTYPES = {"float32": 0, "float16": 1, "bfloat16": 2}  # tessera_dtype, by NumPy's name
DTYPE_NAMES = {code: name for name, code in DTYPES.items()}
CAUSAL_NONE, CAUSAL_TOP_LEFT, CAUSAL_BOTTOM_RIGHT = range(3)  # tessera_causal
ALIGN_DEFAULT, ALIGN_TOP_LEFT, ALIGN_BOTTOM_RIGHT = range(3)  # tessera_align
MAX_RANK = 4


class Tensor(ctypes.Structure):
    """tessera_tensor."""

    _fields_ = [
        ("data", ctypes.c_void_p),
        ("dtype", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("shape", ctypes.c_int64 * MAX_RANK),
        ("stride", ctypes.c_int64 * MAX_RANK),
    ]


_NUMBERS = struct.Struct(f"Pii{MAX_RANK}q{MAX_RANK}q")  # a Tensor
_NONE = (0,) * MAX_RANK


def tensor(data: int, dtype: int, shape: Sequence[int], stride: Sequence[int]) -> Tensor:
    """Tensor(data, dtype, ...) in half the time. The rank is at most MAX_RANK."""
    rank = len(shape)
    free = _NONE[rank:]
    return Tensor.from_buffer_copy(_NUMBERS.pack(data, dtype, rank, *shape, *free, *stride, *free))


class Options(ctypes.Structure):
    """tessera_options."""

    _fields_ = [
        ("struct_size", ctypes.c_int64),
        ("kernel", ctypes.c_char_p),
        ("arch", ctypes.c_char_p),
        ("card", ctypes.c_char_p),
        ("config", ctypes.c_char_p),
        ("exp2", ctypes.c_char_p),
        ("isa", ctypes.c_char_p),
        ("target", ctypes.c_char_p),
        ("numerics", ctypes.c_char_p),
        ("causal", ctypes.c_int32),
        ("has_scale", ctypes.c_int32),
        ("scale", ctypes.c_double),
        ("threads", ctypes.c_int32),
        ("checks", ctypes.c_int32),
        ("order_seed", ctypes.c_uint64),
        ("stream", ctypes.c_void_p),
        ("has_left", ctypes.c_int32),
        ("has_right", ctypes.c_int32),
        ("left", ctypes.c_int64),
        ("right", ctypes.c_int64),
        ("align", ctypes.c_int32),
    ]


def find_library() -> Path:
    """The path of libtessera.so: TESSERA_LIBRARY, else beside the package, else the build tree."""
    named = os.environ.get("TESSERA_LIBRARY")
    if named:
        path = Path(named).resolve()  # dlopen would search the system for a name without a slash
        if not path.is_file():
            raise FileNotFoundError(f"TESSERA_LIBRARY: there is no file {path}")
        return path
    # An editable install has two package folders: the sources', and the one with the library.
    folders = [Path(folder) for folder in sys.modules[__package__].__path__]
    folders.append(Path(__file__).resolve().parents[2] / "build")
    for folder in folders:
        if (folder / NAME).is_file():
            return folder / NAME
    raise FileNotFoundError(
        f"{NAME} is in none of {', '.join(map(str, folders))}. Install the wheel, build the CMake "
        f"target tessera_shared, or set TESSERA_LIBRARY to the library's path."
    )


@functools.cache
def library() -> ctypes.CDLL:
    """The loaded library. Loaded on first use, so that the package imports without one."""
    path = find_library()
    lib = ctypes.CDLL(str(path))
    try:
        abi = lib.tessera_abi_version()  # int32_t (void), ctypes' default
    except AttributeError:
        raise OSError(f"{path} is not a Tessera library: it has no tessera_abi_version") from None
    if abi != ABI_VERSION:
        raise OSError(f"{path} has ABI version {abi}; this package needs {ABI_VERSION}")

    tensor = ctypes.POINTER(Tensor)
    lib.tessera_attention.argtypes = [tensor] * 5 + [ctypes.POINTER(Options)]
    lib.tessera_attention.restype = ctypes.c_int
    lib.tessera_fill.argtypes = [
        ctypes.c_void_p, ctypes.c_int32, ctypes.c_int64, ctypes.c_uint64, ctypes.c_uint32,
        ctypes.c_double,
    ]
    lib.tessera_fill.restype = ctypes.c_int
    for name in ("last_error", "last_report", "list", "version"):
        function = getattr(lib, f"tessera_{name}")
        function.argtypes = []
        function.restype = ctypes.c_char_p
    return lib
