"""Conversion from one element type to another, by the tables of ONNX's Cast.

Source: ONNX operator Cast, opset 24.
"""

from __future__ import annotations

import numpy as np

from libdesc.numpy.arrays import Array, wide
from ptensor.convert import convert
from ptensor.encoding import Encoding
from ptensor.floats import grid
from vtensor.language.dtype import NARROW_FLOATS, bits, from_numpy, numpy_dtype


def cast(values: Array, to: str, saturate: bool = True, round_mode: str = "up") -> Array:
    """Return values in another element type.

    Args:
        values: the values.
        to: the element type.
        saturate, round_mode: the parameters of the operator ``Cast``.

    >>> cast(np.array([1000.0, 0.3]), "f8e4m3fn").tolist()
    [448.0, 0.3125]
    >>> cast(np.array([-1.5, 300.5, np.nan]), "u8").tolist()
    [0, 255, 0]
    """
    values, target = wide(values), Encoding(to)
    if to == "f8e8m0":
        return _power(values.astype(np.float64), saturate, round_mode)
    if not target.is_float:
        if values.dtype.kind != "f" or to == "bool":
            return values.astype(target.numpy)
        if bits(to) < 8:
            with np.errstate(invalid="ignore"):
                return values.astype(target.numpy)  # it wraps, as in ONNX's test cases
        return convert(np.trunc(values), Encoding(from_numpy(values.dtype)), target)
    if values.dtype.kind in "iu" and to not in ("f32", "f64"):
        values = values.astype(np.float32)  # rounds twice if f32 lacks digits, as kernels do
    if to in NARROW_FLOATS and saturate:
        largest = grid(to).largest
        values = np.clip(values, -largest, largest)
    return convert(values, Encoding(from_numpy(values.dtype)), target)


def stored(values: Array, dtype: str) -> Array:
    """Return values that can be assigned to an array of an element type.

    If the values are floats and the type is an integer one, they are converted by ``cast``. Any
    other values are returned unchanged: NumPy's assignment converts them.
    """
    whole = dtype[0] in "su" and values.dtype.kind == "f"
    return cast(values, dtype) if whole else values


def _power(values: Array, saturate: bool, round_mode: str) -> Array:
    """Return values in f8e8m0: codes 0 to 254 are the powers 2**-127 to 2**127, and 255 is NaN.

    ``saturate`` and ``round_mode`` are the parameters of the operator ``Cast``.
    """
    fraction, exponent = np.frexp(values)  # 1/2 <= fraction < 1
    above = {"up": fraction > 0.5, "down": False, "nearest": fraction >= 0.75}[round_mode]
    code = np.where(values == 0, -1, np.where(np.isinf(values), 255, exponent + 126 + above))
    inside = np.clip(code, 0, 254) if saturate else np.where((code < 0) | (code > 254), 255, code)
    number = np.where(np.isnan(values) | (values < 0), 255, inside)
    return number.astype(np.uint8).view(numpy_dtype("f8e8m0"))
