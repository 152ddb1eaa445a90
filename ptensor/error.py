"""Rounding error of an encoding: the largest error of storing a value of an element type in it."""

from __future__ import annotations

from functools import cache
from math import frexp, inf
from typing import NamedTuple

from ptensor.convert import preserves, steps
from ptensor.encoding import Encoding, indices, integer_range, of_type
from ptensor.floats import grid
from vtensor.errors import DTypeError


class Error(NamedTuple):
    """The largest error of storing a value of an element type in an encoding.

    A value ``v`` from ``low`` to ``high`` is stored as a value that differs by at most
    ``max(relative * abs(v), absolute)``, in exact arithmetic. A value outside saturates or becomes
    infinite.

    Attributes:
        relative: 2**-p if p binary digits are kept; 0 for integers.
        absolute: half the scale of an integer, or half the smallest number above 0 of a float.
        low: the smallest value for which the bound holds; -inf if the bound holds for the smallest
            value of the type.
        high: the largest value for which the bound holds; inf if the bound holds for the largest
            value of the type.
    """

    relative: float
    absolute: float
    low: float = -inf
    high: float = inf

    @property
    def exact(self) -> bool:
        """True if every value is stored unchanged."""
        return self == EXACT


EXACT = Error(0.0, 0.0)


@cache
def storing_error(dtype: str, encoding: Encoding) -> Error:
    """Return the largest error of storing values of an element type in an encoding.

    With scales along a dim, it is the error at the coarsest scale, and the range that all indices
    have in common.

    Raises:
        DTypeError: the type cannot be stored in the encoding at all, or the encoding has a tile.

    >>> storing_error("f32", Encoding("bf16")).relative == 2**-8
    True
    >>> storing_error("f32", Encoding("s8", scale=0.5))
    Error(relative=0.0, absolute=0.25, low=-64.0, high=63.5)
    >>> storing_error("bf16", Encoding("f32")).exact
    True
    """
    stored_type = of_type(dtype)
    if preserves(stored_type, encoding):
        return EXACT
    if stored_type.stands_alone or encoding.stands_alone:
        raise DTypeError(f"{dtype} is not stored as {encoding}: one of them stands alone")
    if encoding.tile:
        raise DTypeError(
            f"{encoding} stores sums of values: the error of one has no bound of its own"
        )
    errors = [_uniform(stored_type, encoding.at(index)) for index in indices(encoding)]
    relative, absolute, lows, highs = zip(*errors, strict=True)
    least, most = _ends(stored_type)
    low, high = max(lows), min(highs)
    return Error(
        max(relative),
        max(absolute),
        -inf if low <= least else low,
        inf if most <= high else high,
    )


def _ends(stored_type: Encoding) -> tuple[float, float]:
    """Return the smallest and the largest finite value of an element type."""
    if stored_type.is_float:
        return -grid(stored_type.dtype).largest, grid(stored_type.dtype).largest
    low, high = integer_range(stored_type.dtype)
    return float(low), float(high)


def _uniform(stored_type: Encoding, encoding: Encoding) -> Error:
    """Return the largest error of storing an element type in an encoding of one or several planes,
    without scales along a dim.

    Args:
        stored_type: the element type of the values, as an encoding.
        encoding: the encoding that stores them.
    """
    first, *others = (_plane(stored_type, plane) for plane in encoding.planes)
    relative, absolute, low, high = first
    floats = [plane.is_float for plane in encoding.planes]
    for place, error in enumerate(others, 1):
        # This plane stores the remainder of a value v that the planes before it leave. It is at
        # most max(relative * v, absolute).
        both = floats[place - 1] and floats[place]  # then the remainder has one digit less
        beyond = max(absolute - min(-error.low, error.high), 0.0)
        absolute = max(error.relative * _binade(absolute), error.absolute, beyond)
        relative *= error.relative / 2 if both else error.relative
    if relative:
        digits = (
            grid(stored_type.dtype).digits
            if stored_type.is_float
            else min(_bits(stored_type), frexp(high)[1])
        )
        relative = relative if 2.0**-digits < relative else 0.0
    return Error(relative, absolute, low, high)


def _binade(largest: float) -> float:
    """Return the largest power of two below ``largest``; 0 for 0.

    Of all floats below ``largest``, those from this power on are the farthest apart.
    """
    if not largest:
        return 0.0
    part, power = frexp(largest)
    return 2.0 ** (power - 2 if part == 0.5 else power - 1)


def _plane(stored_type: Encoding, plane: Encoding) -> Error:
    """Return the largest error of storing values of an element type in one plane of an encoding.

    Args:
        stored_type: the element type of the values, as an encoding.
        plane: the encoding that stores them.
    """
    if plane.is_float:
        return _float(stored_type, plane)
    assert isinstance(plane.scale, float)
    if plane.dtype == "bool":
        return Error(0.0, 1.0 if stored_type.is_float else 0.0, 0.0, 1.0)
    low, high = steps(plane)
    # a scale of 1, 1/2, 1/4, ... has every integer among its multiples
    fraction = plane.scale <= 1 and frexp(plane.scale)[0] == 0.5
    whole = not stored_type.is_float and fraction
    absolute = 0.0 if whole else plane.scale / 2
    return Error(0.0, absolute, low * plane.scale, high * plane.scale)


def _float(stored_type: Encoding, plane: Encoding) -> Error:
    """Return the largest error of storing an element type in one plane of floats; arguments as for
    ``_plane``.
    """
    digits, unit, largest = grid(plane.dtype)
    have, finest = (
        grid(stored_type.dtype)[:2] if stored_type.is_float else (_bits(stored_type), 1.0)
    )
    relative = 2.0**-digits if have > digits else 0.0
    return Error(relative, unit / 2 if finest < unit else 0.0, -largest, largest)


def _bits(stored_type: Encoding) -> int:
    """Return the number of binary digits of an integer type's largest value."""
    low, high = integer_range(stored_type.dtype)
    return max(high, -low - 1).bit_length()
