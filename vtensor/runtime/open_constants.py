"""Constants that depend on open sizes, as data: for plans of sizes that another process has drawn.

A row is an array: its elements as numbers and sizes, or what a node makes of other rows, ahead of a
run. Sizes are given as a list; ``[place]`` stands for one of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from libdesc.noted import named
from vtensor.language.open_arrays import as_it_is, spread_under, turned

Array = np.ndarray[Any, Any]
Row = list[Any]

#: A large array that was read stays, up to so many bytes of a blueprint's: rows take a part of it
#: for new sizes, a text's positions for each of its words, and reading takes longer than all rows.
MOST_HELD = 1 << 24

#: What makes an array of others, beside nodes.
_WAYS: dict[str, Callable[..., Array]] = {
    "reshape": as_it_is,
    "spread": spread_under,
    "turn": turned,
}


class OpenConstants:
    """Arrays that were written down.

    Args:
        rows: of ``open_notes.OpenRows``, perhaps by way of a file.
        blob: the bytes that they speak of.
        large: a large array by its name.

    Raises:
        Exception: of any kind, where they are none.
    """

    def __init__(self, rows: Sequence[Row], blob: Array, large: Callable[[str], Array]) -> None:
        self._blob, self._large = blob, large
        self._held: dict[str, Array] = {}
        self._rows = [self._read(*row) for row in rows]

    def at(self, sizes: Sequence[int]) -> list[Array]:
        """All of them for sizes.

        Raises:
            Exception: of any kind, where one is of another shape or type than was foreseen.
        """
        found = list[Array]()
        with np.errstate(all="ignore"):
            for under, dtype, shape, make in self._rows:
                told = tuple(number(one, sizes) for one in shape)
                array = np.asarray(make(sizes, found))
                if under:
                    array = array.reshape(told)
                if array.shape != told or array.dtype != dtype:
                    raise ValueError(f"an array of shape {array.shape} is made, not {told}")
                found.append(array)
        return found

    def _read(
        self, kind: str, dtype: str, shape: list[Any], sources: list[Any], *call: Any
    ) -> tuple[bool, np.dtype[Any], list[Any], Callable[..., Array]]:
        own, under = np.dtype(dtype), kind in ("elements", "reshape")
        if kind == "elements":
            return under, own, shape, partial(_elements, sources, own)
        take = [self._taken(one) for one in sources]
        if kind == "ahead":
            name, attributes = call
            make: Callable[..., Array] = partial(named(name), dict(attributes).get)
        else:
            make = _WAYS[kind]
        return under, own, shape, partial(_made, make, take)

    def _taken(self, source: Any) -> Callable[[Sequence[Array]], Array]:
        """What gives a source, of the rows before."""
        if isinstance(source, int):
            return lambda found: found[source]
        if isinstance(source, str):
            return partial(self._large_of, source)
        dtype, shape, at = source
        count = int(np.prod(shape, dtype=int)) * np.dtype(dtype).itemsize
        if not 0 <= at <= at + count <= self._blob.nbytes:
            raise ValueError("an array is beyond the entry")
        array = self._blob[at : at + count].view(dtype).reshape(shape)
        return lambda _: array

    def _large_of(self, name: str, _: Sequence[Array]) -> Array:
        """A large array, read once where it may stay."""
        if (held := self._held.get(name)) is not None:
            return held
        array = self._large(name)
        if array.nbytes + sum(one.nbytes for one in self._held.values()) <= MOST_HELD:
            self._held[name] = array
        return array


def number(one: Any, sizes: Sequence[int]) -> int:
    """A number, or the size that stands at a place."""
    return sizes[one[0]] if isinstance(one, list) else int(one)


def _elements(
    elements: Sequence[Any],
    dtype: np.dtype[Any],
    sizes: Sequence[int],
    _: Sequence[Array],
) -> Array:
    return np.array([number(one, sizes) for one in elements], dtype)


def _made(
    make: Callable[..., Array],
    take: Sequence[Callable[[Sequence[Array]], Array]],
    _: Sequence[int],
    found: Sequence[Array],
) -> Array:
    return make(*(one(found) for one in take))
