"""Constants that a pass computes from other constants. They are computed each time that they are
read.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, MutableMapping
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from optimizer.constants.originals import Original, Originals
from ptensor.pages import passing
from vtensor.language.dtype import numpy_dtype

Array = np.ndarray[Any, Any]


#: A part of an array: the axis, and the begin and end of the range along it.
Taken = tuple[int, int, int]


class Made(NamedTuple):
    """A function that computes a constant from another one.

    Attributes:
        function: computes the new array from the old one.
        key: identifies the function: functions with equal keys compute the same.
        factor: if the function only multiplies: the factor, with as many axes as the constant; else
            None.
        taken: if the function only takes a part of the array: that part; else None.
        to: if the function only converts the elements: their new type; else empty.
    """

    function: Callable[[Array], Array]
    key: Hashable
    factor: Array | None = None
    taken: Taken | None = None
    to: str = ""


class Computed(MutableMapping[str, Array]):
    """The constants of a graph, some of them computed from other constants when they are read.

    A computed weight takes no memory of its own before a plan packs it.

    Args:
        given: the constants from which other ones are computed.

    >>> constants = Computed({"w": np.ones(2)})
    >>> constants.change("w", Made(lambda w: w * 2, "twice"))
    >>> constants.derive("v", "w", Made(lambda w: w + 1, "plus one"))
    >>> constants["w"], constants["v"], "v" in constants
    (array([2., 2.]), array([3., 3.]), True)
    """

    def __init__(self, given: Mapping[str, Array]) -> None:
        self._given = given
        self._more: dict[str, Array | Original] = {}
        self._made: dict[str, Made] = {}
        self._sources: dict[str, str] = {}

    def change(self, name: str, made: Made) -> None:
        """Let the function ``made`` compute the constant ``name`` from the given constant of the
        same name.
        """
        self._made[name] = made

    def derive(self, name: str, source: str, made: Made) -> None:
        """Add the constant ``name``, computed by ``made`` from the constant ``source``."""
        self._sources[name], self._made[name] = source, made

    @property
    def given(self) -> Mapping[str, Array]:
        """The constants from which other ones are computed."""
        return self._given

    @property
    def more(self) -> Mapping[str, Array | Original]:
        """The constants that were set after construction, as arrays or Originals. They are not
        computed.
        """
        return self._more

    @property
    def functions(self) -> Collection[Made]:
        """The functions of all computed constants."""
        return self._made.values()

    def over(self, given: Mapping[str, Array], more: Mapping[str, Array]) -> Computed:
        """Return a copy with the same functions on other arrays.

        Args:
            given: the constants from which other ones are computed.
            more: arrays to use instead of those of equal names in the property ``more``.
        """
        copy = Computed(given)
        copy._more = {name: more.get(name, array) for name, array in self._more.items()}
        copy._made, copy._sources = self._made, self._sources
        return copy

    def origin(self, name: str) -> tuple[Array | Original, Hashable]:
        """Return the array or Original from which a constant is computed, and the key of the
        functions applied to it.

        The module's function ``origin`` does the same for any mapping.
        """
        if name in self._more:
            return self._more[name], None
        if name in self._sources:
            array, before = self.origin(self._sources[name])
        else:
            array, before = origin(self._given, name)
        return array, (before, self._made[name].key) if name in self._made else before

    def changes(self, name: str) -> tuple[Made, ...]:
        """Return the functions that compute a constant from its array or Original, in order.

        The module's function ``changes`` does the same for any mapping.
        """
        if name in self._more:
            return ()
        source = self._sources.get(name)
        before = changes(self._given, name) if source is None else self.changes(source)
        return (*before, self._made[name]) if name in self._made else before

    def __getitem__(self, name: str) -> Array:
        if name in self._more:
            array = self._more[name]
            return array.array if isinstance(array, Original) else array
        source = self[self._sources[name]] if name in self._sources else self._given[name]
        return self._made[name].function(source) if name in self._made else source

    def __contains__(self, name: object) -> bool:
        """Return whether there is such a constant, without computing it."""
        return name in self._more or name in self._sources or name in self._given

    def __setitem__(self, name: str, array: Array | Original) -> None:
        self._more[name] = array

    def __delitem__(self, name: str) -> None:
        del self._more[name]

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys([*self._given, *self._more, *self._sources]))

    def __len__(self) -> int:
        return sum(1 for _ in self)


def origin(constants: Mapping[str, Array], name: str) -> tuple[Array | Original, Hashable]:
    """Return the array or Original from which a constant is computed, and the key of the functions
    applied to it.

    The key is None if the constant is not computed. Constants computed from one array with equal
    keys are equal.
    """
    if isinstance(constants, Computed):
        return constants.origin(name)
    return (constants.origin(name) if isinstance(constants, Originals) else constants[name]), None


def changes(constants: Mapping[str, Array], name: str) -> tuple[Made, ...]:
    """Return the functions that compute a constant, in order. They begin with the array or Original
    that ``origin`` returns.
    """
    return constants.changes(name) if isinstance(constants, Computed) else ()


def cut(array: Array, taken: Taken) -> Array:
    """Return a part of an array, as a view. ``taken`` is the axis, and the begin and end of the
    part along it.

    >>> cut(np.arange(6).reshape(2, 3), (1, 0, 2)).tolist()
    [[0, 1], [3, 4]]
    """
    axis, begin, end = taken
    return array[(slice(None),) * axis + (slice(begin, end),)]


def times(factor: Array) -> Hashable:
    """Return a key for the function that multiplies an array by ``factor`` (``multiplied``). Equal
    factors have equal keys.
    """
    return factor.shape, factor.tobytes()


def in_type(dtype: str) -> Made:
    """Return the function that converts an array to a float type, rounding to nearest even.

    >>> in_type("bf16").function(np.array([1.01], np.float32)).tolist()
    [1.0078125]
    """
    return Made(partial(_converted, dtype=dtype), ("in type", dtype), to=dtype)


def _converted(array: Array, dtype: str) -> Array:
    """Return a copy of an array in an element type, in memory that is meant for short use."""
    result = passing(array.shape, numpy_dtype(dtype))
    with np.errstate(all="ignore"):  # NaN stays NaN
        result[...] = array
    return result


def multiplied(array: Array, factor: Array) -> Array:
    """Return an array times a factor with as many axes, computed in f64 and rounded once.

    The memory of the result is meant for short use (``ptensor.pages.passing``).

    >>> multiplied(np.ones((2, 1), np.float32), np.array([[2.0]])).tolist()
    [[2.0], [2.0]]
    """
    product = passing(array.shape, array.dtype)
    with np.errstate(all="ignore"):  # constants that would not be finite are not folded
        np.multiply(array, factor, product, dtype="f8", casting="same_kind")
    return product
