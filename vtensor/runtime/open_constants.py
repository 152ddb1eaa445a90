"""Constants that depend on open sizes, as data: for plans of sizes that another process has drawn.

A row is an array: its elements as numbers and sizes, or what a node makes of other rows, ahead of a
run. Sizes are given as a list; ``[place]`` stands for one of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from libdesc.registry import ready
from optimizer.originals import Original
from vtensor.language.ahead import ahead_of
from vtensor.language.open_arrays import OpenArray, as_it_is, spread_under
from vtensor.language.tape import TracedSize
from vtensor.runtime.weight_notes import NotKept, WeightNotes

Array = np.ndarray[Any, Any]
Row = list[Any]

#: What an attribute may be in a row.
_PLAIN = (str, int, float, bool, type(None))

#: What makes an array of others, beside nodes.
_WAYS: dict[str, Callable[..., Array]] = {"reshape": as_it_is, "spread": spread_under}

#: An array that is held by nobody, and has more bytes, is in no entry.
MOST_BYTES = 1 << 16


class OpenRows:
    """Writes arrays down, those first that others are made of.

    Args:
        place: gives a traced size its place among those that are given.
        weights: holds arrays that depend on no size, and knows large ones.
    """

    def __init__(self, place: Callable[[TracedSize], int], weights: WeightNotes) -> None:
        self.rows: list[Row] = []
        self._place, self._weights = place, weights
        self._known: dict[int, int] = {}

    def add(self, array: OpenArray) -> int:
        """The row of an array.

        Raises:
            NotKept: no row says how it is made.
        """
        if id(array) not in self._known:
            row = self._row(array)
            self._known[id(array)] = len(self.rows)
            self.rows.append(row)
        return self._known[id(array)]

    def _row(self, array: OpenArray) -> Row:
        about = [array.dtype.str, [*map(self._size, array.shape)]]
        if array.elements is not None:
            return ["elements", *about, [*map(self._size, array.elements.reshape(-1).tolist())]]
        held = array.origins or [None] * len(array.sources)
        sources = [self._source(*pair) for pair in zip(array.sources, held, strict=True)]
        if array.made is as_it_is:
            return ["reshape", *about, sources]
        if array.made is spread_under:
            return ["spread", *about, sources]
        if array.call is None:
            raise NotKept("a constant that depends on sizes is computed as any node")
        label, opset, attributes = array.call()
        parts = [
            one for row in attributes.values() for one in (row if type(row) is list else [row])
        ]
        if not all(isinstance(one, _PLAIN) for one in parts):
            raise NotKept(f"{label} has attributes that no row holds")
        return ["ahead", *about, sources, label, opset, attributes]

    def _size(self, size: Any) -> Any:
        return [self._place(size)] if type(size) is TracedSize else int(size)

    def _source(self, source: Any, held: Any) -> Any:
        """A row, a large array's name, or where an array is in the entry."""
        if isinstance(source, OpenArray):
            return self.add(source)
        if not isinstance(source, np.ndarray):
            raise NotKept("a source is no array")
        if isinstance(held, Original) and (name := self._weights.array(held)) is not None:
            return name
        if source.nbytes > MOST_BYTES or source.dtype.hasobject:
            raise NotKept("a constant that depends on sizes is made of a large array")
        memory = np.ascontiguousarray(source).reshape(-1).view(np.uint8)
        return [source.dtype.str, source.shape, self._weights.keep(memory)]


class OpenConstants:
    """Arrays that were written down.

    Args:
        rows: of ``OpenRows``, perhaps by way of a file.
        blob: the bytes that they speak of.
        large: a large array by its name.

    Raises:
        Exception: of any kind, where they are none.
    """

    def __init__(self, rows: Sequence[Row], blob: Array, large: Callable[[str], Array]) -> None:
        self._blob, self._large = blob, large
        if any(kind == "ahead" for kind, *_ in rows):
            ready()
        self._rows = [self._read(*row) for row in rows]

    def at(self, sizes: Sequence[int]) -> list[Array]:
        """All of them for sizes.

        Raises:
            Exception: of any kind, where one is of another shape or type than was foreseen.
        """
        found = list[Array]()
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
            label, opset, attributes = call
            ahead = ahead_of(label, opset)
            if ahead is None:
                raise ValueError(f"{label} computes nothing ahead of a run")
            make: Callable[..., Array] = partial(ahead.compute, dict(attributes).get)
        else:
            make = _WAYS[kind]
        return under, own, shape, partial(_made, make, take)

    def _taken(self, source: Any) -> Callable[[Sequence[Array]], Array]:
        """What gives a source, of the rows before."""
        if isinstance(source, int):
            return lambda found: found[source]
        if isinstance(source, str):
            large = self._large
            return lambda _: large(source)
        dtype, shape, at = source
        count = int(np.prod(shape, dtype=int)) * np.dtype(dtype).itemsize
        if not 0 <= at <= at + count <= self._blob.nbytes:
            raise ValueError("an array is beyond the entry")
        array = self._blob[at : at + count].view(dtype).reshape(shape)
        return lambda _: array


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
