"""The constants of a model, each in memory once: as an array, or packed by a plan.

A library's blocked layout has the elements of the array in another order, so the array is released
after packing, and is made again from the packed constant, bit for bit, if it is needed. If packing
computes other elements, the array is read from the file again.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, MutableMapping
from functools import partial
from math import prod
from typing import Any
from weakref import ref

import numpy as np

from ptensor.pages import contiguous, lasting, passing, reused
from vtensor.language.dtype import numpy_dtype

Array = np.ndarray[Any, Any]

#: A function that reads the bytes of an array and returns them. Its argument takes a number of
#: bytes and allocates the memory for them.
Read = Callable[[Callable[[int], "np.ndarray[Any, Any]"]], Array]

#: A change that derives an original from another: ("order", axes in their new order), ("shape", new
#: sizes) or ("f32", ()).
Step = tuple[str, tuple[int, ...]]


class Original:
    """An array that can be released and made again; several names may share it.

    Args:
        array: the array.
        recover: returns the array again, bit for bit; None if it cannot be released yet.

    Attributes:
        shape, dtype: the array's.
        asks: how often the property ``array`` was read. Each such read may have let the elements
            decide something.

    >>> original = Original(np.arange(3))
    >>> original.recovered_by(lambda: np.arange(3))
    >>> original.let_go()
    >>> original.shape, original.array
    ((3,), array([0, 1, 2]))
    """

    __slots__ = (
        *(
            "__weakref__",
            "_array",
            "_fresh",
            "_weak_array",
            "_read",
            "_recover",
            "_turns",
            "_views",
        ),
        *("asks", "dtype", "shape"),
    )

    def __init__(self, array: Array, recover: Callable[[], Array] | None = None) -> None:
        self.shape: tuple[int, ...] = array.shape
        self.dtype: np.dtype[Any] = array.dtype
        self._array: Array | None = array
        self._recover = recover
        self._read: Read | None = None
        self._fresh = False
        self._weak_array = _weak_view(array)
        self._views: dict[tuple[int, ...], Original] = {}
        self._turns: dict[Step, Original] = {}
        self.asks = 0

    @classmethod
    def deferred(cls, shape: tuple[int, ...], dtype: np.dtype[Any], read: Read) -> Original:
        """Return an original whose array is not read yet; ``read`` reads the bytes of its
        elements.
        """
        original = cls.__new__(cls)
        original.shape, original.dtype, original._read, original._fresh = shape, dtype, read, True
        original._recover = partial(_viewed, read, reused, dtype, shape)
        original._array, original._weak_array, original._views, original._turns = (
            None,
            _no_array,
            {},
            {},
        )
        original.asks = 0
        return original

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """The number of elements."""
        return prod(self.shape)

    @property
    def nbytes(self) -> int:
        """The number of bytes of all elements."""
        return self.size * self.dtype.itemsize

    @property
    def array(self) -> Array:
        """The array, made again if it was released; counted in ``asks``."""
        self.asks += 1
        return self.now()

    def now(self) -> Array:
        """Return the array without counting that in ``asks``. It is for callers that decide nothing
        by the elements.
        """
        array = self._array
        if array is None:
            array = self._weak_array()
        if array is None:
            assert self._recover is not None, "an array is released only if it can be recovered"
            array = self._recover()
            self._weak_array = _weak_view(array)
        return array

    @property
    def reader(self) -> Read | None:
        """The function that reads the array from its file, in which the elements have the order of
        the array.

        None if there is no file, if the array is in memory, or once ``recovered_by`` was called.
        """
        return self._read if self._fresh and not self.held else None

    @property
    def whole(self) -> Original:
        """The original of which this one is a view in another shape. It is this one if it is no
        view.
        """
        return self

    @property
    def root(self) -> Original:
        """The original from which the changes in ``steps`` lead to this one. It is this one if
        there are no such changes.
        """
        return self

    @property
    def steps(self) -> tuple[Step, ...]:
        """The changes that lead from ``root`` to this original, in order."""
        return ()

    def derived(self, steps: Iterable[Step]) -> Original:
        """Return this original after changes of order, shape and type, as ``steps`` lists them.

        >>> Original(np.arange(6)).derived([("shape", (2, 3)), ("order", (1, 0))]).array.tolist()
        [[0, 3], [1, 4], [2, 5]]
        """
        result: Original = self
        for kind, numbers in steps:
            if kind == "f32":
                result = result.in_f32()
            else:
                change = result.turned if kind == "order" else result.reshape
                result = change(tuple(numbers))
        return result

    @property
    def held(self) -> bool:
        """True if the array is in memory, either because the original keeps it or because a caller
        still does.
        """
        return self._array is not None or self._weak_array() is not None

    def recovered_by(self, recover: Callable[[], Array]) -> None:
        """Set the function that returns the array again, bit for bit."""
        self._recover, self._fresh = recover, False

    def let_go(self) -> None:
        """Release the array, if it can be recovered."""
        if self._recover is not None:
            self._array = None

    def hold(self) -> None:
        """Read an array that was not read yet into memory for long use, and keep it until it is
        released.
        """
        if self._array is None and self._read is not None:
            self._array = _viewed(self._read, lasting, self.dtype, self.shape)
            self._weak_array = _weak_view(self._array)

    def reshape(self, shape: tuple[int, ...]) -> Original:
        """Return an original with the same elements in another shape; it shares this one's array.

        Calls with equal shapes return the same object.
        """
        if shape == self.shape:
            return self
        return self._views.setdefault(shape, _View(self, shape))

    def turned(self, axes: tuple[int, ...]) -> Original:
        """Return an original with the axes in another order, transposed when it is first read.

        Calls with equal orders return the same object.

        Args:
            axes: for each new axis, the index of the axis of this original.

        >>> turned = Original(np.arange(6).reshape(2, 3)).turned((1, 0))
        >>> turned.shape, turned.array.tolist()
        ((3, 2), [[0, 3], [1, 4], [2, 5]])
        """
        if axes == tuple(range(self.ndim)):
            return self
        return self._turns.setdefault(("order", axes), _Turned(self, axes))

    def in_f32(self) -> Original:
        """Return an original with the same elements in f32, converted when it is first read.

        Calls return the same object.

        >>> wide = Original(np.array([0.5, 3], np.float16)).in_f32()
        >>> wide.array.dtype, wide.array.tolist(), wide.steps
        (dtype('float32'), [0.5, 3.0], (('f32', ()),))
        """
        return self._turns.setdefault(("f32", ()), _Widened(self))

    def decoded(self, scale: Array, zero: Array, dtype: str = "f32") -> Original:
        """Return an original with the numbers that integers stand for, computed when it is read.

        They are (integer - zero) * scale, rounded once. Calls with equal arguments return the same
        object. It counts as an array of its own, which no change leads to.

        Args:
            scale, zero: arrays with as many axes as the integers; an axis may have size 1.
            dtype: the element type of the numbers.

        >>> steps = Original(np.array([[1, 2], [3, 4]], np.int8))
        >>> numbers = steps.decoded(np.array([[0.5], [2]], np.float32), np.array([[1]], np.int8))
        >>> numbers.array.tolist()
        [[0.0, 0.5], [4.0, 6.0]]
        """
        key: Any = (dtype, (scale.shape, scale.tobytes(), zero.shape, zero.tobytes()))
        return self._turns.setdefault(key, _Decoded(self, scale, zero, dtype))


class _Decoded(Original):
    """The numbers that integers stand for."""

    __slots__ = ()

    def __init__(self, given: Original, scale: Array, zero: Array, dtype: str) -> None:
        self.shape, self.dtype, self.asks = given.shape, numpy_dtype(dtype), 0
        self._recover = partial(_numbers, given, scale, zero, dtype)
        self._array, self._weak_array, self._views, self._turns = None, _no_array, {}, {}
        self._read, self._fresh = None, False

    def hold(self) -> None:
        self._array = self.now()


def _numbers(given: Original, scale: Array, zero: Array, dtype: str) -> Array:
    """Return a read-only array of (integer - zero) * scale in a float type, for short use."""
    from libdesc.numpy.casts import cast  # a session with a cached plan may need no library's code

    array = passing(given.shape, numpy_dtype(dtype))
    with np.errstate(all="ignore"):  # a scale may be so large that a product is infinite
        exact = given.now().astype(np.float64) - zero.astype(np.float64)
        array[...] = cast(exact * scale.astype(np.float64), dtype)
    array.flags.writeable = False
    return array


class _Turned(Original):
    """An original with its axes in another order."""

    __slots__ = ("_axes", "_source")

    def __init__(self, given: Original, axes: tuple[int, ...]) -> None:
        self._source, self._axes = given, axes
        self.shape, self.dtype = tuple(given.shape[axis] for axis in axes), given.dtype
        self._recover = partial(_transposed, given, axes)
        self._array, self._weak_array, self._views, self._turns = None, _no_array, {}, {}
        self._read, self._fresh = None, False

    @property
    def root(self) -> Original:
        return self._source.root

    @property
    def steps(self) -> tuple[Step, ...]:
        return (*self._source.steps, ("order", self._axes))

    def hold(self) -> None:
        self._array = self.now()

    def turned(self, axes: tuple[int, ...]) -> Original:
        return self._source.turned(tuple(self._axes[axis] for axis in axes))

    @property
    def asks(self) -> int:
        return self._source.asks

    @asks.setter
    def asks(self, asks: int) -> None:
        self._source.asks = asks


class _Widened(_Turned):
    """An original with its elements in f32."""

    __slots__ = ()

    def __init__(self, given: Original) -> None:
        super().__init__(given, tuple(range(given.ndim)))
        self.dtype, self._recover = np.dtype(np.float32), partial(_copied_in_f32, given)

    @property
    def steps(self) -> tuple[Step, ...]:
        return (*self._source.steps, ("f32", ()))

    def turned(self, axes: tuple[int, ...]) -> Original:
        return Original.turned(self, axes)


def _copied_in_f32(given: Original) -> Array:
    """Return a read-only copy of an original's array with its elements in f32.

    The memory of the result is meant for short use.
    """
    array = passing(given.shape, np.dtype(np.float32))
    with np.errstate(all="ignore"):  # a signalling NaN is a NaN
        array[...] = given.now()
    array.flags.writeable = False
    return array


def _transposed(given: Original, axes: tuple[int, ...]) -> Array:
    """Return a read-only copy of an original's array with its axes in another order."""
    array = contiguous(given.now().transpose(axes))
    array.flags.writeable = False
    return array


class _View(Original):
    """An original in another shape, which shares the array."""

    __slots__ = ("_whole",)

    def __init__(self, whole: Original, shape: tuple[int, ...]) -> None:
        self._whole, self.shape, self.dtype = whole, shape, whole.dtype
        self._turns = {}

    @property
    def whole(self) -> Original:
        return self._whole

    @property
    def root(self) -> Original:
        return self._whole.root

    @property
    def steps(self) -> tuple[Step, ...]:
        return (*self._whole.steps, ("shape", self.shape))

    @property
    def asks(self) -> int:
        return self._whole.asks

    @asks.setter
    def asks(self, asks: int) -> None:
        self._whole.asks = asks

    def now(self) -> Array:
        return self._whole.now().reshape(self.shape)

    @property
    def reader(self) -> Read | None:
        return self._whole.reader

    @property
    def held(self) -> bool:
        return self._whole.held

    def recovered_by(self, recover: Callable[[], Array]) -> None:
        shape = self._whole.shape
        self._whole.recovered_by(lambda: recover().reshape(shape))

    def let_go(self) -> None:
        self._whole.let_go()

    def hold(self) -> None:
        self._whole.hold()

    def reshape(self, shape: tuple[int, ...]) -> Original:
        return self._whole.reshape(shape)


class Originals(MutableMapping[str, Array]):
    """The constants of a graph, as arrays or originals that can be released.

    Args:
        given: arrays and originals by name. An original that is released is released for all
            graphs that share it.
    """

    def __init__(self, given: Mapping[str, Array | Original] | None = None) -> None:
        self._origins = dict(given or {})

    @classmethod
    def of(cls, given: Mapping[str, Array | Original], known: Iterable[Original] = ()) -> Originals:
        """Return the given constants as originals: each array is replaced by an original that holds
        it.

        Args:
            given: arrays and originals by name.
            known: originals that hold some of the arrays already. An array in the memory of one of
                them is replaced by that original, any other by a new one.
        """
        places: dict[Hashable, Original] = {place(original.array): original for original in known}
        entries: Mapping[str, Array | Original] = given
        if isinstance(given, Originals):
            entries = given.origins()
        constants = cls()
        for name, array in entries.items():
            if not isinstance(array, Original):
                array = places.setdefault(place(array), Original(array))
            constants.put(name, array)
        return constants

    def copy(self) -> Originals:
        """Return a shallow copy, which shares the originals."""
        return Originals(self._origins)

    __copy__ = copy

    def origin(self, name: str) -> Array | Original:
        """Return the array or Original of the constant ``name``."""
        return self._origins[name]

    def origins(self) -> Mapping[str, Array | Original]:
        """Return the arrays and Originals by name."""
        return self._origins

    def put(self, name: str, origin: Array | Original) -> None:
        """Set the array or Original of the constant ``name``."""
        self._origins[name] = origin

    def __getitem__(self, name: str) -> Array:
        return array_of(self._origins[name])

    def __contains__(self, name: object) -> bool:
        return name in self._origins

    def __setitem__(self, name: str, array: Array) -> None:
        self._origins[name] = array

    def __delitem__(self, name: str) -> None:
        del self._origins[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._origins)

    def __len__(self) -> int:
        return len(self._origins)

    def __reduce__(self) -> tuple[Any, ...]:
        """Let a deep copy or a pickle of this object be a dictionary of arrays by name."""
        return dict, ({**self},)


def copied(constants: Mapping[str, Array]) -> MutableMapping[str, Array]:
    """Return a mutable copy of a mapping of constants, with the same arrays."""
    return constants.copy() if isinstance(constants, Originals) else dict(constants)


def array_of(constant: Array | Original) -> Array:
    """Return ``constant`` if it is an array, else its array."""
    return constant.array if isinstance(constant, Original) else constant


def one_memory(first: Array | Original, second: Array | Original) -> bool:
    """Return whether two constants may share memory."""
    if isinstance(first, Original) and isinstance(second, Original) and first.whole is second.whole:
        return True
    return np.may_share_memory(array_of(first), array_of(second))


def place(array: Array) -> Hashable:
    """Return a key of the place of an array in memory: its address, shape, strides and element
    type.

    Two arrays with equal keys have equal elements while both are alive.
    """
    return array.__array_interface__["data"][0], array.shape, array.strides, array.dtype.str


def _viewed(
    read: Read, room: Callable[[int], Array], dtype: np.dtype[Any], shape: tuple[int, ...]
) -> Array:
    """Read an array's bytes with ``read``, and return them as an array of this type and shape.

    ``room`` allocates the memory, given a number of bytes.
    """
    return read(room).view(dtype).reshape(shape)


def _no_array() -> None:
    """Return None, as a weak reference to an array does once the array is freed."""


def _weak_view(array: Array) -> Callable[[], Array | None]:
    """Return a function that returns the array, or None once the array's memory is freed."""
    root = array
    while isinstance(root.base, np.ndarray):
        root = root.base
    if root is array or not root.flags.c_contiguous:
        return ref(array)
    alive, writeable = ref(root), array.flags.writeable
    offset = array.__array_interface__["data"][0] - root.__array_interface__["data"][0]
    like = array.shape, array.dtype, offset, array.strides

    def lent() -> Array | None:
        if (memory := alive()) is None:
            return None
        shape, dtype, begin, strides = like
        view = np.ndarray(shape, dtype, memory, begin, strides)
        view.flags.writeable = writeable
        return view

    return lent
