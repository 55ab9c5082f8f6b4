# SPDX-License-Identifier: Apache-2.0
"""Reads DLPack capsules (dlpack.h, the unversioned DLManagedTensor that every producer exports)."""
from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any, NamedTuple

# DLDeviceType
CPU, CUDA, CUDA_HOST, CUDA_MANAGED = 1, 2, 3, 13
# DLDataTypeCode
_CODES = {0: "int", 1: "uint", 2: "float", 4: "bfloat", 5: "complex", 6: "bool"}


class _DLTensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


class _DLManagedTensor(ctypes.Structure):
    _fields_ = [
        ("tensor", _DLTensor),
        ("manager_ctx", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
    ]


# Prototypes of our own: those of ctypes.pythonapi are shared by everybody in the process.
_python = ctypes.pythonapi
_is_valid = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_IsValid", _python)
)
_get_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", _python)
)
_set_name = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_SetName", _python)
)
# With the GIL, as a capsule's destructor calls it.
_Deleter = ctypes.PYFUNCTYPE(None, ctypes.c_void_p)
_NAME, _USED = b"dltensor", b"used_dltensor"  # a capsule keeps the pointer: these live for ever


class Content(NamedTuple):
    data: int
    dtype: str  # "float32", "bfloat16"; "float32x4" of vectors
    shape: tuple[int, ...]
    strides: tuple[int, ...] | None  # in elements; None: compact, C order


def consume(capsule: Any) -> tuple[Content, Callable[[], None]]:
    """What the capsule describes, and the function that gives it back: call that exactly once.

    The capsule is marked as used; until it is given back, the producer keeps the memory.
    """
    if not _is_valid(capsule, _NAME):
        raise TypeError(f"{type(capsule).__name__} is not an unused DLPack capsule")
    address = _get_pointer(capsule, _NAME)
    _set_name(capsule, _USED)
    managed = _DLManagedTensor.from_address(address)

    def give_back() -> None:
        if managed.deleter:
            _Deleter(managed.deleter)(address)

    t = managed.tensor
    name = _CODES.get(t.code, f"DLPack type {t.code}, ")
    dtype = f"{name}{t.bits}" if name != "bool" else name
    if t.lanes != 1:
        dtype += f"x{t.lanes}"
    content = Content(
        (t.data or 0) + t.byte_offset,
        dtype,
        tuple(t.shape[: t.ndim]) if t.ndim else (),
        tuple(t.strides[: t.ndim]) if t.ndim and t.strides else None,
    )
    return content, give_back
