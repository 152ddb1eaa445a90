"""Memory of a graph's constants, made when it is first used, since a plan reads few of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING

from ptensor.buffer import TensorStorage
from ptensor.layout import Layout

if TYPE_CHECKING:
    from vtensor.language.graph import Graph


class _DeferredStorages(Mapping[str, TensorStorage]):
    """The storages (memory objects) of constants, by name. Each is made at its first use.

    Plans for new sizes are made often, and every storage would be one more object for Python's
    garbage collector.
    """

    def __init__(self, graph: Graph, names: Iterable[str]) -> None:
        self._values, self._constants = graph.values, graph.constants
        self._names = dict.fromkeys(names)
        self._storages: dict[str, TensorStorage] = {}

    def __getitem__(self, name: str) -> TensorStorage:
        storage = self._storages.get(name)
        if storage is None and name in self._names:
            value, read = self._values[name], partial(self._constants.__getitem__, name)
            storage = TensorStorage.deferred(read, value, Layout.plain(value.dims))
            storage = self._storages.setdefault(name, storage)  # two threads get the same one
        if storage is None:
            raise KeyError(name)
        return storage

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


def stored(graph: Graph, names: Iterable[str]) -> Mapping[str, TensorStorage]:
    """Return the storages of constants, by name.

    A storage reads its array at the first use of the values.

    Args:
        names: the names of the constants.
    """
    return MappingProxyType(_DeferredStorages(graph, names))
