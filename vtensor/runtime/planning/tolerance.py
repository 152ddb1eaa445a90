"""The tolerance and the precision of results: their defaults and their checks."""

from __future__ import annotations

from collections.abc import Mapping
from math import inf
from numbers import Real
from warnings import warn

from vtensor.errors import InputError

#: Default tolerance of results, relative to the largest result.
DEFAULT_TOLERANCE = 1e-5

#: The precisions of a session, each with the pass that brings values to it, if there is one.
PRECISIONS: Mapping[str, str] = {"f32": "", "bf16": "narrow"}

#: The precisions of which a warning has said that this processor lacks them.
_warned = set[str]()


def precision_pass(precision: object) -> str:
    """Return the name of the pass for a precision; empty if values stay in f32.

    If no library computes faster in the type than in f32 on this processor, a warning says so, once
    in a process, and values stay in f32.

    Raises:
        InputError: there is no such precision.
    """
    if not isinstance(precision, str) or precision not in PRECISIONS:
        raise InputError(
            f"precision={precision!r} (--precision on the command line) must be one of "
            f"{', '.join(PRECISIONS)}"
        )
    if not PRECISIONS[precision]:
        return ""
    if has_instructions(precision):
        return PRECISIONS[precision]
    if precision not in _warned:
        _warned.add(precision)
        text = f"precision={precision!r}: this processor, under its cap, has no instructions for it"
        warn(f"{text}; sessions compute in f32", RuntimeWarning, stacklevel=2)
    return ""


def has_instructions(dtype: str) -> bool:
    """Return whether a library multiplies faster in a type than in f32 on this processor."""
    from libdesc.registry import ready

    return any(dtype in library.faster() for library in ready().libraries.values())


def tolerance_of(tolerance: object) -> float:
    """Return a tolerance as a float.

    Raises:
        InputError: the tolerance is no finite number of at least 0.
    """
    number = -1.0
    if not isinstance(tolerance, bool) and isinstance(tolerance, Real):
        number = float(tolerance)
    if 0 <= number < inf:
        return number
    raise InputError(
        f"tolerance={tolerance!r} (--tolerance on the command line) must be a number of at least "
        "0; at 0 no result is off by more than the order of sums"
    )
