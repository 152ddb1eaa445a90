"""Writing down constants that depend on open sizes, for ``open_constants.py``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from libdesc.noted import named
from optimizer.originals import Original
from vtensor.language.open_arrays import OpenArray, as_it_is, spread_under, turned
from vtensor.language.tape import TracedSize
from vtensor.runtime.open_constants import Array, Row
from vtensor.runtime.recording.packing_table import NotKept, TableWriter

#: What an attribute may be in a row.
_PLAIN = (str, int, float, bool, type(None))

#: An array that is held by nobody, and has more bytes, is in no entry.
MOST_BYTES = 1 << 20


class OpenRows:
    """Writes arrays down, those first that others are made of.

    Args:
        place: gives a traced size its place among those that are given.
        weights: holds arrays that depend on no size, and knows large ones.
    """

    def __init__(self, place: Callable[[TracedSize], int], weights: TableWriter) -> None:
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
        if array.made is turned:
            return ["turn", *about, sources]
        if array.call is None:
            raise NotKept("a constant that depends on sizes is computed as any node")
        name, attributes = array.call()
        values = [row if type(row) is list else [row] for row in attributes.values()]
        if name is None or not all(isinstance(one, _PLAIN) for row in values for one in row):
            raise NotKept(f"no row holds {name} with {attributes}")
        _check_alike(array, named(name), attributes)
        return ["ahead", *about, sources, name, attributes]

    def _size(self, size: Any) -> Any:
        return [self._place(size)] if type(size) is TracedSize else int(size)

    def _source(self, source: Any, held: Any) -> Any:
        """A row, a large array's name, or where an array is in the entry."""
        if isinstance(source, OpenArray):
            return self.add(source)
        if not isinstance(source, np.ndarray):
            raise NotKept("a source is no array")
        if isinstance(held, Original) and (name := self._weights.array(held)) is not None:
            if held.steps:
                raise NotKept("a constant that depends on sizes is made of a large array's view")
            return name
        if source.nbytes > MOST_BYTES or source.dtype.hasobject:
            raise NotKept("a constant that depends on sizes is made of a large array")
        memory = np.ascontiguousarray(source).reshape(-1).view(np.uint8)
        return [source.dtype.str, source.shape, self._weights.keep(memory)]


def _check_alike(
    array: OpenArray, compute: Callable[..., Array], attributes: Mapping[str, Any]
) -> None:
    """See that a row's function gives what an array is made by, where that is another one.

    Raises:
        NotKept: it does not, for the sizes at hand.
    """
    if getattr(array.made, "func", None) is compute:
        return
    samples = [one.sample if isinstance(one, OpenArray) else one for one in array.sources]
    try:
        with np.errstate(all="ignore"):
            found = compute(attributes.get, *samples)
    except (TypeError, ValueError) as why:
        raise NotKept(f"no row holds a constant that depends on sizes: {why}") from why
    if found.dtype != array.dtype or found.tobytes() != array.sample.tobytes():
        raise NotKept("a constant that depends on sizes is computed otherwise than a row says")
