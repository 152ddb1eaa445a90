"""The memory of a graph's constants: a plan looks at few of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING

from ptensor.buffer import TensorStorage
from ptensor.layout import Layout

if TYPE_CHECKING:
    from vtensor.language.graph import Graph


class Stored(Mapping[str, TensorStorage]):
    """Makes each storage when somebody asks for it: plans for other sizes are made often, and what
    each keeps is looked through by Python's garbage collection.
    """

    def __init__(self, graph: Graph, names: Iterable[str]) -> None:
        self._values, self._constants = graph.values, graph.constants
        self._names = dict.fromkeys(names)
        self._made: dict[str, TensorStorage] = {}

    def __getitem__(self, name: str) -> TensorStorage:
        made = self._made.get(name)
        if made is None and name in self._names:
            value, read = self._values[name], partial(self._constants.__getitem__, name)
            made = TensorStorage.deferred(read, value, Layout.plain(value.dims))
            made = self._made.setdefault(name, made)  # of two threads, both have the first one's
        if made is None:
            raise KeyError(name)
        return made

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


def stored(graph: Graph, names: Iterable[str]) -> Mapping[str, TensorStorage]:
    """The memory of constants by name, each looked at when it is first read."""
    return MappingProxyType(Stored(graph, names))
