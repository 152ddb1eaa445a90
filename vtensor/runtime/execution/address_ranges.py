"""Memory that must not be written, as stretches of addresses."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


class AddressRanges:
    """Where arrays lie; those that overlap or touch are one stretch.

    Args:
        held: dense arrays, which stay as long as this does.

    >>> memory = np.zeros(8, np.uint8)
    >>> found = AddressRanges([memory[2:4], memory[4:5]])
    >>> [found.is_disjoint(memory[begin : begin + 1]) for begin in range(1, 6)]
    [True, False, False, False, True]
    """

    def __init__(self, held: Sequence[Array]) -> None:
        self._held = held
        self._begins, self._ends = list[int](), list[int]()
        places = ((one.__array_interface__["data"][0], one.nbytes) for one in held)
        for begin, nbytes in sorted(places):
            if self._ends and begin <= self._ends[-1]:
                self._ends[-1] = max(self._ends[-1], begin + nbytes)
            else:
                self._begins.append(begin)
                self._ends.append(begin + nbytes)

    def is_disjoint(self, memory: Array) -> bool:
        """Whether dense memory has nothing of theirs."""
        begin = memory.__array_interface__["data"][0]
        place = bisect_right(self._begins, begin)
        if place and self._ends[place - 1] > begin:
            return False
        return place == len(self._begins) or self._begins[place] >= begin + memory.nbytes
