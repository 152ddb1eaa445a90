"""How large the elements of constants are: found once for each array, whatever graphs it is in."""

from __future__ import annotations

from typing import Any
from weakref import ref

import numpy as np

Array = np.ndarray[Any, Any]

#: By an array's id, the array itself and its largest element; it goes with the array.
_known: dict[int, tuple[ref[Array], float]] = {}


def largest(array: Array) -> float:
    """The largest absolute value of an array that does not change; NaN if it holds one.

    >>> largest(np.array([1.0, -3.0]))
    3.0
    """
    have = _known.get(id(array))
    if have is not None and have[0]() is array:
        return have[1]
    found = float(max(array.max(), -array.min(), key=_or_nan))
    key = id(array)
    _known[key] = ref(array, lambda _: _known.pop(key, None)), found
    return found


def _or_nan(number: float) -> float:
    return np.inf if np.isnan(number) else float(number)
