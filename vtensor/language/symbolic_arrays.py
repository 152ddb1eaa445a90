"""Constants that depend on symbolic sizes: positions, masks, shapes that a model computes.

The sizes of a symbolic array are symbolic, and so are the elements of a small array of integers.
For other sizes the rows of its trace compute the array, by NumPy.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from math import prod
from typing import Any, NoReturn, Protocol

import numpy as np

from vtensor.language.records import dataclass
from vtensor.language.trace import NotTraced, Placed, SymbolicSize, Trace, number_of

Array = np.ndarray[Any, Any]

#: The most bytes of a model's array that stays in memory once rows have read it: a part of it is
#: taken for new sizes, a text's positions for each of its words, and reading takes longer than
#: all rows.
MOST_HELD = 1 << 24


class Readable(Protocol):
    """An array that a model's file has."""

    def now(self) -> Array:
        """Return the array, read if necessary."""


@dataclass(eq=False)
class StoredArray:
    """An array of a model, a constant of traces that is read when a row needs it.

    Attributes:
        origin: reads it.
        held: the array while it is in memory; at most ``MOST_HELD`` bytes.
    """

    origin: Readable
    held: Array | None = None

    def now(self) -> Array:
        """Return the array, read if it is not held."""
        array = self.held
        if array is None:
            array = self.origin.now()
            if array.nbytes <= MOST_HELD:
                self.held = array
        return array


@dataclass(frozen=True, eq=False)
class Computes:
    """An operator's function that computes its output before a run, with a node's attributes.

    Attributes:
        function: takes a look-up of attributes, and arrays.
        attributes: by name.
    """

    function: Callable[..., Any]
    attributes: Mapping[str, Any]

    def __call__(self, *arrays: Any) -> Any:
        with np.errstate(all="ignore"):
            return self.function(self.attributes.get, *arrays)


@dataclass(eq=False)
class SymbolicArray:
    """An array that depends on symbolic sizes.

    Attributes:
        trace: of the sizes.
        shape: its sizes; they may be symbolic.
        sample: the array for the sizes of now.
        function: computes the array for other sizes, given ``sources``.
        sources: arrays, symbolic arrays, a model's arrays (``StoredArray``) and plain arguments,
            with symbolic sizes among them.
        elements: the elements, some of them symbolic; None where they are not traced.
    """

    trace: Trace
    shape: tuple[int, ...]
    sample: Array
    function: Callable[..., Array]
    sources: Sequence[Any] = ()
    elements: Any = None
    _place: list[int] = field(default_factory=list)

    @property
    def place(self) -> int:
        """The place of the array among the values of its trace, which has rows for it then."""
        if not self._place:
            self._place.append(self._traced())
        return self._place[0]

    def _traced(self) -> int:
        about = self.dtype.str, *self.shape
        if self.elements is not None:
            elements = self.elements.reshape(-1).tolist()
            return self.trace.call(array_of, (elements, *about), self.sample)
        sources = [*map(self._source, self.sources)]
        if self.function is as_it_is:
            return self.trace.call(reshaped, (*sources, *about), self.sample)
        made = Placed(self.trace.call(self.function, sources, self.sample))
        return self.trace.call(shaped, (made, *about), self.sample)

    def _source(self, source: Any) -> Any:
        if isinstance(source, SymbolicArray):
            return Placed(source.place)
        if isinstance(source, StoredArray):
            return Placed(self.trace.call(read_array, (source,), None))
        return source

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
        """Return the elements as Python's lists."""
        return self._known.tolist()

    def item(self) -> Any:
        """Return the only element."""
        return self._known.item()

    def __getitem__(self, key: Any) -> Any:
        return self._known[key]

    def reshape(self, *shape: Any) -> Any:
        """Return the same elements under other sizes; with -1, the traced ones themselves."""
        if shape == (-1,) and self.elements is not None:
            return self.elements.reshape(-1)
        [sizes] = shape
        sample = self.sample.reshape(tuple(map(number_of, sizes)))
        return SymbolicArray(self.trace, tuple(sizes), sample, as_it_is, (self,), self.elements)

    def in_order(self, axes: tuple[int, ...]) -> SymbolicArray:
        """Return the same elements with their axes in another order."""
        shape = tuple(self.shape[axis] for axis in axes)
        elements = None if self.elements is None else self.elements.transpose(axes)
        sample = turned(self.sample, axes)
        return SymbolicArray(self.trace, shape, sample, turned, (self, axes), elements)

    def __array__(self, dtype: Any = None, copy: Any = None) -> NoReturn:
        """Refuse NumPy, which would see what holds for the sizes of now alone."""
        self.trace.failed = "NumPy looks at an array that depends on sizes"
        raise NotTraced(self.trace.failed)

    @property
    def _known(self) -> Any:
        if self.elements is None:
            self.trace.failed = "the elements of a large array decide something"
            raise NotTraced(self.trace.failed)
        return self.elements


def spread(array: Any, sizes: Sequence[int], under: Sequence[int]) -> Any:
    """Return a constant broadcast to sizes, then under others; symbolic where one of them is."""
    sample = spread_under(array, [*map(number_of, sizes)], [*map(number_of, under)])
    trace = next((size.trace for size in (*sizes, *under) if type(size) is SymbolicSize), None)
    if trace is None:
        return sample
    sources = array, tuple(sizes), tuple(under)
    return SymbolicArray(trace, tuple(under), sample, spread_under, sources)


def spread_under(array: Array, sizes: Sequence[int], under: Sequence[int]) -> Array:
    """Return an array broadcast to sizes, then under others."""
    return np.broadcast_to(array, sizes).reshape(under)


def turned(array: Array, axes: Sequence[int]) -> Array:
    """Return an array with its axes in another order."""
    return np.ascontiguousarray(array.transpose(axes))


def as_it_is(array: Array) -> Array:
    """Return an array."""
    return array


def array_of(elements: Sequence[int], dtype: str, *shape: int) -> Array:
    """Return an array of integers."""
    return np.array(elements, dtype).reshape(shape)


def reshaped(array: Array, dtype: str, *shape: int) -> Array:
    """Return an array under other sizes.

    Raises:
        ValueError: it has another element type, or another number of elements.
    """
    return shaped(array.reshape(shape), dtype, *shape)


def shaped(array: Any, dtype: str, *shape: int) -> Array:
    """Return an array, or a number as one.

    Raises:
        ValueError: it has another element type or shape.
    """
    array = np.asarray(array)
    if array.shape != shape or array.dtype != np.dtype(dtype):
        raise ValueError(f"an array of {array.dtype} {array.shape}, not of {dtype} {shape}")
    return array  # type: ignore[no-any-return]


def read_array(array: StoredArray | Array) -> Array:
    """Return an array of a model; data has a small one itself."""
    return array if isinstance(array, np.ndarray) else array.now()


#: The functions that rows of symbolic arrays call.
TRACED: Sequence[Callable[..., Any]] = (
    *(array_of, read_array, reshaped, shaped, spread_under, turned),
)
