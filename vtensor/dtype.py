"""Element types: their names, their sizes, and the NumPy type of each.

The short names are oneDNN's (``f32``, ``bf16``, ``s8``); NumPy has no ``bf16``, so
``ml_dtypes`` supplies it.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from vtensor.errors import DTypeError

#: Size of one element in bytes, by name.
ITEMSIZE: dict[str, int] = {
    "f64": 8,
    "f32": 4,
    "f16": 2,
    "bf16": 2,
    "s64": 8,
    "s32": 4,
    "s16": 2,
    "s8": 1,
    "u64": 8,
    "u32": 4,
    "u16": 2,
    "u8": 1,
    "bool": 1,
}

_NUMPY_NAME: dict[str, str] = {
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
}


@cache
def numpy_dtype(name: str) -> np.dtype[Any]:
    """The NumPy type of an element type.

    Raises:
        DTypeError: no element type has this name.

    >>> numpy_dtype("f32")
    dtype('float32')
    """
    if name == "bf16":
        import ml_dtypes  # only who works in bf16 pays for it

        bf16: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16)
        return bf16
    if name not in _NUMPY_NAME:
        raise DTypeError(f"unknown element type {name!r}; one of {', '.join(ITEMSIZE)}")
    return np.dtype(_NUMPY_NAME[name])


@cache
def from_numpy(dtype: np.dtype[Any]) -> str:
    """The name of a NumPy type, whatever its byte order.

    Raises:
        DTypeError: VTensor has no element type for it (strings, objects, complex numbers, ...).

    >>> from_numpy(np.dtype("float32"))
    'f32'
    """
    if dtype.name == "bfloat16":
        return "bf16"
    for name, numpy_name in _NUMPY_NAME.items():
        if dtype.name == numpy_name:
            return name
    raise DTypeError(f"no element type for NumPy's {dtype.name!r}; one of {', '.join(ITEMSIZE)}")
