"""The tolerance of results: its default and its check."""

from __future__ import annotations

from math import inf
from numbers import Real

from vtensor.errors import InputError

#: Default tolerance of results, relative to the largest result.
DEFAULT_TOLERANCE = 1e-5


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
