"""Constants that a pass makes: computed when they are asked for, and not kept."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, MutableMapping
from typing import Any, NamedTuple

import numpy as np

from optimizer.originals import Original, Originals
from ptensor.pages import passing

Array = np.ndarray[Any, Any]


#: A part along an axis: the axis, where it begins, and where it ends.
Taken = tuple[int, int, int]


class Made(NamedTuple):
    """What is done with a constant; equal keys do the same.

    Attributes:
        function: does it.
        key: says what.
        factor: what it is multiplied by, of as many axes, where no more is done.
        taken: the part that is taken of it, where no more is done.
    """

    function: Callable[[Array], Array]
    key: Hashable
    factor: Array | None = None
    taken: Taken | None = None


class Computed(MutableMapping[str, Array]):
    """The constants of a graph, some of them changed.

    A weight is so in memory once, as a plan packs it, and not beside the one it is made of.

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
        """Let a function of what had this name be what has it."""
        self._made[name] = made

    def derive(self, name: str, source: str, made: Made) -> None:
        """Let a new name be a function of what another name has."""
        self._sources[name], self._made[name] = source, made

    @property
    def given(self) -> Mapping[str, Array]:
        """What they are made of."""
        return self._given

    @property
    def more(self) -> Mapping[str, Array | Original]:
        """Those that were set, and are computed of nothing."""
        return self._more

    @property
    def functions(self) -> Collection[Made]:
        """What is done with constants."""
        return self._made.values()

    def over(self, given: Mapping[str, Array], more: Mapping[str, Array]) -> Computed:
        """The same computed of others; of ``more`` those take their place that were set here."""
        made = Computed(given)
        made._more = {name: more.get(name, array) for name, array in self._more.items()}
        made._made, made._sources = self._made, self._sources
        return made

    def origin(self, name: str) -> tuple[Array | Original, Hashable]:
        """As the function ``origin``."""
        if name in self._more:
            return self._more[name], None
        if name in self._sources:
            array, before = self.origin(self._sources[name])
        else:
            array, before = origin(self._given, name)
        return array, (before, self._made[name].key) if name in self._made else before

    def changes(self, name: str) -> tuple[Made, ...]:
        """As the function ``changes``."""
        if name in self._more:
            return ()
        source = self._sources.get(name)
        before = changes(self._given, name) if source is None else self.changes(source)
        return (*before, self._made[name]) if name in self._made else before

    def __getitem__(self, name: str) -> Array:
        if name in self._more:
            found = self._more[name]
            return found.array if isinstance(found, Original) else found
        given = self[self._sources[name]] if name in self._sources else self._given[name]
        return self._made[name].function(given) if name in self._made else given

    def __contains__(self, name: object) -> bool:
        """Nothing is computed to say so."""
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
    """The array that a constant is made of, or what holds it, and what is done with it; None is
    nothing.

    Two of the same array, with which the same is done, are the same.
    """
    if isinstance(constants, Computed):
        return constants.origin(name)
    return (constants.origin(name) if isinstance(constants, Originals) else constants[name]), None


def changes(constants: Mapping[str, Array], name: str) -> tuple[Made, ...]:
    """What is done with the array that a constant is made of, in order."""
    return constants.changes(name) if isinstance(constants, Computed) else ()


def cut(array: Array, taken: Taken) -> Array:
    """A part of an array.

    >>> cut(np.arange(6).reshape(2, 3), (1, 0, 2)).tolist()
    [[0, 1], [3, 4]]
    """
    axis, begin, end = taken
    return array[(slice(None),) * axis + (slice(begin, end),)]


def times(factor: Array) -> Hashable:
    """The key of what multiplies by a factor of as many axes, as ``multiplied`` does."""
    return factor.shape, factor.tobytes()


def multiplied(array: Array, factor: Array) -> Array:
    """An array times a factor of as many axes, in f64, rounded once; soon to be let go.

    >>> multiplied(np.ones((2, 1), np.float32), np.array([[2.0]])).tolist()
    [[2.0], [2.0]]
    """
    made = passing(array.shape, array.dtype)
    with np.errstate(all="ignore"):  # what is not finite is not folded
        np.multiply(array, factor, made, dtype="f8", casting="same_kind")
    return made
