"""The largest elements of constants, computed once for each array, however many graphs share it."""

from __future__ import annotations

from typing import Any
from weakref import ref

import numpy as np

from optimizer.constants.originals import Original
from ptensor.pages import Room, reused

Array = np.ndarray[Any, Any]

#: The largest absolute value of an array or Original, by its ``id``, with a weak reference to it.
#: An entry is removed when its array or Original is freed.
_known: dict[int, tuple[ref[Array | Original], float]] = {}


def largest(given: Array | Original, room: Room = reused) -> float:
    """Return the largest absolute value of an array; NaN if an element is NaN.

    The array must never change, because the result is remembered for it.

    Args:
        given: the array, or the Original that holds it. If an Original was not read yet, it is read
            now, but not kept in memory.
        room: takes a number of bytes and allocates the memory into which an Original is read.

    >>> largest(np.array([1.0, -3.0]))
    3.0
    """
    known = _known.get(id(given))
    if known is not None and known[0]() is given:
        return known[1]
    if not isinstance(given, Original):
        array = given
    elif (read := given.reader) is not None:
        array = read(room).view(given.dtype)
    else:
        array = given.now()
    magnitude = float(max(array.max(), -array.min(), key=_or_nan))
    key = id(given)
    _known[key] = ref(given, lambda _: _known.pop(key, None)), magnitude
    return magnitude


def _or_nan(number: float) -> float:
    """Return a number by which NaN sorts above all finite numbers: infinity for NaN, else
    ``number`` itself.
    """
    return np.inf if np.isnan(number) else float(number)
