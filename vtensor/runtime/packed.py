"""Constants of a plan as libraries want them: each once, side by side in the order in which a run
reads them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary, WeakValueDictionary

import numpy as np

from optimizer.computed import changes, origin
from optimizer.originals import Original, place
from ptensor.buffer import ALIGNMENT, Buffer, TensorStorage
from ptensor.encoding import of_type
from ptensor.layout import Layout
from ptensor.pages import contiguous
from ptensor.transform import pack, unpack
from resolver.lowered import LoweredGraph, OpNode, Value
from vtensor.frontends.open_file import Stretch
from vtensor.language.tensor import VTensor
from vtensor.runtime.unread import Unread
from vtensor.runtime.weights import Packed

if TYPE_CHECKING:
    from collections.abc import Hashable

Array = np.ndarray[Any, Any]

#: Constants up to this size lie beside those that are packed; larger ones stay where they are, but
#: for what a pass computes: each plan would compute it for itself.
SMALL = 1 << 16


class PackedWeights:
    """The packed constants of one plan.

    Args:
        graph: says which constants are read, in which order, in which layouts.
        constants: arrays by name.
        packed: those of other plans; new ones are added.
        room_of: makes memory for so many bytes of those that are packed here.

    Attributes:
        nbytes: what it reads of them, whichever plan has packed it.
    """

    def __init__(
        self,
        graph: LoweredGraph,
        constants: Mapping[str, Array],
        packed: WeakValueDictionary[Hashable, Packed],
        room_of: Callable[[int], Array],
    ) -> None:
        self._constants = constants
        self._packed = packed
        self._values = graph.values
        self._sources = {node.output: node.input for node in graph.ahead()}
        self._have: dict[str, Packed] = {}
        #: Names of others, by their memory, as long as a step has it.
        self._as_they_lie: WeakKeyDictionary[TensorStorage, str] = WeakKeyDictionary()
        self._offsets: dict[str, int] = {}
        room = 0
        #: How many are still to be packed of what holds an array, by its id.
        self._left: Counter[int] = Counter()
        for value in self._read(graph):
            if (found := packed.get(self._key(value))) is not None:
                self._have[value.name] = found
            elif value.name not in self._offsets:
                self._offsets[value.name] = room
                self._left[id(self._source(value.name)[0])] += 1
                room += _aligned(value.nbytes)
        shared = {id(one): one.storage.nbytes for one in self._have.values()}
        self.nbytes: int = room + sum(map(_aligned, shared.values()))
        self._memory = room_of(room)

    def _read(self, graph: LoweredGraph) -> Iterator[Value]:
        """The constants that are packed side by side, as operators read them."""
        for node in graph.nodes:
            if isinstance(node, OpNode):
                for value in (graph.values[name] for name in node.inputs):
                    if not value.constant or self._root(value.name) not in self._constants:
                        continue
                    made = value.name in self._sources or value.nbytes <= SMALL
                    if made or self._source(value.name)[1] is not None:
                        yield value

    def _root(self, name: str) -> str:
        """The constant that one is transformed from."""
        while name in self._sources:
            name = self._sources[name]
        return name

    def _source(self, name: str) -> tuple[Array | Original, Hashable]:
        """The array that a constant is made from, and what a pass does with it before."""
        return origin(self._constants, self._root(name))

    def _key(self, value: Value) -> Hashable:
        """Which constant, what its axes are, and how it lies."""
        source, change = self._source(value.name)
        which = id(source) if isinstance(source, Original) else place(source)
        return which, tuple(value.dims), change, value.layout

    @property
    def names(self) -> dict[TensorStorage, str]:
        """The names of those that are packed or read as they lie, by their memory."""
        return {one.storage: name for name, one in self._have.items()} | dict(self._as_they_lie)

    def made_of(self, name: str) -> tuple[str, Array | Original]:
        """The constant that one is transformed from, and the array that this is made of."""
        return self._root(name), self._source(name)[0]

    def find(self, value: Value) -> TensorStorage | None:
        """A constant that is packed; None where it is still to be packed, or not to be."""
        if value.name in self._have:
            return self._have[value.name].storage
        if value.name in self._sources or value.name not in self._offsets:
            return None
        storage = TensorStorage(value.dtype, value.dims, value.layout, self.room(value), True)
        array = pack(self._constants[value.name], list(value.dims), value.layout)
        storage.data()[...] = array
        self.keep(value, storage)
        return storage

    def unread(self, value: Value) -> Unread | None:
        """Where a constant lies in a file, if nobody has read it and it lies here as there, perhaps
        a part of it, or multiplied.
        """
        if value.name in self._have or value.name in self._offsets:
            return None
        source, _ = self._source(value.name)
        reader = source.reader if isinstance(source, Original) else None
        plain = Layout.plain(value.dims)
        as_read = value.layout == plain and plain.stored(value.dtype) == of_type(value.dtype)
        if not isinstance(reader, Stretch) or not as_read:
            return None
        made = changes(self._constants, self._root(value.name))
        return Unread.of(reader, source.shape, source.dtype, made, tuple(value.dims.values()))

    def lies(self, value: Value) -> TensorStorage:
        """A constant that is read as it lies."""
        array, tensor = self._constants[value.name], VTensor(value.dtype, value.dims)
        storage = TensorStorage.of_array(array, tensor, value.layout, constant=True)
        self._as_they_lie[storage] = value.name
        return storage

    def room(self, value: Value) -> Buffer:
        """Where a constant is to be packed: beside the others if an operator reads it."""
        begin = self._offsets.get(value.name)
        if begin is None:
            return Buffer.allocate(value.nbytes)
        return Buffer(self._memory[begin : begin + value.nbytes])

    def promise(self, value: Value, storage: TensorStorage) -> None:
        """What is still being packed, for this plan alone; ``keep`` follows."""
        if value.name in self._offsets:
            source, _ = self._source(value.name)
            self._have[value.name] = Packed(storage, source, self._memory)

    def keep(self, value: Value, storage: TensorStorage, cleared: bool = False) -> None:
        """Let other plans have what is packed here; ``cleared``: its elements are others."""
        if value.name in self._offsets:
            source, change = self._source(value.name)
            packed = Packed(storage, source, self._memory)
            self._have[value.name] = self._packed[self._key(value)] = packed
            self._left[id(source)] -= 1
            if not isinstance(source, Original) or source.nbytes <= SMALL:
                return
            if change is None and not cleared:
                self._recovered(source, value, storage)
            if not self._left[id(source)]:
                source.let_go()

    def _recovered(self, source: Original, value: Value, storage: TensorStorage) -> None:
        """A file's array is recovered from what is packed, if that has its elements as they are."""
        given = self._values.get(self._sources.get(value.name, ""))
        if given is None or given.name in self._sources:
            return
        own, dims = of_type(given.dtype), list(given.dims)
        moved = all(one.layout.stored(one.dtype) == own for one in (given, value))
        if not moved or source.shape != tuple(given.dims.values()) or own.numpy != source.dtype:
            return
        layout, sizes = value.layout, dict(given.dims)

        def recovered() -> Array:
            found = contiguous(unpack(storage.data(), layout, dims, sizes))
            found = found.view()  # the library's own memory stays as it is
            found.flags.writeable = False
            return found

        source.recovered_by(recovered)


def _aligned(nbytes: int) -> int:
    """With what lies between it and the next constant."""
    return -(-nbytes // ALIGNMENT) * ALIGNMENT
