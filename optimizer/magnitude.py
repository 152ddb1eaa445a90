"""How large the elements of constants are: found once for each array, whatever graphs it is in."""

from __future__ import annotations

from typing import Any
from weakref import ref

import numpy as np

from optimizer.originals import Original
from ptensor.pages import Room, reused

Array = np.ndarray[Any, Any]

#: By an array's id, or that of what holds it, this itself and the largest element; it goes with it.
_known: dict[int, tuple[ref[Array | Original], float]] = {}


def largest(given: Array | Original, room: Room = reused) -> float:
    """The largest absolute value of an array that does not change; NaN if it holds one.

    Args:
        given: the array; one that nobody has read is read for this alone.
        room: memory for that.

    >>> largest(np.array([1.0, -3.0]))
    3.0
    """
    have = _known.get(id(given))
    if have is not None and have[0]() is given:
        return have[1]
    if not isinstance(given, Original):
        array = given
    elif (read := given.reader) is not None:
        array = read(room).view(given.dtype)
    else:
        array = given.now()
    found = float(max(array.max(), -array.min(), key=_or_nan))
    key = id(given)
    _known[key] = ref(given, lambda _: _known.pop(key, None)), found
    return found


def _or_nan(number: float) -> float:
    return np.inf if np.isnan(number) else float(number)
