"""Writing down how a plan's constants are made, for ``kept_weights.py``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any, cast

import numpy as np

from libdesc.native_trace import ConstantWriter, NativeTrace, build_of, native_module
from libdesc.tracing import tracing
from optimizer.computed import Made, changes
from optimizer.originals import Original
from ptensor.buffer import ALIGNMENT, TensorStorage
from ptensor.layout import Layout
from resolver.lowered import LoweredGraph, TransformNode, Value
from vtensor.language.cached import cached_property
from vtensor.language.records import dataclass
from vtensor.language.symbolic_arrays import StoredArray
from vtensor.language.trace import NotSaved
from vtensor.runtime.kept_packing import SOURCE, TARGET
from vtensor.runtime.kept_weights import Data, kind_row
from vtensor.runtime.packed import PackedWeights
from vtensor.runtime.products import of_products
from vtensor.runtime.record import packing
from vtensor.runtime.weights import LARGE

Array = np.ndarray[Any, Any]

#: The most bytes of an array in an entry that rows compute with, unless the model's file has it.
MOST_BYTES = 1 << 20


@dataclass(eq=False)
class WeightNotes:
    """The constants of a plan, and what says how they were made.

    Args:
        packed: the constants.
        graph: of the plan.
        constants: those of the graph that was planned.
        large: the arrays of the model that are read later, by the id of what holds them.
        trace: of the native calls that made the plan's steps.

    Attributes:
        blob: bytes that an entry speaks of.
        writer: writes constants of traces, and knows which things and modules these need.
    """

    packed: PackedWeights
    graph: LoweredGraph
    constants: Mapping[str, Array]
    large: Mapping[int, str]
    trace: NativeTrace
    blob: bytearray = field(default_factory=bytearray)
    _alone: NativeTrace = field(default_factory=NativeTrace)
    _end: int = 0

    def __post_init__(self) -> None:
        self.writer = ConstantWriter(self.trace, self._array_data)

    def data(self, constants: Sequence[TensorStorage]) -> Data:
        """Return what an entry holds of constants, and of the native things that ``writer`` needs.

        Args:
            constants: in the order in which a plan has them.

        Raises:
            NotSaved: no entry can hold it.
        """
        names, regions, small = self._names(constants), list[Any](), list[Any]()
        large, packing = list[Data](), list[tuple[Data, Any]]()
        for one in constants:
            if (as_it_is := self._read(names[one])) is not None:
                regions.append((as_it_is,))
                continue
            begin = self._room(one.nbytes)
            regions.append((begin, one.nbytes))
            if (found := self._large(names[one], begin)) is None:
                small.append((begin, one.nbytes, self.keep(one.buffer.memory)))
            else:
                large.append(found[0])
                packing += [found] if found[1] is not None else []
        alone = ConstantWriter(self._alone)
        for row, native in packing:
            row["native"] = (self.writer if row["nbytes"] >= LARGE else alone).place(native)
        rows = self.writer.outer_rows(), alone.outer_rows()
        modules = self.writer.modules | alone.modules
        return {
            "builds": {one: build_of(native_module(one)) for one in sorted(modules)},
            "natives": rows[0],
            "alone": rows[1],
            "weights": self._end,
            "small": small,
            "large": large,
            "constants": regions,
        }

    @cached_property
    def _factors(self) -> frozenset[str]:
        return of_products(self.graph)

    def is_large(self, name: str) -> bool:
        """Whether a constant is made of an array that is read later."""
        return self.array(self.packed.made_of(name)[1]) is not None

    def _room(self, nbytes: int) -> int:
        begin, self._end = self._end, self._end + -(-nbytes // ALIGNMENT) * ALIGNMENT
        return begin

    def keep(self, memory: Any) -> int:
        """Where some bytes are in the entry."""
        self.blob += bytes(-len(self.blob) % 8)
        begin = len(self.blob)
        self.blob += memory.data if isinstance(memory, np.ndarray) else memory
        return begin

    def _names(self, constants: Sequence[TensorStorage]) -> dict[TensorStorage, str]:
        """The values whose memory constants are.

        Raises:
            NotSaved: that is not known.
        """
        names = self.packed.names
        if not names.keys() >= {*constants}:
            raise NotSaved("a constant has no name")
        return names

    def _read(self, name: str) -> str | None:
        """Return the name of the large array that the constant ``name`` holds as it is."""
        root, origin = self.packed.made_of(name)
        if root != name or changes(self.constants, root) or not isinstance(origin, Original):
            return None
        return None if any(kind == "order" for kind, _ in origin.steps) else self.array(origin)

    def array(self, origin: Array | Original) -> str | None:
        """Return the name of the large array that ``origin`` derives from by its steps, or None."""
        return self.large.get(id(origin.root)) if isinstance(origin, Original) else None

    def _array_data(self, array: Any) -> Any:
        """Return an array of a trace as data: a large array's name and what is done with it, or
        where its bytes are in the entry.

        Raises:
            NotSaved: it has too many bytes.
        """
        if isinstance(array, StoredArray):
            origin = cast("Original", array.origin)
            if (name := self.array(origin)) is not None:
                return {"array": [name, origin.steps]}
            array = origin.now()
        if array.nbytes > MOST_BYTES or array.dtype.hasobject:
            raise NotSaved("a constant that depends on sizes is made of a large array")
        memory = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        return {"bytes": [array.dtype.str, array.shape, self.keep(memory)]}

    def _large(self, name: str, begin: int) -> tuple[Data, Any] | None:
        """How a large array's constant is made, and what packs it, if anything does; None of what
        is no large array's.

        Raises:
            NotSaved: no entry can say that.
        """
        value = self.graph.values[name]
        root, origin = self.packed.made_of(name)
        array = self.array(origin)
        if array is None or not isinstance(origin, Original):
            return None
        given, made = self.graph.values[root], changes(self.constants, root)
        shape = [*origin.shape]
        for axis, first, end in (one.taken for one in made if one.taken is not None):
            shape[axis] = end - first
        if shape != [*given.dims.values()] or Layout.plain(given.dims) != given.layout:
            raise NotSaved(f"{root} lies otherwise than it is read")
        row: Data = {
            "name": array,
            "steps": origin.steps,
            "begin": begin,
            "nbytes": value.nbytes,
            "changes": [*map(self._change, made)],
            "kind": kind_row(value),
            "factor": name in self._factors,
            "native": None,
            "slots": [],
        }
        if root == name:
            return row, None
        [transform] = [node for node in self.graph.ahead() if node.output == name]
        if transform.input != root:
            raise NotSaved(f"{name} is transformed twice")
        native, row["slots"] = self._packing(transform, given, value)
        return row, native

    def _change(self, made: Made) -> Sequence[Any]:
        """What is done with a large array.

        Raises:
            NotSaved: no entry can say that.
        """
        if made.factor is not None:
            return made.factor.shape, self.keep(_f64(made.factor))
        if made.taken is None:
            raise NotSaved("a constant is computed")
        return made.taken

    def _packing(self, node: TransformNode, given: Value, value: Value) -> tuple[Any, list[Any]]:
        """The step that transforms a constant, and its slots."""
        with tracing(self.trace if value.nbytes >= LARGE else self._alone):
            storage = TensorStorage(given.dtype, given.dims, given.layout)
            _, steps = packing(node, given, value, storage)
        if len(steps) != 1 or steps[0].native is None:
            raise NotSaved(f"{node.name} is no native step")
        [step] = steps
        roots = [*dict.fromkeys(one for one in step.slots if not isinstance(one, int))]
        if len(roots) != 2 or any(one.root is not one for one in roots):
            raise NotSaved(f"{node.name} has other operands")
        kinds = {roots[0]: SOURCE, roots[1]: TARGET}
        if kind_row(roots[0]) != kind_row(given) or kind_row(roots[1]) != kind_row(value):
            raise NotSaved(f"{node.name} has other operands")
        return step.native, [one if isinstance(one, int) else kinds[one] for one in step.slots]


def _f64(factor: Array) -> Array:
    return np.ascontiguousarray(factor, np.float64).reshape(-1).view(np.uint8)
