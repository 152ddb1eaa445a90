"""Constants that depend on symbolic sizes, such as positions, masks and shapes that a model
computes.

Sizes of such an array may be symbolic; the elements of a small array of integers may be symbolic,
too. When the trace is evaluated for other sizes, a row of it computes the array with NumPy.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from math import prod
from typing import Any, NoReturn, Protocol

import numpy as np

from vtensor.language.records import dataclass
from vtensor.language.symbolic.trace import NotTraced, Placed, SymbolicSize, Trace, number_of

Array = np.ndarray[Any, Any]

#: An array of a model's file stays in memory once rows have read it, if it has at most so many
#: bytes. Other sizes need other parts of the array, such as the positions of a longer text, and
#: reading it again would take longer than all other rows.
MOST_HELD = 1 << 24


class Readable(Protocol):
    """An array of a model's file."""

    def now(self) -> Array:
        """Return the array; it is read from the file if necessary."""


@dataclass(eq=False)
class StoredArray:
    """An array of a model's file that is a constant of traces and is read when a row needs it.

    Attributes:
        origin: reads the array from the file.
        held: the array once it was read, if it has at most ``MOST_HELD`` bytes; else None.
    """

    origin: Readable
    held: Array | None = None

    def now(self) -> Array:
        """Return the array; it is read from the file if it is not held."""
        array = self.held
        if array is None:
            array = self.origin.now()
            if array.nbytes <= MOST_HELD:
                self.held = array
        return array


@dataclass(frozen=True, eq=False)
class Computes:
    """A function from a node's input arrays to its output, with the node's attributes.

    It is called when the output is computed before a run.

    Attributes:
        function: the ``compute`` of an ``Ahead``: called with a function that returns an attribute
            by name, and with the inputs as arrays.
        attributes: the node's attributes by name.
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
        trace: the trace of the symbolic sizes.
        shape: the array's sizes; they may be symbolic.
        sample: the array for the current numbers of the symbols, as a NumPy array.
        function: computes the array for other sizes; its arguments are ``sources``.
        sources: the arguments of ``function``: arrays, symbolic arrays, a model's arrays
            (``StoredArray``), plain values and symbolic sizes.
        elements: the elements as a NumPy array of objects, some of them symbolic sizes. None if
            they are not known in this way (not traced).
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
        """The index of the array among its trace's values.

        The first use of this property adds the rows that compute the array to the trace.
        """
        if not self._place:
            self._place.append(self._add_rows())
        return self._place[0]

    def _add_rows(self) -> int:
        """Add to the trace the rows that compute the array; return its index among the values."""
        expected = self.dtype.str, *self.shape
        if self.elements is not None:
            elements = self.elements.reshape(-1).tolist()
            return self.trace.call(array_of, (elements, *expected), self.sample)
        sources = [*map(self._source, self.sources)]
        if self.function is as_it_is:
            return self.trace.call(reshaped, (*sources, *expected), self.sample)
        result = Placed(self.trace.call(self.function, sources, self.sample))
        return self.trace.call(shaped, (result, *expected), self.sample)

    def with_elements(self) -> SymbolicArray:
        """Return the array with its elements, integers, as symbolic sizes.

        Rows read them from the array that the trace computes.
        """
        if self.elements is None:
            at, flat = Placed(self.place), self.sample.reshape(-1).tolist()
            row = [self.trace.integer(element, (at, i), n) for i, n in enumerate(flat)]
            self.elements = np.empty(self.sample.shape, object)
            self.elements.reshape(-1)[:] = row
        return self

    def _source(self, source: Any) -> Any:
        if isinstance(source, SymbolicArray):
            return Placed(source.place)
        if isinstance(source, StoredArray):
            return Placed(self.trace.call(read_array, (source,), None))
        return source

    @property
    def dtype(self) -> Any:
        """The element type, as NumPy's."""
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
        """The bytes of the elements."""
        itemsize: int = self.dtype.itemsize
        return self.size * itemsize

    def __len__(self) -> int:
        return int(self.shape[0])

    def tolist(self) -> Any:
        """Return the elements as nested lists.

        Raises:
            NotTraced: the elements are not traced.
        """
        return self._known.tolist()

    def item(self) -> Any:
        """Return the only element.

        Raises:
            NotTraced: the elements are not traced.
        """
        return self._known.item()

    def __getitem__(self, key: Any) -> Any:
        return self._known[key]

    def reshape(self, *shape: Any) -> Any:
        """Return an array of the same elements with other sizes.

        Args:
            shape: one argument, a tuple of sizes or -1. If it is -1, the elements must be traced;
                the result is then a flat NumPy array of them.
        """
        if shape == (-1,) and self.elements is not None:
            return self.elements.reshape(-1)
        [sizes] = shape
        sample = self.sample.reshape(tuple(map(number_of, sizes)))
        return SymbolicArray(self.trace, tuple(sizes), sample, as_it_is, (self,), self.elements)

    def in_order(self, axes: tuple[int, ...]) -> SymbolicArray:
        """Return the array with its axes in the order ``axes``, as ``numpy.transpose`` does."""
        shape = tuple(self.shape[axis] for axis in axes)
        elements = None if self.elements is None else self.elements.transpose(axes)
        sample = turned(self.sample, axes)
        return SymbolicArray(self.trace, shape, sample, turned, (self, axes), elements)

    def in_f32(self) -> Any:
        """Return the array with its elements, floats, in f32."""
        return SymbolicArray(self.trace, self.shape, in_f32(self.sample), in_f32, (self,))

    def __array__(self, dtype: Any = None, copy: Any = None) -> NoReturn:
        """Raise an error if NumPy asks for the array: it would get the elements for the current
        sizes only.

        Raises:
            NotTraced: always; the trace can no longer be used.
        """
        self.trace.failed = "NumPy reads an array that depends on sizes"
        raise NotTraced(self.trace.failed)

    @property
    def _known(self) -> Any:
        if self.elements is None:
            self.trace.failed = "the elements of an untraced array are needed"
            raise NotTraced(self.trace.failed)
        return self.elements


def spread(array: Any, sizes: Sequence[int], under: Sequence[int]) -> Any:
    """Return a constant that is broadcast to ``sizes`` and then reshaped to ``under``.

    The result is a ``SymbolicArray`` if one of these sizes is symbolic.

    Args:
        array: the constant.
        sizes: the shape to which the constant is broadcast.
        under: the shape of the result; it has the same number of elements as ``sizes``.
    """
    sample = spread_under(array, [*map(number_of, sizes)], [*map(number_of, under)])
    trace = next((size.trace for size in (*sizes, *under) if type(size) is SymbolicSize), None)
    if trace is None:
        return sample
    sources = array, tuple(sizes), tuple(under)
    return SymbolicArray(trace, tuple(under), sample, spread_under, sources)


def spread_under(array: Array, sizes: Sequence[int], under: Sequence[int]) -> Array:
    """Return an array that is broadcast to ``sizes`` and then reshaped to ``under``."""
    return np.broadcast_to(array, sizes).reshape(under)


def turned(array: Array, axes: Sequence[int]) -> Array:
    """Return an array with its axes in the order ``axes``, contiguous in memory."""
    return np.ascontiguousarray(array.transpose(axes))


def in_f32(array: Array) -> Array:
    """Return a copy of an array with its elements in f32."""
    return array.astype(np.float32)


def as_it_is(array: Array) -> Array:
    """Return the array itself."""
    return array


def array_of(elements: Sequence[int], dtype: str, *shape: int) -> Array:
    """Return an array of the integers ``elements`` with a shape and an element type.

    ``dtype`` is NumPy's text of the element type, such as ``<i8``.
    """
    return np.array(elements, dtype).reshape(shape)


def element(array: Array, place: int) -> int:
    """Return element number ``place`` of an array of integers."""
    return int(array.reshape(-1)[place])


def reshaped(array: Array, dtype: str, *shape: int) -> Array:
    """Return an array in another shape.

    Args:
        array: the array.
        dtype: the element type that the array must have, as NumPy's text, such as ``<i8``.
        shape: the shape of the result.

    Raises:
        ValueError: the array has another element type, or another number of elements.
    """
    return shaped(array.reshape(shape), dtype, *shape)


def shaped(array: Any, dtype: str, *shape: int) -> Array:
    """Return an array, or a number as an array, after checking its element type and shape.

    Args:
        array: the array or number.
        dtype: the element type that it must have, as NumPy's text, such as ``<i8``.
        shape: the shape that it must have.

    Raises:
        ValueError: the element type or the shape is another.
    """
    array = np.asarray(array)
    if array.shape != shape or array.dtype != np.dtype(dtype):
        raise ValueError(f"an array of {array.dtype} {array.shape}, not of {dtype} {shape}")
    return array  # type: ignore[no-any-return]


def read_array(array: StoredArray | Array) -> Array:
    """Return an array of a model's file, read if necessary; a plain array is returned as it is."""
    return array if isinstance(array, np.ndarray) else array.now()


#: The functions that the rows of a trace call for symbolic arrays.
TRACED: Sequence[Callable[..., Any]] = (
    *(array_of, element, in_f32, read_array, reshaped, shaped, spread_under, turned),
)
