"""The packing table of a plan, as data of a cache entry.

For a constant made of a large array of the model, the entry has the name of that array and the
place, on a trace, of the native step that packs it. For every other constant the entry has the
packed bytes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from libdesc.native_trace import (
    ConstantReader,
    ConstantWriter,
    NativeTrace,
    build_of,
    native_module,
)
from optimizer.constants.computed import Made, cut, in_type, multiplied, times
from optimizer.constants.originals import Original
from ptensor.buffer import Buffer, TensorStorage
from ptensor.layout import Layout
from resolver.values import Value
from vtensor.language.dtype import numpy_dtype
from vtensor.language.records import replace
from vtensor.language.symbolic.rows import Rows
from vtensor.language.symbolic.trace import NotSaved
from vtensor.runtime.execution.executor import Executor
from vtensor.runtime.recording.packer import Packer
from vtensor.runtime.recording.packing_table import (
    SOURCE,
    TARGET,
    ConstantRow,
    Data,
    PackingStep,
    SavedStep,
)
from vtensor.runtime.recording.weights import Packed, PlanWeights, aligned

if TYPE_CHECKING:
    from types import ModuleType

    from vtensor.frontends.files.fingerprint import ModelFingerprint
    from vtensor.runtime.recording.workspace import Workspace

Array = np.ndarray[Any, Any]

#: The access that a packing step must have to its two slots that are no scratch.
_ACCESS: Mapping[str | int, str] = {SOURCE: "read", TARGET: "write"}

#: The element types to which constants of an entry may be converted when they are read.
CONVERTED = ("bf16",)


class TableWriter:
    """A writer of a plan's constants to an entry.

    Args:
        weights: the plan's constants.
        large: names of the model's deferred arrays, by the id of their ``Original``.

    Attributes:
        blob: the bytes of small weights so far; the data of constants refers to them by byte
            offset.
        modules: the names of the native modules whose functions pack constants.
    """

    def __init__(self, weights: PlanWeights, large: Mapping[int, str]) -> None:
        self._weights, self._names = weights, large
        self.blob, self.modules = bytearray(), set[str]()
        self._packing: dict[tuple[int, bool], list[tuple[Data, SavedStep]]] = {}

    def data(self, constants: Sequence[TensorStorage]) -> Data:
        """Return the packing table as JSON data, and with it the traces of its packing steps.

        Args:
            constants: the storages of constants, in the order of the plan's regions.

        Raises:
            NotSaved: no entry can hold the table.
        """
        rows = self._weights.rows
        if not rows.keys() >= {*constants}:
            raise NotSaved("a constant has no row")
        table = [self._row(rows[constant], constant) for constant in constants]
        packing = list[tuple[bool, Data]]()
        for (_, is_large), steps in self._packing.items():
            calls = steps[0][1].calls
            if isinstance(calls, NativeTrace):
                writer = ConstantWriter(calls)
                calls = writer.rows(calls.rows().pruned({step.place for _, step in steps}))
                self.modules |= writer.modules
            for row, step in steps:
                row["step"] = len(packing), step.place, step.slots
            packing.append((is_large, calls))
        return {"table": table, "packing": packing}

    def save_bytes(self, memory: Any) -> int:
        """Append the bytes of ``memory`` to ``blob``, aligned to 8, and return their offset."""
        self.blob += bytes(-len(self.blob) % 8)
        begin = len(self.blob)
        self.blob += memory.data if isinstance(memory, np.ndarray) else memory
        return begin

    def array(self, origin: Array | Original) -> str | None:
        """Return the name of the large array of the model that ``origin`` is or derives from.

        Returns None if there is no such array.
        """
        return self._names.get(id(origin.root)) if isinstance(origin, Original) else None

    def is_large(self, name: str) -> bool:
        """Return whether a constant is made of a large array of the model."""
        return self.array(self._weights.source(name)) is not None

    def _row(self, row: ConstantRow, storage: TensorStorage) -> Data:
        """Return one row of the packing table as JSON data.

        The packing step of the row is missing; the method ``data`` adds it.

        Args:
            row: the row of the packing table.
            storage: the storage of the row's constant. Its bytes are saved if the constant is not
                made of a large array.

        Raises:
            NotSaved: no entry can hold the row.
        """
        source, step_input, value = row.source, row.step_input, row.value
        name = self.array(source)
        if name is None or not isinstance(source, Original):
            return {"bytes": (self.save_bytes(storage.memory), storage.nbytes)}
        input_form = numpy_dtype(step_input.dtype), step_input.layout, [*step_input.dims]
        dtype = _dtype(source, row.changes)
        if input_form != (dtype, Layout.plain(step_input.dims), [*value.dims]):
            raise NotSaved(f"{step_input.name} has another layout than its array")
        if _shape(source, row.changes) != tuple(step_input.dims.values()):
            raise NotSaved(f"{step_input.name} has other sizes than its array")
        data = {
            "array": (name, source.steps),
            "changes": [*map(self._change, row.changes)],
            "kind": kind_row(value),
            "factor": row.factor,
            "step": None,
        }
        if row.saved is not None:
            key = id(row.saved.calls), row.is_large
            self._packing.setdefault(key, []).append((data, row.saved))
        elif step_input is not value:
            raise NotSaved(f"no native step that was traced packs {value.name}")
        return data

    def _change(self, change: Made) -> Sequence[Any]:
        if change.factor is not None:
            factor = np.ascontiguousarray(change.factor, np.float64).reshape(-1)
            return change.factor.shape, self.save_bytes(factor.view(np.uint8))
        if change.to:
            return [change.to]
        if change.taken is None:
            raise NotSaved("a constant is computed")
        return change.taken


class Builds:
    """The native modules of an entry, in the builds with which the entry was made.

    Args:
        data: a description of the build of each module, by name.
    """

    def __init__(self, data: Data) -> None:
        self._data = data
        self._modules: dict[str, ModuleType] = {}

    def module(self, name: str) -> ModuleType:
        """Return the native module of a name.

        Raises:
            ValueError: no native module has the name, or this process has another build of it.
        """
        if name not in self._modules:
            self._modules[name] = module = native_module(name)
            if build_of(module) != self._data[name]:
                raise ValueError(f"{name} is another build")
        return self._modules[name]


class SavedTable:
    """The constants of a plan in a cache entry.

    Args:
        data, blob: the packing table as data, and the bytes of small weights.
        builds: the native modules of the entry.
        fingerprint: the fingerprint of the model.
        workspace: the arena, weights and executors that plans share.

    Attributes:
        memory: the memory of constants that this plan packs; empty before ``packed_regions``.
    """

    def __init__(
        self,
        data: Data,
        blob: Array,
        builds: Builds,
        fingerprint: ModelFingerprint,
        workspace: Workspace,
    ) -> None:
        self._data, self._blob, self._builds = data, blob, builds
        self._fingerprint, self._workspace = fingerprint, workspace
        self._have: list[Packed] = []
        self.memory: Array = np.empty(0, np.uint8)

    def packed_regions(self) -> list[Array]:
        """Return the packed memory of each constant, in the order of the table.

        A constant that another plan has packed already is shared. Any other is packed now, unless
        its array can be read in place.

        Raises:
            Exception: of any kind, if the table is damaged or does not fit the model.
        """
        from vtensor.runtime import _replay

        data, shared = self._data, self._workspace.weights.packed
        check_bytes(data["table"], self._blob.nbytes)
        rows = [row_of(row, self._blob, self._fingerprint.large) for row in data["table"]]
        have = [shared.get(row.key) if isinstance(row, ConstantRow) else None for row in rows]
        sizes = [
            0 if packed is not None else aligned(row.nbytes)
            for row, packed in zip(rows, have, strict=True)
        ]
        if sum(sizes) > self._workspace.max_bytes:
            raise ValueError("the weights exceed the budget")
        self.memory = memory = _replay.Arena(sum(sizes)).memory()
        natives = [self._natives(*group) for group in data["packing"]]
        packer = Packer(_replay.Aside() if _replay.threads() > 1 else None, checks_finite=True)
        regions, begin, new = list[Array](), 0, list[Packed]()
        try:
            for row, packed, size, saved in zip(rows, have, sizes, data["table"], strict=True):
                room = memory[begin : begin + row.nbytes]
                begin += size
                if not isinstance(row, ConstantRow):
                    room[:] = row
                elif row.in_place:
                    room = row.storage().memory
                elif packed is not None:
                    room = packed.storage.memory
                    self._have.append(packed)
                else:
                    step = self._step(row, natives, saved["step"])
                    new.append(Packed(packer.pack(row, step, Buffer(room)), row, memory))
                regions.append(room)
            packer.wait()
        finally:
            packer.close()
        self._have += [
            shared.setdefault(packed_row.row.key, packed_row)
            for packed_row in new
            if packed_row.row is not None
        ]
        return regions

    def _natives(self, is_large: bool, calls: Data) -> list[Any]:
        """Return the native objects of a group of packing steps, in the order of their trace.

        Packing steps of large constants, which all threads pack, are one kind of group; those of
        other constants are another.

        Args:
            is_large: True makes native steps for all threads; False makes them for one thread.
            calls: the rows of the group's trace, as data.

        Raises:
            ValueError: the rows are damaged, or native code refuses one.
        """
        rows = Rows.of(calls, ConstantReader(self._builds.module))
        with nullcontext() if is_large else Executor.alone():
            natives = rows.run([])
        if natives is None:
            raise ValueError("native code refuses a packing step")
        return natives

    def _step(
        self, row: ConstantRow, natives: Sequence[Sequence[Any]], saved: Any
    ) -> PackingStep | None:
        """Return the packing step of a row and set ``row.saved`` to it.

        Returns None, and sets nothing, if the row has no packing step.

        Args:
            row: the row.
            natives: for each group of packing steps, its native objects in the order of their
                trace.
            saved: (index of the step's group, place of the step on the group's trace, slots of the
                step); None for no step.

        Raises:
            Exception: of any kind, if the native object is no such packing step.
        """
        from vtensor.runtime import _replay

        if saved is None:
            return None
        (group, place, slots), name = saved, row.value.name
        is_large, calls = self._data["packing"][group]
        native, scratch = (
            natives[group][place],
            [operand for operand in slots if isinstance(operand, int)],
        )
        if sorted(operand for operand in slots if isinstance(operand, str)) != [SOURCE, TARGET]:
            raise ValueError(f"{name} is packed from and to something else")
        access = [slot[2] for slot in _replay.describe(native)["slots"]]
        if is_large is not row.is_large or access != [
            _ACCESS.get(operand, "scratch") for operand in slots
        ]:
            raise ValueError(f"{name} is packed by another step")
        if sum(scratch) > self._workspace.max_bytes:
            raise ValueError(f"{name} is packed with more scratch than there may be")
        row.saved = SavedStep(calls, place, slots)
        return PackingStep(native, slots, name)


def row_of(data: Data, blob: Array, large: Mapping[str, Original]) -> ConstantRow | Array:
    """Return the row of a constant that is made of a large array of the model.

    For any other constant, return its packed bytes.

    Args:
        data: the row, as ``TableWriter`` writes it.
        blob: the bytes of small weights.
        large: the model's deferred arrays, by name.

    Raises:
        Exception: of any kind, if the data is no row of this model.
    """
    if "bytes" in data:
        return taken_of(blob, *data["bytes"])
    name, steps = data["array"]
    source, changes = (
        large[name].derived(steps),
        [_change_of(blob, change) for change in data["changes"]],
    )
    value = Value(name, *kind_of(*data["kind"]), True)
    declared, step_input = Layout.plain(value.dims), value
    if data["step"] is not None:
        step_input = replace(value, layout=declared)
    elif value.layout != declared:
        raise ValueError(f"no step packs {name}")
    is_read = numpy_dtype(value.dtype), tuple(value.dims.values())
    if is_read != (_dtype(source, changes), _shape(source, changes)):
        raise ValueError(f"{name} has another type or other sizes")
    in_place = data["step"] is None and not changes
    in_place = in_place and all(kind == "shape" for kind, _ in source.steps)
    return ConstantRow(source, changes, step_input, value, data["factor"] is True, in_place)


def check_bytes(table: Sequence[Data], end: int) -> None:
    """Check the byte ranges to which the table of an entry refers in the small weights.

    No two ranges may overlap. A range holds a constant, or a factor by which a constant is
    multiplied.

    Args:
        table: the rows of the packing table, as data.
        end: the number of bytes of small weights.

    Raises:
        ValueError: two ranges overlap, or a range is not inside the small weights.
    """
    parts = [tuple(row["bytes"]) for row in table if "bytes" in row]
    changes = [change for row in table if "bytes" not in row for change in row["changes"]]
    parts += [(change[1], 8 * prod(change[0])) for change in changes if len(change) == 2]
    last = 0
    for begin, nbytes in sorted(parts):
        if not last <= begin <= begin + nbytes <= end:
            raise ValueError("two constants have the same bytes")
        last = begin + nbytes


def taken_of(memory: Array, begin: int, nbytes: int) -> Array:
    """Return ``nbytes`` bytes of ``memory``, from byte ``begin`` on.

    Raises:
        ValueError: the bytes are not all inside the memory.
    """
    if not 0 <= begin <= begin + nbytes <= memory.nbytes:
        raise ValueError(f"no {nbytes} bytes from {begin} on")
    return memory[begin : begin + nbytes]


def kind_row(of: Value | TensorStorage) -> list[Any]:
    """Return the element type, dims and layout of a value or storage as a list of JSON data."""
    dims = of.dims if isinstance(of, Value) else of.extents
    return [of.dtype, [*dims.items()], str(of.layout)]


def kind_of(dtype: str, dims: list[Any], layout: str) -> tuple[str, dict[str, int], Layout]:
    """Return an element type, dims and layout; the arguments are the items that ``kind_row``
    returns.
    """
    return dtype, {str(dim): int(size) for dim, size in dims}, Layout(layout)


def _shape(source: Original, changes: Sequence[Made]) -> tuple[int, ...]:
    """Return the shape that an array has after all cuts among ``changes``.

    A cut takes the part of an array between two indices along one axis.

    Raises:
        ValueError: a cut is not inside the array.
    """
    shape = [*source.shape]
    for axis, begin, end in (change.taken for change in changes if change.taken is not None):
        if not (0 <= axis < len(shape) and 0 <= begin < end <= shape[axis]):
            raise ValueError("an array has no such part")
        shape[axis] = end - begin
    return tuple(shape)


def _dtype(source: Original, changes: Sequence[Made]) -> np.dtype[Any]:
    """Return the element type that an array has after ``changes``."""
    types = [change.to for change in changes if change.to]
    return numpy_dtype(types[-1]) if types else source.dtype


def _change_of(blob: Array, change: Sequence[Any]) -> Made:
    """Return the function that changes an array: a conversion to another element type, a
    multiplication by a factor, or a cut along an axis.

    Args:
        blob: the bytes of small weights, which hold the factors.
        change: the function as data of an entry: (element type) of a conversion, (shape, byte
            offset in ``blob``) of the factor, or (axis, begin, end) of the cut.

    Raises:
        ValueError: constants are not converted to such an element type.
    """
    if len(change) == 1:
        if change[0] not in CONVERTED:
            raise ValueError(f"no constant is converted to {change[0]}")
        return in_type(change[0])
    if len(change) == 2:
        sizes, offset = change
        factor = taken_of(blob, offset, 8 * prod(sizes)).view(np.float64).reshape(sizes)
        return Made(lambda array: multiplied(array, factor), times(factor), factor)
    axis, begin, end = map(int, change)
    taken = axis, begin, end
    return Made(lambda array: cut(array, taken), taken, taken=taken)
