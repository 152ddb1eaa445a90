"""Element types: their names, their sizes, and the NumPy type of each.

The short names are oneDNN's (``f32``, ``bf16``, ``s8``); ONNX's other types have names of the same
kind. ``ml_dtypes`` supplies the types that NumPy lacks.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Any

import numpy as np

from vtensor.errors import DTypeError

#: The element types that NumPy itself has: NumPy's name by ours.
_NUMPY_NAMES: dict[str, str] = {
    "f64": "float64",
    "f32": "float32",
    "f16": "float16",
    "s64": "int64",
    "s32": "int32",
    "s16": "int16",
    "s8": "int8",
    "u64": "uint64",
    "u32": "uint32",
    "u16": "uint16",
    "u8": "uint8",
    "bool": "bool",
    "c64": "complex64",
    "c128": "complex128",
}

#: The element types that only ``ml_dtypes`` has: its name by ours. An element of bf16 takes two
#: bytes of memory; of any other type one byte, even if it has fewer than 8 bits.
_ML_DTYPES_NAMES: dict[str, str] = {
    "bf16": "bfloat16",
    "f8e4m3fn": "float8_e4m3fn",
    "f8e4m3fnuz": "float8_e4m3fnuz",
    "f8e5m2": "float8_e5m2",
    "f8e5m2fnuz": "float8_e5m2fnuz",
    "f8e8m0": "float8_e8m0fnu",
    "f6e2m3": "float6_e2m3fn",
    "f6e3m2": "float6_e3m2fn",
    "f4e2m1": "float4_e2m1fn",
    "s4": "int4",
    "u4": "uint4",
    "s2": "int2",
    "u2": "uint2",
}

#: Floats of at most 8 bits, and integers of fewer than 8 bits. No kernel computes in these types.
NARROW_FLOATS = tuple(name for name in _ML_DTYPES_NAMES if name[0] == "f")
NARROW_INTEGERS = tuple(name for name in _ML_DTYPES_NAMES if name[0] in "su")

#: Our name of an element type by NumPy's or ``ml_dtypes``' name.
_FROM_NUMPY = {numpy_name: name for name, numpy_name in (_NUMPY_NAMES | _ML_DTYPES_NAMES).items()}

#: Size of one element in memory, in bytes, by name.
ITEMSIZE: dict[str, int] = {
    name: np.dtype(numpy_name).itemsize for name, numpy_name in _NUMPY_NAMES.items()
}
ITEMSIZE |= {name: 2 if name == "bf16" else 1 for name in _ML_DTYPES_NAMES}


@cache
def numpy_dtype(name: str) -> np.dtype[Any]:
    """Return the NumPy type of the element type with this name.

    Raises:
        DTypeError: no element type has this name.

    >>> numpy_dtype("f32")
    dtype('float32')
    """
    if name in _NUMPY_NAMES:
        return np.dtype(_NUMPY_NAMES[name])
    if name not in _ML_DTYPES_NAMES:
        raise DTypeError(f"unknown element type {name!r}; one of {', '.join(ITEMSIZE)}")
    import ml_dtypes  # few models need it, and its import takes time

    extended: np.dtype[Any] = np.dtype(getattr(ml_dtypes, _ML_DTYPES_NAMES[name]))
    return extended


def exponent(name: str) -> tuple[int, int]:
    """Return (bytes of an element, mask of the bits that are all set in infinities and NaN).

    The mask is 0 for types whose elements are always finite. For a complex type, both numbers are
    those of its real part. In types that encode NaN as minus zero, all bits of the mask are set in
    negative numbers as well.

    Raises:
        DTypeError: no element type has this name.

    >>> exponent("f32") == (4, 0x7F800000), exponent("s64")
    (True, (8, 0))
    """
    element = numpy_dtype(name)
    if np.issubdtype(element, np.complexfloating):
        element = np.finfo(element).dtype
    if np.issubdtype(element, np.integer) or element == np.bool_:
        return element.itemsize, 0
    infinite = np.array(np.inf, np.float64).astype(element)
    mask = 0 if np.isfinite(infinite) else int.from_bytes(infinite.tobytes(), "little")
    return element.itemsize, mask


@cache
def bits(name: str) -> int:
    """Return the number of bits of an element, which may be fewer than its memory has.

    >>> bits("f32"), bits("s4")
    (32, 4)
    """
    digits = re.match("[a-z]+([0-9]+)", name)
    return int(digits[1]) if digits else 8 * ITEMSIZE[name]


@cache
def from_numpy(dtype: np.dtype[Any]) -> str:
    """Return VTensor's name of the element type of a NumPy type, whatever its byte order.

    Raises:
        DTypeError: VTensor has no such element type (strings, objects, ...).

    >>> from_numpy(np.dtype("float32"))
    'f32'
    """
    if (name := _FROM_NUMPY.get(dtype.name)) is not None:
        return name
    raise DTypeError(f"no element type for NumPy's {dtype.name!r}; one of {', '.join(ITEMSIZE)}")
