"""The packed constants of a session: each once, side by side in the order in which they are read.

A constant that one plan has packed is taken over by another that wants the same layout. It goes
with the last plan that has it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary, WeakValueDictionary

import numpy as np

from libdesc.native_trace import Foreign, NativeTrace
from optimizer.computed import changes, origin
from optimizer.originals import Original
from ptensor.buffer import ALIGNMENT, Buffer, TensorStorage
from ptensor.encoding import of_type
from ptensor.layout import Layout
from ptensor.pages import contiguous
from ptensor.transform import unpack
from resolver.values import Value
from vtensor.language.records import dataclass
from vtensor.runtime.recording.packer import Packer
from vtensor.runtime.recording.packing_table import (
    ConstantRow,
    PackingStep,
    SavedStep,
)

if TYPE_CHECKING:
    from resolver.lowered import LoweredGraph

Array = np.ndarray[Any, Any]

#: Constants up to this size lie beside those that are packed; larger ones stay where they are, but
#: for what a pass computes: each plan would compute it for itself.
SMALL = 1 << 16


@dataclass(frozen=True, eq=False)
class Packed:
    """A constant in a layout.

    Attributes:
        storage: its memory.
        row: how it was made; while this lives, no other array has its source's address.
        memory: what it lies in, beside others.
    """

    storage: TensorStorage
    row: ConstantRow | None
    memory: Array

    @property
    def nbytes(self) -> int:
        """The size of all memory of which it is a part."""
        return self.memory.nbytes


class Weights:
    """The packed constants of a session; each goes with the last plan that has it.

    Attributes:
        packed: constants by ``ConstantRow.key``, and the memory of plans by its id.
    """

    def __init__(self) -> None:
        self.packed: WeakValueDictionary[Hashable, Packed] = WeakValueDictionary()

    @property
    def nbytes(self) -> int:
        """The size of all memory in which a plan has something."""
        have = [packed for one in self.packed.valuerefs() if (packed := one()) is not None]
        return sum({id(one.memory): one.memory.nbytes for one in have}.values())

    def hold(self, memory: Array) -> Packed:
        """Return memory with constants of a plan, which is counted as long as this is kept."""
        whole = TensorStorage("u8", {"N": memory.nbytes}, Layout.plain("N"), Buffer(memory), True)
        self.packed[id(memory)] = packed = Packed(whole, None, memory)
        return packed


class PlanWeights:
    """The constants of one plan: its packing table.

    Args:
        graph: says which constants are read, in which order, in which layouts.
        constants: arrays by name.
        packed: those of other plans; new ones are added.
        room_of: makes memory for so many bytes of those that are packed here.

    Attributes:
        nbytes: what it reads of them, whichever plan has packed it.
        factors: names of the constants that are factors of products, and nothing else.
        calls: notes the native calls of packing steps.
    """

    def __init__(
        self,
        graph: LoweredGraph,
        constants: Mapping[str, Array],
        packed: WeakValueDictionary[Hashable, Packed],
        room_of: Callable[[int], Array],
    ) -> None:
        self._constants, self._packed, self._values = constants, packed, graph.values
        self._sources = {node.output: node.input for node in graph.ahead()}
        self.factors, self.calls = factors_of(graph), NativeTrace()
        self._have: dict[str, Packed] = {}
        #: Rows of arrays that are read in place, by their memory, as long as a step has it.
        self._in_place: WeakKeyDictionary[TensorStorage, ConstantRow] = WeakKeyDictionary()
        self._offsets: dict[str, int] = {}
        room = 0
        #: How many are still to be packed of what holds an array, by its id.
        self._left: Counter[int] = Counter()
        for value in self._read(graph):
            row = self.row(value)
            if (found := packed.get(row.key)) is not None:
                self._have[value.name] = found
            elif value.name not in self._offsets:
                self._offsets[value.name] = room
                self._left[id(row.source)] += 1
                room += aligned(value.nbytes)
        shared = {id(one): one.storage.nbytes for one in self._have.values()}
        self.nbytes: int = room + sum(map(aligned, shared.values()))
        self._memory = room_of(room)

    def _read(self, graph: LoweredGraph) -> Iterator[Value]:
        """Yield the constants that are packed side by side, as operators read them."""
        for node in graph.operators:
            for value in (graph.values[name] for name in node.inputs):
                if not value.constant or self._root(value.name) not in self._constants:
                    continue
                packed = value.name in self._sources or value.nbytes <= SMALL
                if packed or origin(self._constants, value.name)[1] is not None:
                    yield value

    def _root(self, name: str) -> str:
        """Return the constant that another one is transformed from, or is."""
        while name in self._sources:
            name = self._sources[name]
        return name

    def source(self, name: str) -> Array | Original:
        """Return the array that a constant is made of, or what holds it."""
        return origin(self._constants, self._root(name))[0]

    def row(self, value: Value) -> ConstantRow:
        """Return the row of a constant; what packs it is still to be found."""
        root, given = self._root(value.name), self._sources.get(value.name)
        return ConstantRow(
            self.source(root),
            changes(self._constants, root),
            value if given is None else self._values[given],
            value,
            value.name in self.factors,
        )

    @property
    def rows(self) -> dict[TensorStorage, ConstantRow]:
        """The packing table, by the memory of constants."""
        packed = {one.storage: one.row for one in self._have.values() if one.row is not None}
        return packed | dict(self._in_place)

    def find(self, value: Value) -> TensorStorage | None:
        """Return a constant that is packed, or being packed; None if it is not."""
        return self._have[value.name].storage if value.name in self._have else None

    def given(self, value: Value, packer: Packer) -> TensorStorage:
        """Return a constant that no step packs: beside packed ones, or as it is read."""
        if (storage := self.find(value)) is not None:
            return storage
        row = self.row(value)
        if value.name in self._offsets:
            return self.pack(row, None, packer)
        row.in_place, storage = True, row.storage()
        self._in_place[storage] = row
        return storage

    def pack(
        self,
        row: ConstantRow,
        step: PackingStep | None,
        packer: Packer,
        given: TensorStorage | None = None,
    ) -> TensorStorage:
        """Pack a constant, beside the others if an operator reads it; arguments and errors as for
        ``Packer.pack``.
        """
        value, native = row.value, None if step is None else step.native
        if step is not None and type(native) is Foreign and isinstance(native.where, int):
            row.saved = SavedStep(self.calls, native.where, step.slots)
        begin = self._offsets.get(value.name)
        if begin is None:
            return packer.pack(row, step, Buffer.allocate(value.nbytes), given)
        room = Buffer(self._memory[begin : begin + value.nbytes])
        storage = packer.pack(row, step, room, given, partial(self._share, row))
        if value.name not in self._have:  # for this plan alone, until it is packed
            self._have[value.name] = Packed(storage, row, self._memory)
        return storage

    def _share(self, row: ConstantRow, storage: TensorStorage, lost: bool) -> None:
        """Let other plans have what is packed here; ``lost``: its elements are others."""
        packed, source = Packed(storage, row, self._memory), row.source
        self._have[row.value.name] = self._packed[row.key] = packed
        self._left[id(source)] -= 1
        if not isinstance(source, Original) or source.nbytes <= SMALL:
            return
        if not row.changes and not lost and row.given is not row.value:
            self._recover(source, row, storage)
        if not self._left[id(source)]:
            source.let_go()

    def _recover(self, source: Original, row: ConstantRow, storage: TensorStorage) -> None:
        """Have an array recovered from what is packed, if that has its elements as they are."""
        given, value = row.given, row.value
        own, dims = of_type(given.dtype), list(given.dims)
        moved = all(one.layout.stored(one.dtype) == own for one in (given, value))
        if given.name in self._sources or not moved or own.numpy != source.dtype:
            return
        if source.shape != tuple(given.dims.values()):
            return
        layout, sizes = value.layout, dict(given.dims)

        def recovered() -> Array:
            found = contiguous(unpack(storage.data(), layout, dims, sizes))
            found = found.view()  # the library's own memory stays as it is
            found.flags.writeable = False
            return found

        source.recovered_by(recovered)


def factors_of(graph: LoweredGraph) -> frozenset[str]:
    """Return the names of constants that are factors of sums of products, and nothing else: tiny
    numbers in them count for nothing.
    """
    from vtensor.language.operators import info_of  # a plan of the cache has no graph
    from vtensor.language.traits import Linear

    factors, others = set[str](), {*graph.outputs.values()}
    others |= {node.input for node in (*graph.transforms(), *graph.ahead())}
    for node in graph.operators:
        linear = info_of(node.op).trait(Linear)
        roles = linear.inputs if linear is not None else ()
        for name, role in zip(node.inputs, node.roles, strict=False):
            value = graph.values[name]
            is_factor = value.constant and role in roles and len(value.dims) > 1
            (factors if is_factor else others).add(name)
    return frozenset(factors - others)


def aligned(nbytes: int) -> int:
    """Return bytes with what lies between them and the next constant."""
    return -(-nbytes // ALIGNMENT) * ALIGNMENT
