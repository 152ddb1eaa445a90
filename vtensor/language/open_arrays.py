"""Constants that depend on open sizes: positions, masks, shapes that a model computes.

The sizes of such an array are traced (``vtensor/language/tape.py``), and where it is small and of
integers so are its elements. For other sizes the elements are computed again, by NumPy.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any, NoReturn

import numpy as np

from vtensor.language.records import dataclass
from vtensor.language.tape import Tape, TracedSize

Array = np.ndarray[Any, Any]


class NotTraced(Exception):
    """A network does what cannot be written down, for a reason."""


@dataclass(eq=False)
class OpenArray:
    """An array that depends on open sizes.

    Attributes:
        tape: of the sizes.
        dtype, shape: as an array's; sizes may be traced.
        sample: the array for the sizes that the tape was made with.
        made: computes the array for other sizes, of those that it depends on (``sources``).
        elements: the elements, some traced; None where they are not.
        call: says which call gives what ``made`` does: the name of a function, if it has one, and
            what attributes of a node it is told; None where none does.
        origins: what holds the sources, where that is not the arrays themselves.
    """

    tape: Tape
    shape: tuple[int, ...]
    sample: Array
    made: Callable[..., Array]
    sources: Sequence[OpenArray | Array | None] = ()
    elements: Any = None
    call: Callable[[], tuple[str | None, dict[str, Any]]] | None = None
    origins: Sequence[Any] = ()

    @property
    def dtype(self) -> Any:
        """The element type, NumPy's."""
        return self.sample.dtype

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """The number of elements."""
        count: int = prod(self.shape)
        return count

    @property
    def nbytes(self) -> int:
        """Bytes of the elements."""
        itemsize: int = self.dtype.itemsize
        return self.size * itemsize

    def __len__(self) -> int:
        return int(self.shape[0])

    def tolist(self) -> Any:
        """The elements as Python's lists."""
        return self._known.tolist()

    def item(self) -> Any:
        """The only element."""
        return self._known.item()

    def __getitem__(self, key: Any) -> Any:
        return self._known[key]

    def reshape(self, *shape: Any) -> Any:
        """The same elements under other sizes; of traced elements, an array of these."""
        if shape == (-1,) and self.elements is not None:
            return self.elements.reshape(-1)
        [sizes] = shape
        numbers = tuple(map(number, sizes))
        return OpenArray(
            self.tape, tuple(sizes), self.sample.reshape(numbers), as_it_is, (self,), self.elements
        )

    def in_order(self, axes: tuple[int, ...]) -> OpenArray:
        """The same elements with their axes in another order."""
        shape = tuple(self.shape[axis] for axis in axes)
        elements = None if self.elements is None else self.elements.transpose(axes)
        given = self, np.array(axes)
        return OpenArray(self.tape, shape, turned(self.sample, given[1]), turned, given, elements)

    def __array__(self, dtype: Any = None, copy: Any = None) -> NoReturn:
        """NumPy may not look at it: what it would see holds for these sizes alone."""
        self.tape.failed = "NumPy looks at an array that depends on sizes"
        raise NotTraced(self.tape.failed)

    @property
    def _known(self) -> Any:
        if self.elements is None:
            self.tape.failed = "the elements of a large array decide something"
            raise NotTraced(self.tape.failed)
        return self.elements

    def at(self, sizes: Sequence[int], done: dict[int, Array]) -> Array:
        """The array for other sizes.

        Args:
            sizes: what the tape says of them.
            done: the arrays that were computed for them already.

        Raises:
            NotTraced: it is of another shape or type than was foreseen.
        """
        if (known := done.get(id(self))) is not None:
            return known
        shape = tuple(number(size, sizes) for size in self.shape)
        if self.elements is not None:
            numbers = [number(one, sizes) for one in self.elements.reshape(-1).tolist()]
            array = np.array(numbers, self.dtype).reshape(shape)
        else:
            given = (
                one.at(sizes, done) if isinstance(one, OpenArray) else one for one in self.sources
            )
            array = np.asarray(self.made(*given))
            if self.made is as_it_is:
                array = array.reshape(shape)
        if array.shape != shape or array.dtype != self.dtype:
            raise NotTraced(f"an array of shape {array.shape} is made, not {shape}")
        done[id(self)] = array
        return array


def spread(array: Array, sizes: Sequence[int], under: Sequence[int]) -> Any:
    """A constant broadcast to sizes, then under others; open where one of them is traced."""
    rows = [[*map(number, sizes)], [*map(number, under)]]
    sample = np.broadcast_to(array, rows[0]).reshape(rows[1])
    tape = next((one.tape for one in (*sizes, *under) if type(one) is TracedSize), None)
    if tape is None:
        return sample
    told = [
        OpenArray(tape, (len(row),), np.array(row), as_it_is, (), np.array(own, object))
        for row, own in zip(rows, (sizes, under), strict=True)
    ]
    return OpenArray(tape, tuple(under), sample, spread_under, (array, *told))


def spread_under(array: Array, sizes: Array, under: Array) -> Array:
    """An array broadcast to sizes, then under others."""
    return np.broadcast_to(array, sizes.tolist()).reshape(under.tolist())


def turned(array: Array, axes: Array) -> Array:
    """An array with its axes in another order."""
    return np.ascontiguousarray(array.transpose(axes.tolist()))


def as_it_is(array: Array) -> Array:
    """An array."""
    return array


def number(size: int, sizes: Sequence[int] | None = None) -> int:
    """A size's number, now or among others."""
    if type(size) is not TracedSize:
        return int(size)
    return size.value if sizes is None else sizes[size.place]
