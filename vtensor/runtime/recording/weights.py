"""The packed constants of a session. Each is stored once; those of a plan are stored in the order
in which its steps read them.

Plans that need a constant in the same layout share its memory. The memory is freed with the last of
these plans.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary, WeakValueDictionary

import numpy as np

from libdesc.native_trace import Foreign, NativeTrace
from optimizer.constants.computed import changes, origin
from optimizer.constants.originals import Original
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

#: The most bytes of a constant that is copied next to packed ones. Larger constants are read in
#: place. Those that a pass computes are copied all the same: otherwise each plan would compute them
#: for itself.
SMALL_BYTES = 1 << 16


@dataclass(frozen=True, eq=False)
class Packed:
    """A constant in the layout that kernels read.

    An object that ``Weights.hold`` returns is an exception: it stands for the memory of all
    constants of a plan.

    Attributes:
        storage: the storage of the constant; from ``Weights.hold``, a storage of all bytes of
            ``memory``.
        row: the constant's row of the packing table, which keeps the source array alive and so its
            address; from ``Weights.hold``, None.
        memory: the memory of all constants that were packed together with this one.
    """

    storage: TensorStorage
    row: ConstantRow | None
    memory: Array

    @property
    def nbytes(self) -> int:
        """The bytes of ``memory``."""
        return self.memory.nbytes


class Weights:
    """The packed constants of a session; each is freed with the last plan that uses it.

    Attributes:
        packed: the constants by ``ConstantRow.key``; and the objects from ``hold`` by the ``id`` of
            their memory.
    """

    def __init__(self) -> None:
        self.packed: WeakValueDictionary[Hashable, Packed] = WeakValueDictionary()

    @property
    def nbytes(self) -> int:
        """The bytes of all memory in which a plan has packed constants."""
        have = [
            packed for reference in self.packed.valuerefs() if (packed := reference()) is not None
        ]
        return sum({id(packed.memory): packed.memory.nbytes for packed in have}.values())

    def hold(self, memory: Array) -> Packed:
        """Return an object that stands for the memory of a plan's constants. As long as it lives,
        ``nbytes`` counts this memory.
        """
        whole = TensorStorage("u8", {"N": memory.nbytes}, Layout.plain("N"), Buffer(memory), True)
        self.packed[id(memory)] = packed = Packed(whole, None, memory)
        return packed


class PlanWeights:
    """The constants of one plan: its packing table.

    Args:
        graph: the lowered graph, which says which constants are read, in which order and layouts.
        constants: the arrays of constants, by name.
        packed: the packed constants of all plans of the session, by ``ConstantRow.key``. New ones
            are added.
        room_of: takes a number of bytes and returns new memory for the constants that this plan
            packs.

    Attributes:
        nbytes: the bytes of the packed constants that the plan reads, including those that other
            plans packed.
        factors: the names of the constants that are used only as factors of products.
        calls: the trace of the native calls of packing steps.
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
        #: Rows of constants that are read in place, by storage, for as long as a step uses the
        #: storage.
        self._in_place: WeakKeyDictionary[TensorStorage, ConstantRow] = WeakKeyDictionary()
        self._offsets: dict[str, int] = {}
        room = 0
        #: By ``id`` of a source array, the number of its constants that are not packed yet.
        self._unpacked: Counter[int] = Counter()
        for value in self._read(graph):
            row = self.row(value)
            if (shared := packed.get(row.key)) is not None:
                self._have[value.name] = shared
            elif value.name not in self._offsets:
                self._offsets[value.name] = room
                self._unpacked[id(row.source)] += 1
                room += aligned(value.nbytes)
        sizes = {
            id(shared_constant): shared_constant.storage.nbytes
            for shared_constant in self._have.values()
        }
        self.nbytes: int = room + sum(map(aligned, sizes.values()))
        self._memory = room_of(room)

    def _read(self, graph: LoweredGraph) -> Iterator[Value]:
        """Yield the constants that are stored in packed memory, one after another in the order in
        which nodes read them.
        """
        for node in graph.operators:
            for value in (graph.values[name] for name in node.inputs):
                if not value.constant or self._root(value.name) not in self._constants:
                    continue
                packed = value.name in self._sources or value.nbytes <= SMALL_BYTES
                if packed or origin(self._constants, value.name)[1] is not None:
                    yield value

    def _root(self, name: str) -> str:
        """Return the name of the constant from which Transforms make the constant ``name``;
        ``name`` itself if none makes it.
        """
        while name in self._sources:
            name = self._sources[name]
        return name

    def source(self, name: str) -> Array | Original:
        """Return the source array of a constant, or the ``Original`` that holds it. Passes and
        Transforms make the constant from it.
        """
        return origin(self._constants, self._root(name))[0]

    def row(self, value: Value) -> ConstantRow:
        """Return a constant's row of the packing table, without a packing step."""
        root, read_name = self._root(value.name), self._sources.get(value.name)
        return ConstantRow(
            self.source(root),
            changes(self._constants, root),
            value if read_name is None else self._values[read_name],
            value,
            value.name in self.factors,
        )

    @property
    def rows(self) -> dict[TensorStorage, ConstantRow]:
        """The rows of the packing table, by the storage of their constants."""
        packed = {have.storage: have.row for have in self._have.values() if have.row is not None}
        return packed | dict(self._in_place)

    def find(self, value: Value) -> TensorStorage | None:
        """Return the storage of a constant that is packed or being packed; None if neither."""
        return self._have[value.name].storage if value.name in self._have else None

    def unpacked(self, value: Value, packer: Packer) -> TensorStorage:
        """Return the storage of a constant for which there is no packing step.

        If the constant is small or a pass computes it, it is copied to packed memory. Otherwise it
        is read in place.
        """
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
        input_storage: TensorStorage | None = None,
    ) -> TensorStorage:
        """Pack a constant and return its storage.

        A constant that an operator reads is packed next to the others; one that only a further
        Transform reads gets memory of its own.

        Args:
            row: the constant's row of the packing table.
            step: packs the constant; None stores the source array with the changes of ``row``.
            packer: executes the step.
            input_storage: the input of the step; None if the array of ``row`` is to be read.

        Raises:
            VTensorError, ValueError: an error of ``Packer.wait``.
        """
        value, native = row.value, None if step is None else step.native
        if step is not None and type(native) is Foreign and isinstance(native.where, int):
            row.saved = SavedStep(self.calls, native.where, step.slots)
        begin = self._offsets.get(value.name)
        if begin is None:
            return packer.pack(row, step, Buffer.allocate(value.nbytes), input_storage)
        room = Buffer(self._memory[begin : begin + value.nbytes])
        storage = packer.pack(row, step, room, input_storage, partial(self._share, row))
        if value.name not in self._have:  # for this plan alone, until it is packed
            self._have[value.name] = Packed(storage, row, self._memory)
        return storage

    def _share(self, row: ConstantRow, storage: TensorStorage, lost: bool) -> None:
        """Let other plans use a packed constant, and release its source array if no constant still
        has to be packed from it.

        Args:
            row, storage: the constant's row of the packing table, and its storage.
            lost: True if subnormal elements were set to zero while it was packed.
        """
        packed, source = Packed(storage, row, self._memory), row.source
        self._have[row.value.name] = self._packed[row.key] = packed
        self._unpacked[id(source)] -= 1
        if not isinstance(source, Original) or source.nbytes <= SMALL_BYTES:
            return
        if not row.changes and not lost and row.step_input is not row.value:
            self._recover(source, row, storage)
        if not self._unpacked[id(source)]:
            source.let_go()

    def _recover(self, source: Original, row: ConstantRow, storage: TensorStorage) -> None:
        """Note that a source array can be recovered from a packed constant, if the constant has the
        same elements in another order.

        The source array can then be released from memory.

        Args:
            source: the source array.
            row, storage: the packed constant.
        """
        step_input, value = row.step_input, row.value
        stored, dims = of_type(step_input.dtype), list(step_input.dims)
        moved = all(
            operand.layout.stored(operand.dtype) == stored for operand in (step_input, value)
        )
        if step_input.name in self._sources or not moved or stored.numpy != source.dtype:
            return
        if source.shape != tuple(step_input.dims.values()):
            return
        layout, sizes = value.layout, dict(step_input.dims)

        def recovered() -> Array:
            array = contiguous(unpack(storage.data(), layout, dims, sizes))
            array = array.view()  # the flag below must not be set on the library's own array
            array.flags.writeable = False
            return array

        source.recovered_by(recovered)


def factors_of(graph: LoweredGraph) -> frozenset[str]:
    """Return the names of constants that are factors of sums of products and nothing else.

    Subnormal elements of such constants may be set to zero.
    """
    from vtensor.language.operators import info_of  # a cached plan has no graph
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
    """Return a number of bytes rounded up to the alignment of constants."""
    return -(-nbytes // ALIGNMENT) * ALIGNMENT
