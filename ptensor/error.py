"""How much an encoding rounds: the worst error of storing an element type in it."""

from __future__ import annotations

from functools import cache
from math import frexp, inf
from typing import NamedTuple

from ptensor.convert import preserves, steps
from ptensor.encoding import Encoding, indices, integer_range, of_type
from ptensor.floats import grid
from vtensor.errors import DTypeError


class Error(NamedTuple):
    """A bound on what storing does to a value, in exact arithmetic; a float attains it.

    A value ``v`` from ``low`` to ``high`` is stored as one that differs by at most
    ``max(relative * abs(v), absolute)``. What lies outside saturates or becomes infinite.

    Attributes:
        relative: 2**-p where p digits are kept; 0 for integers.
        absolute: half a step, or half the smallest number of a float.
        low: the smallest value of which the bound speaks; -inf where no value of the type is
            smaller than what the encoding has.
        high: likewise the largest.
    """

    relative: float
    absolute: float
    low: float = -inf
    high: float = inf

    @property
    def exact(self) -> bool:
        """True when nothing is lost."""
        return self == EXACT


EXACT = Error(0.0, 0.0)


@cache
def storing_error(dtype: str, encoding: Encoding) -> Error:
    """The worst error of storing values of an element type in an encoding.

    Of scales along a dim it is the coarsest that counts, and the narrowest range.

    Raises:
        DTypeError: the encoding cannot store this type at all.

    >>> storing_error("f32", Encoding("bf16")).relative == 2**-8
    True
    >>> storing_error("f32", Encoding("s8", scale=0.5))
    Error(relative=0.0, absolute=0.25, low=-64.0, high=63.5)
    >>> storing_error("bf16", Encoding("f32")).exact
    True
    """
    own = of_type(dtype)
    if preserves(own, encoding):
        return EXACT
    if own.stands_alone or encoding.stands_alone:
        raise DTypeError(f"{dtype} is not stored as {encoding}: one of them stands alone")
    if encoding.tile:
        raise DTypeError(
            f"{encoding} stores sums of values: the error of one has no bound of its own"
        )
    found = [_uniform(own, encoding.at(index)) for index in indices(encoding)]
    relative, absolute, lows, highs = zip(*found, strict=True)
    least, most = _ends(own)
    low, high = max(lows), min(highs)
    return Error(
        max(relative),
        max(absolute),
        -inf if low <= least else low,
        inf if most <= high else high,
    )


def _ends(own: Encoding) -> tuple[float, float]:
    """The smallest and the largest finite value of an element type."""
    if own.is_float:
        return -grid(own.dtype).largest, grid(own.dtype).largest
    low, high = integer_range(own.dtype)
    return float(low), float(high)


def _uniform(own: Encoding, encoding: Encoding) -> Error:
    """Of an encoding without scales along a dim."""
    first, *others = (_plane(own, plane) for plane in encoding.planes)
    relative, absolute, low, high = first
    floats = [plane.is_float for plane in encoding.planes]
    for place, one in enumerate(others, 1):
        # what is left of v is at most max(relative * v, absolute): that is what this plane stores
        both = floats[place - 1] and floats[place]  # then what is left has a digit less
        beyond = max(absolute - min(-one.low, one.high), 0.0)
        absolute = max(one.relative * _binade(absolute), one.absolute, beyond)
        relative *= one.relative / 2 if both else one.relative
    if relative:
        digits = grid(own.dtype).digits if own.is_float else min(_bits(own), frexp(high)[1])
        relative = relative if 2.0**-digits < relative else 0.0
    return Error(relative, absolute, low, high)


def _binade(largest: float) -> float:
    """Where the numbers below this one are coarsest: the last power of two before it."""
    if not largest:
        return 0.0
    part, power = frexp(largest)
    return 2.0 ** (power - 2 if part == 0.5 else power - 1)


def _plane(own: Encoding, plane: Encoding) -> Error:
    """Of one plane."""
    if plane.is_float:
        return _float(own, plane)
    assert isinstance(plane.scale, float)
    if plane.dtype == "bool":
        return Error(0.0, 1.0 if own.is_float else 0.0, 0.0, 1.0)
    low, high = steps(plane)
    fraction = plane.scale <= 1 and frexp(plane.scale)[0] == 0.5  # then every integer is a step
    whole = not own.is_float and fraction
    absolute = 0.0 if whole else plane.scale / 2
    return Error(0.0, absolute, low * plane.scale, high * plane.scale)


def _float(own: Encoding, plane: Encoding) -> Error:
    """Of one plane of floats."""
    digits, unit, largest = grid(plane.dtype)
    have, finest = grid(own.dtype)[:2] if own.is_float else (_bits(own), 1.0)
    relative = 2.0**-digits if have > digits else 0.0
    return Error(relative, unit / 2 if finest < unit else 0.0, -largest, largest)


def _bits(own: Encoding) -> int:
    """Digits of an integer type's largest values."""
    low, high = integer_range(own.dtype)
    return max(high, -low - 1).bit_length()
