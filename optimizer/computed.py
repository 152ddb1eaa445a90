"""Constants that a pass makes: computed when they are asked for, and not kept."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, MutableMapping
from functools import partial
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


class Computed(MutableMapping[str, Array]):
    """The constants of a graph, of which some are functions.

    A weight is so in memory once, as a plan packs it, and not beside the one it is made of.

    >>> made = Computed({"w": np.ones(2)})
    >>> made.compute("twice", lambda: made["w"] * 2)
    >>> made["twice"]
    array([2., 2.])
    """

    def __init__(self, given: Mapping[str, Array]) -> None:
        self._made: dict[str, Callable[[], Array]] = {
            name: partial(given.__getitem__, name) for name in given
        }

    def compute(self, name: str, function: Callable[[], Array]) -> None:
        """Let a function make a constant, in place of what had its name."""
        self._made[name] = function

    def __getitem__(self, name: str) -> Array:
        return self._made[name]()

    def __setitem__(self, name: str, array: Array) -> None:
        self._made[name] = lambda: array

    def __delitem__(self, name: str) -> None:
        del self._made[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._made)

    def __len__(self) -> int:
        return len(self._made)
