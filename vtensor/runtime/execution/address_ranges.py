"""Address ranges of memory that must not be written."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


class AddressRanges:
    """The address ranges of arrays; overlapping or adjacent arrays form one range.

    Args:
        held: dense arrays, kept alive by this object.

    >>> memory = np.zeros(8, np.uint8)
    >>> ranges = AddressRanges([memory[2:4], memory[4:5]])
    >>> [ranges.is_disjoint(memory[begin : begin + 1]) for begin in range(1, 6)]
    [True, False, False, False, True]
    """

    def __init__(self, held: Sequence[Array]) -> None:
        self._held = held
        self._begins, self._ends = list[int](), list[int]()
        places = ((array.__array_interface__["data"][0], array.nbytes) for array in held)
        for begin, nbytes in sorted(places):
            if self._ends and begin <= self._ends[-1]:
                self._ends[-1] = max(self._ends[-1], begin + nbytes)
            else:
                self._begins.append(begin)
                self._ends.append(begin + nbytes)

    def is_disjoint(self, memory: Array) -> bool:
        """Return whether a dense array shares no byte with the ranges."""
        begin = memory.__array_interface__["data"][0]
        index = bisect_right(self._begins, begin)
        if index and self._ends[index - 1] > begin:
            return False
        return index == len(self._begins) or self._begins[index] >= begin + memory.nbytes
