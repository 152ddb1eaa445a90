"""DLPack, both ways: memory exchanged with other frameworks without a copy.

DLPack hands memory over in a *capsule*, a Python object that holds the *managed tensor*, a C
struct. NumPy makes and consumes the capsules. Its destructors are C functions, so that one may run
while an exception propagates. NumPy knows neither the flags of the struct nor the types of
``ml_dtypes``. This module reads and writes both in the struct; the types pass as unsigned integers
while NumPy reads them.

Source: DLPack 1.1, ``dlpack.h``, and the Python array API standard 2023.12, data interchange.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np

from vtensor.errors import DLPackError, VTensorError
from vtensor.language.dtype import bits, from_numpy, numpy_dtype
from vtensor.language.process.interrupts import pass_signals

Array = np.ndarray[Any, Any]

CPU = (1, 0)

#: Kinds of device whose memory a CPU can read: CPU, and CUDA's and ROCm's pinned host memory.
_HOST = (1, 3, 11)

_SIGNED, _UNSIGNED, _BFLOAT = 0, 1, 4
_READ_ONLY, _COPIED, _PADDED = 1, 2, 4

#: DLPack's codes of the element types that NumPy does not exchange by DLPack.
_CODES = {
    "bf16": _BFLOAT,
    "f8e4m3fn": 10,
    "f8e4m3fnuz": 11,
    "f8e5m2": 12,
    "f8e5m2fnuz": 13,
    "f8e8m0": 14,
    "f6e2m3": 15,
    "f6e3m2": 16,
    "f4e2m1": 17,
    "s4": _SIGNED,
    "u4": _UNSIGNED,
    "s2": _SIGNED,
    "u2": _UNSIGNED,
}


class _DataType(ctypes.Structure):
    _fields_ = (
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
    )


class _Tensor(ctypes.Structure):
    """``DLTensor``; also the beginning of ``DLManagedTensor``."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("dtype", _DataType),
        ("shape", ctypes.c_void_p),
        ("strides", ctypes.c_void_p),
        ("byte_offset", ctypes.c_uint64),
    )


class _Versioned(ctypes.Structure):
    """``DLManagedTensorVersioned``."""

    _fields_ = (
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("manager_ctx", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", _Tensor),
    )


_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_pointer.restype, _pointer.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
_is_valid = ctypes.pythonapi.PyCapsule_IsValid
_is_valid.restype, _is_valid.argtypes = ctypes.c_int, (ctypes.py_object, ctypes.c_char_p)


class _Managed:
    """The managed tensor (DLPack's C struct) in a capsule that nobody has used yet.

    Raises:
        DLPackError: the object is no such capsule, or one of a later DLPack than version 1.
    """

    def __init__(self, capsule: object) -> None:
        self.versioned: _Versioned | None = None
        if _is_valid(capsule, b"dltensor_versioned"):
            address = _pointer(capsule, b"dltensor_versioned")
            self.versioned = _Versioned.from_address(address)
            if self.versioned.major != 1:
                raise DLPackError(f"a tensor of DLPack {self.versioned.major} is not understood")
            self.tensor = self.versioned.tensor
        elif _is_valid(capsule, b"dltensor"):
            self.tensor = _Tensor.from_address(_pointer(capsule, b"dltensor"))
        else:
            raise DLPackError(
                f"{capsule!r} is no DLPack capsule, or has been consumed: it is good for once"
            )

    @property
    def flags(self) -> int:
        """The tensor's flags; 0 before DLPack 1.0."""
        return 0 if self.versioned is None else int(self.versioned.flags)

    @property
    def foreign(self) -> str:
        """The name of the element type if NumPy does not know the type, else empty.

        Raises:
            DLPackError: the elements have less than a byte and several share a byte.
        """
        kind = self.tensor.dtype
        for name, code in _CODES.items():
            if (kind.code, kind.bits, kind.lanes) == (code, bits(name), 1):
                if kind.bits < 8 and not self.flags & _PADDED:
                    raise DLPackError(f"its {name} are packed, several to a byte: unpack them")
                return name
        return ""

    def declare(self, name: str) -> None:
        """Write the element type ``name`` in place of the unsigned integers that NumPy declared."""
        self.tensor.dtype.code, self.tensor.dtype.bits = _CODES[name], bits(name)
        if bits(name) < 8 and self.versioned is not None:
            self.versioned.minor, self.versioned.flags = 1, self.versioned.flags | _PADDED


def export(
    array: Array,
    *,
    copied: bool = False,
    stream: object = None,
    max_version: tuple[int, int] | None = None,
    dl_device: Sequence[int] | None = None,
    copy: bool | None = None,
) -> object:
    """Return a DLPack capsule of an array's memory, the result of ``__dlpack__``. The capsule keeps
    the array alive.

    Args:
        array: the elements, in any strides.
        copied: True if the array is already a copy of the memory that the consumer asked for.
        stream: None; memory of a CPU has no streams.
        max_version: the newest version that the consumer knows; None is before 1.0.
        dl_device: the device that the consumer wants; None and the CPU are possible.
        copy: True copies, False never does, None copies only if it must.

    Raises:
        DLPackError: another device or a stream is asked for; a copy is needed, and ``copy=False``;
            the memory is read-only, or its elements have less than a byte, and ``max_version`` is
            too old to express that.
    """
    if dl_device is not None and tuple(dl_device) != CPU:
        raise DLPackError(f"dl_device={tuple(dl_device)}: the tensor is on the CPU, {CPU}")
    if stream is not None:
        raise DLPackError(f"stream={stream!r}: memory of the CPU has no streams")
    irregular = not array.flags.aligned or any(step % array.itemsize for step in array.strides)
    if copy is False and (copied or irregular):
        raise DLPackError(
            "its layout or strides cannot be exported: a copy is needed, and copy=False"
        )
    if (copy and not copied) or irregular:
        array, copied = array.copy(), True
    name = from_numpy(array.dtype)
    if bits(name) < 8 and (max_version or (0, 0)) < (1, 1):
        raise DLPackError(f"{name} takes a byte an element, which DLPack can say from 1.1 on")
    try:
        raw = array.view(f"u{array.itemsize}") if name in _CODES else array
        capsule: object = raw.__dlpack__(max_version=max_version)
    except (BufferError, ValueError, TypeError) as error:
        raise DLPackError(f"not exported: {error}") from error
    managed = _Managed(capsule)
    if name in _CODES:
        managed.declare(name)
    if copied and managed.versioned is not None:
        managed.versioned.flags |= _COPIED
    return capsule


class _Capsule:
    """An object whose ``__dlpack__`` returns a given capsule: NumPy accepts no bare capsule."""

    def __init__(self, capsule: object) -> None:
        self.capsule = capsule

    def __dlpack__(self, **_: object) -> object:
        return self.capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return CPU


def array_of(given: Any, *, copy: bool | None = None) -> Array:
    """Return an array on the memory of an object with ``__dlpack__``.

    The array is read-only if the producer says so, or is too old to say.

    Args:
        given: an object with ``__dlpack__`` and ``__dlpack_device__``.
        copy: True returns a copy; False returns the producer's own memory; None lets the producer
            decide.

    Raises:
        DLPackError: the object is on another device, its capsule was consumed or is no capsule, the
            element type is unknown, or ``copy=False`` and the producer copied.
    """
    try:
        device, number = given.__dlpack_device__()
        if device not in _HOST:
            raise DLPackError(f"it is on DLPack's device ({int(device)}, {number}), not on the CPU")
        negated = getattr(given, "is_neg", bool)  # PyTorch's
        if negated():  # the capsule would have the values before negation
            raise DLPackError("it is negated only when it is read; to fix: .resolve_neg()")
        managed = _Managed(capsule := _capsule_of(given, copy))
        if copy is False and managed.flags & _COPIED:
            raise DLPackError(f"{type(given).__name__} copies, with copy=False")
        fresh, name, kind = bool(managed.flags & _COPIED), managed.foreign, managed.tensor.dtype
        declared = kind.code, kind.bits
        if name:
            kind.code, kind.bits = _UNSIGNED, 8 * numpy_dtype(name).itemsize
        try:
            array = np.from_dlpack(_Capsule(capsule))  # type: ignore[arg-type]  # an object is enough
        finally:
            kind.code, kind.bits = declared  # the producer still uses the managed tensor
    except VTensorError:
        raise
    except Exception as error:  # a foreign object may raise anything
        pass_signals(error)
        raise DLPackError(f"{type(given).__name__} gives no array: {error}") from error
    if name:
        array = array.view(numpy_dtype(name))
    return array.copy() if copy and not fresh else array


def _capsule_of(given: Any, copy: bool | None) -> object:
    """Return the DLPack capsule of ``given``, an object with ``__dlpack__``.

    A producer from before DLPack 1.0 does not get the argument ``copy``.
    """
    try:
        return given.__dlpack__(max_version=(1, 1), copy=copy)
    except TypeError:  # a producer from before version 1.0 knows neither
        return given.__dlpack__()
