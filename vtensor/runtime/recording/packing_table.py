"""The packing table of a plan: how each constant that its steps read is made.

A row names an array, what is done with it in order, and the native step that puts the result into
the layout that a kernel wants. An entry of the cache has the same rows: there a large array of the
model is its name, a native step a line of calls, and every other constant its bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from libdesc.native_trace import ConstantWriter, NativeTrace
from optimizer.computed import Made, cut, multiplied, times
from optimizer.originals import Original, place
from ptensor.buffer import TensorStorage
from ptensor.layout import Layout
from resolver.values import Value
from vtensor.language.dtype import numpy_dtype
from vtensor.language.records import dataclass, replace
from vtensor.language.trace import NotSaved

if TYPE_CHECKING:
    from ptensor.buffer import Buffer
    from vtensor.runtime.recording.weights import PlanWeights

Array = np.ndarray[Any, Any]
Data = dict[str, Any]

#: A constant of so many bytes is packed by all threads.
LARGE = 1 << 24

#: Slots of a packing step beside scratch, which is its size in bytes.
SOURCE, TARGET = "source", "target"


class PackingStep(NamedTuple):
    """What puts a constant into its layout, once.

    Attributes:
        native: the native step; None if ``run`` does it.
        slots: what the native step is given: SOURCE, TARGET, or a number of bytes of scratch.
        node: the node that errors name.
        told: the message of an error that the operands are to blame for, from the step's words.
        run: packs what it is given into memory, in Python.
    """

    native: Any
    slots: Sequence[str | int]
    node: str
    told: Callable[[str], str] = str
    run: Callable[[TensorStorage, Buffer], None] | None = None


class SavedStep(NamedTuple):
    """A native packing step as data.

    Attributes:
        calls: the trace of the native calls, or the rows of an entry as data.
        place: the place of the step among the values of these.
        slots: as for ``PackingStep``.
    """

    calls: NativeTrace | Data
    place: int
    slots: Sequence[str | int]


@dataclass(eq=False)
class ConstantRow:
    """One constant of a plan.

    Attributes:
        source: an array of this process, or the original that holds an array of the model.
        changes: what is done with the array first, in order.
        given: the result of ``changes``, as the packing step reads it.
        value: the constant as the plan's steps read it; ``given`` if no step packs it.
        factor: whether it is a factor of products and nothing else.
        in_place: whether the array itself is read; else the constant is in packed memory.
        saved: the packing step as data; None if there is none, or nobody can save it.
    """

    source: Array | Original
    changes: Sequence[Made]
    given: Value
    value: Value
    factor: bool = False
    in_place: bool = False
    saved: SavedStep | None = None

    @property
    def key(self) -> Hashable:
        """An identity: while both live, constants with equal keys have the same bytes."""
        source = self.source
        change: Hashable = None
        for one in self.changes:
            change = change, one.key
        which = id(source) if isinstance(source, Original) else place(source)
        return which, tuple(self.value.dims), change, self.value.layout

    @property
    def nbytes(self) -> int:
        """Bytes of packed memory that the constant takes."""
        return 0 if self.in_place else self.value.nbytes

    @property
    def is_large(self) -> bool:
        """Whether packing is worth all threads."""
        return self.value.nbytes >= LARGE

    @property
    def clears(self) -> bool:
        """Whether subnormals are cleared: of factors that are floats of 32 bits alone."""
        stored = self.value.layout.stored(self.value.dtype)
        return self.factor and stored.dtype == "f32" and stored.rest is None

    @property
    def is_folded(self) -> bool:
        """Whether the array is multiplied, which may make it infinite."""
        return any(one.factor is not None for one in self.changes)

    def read(self) -> Array:
        """Return the elements of ``given``, with an axis for each dim."""
        array = self.source.now() if isinstance(self.source, Original) else self.source
        for one in self.changes:
            array = one.function(array)
        return array

    def storage(self) -> TensorStorage:
        """Return ``given`` in memory."""
        given = self.given
        return TensorStorage.of_array(self.read(), given.tensor(), given.layout, constant=True)


class TableWriter:
    """Writes what an entry holds of a plan's constants.

    Args:
        weights: the plan's constants.
        large: names of the model's arrays that are read later, by the id of what holds them.

    Attributes:
        blob: the bytes that the entry speaks of.
        modules: the native modules that packing needs.
    """

    def __init__(self, weights: PlanWeights, large: Mapping[int, str]) -> None:
        self._weights, self._names = weights, large
        self.blob, self.modules = bytearray(), set[str]()
        self._packing: dict[tuple[int, bool], list[tuple[Data, SavedStep]]] = {}

    def data(self, constants: Sequence[TensorStorage]) -> Data:
        """Return the packing table.

        Args:
            constants: in the order in which the plan has them.

        Raises:
            NotSaved: no entry can hold it.
        """
        rows = self._weights.rows
        if not rows.keys() >= {*constants}:
            raise NotSaved("a constant is in no row")
        table = [self._row(rows[one], one) for one in constants]
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

    def keep(self, memory: Any) -> int:
        """Return where some bytes are in the entry."""
        self.blob += bytes(-len(self.blob) % 8)
        begin = len(self.blob)
        self.blob += memory.data if isinstance(memory, np.ndarray) else memory
        return begin

    def array(self, origin: Array | Original) -> str | None:
        """Return the name of the large array that ``origin`` derives from by its steps, or None."""
        return self._names.get(id(origin.root)) if isinstance(origin, Original) else None

    def is_large(self, name: str) -> bool:
        """Return whether a constant is made of a large array of the model."""
        return self.array(self._weights.source(name)) is not None

    def _row(self, row: ConstantRow, storage: TensorStorage) -> Data:
        """Return a row as data; its packing step follows.

        Raises:
            NotSaved: no entry can hold it.
        """
        source, given, value = row.source, row.given, row.value
        name = self.array(source)
        if name is None or not isinstance(source, Original):
            return {"bytes": (self.keep(storage.memory), storage.nbytes)}
        about = numpy_dtype(given.dtype), given.layout, [*given.dims]
        if about != (source.dtype, Layout.plain(given.dims), [*value.dims]):
            raise NotSaved(f"{given.name} lies otherwise than it is read")
        if _shape(source, row.changes) != tuple(given.dims.values()):
            raise NotSaved(f"{given.name} has other sizes than what is read")
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
        elif given is not value:
            raise NotSaved(f"no native step that was traced packs {value.name}")
        return data

    def _change(self, made: Made) -> Sequence[Any]:
        if made.factor is not None:
            factor = np.ascontiguousarray(made.factor, np.float64).reshape(-1)
            return made.factor.shape, self.keep(factor.view(np.uint8))
        if made.taken is None:
            raise NotSaved("a constant is computed")
        return made.taken


def row_of(data: Data, blob: Array, large: Mapping[str, Original]) -> ConstantRow | Array:
    """Return a row of an entry, or the bytes that are a constant.

    Args:
        data: the row as ``TableWriter`` writes it.
        blob: the bytes that the entry speaks of.
        large: the model's arrays that are read later, by name.

    Raises:
        Exception: of any kind, if it is no row of this model.
    """
    if "bytes" in data:
        return taken_of(blob, *data["bytes"])
    name, steps = data["array"]
    source, changes = large[name].derived(steps), [_made(blob, one) for one in data["changes"]]
    value = Value(name, *kind_of(*data["kind"]), True)
    given = replace(value, layout=Layout.plain(value.dims))
    if data["step"] is None and value.layout != given.layout:
        raise ValueError(f"no step packs {name}")
    is_read = numpy_dtype(value.dtype), tuple(value.dims.values())
    if is_read != (source.dtype, _shape(source, changes)):
        raise ValueError(f"{name} has another type or other sizes")
    in_place = data["step"] is None and not changes
    in_place = in_place and all(kind != "order" for kind, _ in source.steps)
    return ConstantRow(source, changes, given, value, data["factor"] is True, in_place)


def check_bytes(table: Sequence[Data], end: int) -> None:
    """Check that no two constants of an entry have the same bytes.

    Args:
        table: the rows.
        end: where the bytes of constants end.

    Raises:
        ValueError: some have.
    """
    parts = [tuple(row["bytes"]) for row in table if "bytes" in row]
    changes = [one for row in table if "bytes" not in row for one in row["changes"]]
    parts += [(one[1], 8 * prod(one[0])) for one in changes if len(one) == 2]
    last = 0
    for at, nbytes in sorted(parts):
        if not last <= at <= at + nbytes <= end:
            raise ValueError("two constants have the same bytes")
        last = at + nbytes


def taken_of(memory: Array, begin: int, nbytes: int) -> Array:
    """Return some bytes.

    Raises:
        ValueError: there are none such.
    """
    if not 0 <= begin <= begin + nbytes <= memory.nbytes:
        raise ValueError(f"no {nbytes} bytes from {begin} on")
    return memory[begin : begin + nbytes]


def value_row(value: Value) -> list[Any]:
    """Return a value as an entry holds it."""
    return [value.name, *kind_row(value), value.constant]


def kind_row(of: Value | TensorStorage) -> list[Any]:
    """Return the element type, dims and layout of a value or its memory, as data."""
    dims = of.dims if isinstance(of, Value) else of.extents
    return [of.dtype, [*dims.items()], str(of.layout)]


def kind_of(dtype: str, dims: list[Any], layout: str) -> tuple[str, dict[str, int], Layout]:
    """Return what ``kind_row`` has written."""
    return dtype, {str(dim): int(size) for dim, size in dims}, Layout(layout)


def _shape(source: Original, changes: Sequence[Made]) -> tuple[int, ...]:
    """Return the sizes of an array once it is cut.

    Raises:
        ValueError: it has no such part.
    """
    shape = [*source.shape]
    for axis, begin, end in (one.taken for one in changes if one.taken is not None):
        if not (0 <= axis < len(shape) and 0 <= begin < end <= shape[axis]):
            raise ValueError("an array has no such part")
        shape[axis] = end - begin
    return tuple(shape)


def _made(blob: Array, change: Sequence[Any]) -> Made:
    """Return what is done with an array, as ``TableWriter`` writes it."""
    if len(change) == 2:
        sizes, at = change
        factor = taken_of(blob, at, 8 * prod(sizes)).view(np.float64).reshape(sizes)
        return Made(lambda array: multiplied(array, factor), times(factor), factor)
    axis, begin, end = map(int, change)
    taken = axis, begin, end
    return Made(lambda array: cut(array, taken), taken, taken=taken)
