"""The constants of a file: each in memory once, as it is packed or as somebody has it.

A library's blocked layout has the same elements in another order, so the array that was read need
not be kept beside it: who asks for it again gets it back bit for bit. Where a plan computes what it
packs, that does not give the array back, but the file it came from does.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, MutableMapping
from functools import partial
from math import prod
from typing import Any
from weakref import ref

import numpy as np

from ptensor.pages import contiguous, lasting, reused

Array = np.ndarray[Any, Any]

#: Reads bytes into memory, which a function of their number makes.
Read = Callable[[Callable[[int], "np.ndarray[Any, Any]"]], Array]

#: A change of an original: ``order`` and the axes in their new order, or ``shape`` and the sizes.
Step = tuple[str, tuple[int, ...]]


class Original:
    """An array that can be let go of; several names may have it.

    Args:
        array: the array.
        recover: makes it anew, bit for bit; None where nothing does so far.

    Attributes:
        shape, dtype: the array's.
        asks: how often somebody has asked for the array, whose values may have decided something.

    >>> one = Original(np.arange(3))
    >>> one.recovered_by(lambda: np.arange(3))
    >>> one.let_go()
    >>> one.shape, one.array
    ((3,), array([0, 1, 2]))
    """

    __slots__ = (
        *("__weakref__", "_array", "_fresh", "_lent", "_read", "_recover", "_turns", "_views"),
        *("asks", "dtype", "shape"),
    )

    def __init__(self, array: Array, recover: Callable[[], Array] | None = None) -> None:
        self.shape: tuple[int, ...] = array.shape
        self.dtype: np.dtype[Any] = array.dtype
        self._array: Array | None = array
        self._recover = recover
        self._read: Read | None = None
        self._fresh = False
        self._lent = _lend(array)
        self._views: dict[tuple[int, ...], Original] = {}
        self._turns: dict[tuple[int, ...], Original] = {}
        self.asks = 0

    @classmethod
    def deferred(cls, shape: tuple[int, ...], dtype: np.dtype[Any], read: Read) -> Original:
        """Of an array that nobody has read so far; ``read`` reads the bytes of its elements."""
        made = cls.__new__(cls)
        made.shape, made.dtype, made._read, made._fresh = shape, dtype, read, True
        made._recover = partial(_viewed, read, reused, dtype, shape)
        made._array, made._lent, made._views, made._turns = None, _nobody, {}, {}
        made.asks = 0
        return made

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
        """Bytes of the elements."""
        return self.size * self.dtype.itemsize

    @property
    def array(self) -> Array:
        """The array, recovered if it was let go of."""
        self.asks += 1
        return self.now()

    def now(self) -> Array:
        """As ``array``, for who decides nothing by its values."""
        array = self._array
        if array is None:
            array = self._lent()
        if array is None:
            assert self._recover is not None, "nothing is let go of that cannot be recovered"
            array = self._recover()
            self._lent = _lend(array)
        return array

    @property
    def reader(self) -> Read | None:
        """What reads it, where nobody has so far; the file has its elements in their order."""
        return self._read if self._fresh and not self.held else None

    @property
    def whole(self) -> Original:
        """What this is another shape of; else this."""
        return self

    @property
    def root(self) -> Original:
        """The original that this is derived from, by any number of ``steps``; else this."""
        return self

    @property
    def steps(self) -> tuple[Step, ...]:
        """The orders of axes and shapes that lead from ``root`` to this, in turn."""
        return ()

    def derived(self, steps: Iterable[Step]) -> Original:
        """Return this original in other orders of axes and shapes, as ``steps`` lists them.

        >>> Original(np.arange(6)).derived([("shape", (2, 3)), ("order", (1, 0))]).array.tolist()
        [[0, 3], [1, 4], [2, 5]]
        """
        result: Original = self
        for kind, numbers in steps:
            change = result.turned if kind == "order" else result.reshape
            result = change(tuple(numbers))
        return result

    @property
    def held(self) -> bool:
        """Whether the array is in memory, here or since somebody has it."""
        return self._array is not None or self._lent() is not None

    def recovered_by(self, recover: Callable[[], Array]) -> None:
        """This makes the array anew, bit for bit."""
        self._recover, self._fresh = recover, False

    def let_go(self) -> None:
        """Keep only what makes the array anew, where something does."""
        if self._recover is not None:
            self._array = None

    def hold(self) -> None:
        """Have what nobody has read in memory until it is let go of, on pages that then go back."""
        if self._array is None and self._read is not None:
            self._array = _viewed(self._read, lasting, self.dtype, self.shape)
            self._lent = _lend(self._array)

    def reshape(self, shape: tuple[int, ...]) -> Original:
        """The same elements under other sizes: one for each shape, which is let go of with this."""
        if shape == self.shape:
            return self
        return self._views.setdefault(shape, _View(self, shape))

    def turned(self, axes: tuple[int, ...]) -> Original:
        """The same elements with their axes in another order: one for each order, made of this when
        somebody asks.

        >>> one = Original(np.arange(6).reshape(2, 3)).turned((1, 0))
        >>> one.shape, one.array.tolist()
        ((3, 2), [[0, 3], [1, 4], [2, 5]])
        """
        if axes == tuple(range(self.ndim)):
            return self
        return self._turns.setdefault(axes, _Turned(self, axes))


class _Turned(Original):
    """Another order of an original's axes."""

    __slots__ = ("_axes", "_given")

    def __init__(self, given: Original, axes: tuple[int, ...]) -> None:
        self._given, self._axes = given, axes
        self.shape, self.dtype = tuple(given.shape[axis] for axis in axes), given.dtype
        self._recover = partial(_turned, given, axes)
        self._array, self._lent, self._views, self._turns = None, _nobody, {}, {}
        self._read, self._fresh = None, False

    @property
    def root(self) -> Original:
        return self._given.root

    @property
    def steps(self) -> tuple[Step, ...]:
        return (*self._given.steps, ("order", self._axes))

    def hold(self) -> None:
        self._array = self.now()

    def turned(self, axes: tuple[int, ...]) -> Original:
        return self._given.turned(tuple(self._axes[axis] for axis in axes))

    @property
    def asks(self) -> int:
        return self._given.asks

    @asks.setter
    def asks(self, asks: int) -> None:
        self._given.asks = asks


def _turned(given: Original, axes: tuple[int, ...]) -> Array:
    array = contiguous(given.now().transpose(axes))
    array.flags.writeable = False
    return array


class _View(Original):
    """Another shape of an original."""

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
    """The constants of a graph that nobody but the graph has.

    Args:
        given: arrays, and originals, which are let go of for all who have them.
    """

    def __init__(self, given: Mapping[str, Array | Original] | None = None) -> None:
        self._origins = dict(given or {})

    @classmethod
    def of(cls, given: Mapping[str, Array | Original], known: Iterable[Original] = ()) -> Originals:
        """Each array with an original, a known one or its own; names of one memory share it."""
        places: dict[Hashable, Original] = {place(one.array): one for one in known}
        kept: Mapping[str, Array | Original] = given
        if isinstance(given, Originals):
            kept = given.origins()
        made = cls()
        for name, one in kept.items():
            if not isinstance(one, Original):
                one = places.setdefault(place(one), Original(one))
            made.put(name, one)
        return made

    def copy(self) -> Originals:
        """As of a dictionary: what is let go of here is let go of there."""
        return Originals(self._origins)

    __copy__ = copy

    def origin(self, name: str) -> Array | Original:
        """An array, or what holds it."""
        return self._origins[name]

    def origins(self) -> Mapping[str, Array | Original]:
        """Arrays, and what holds them, by name."""
        return self._origins

    def put(self, name: str, origin: Array | Original) -> None:
        """Give a name to an array, or to what holds one."""
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
        """Copied or written down, they are a dictionary of arrays."""
        return dict, ({**self},)


def copied(constants: Mapping[str, Array]) -> MutableMapping[str, Array]:
    """A mapping of its own with the same arrays."""
    return constants.copy() if isinstance(constants, Originals) else dict(constants)


def array_of(one: Array | Original) -> Array:
    """An array, or what somebody holds."""
    return one.array if isinstance(one, Original) else one


def one_memory(one: Array | Original, other: Array | Original) -> bool:
    """They have the same array, or parts of it."""
    if isinstance(one, Original) and isinstance(other, Original) and one.whole is other.whole:
        return True
    return np.may_share_memory(array_of(one), array_of(other))


def place(array: Array) -> Hashable:
    """Where an array lies, and how: as long as both live, two of the same place are the same."""
    return array.__array_interface__["data"][0], array.shape, array.strides, array.dtype.str


def _viewed(
    read: Read, room: Callable[[int], Array], dtype: np.dtype[Any], shape: tuple[int, ...]
) -> Array:
    return read(room).view(dtype).reshape(shape)


def _nobody() -> None:
    """There is no array."""


def _lend(array: Array) -> Callable[[], Array | None]:
    """What has an array as long as somebody has its memory."""
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
        found = np.ndarray(shape, dtype, memory, begin, strides)
        found.flags.writeable = writeable
        return found

    return lent
