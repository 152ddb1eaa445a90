"""Weights in their file, as native code reads them: some rows of an array, perhaps multiplied."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np

from optimizer.computed import Made
from vtensor.frontends.open_file import OpenFile, Stretch

#: Rows of fewer bytes are not worth a call of the system for each.
LEAST_ROW = 1 << 9


class Unread(NamedTuple):
    """A weight that nobody has read.

    Attributes:
        stretch: the array that it is of, in its file.
        offset: where its first row begins in that, in bytes.
        rows, row, step: how many rows it has, the bytes of one, and those from one to the next.
        factors: what its elements are multiplied by, in f64: these one after the other, each for
            so many elements; None where they stay as they are.
    """

    stretch: Stretch
    offset: int
    rows: int
    row: int
    step: int
    factors: tuple[list[float], int] | None

    @property
    def nbytes(self) -> int:
        """Bytes of its elements."""
        return self.rows * self.row

    @property
    def place(self) -> tuple[OpenFile, int, int, int, int]:
        """As ``_replay.Aside.run`` takes a source."""
        begin = self.stretch.offset + self.offset
        return self.stretch.file, begin, self.rows, self.row, self.step

    @property
    def as_it_is(self) -> bool:
        """It is the whole array, with which nothing is done."""
        return self.offset == 0 and self.nbytes == self.stretch.nbytes and self.factors is None

    @classmethod
    def of(
        cls,
        stretch: Stretch,
        shape: Sequence[int],
        dtype: np.dtype[Any],
        made: Sequence[Made],
        wanted: Sequence[int],
    ) -> Unread | None:
        """An array with which something is done; None where that is more than these can say.

        Args:
            stretch, shape, dtype: of the array.
            made: what is done with it, in order.
            wanted: the sizes that it then has.
        """
        sizes, size = [*shape], dtype.itemsize
        offset, rows, row = 0, 1, prod(sizes) * size
        step = row
        left = [*made]
        if left and left[0].taken is not None:
            axis, begin, end = left.pop(0).taken or (0, 0, 0)
            if not (0 <= axis < len(sizes) and 0 <= begin < end <= sizes[axis]):
                return None
            inner = prod(sizes[axis + 1 :]) * size
            offset, rows = begin * inner, prod(sizes[:axis])
            row, step = (end - begin) * inner, sizes[axis] * inner
            sizes[axis] = end - begin
            if rows > 1 and row < LEAST_ROW:
                return None
        factors = None
        if left and left[0].factor is not None and dtype == np.float32:
            factors = _spread(left.pop(0).factor, sizes)
            if factors is None:
                return None
        if left or tuple(sizes) != tuple(wanted) or rows * row == 0:
            return None
        return cls(stretch, offset, rows, row, step, factors)


def _spread(factor: Any, sizes: Sequence[int]) -> tuple[list[float], int] | None:
    """A factor of as many axes, as numbers one after the other, each for so many elements."""
    if factor.ndim != len(sizes):
        return None
    along = [axis for axis, size in enumerate(factor.shape) if size != 1]
    first, last = (along[0], along[-1] + 1) if along else (0, 0)
    if tuple(factor.shape[first:last]) != tuple(sizes[first:last]):
        return None
    return factor.reshape(-1).tolist(), prod(sizes[last:])
