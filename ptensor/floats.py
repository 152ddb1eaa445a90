"""The floating-point types: their digits and ranges, and rounding from one to another."""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import numpy as np

from vtensor.language.dtype import NARROW_FLOATS, numpy_dtype

Array = np.ndarray[Any, np.dtype[Any]]

#: Bits of the significand (the implicit one included) and of the exponent.
FLOATS: dict[str, tuple[int, int]] = {
    "f8e5m2": (3, 5),
    "bf16": (8, 8),
    "f16": (11, 5),
    "f32": (24, 8),
    "f64": (53, 11),
}

#: The float types to which NumPy itself rounds, in a single step.
IEEE = ("f64", "f32", "f16")

#: Float types that differ from IEEE 754: they have no infinity, or at most one NaN.
ODD = frozenset(NARROW_FLOATS) - FLOATS.keys() - {"f8e8m0"}


class Grid(NamedTuple):
    """The precision and range of a float type.

    Attributes:
        digits: bits of the significand, the implicit one included.
        unit: the smallest number above 0.
        largest: the largest finite number.
    """

    digits: int
    unit: float
    largest: float


@cache
def grid(name: str) -> Grid:
    """Return the precision and range of a float type.

    >>> grid("bf16").digits, grid("f16").largest
    (8, 65504.0)
    """
    import ml_dtypes  # here, since few processes need it

    finfo: Any = ml_dtypes.finfo  # it has no annotations
    info = finfo(numpy_dtype(name))
    return Grid(int(info.nmant) + 1, float(info.smallest_subnormal), float(info.max))


def from_f64(values: Array, name: str) -> Array:
    """Return f64 values in another float type, rounded once."""
    if name in IEEE:
        return values.astype(numpy_dtype(name))
    # ml_dtypes goes through f32, which would round twice. Rounding to odd first is exact: the last
    # bit of the f32 then stands for everything below it.
    near = values.astype(np.float32)
    bits = near.view(np.uint32)
    wide = near.astype(np.float64)
    bits -= (np.abs(wide) > np.abs(values)).astype(np.uint32)
    bits |= (wide != values) & ~np.isnan(values)
    return near.astype(numpy_dtype(name))


def float_to_float(values: Array, source: str, target: str) -> Array:
    """Return values of the float type ``source`` in the float type ``target``, rounded once.

    A NaN keeps its sign and the upper bits of its payload, with two exceptions, in which it becomes
    quiet: to f16 it does so as in processors; to bf16 it also loses its payload, as in ml_dtypes.
    """
    plain = source != "f64"
    if plain and target in ODD:
        values = values.astype(np.float32)  # exact, and ml_dtypes does not know every pair
    result = values.astype(numpy_dtype(target)) if plain else from_f64(values, target)
    nan = np.isnan(values)
    narrows = target in ("f16", "bf16") and source != "f8e5m2"
    if target in FLOATS and not (narrows and target == "bf16") and nan.any():
        quiet = np.uint64(1 << (FLOATS[target][0] - 2) if narrows else 0)
        result.view(f"u{result.itemsize}")[nan] = _nan_bits(values[nan], source, target) | quiet
    return result


def _nan_bits(values: Array, source: str, target: str) -> Array:
    """Return the bits of NaNs in another float type.

    The sign and the upper bits of the payload are kept, and no NaN becomes infinity.

    So a NaN is the same after widening and narrowing back. A conversion by the processor would set
    the NaN's quiet bit; one by ml_dtypes would drop the payload.

    Args:
        values: NaNs of the type ``source``.
        source: a type of ``FLOATS``.
        target: another type of ``FLOATS``, that of the result.
    """
    have, (room, exponent_bits) = FLOATS[source][0] - 1, FLOATS[target]
    room -= 1
    bits = values.view(f"u{values.itemsize}").astype(np.uint64)
    payload = bits & np.uint64((1 << have) - 1)
    payload = (
        payload << np.uint64(room - have) if room >= have else payload >> np.uint64(have - room)
    )
    payload[payload == 0] = 1 << (room - 1)
    sign = bits >> np.uint64(8 * values.itemsize - 1) << np.uint64(room + exponent_bits)
    return sign | np.uint64(((1 << exponent_bits) - 1) << room) | payload
