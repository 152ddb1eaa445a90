"""The constants of a file: each in memory as it was read until it is packed, then as it is packed.

A library's blocked layout has the same elements in another order, so the array that was read need
not be kept beside it: who asks for it again gets it back bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, MutableMapping
from typing import Any
from weakref import ref

import numpy as np

Array = np.ndarray[Any, Any]


class Original:
    """An array that can be let go of; several names may have it.

    >>> one = Original(np.arange(3))
    >>> one.let_go(lambda: np.arange(3))
    >>> one.array
    array([0, 1, 2])
    """

    __slots__ = ("__weakref__", "_array", "_lent", "_recover")

    def __init__(self, array: Array) -> None:
        self._array: Array | None = array
        self._recover: Callable[[], Array] | None = None
        #: The array as long as somebody still has it.
        self._lent = ref(array)

    @property
    def array(self) -> Array:
        """The array, recovered if it was let go of."""
        array = self._array
        if array is None:
            array = self._lent()
        if array is None:
            assert self._recover is not None, "nothing is let go of that cannot be recovered"
            array = self._recover()
            self._lent = ref(array)
        return array

    def let_go(self, recover: Callable[[], Array]) -> None:
        """Keep only what makes the array anew, bit for bit."""
        self._recover = recover
        self._array = None


class Originals(MutableMapping[str, Array]):
    """The constants of a graph that nobody but the graph has; names of one memory share it."""

    def __init__(self, given: Mapping[str, Array]) -> None:
        places: dict[Hashable, Original] = {}
        self._kept = {
            name: places.setdefault(place(array), Original(array)) for name, array in given.items()
        }

    def copy(self) -> Originals:
        """As of a dictionary: what is let go of here is let go of there."""
        made = Originals({})
        made._kept = dict(self._kept)
        return made

    def origin(self, name: str) -> Original:
        """What holds the array of a name."""
        return self._kept[name]

    def __getitem__(self, name: str) -> Array:
        return self._kept[name].array

    def __contains__(self, name: object) -> bool:
        return name in self._kept

    def __setitem__(self, name: str, array: Array) -> None:
        self._kept[name] = Original(array)

    def __delitem__(self, name: str) -> None:
        del self._kept[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._kept)

    def __len__(self) -> int:
        return len(self._kept)

    def __reduce__(self) -> tuple[Any, ...]:
        """Copied or written down, they are a dictionary of arrays."""
        return dict, ({**self},)


def copied(constants: Mapping[str, Array]) -> MutableMapping[str, Array]:
    """A mapping of its own with the same arrays."""
    return constants.copy() if isinstance(constants, Originals) else dict(constants)


def place(array: Array) -> Hashable:
    """Where an array lies, and how: as long as both live, two of the same place are the same."""
    return array.__array_interface__["data"][0], array.shape, array.strides, array.dtype.str
