"""Writing down how a plan's constants are made, for ``kept_weights.py``."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import field
from functools import cached_property
from typing import Any

import numpy as np

from libdesc.noted import noting
from libdesc.script import Script, build_of, native_module
from optimizer.computed import Made, changes
from optimizer.originals import Original
from ptensor.buffer import ALIGNMENT, TensorStorage
from ptensor.layout import Layout
from resolver.lowered import LoweredGraph, TransformNode, Value
from vtensor.language.records import dataclass
from vtensor.runtime.kept_packing import SOURCE, TARGET
from vtensor.runtime.kept_weights import Data, kind_row
from vtensor.runtime.packed import PackedWeights
from vtensor.runtime.products import of_products
from vtensor.runtime.record import packing
from vtensor.runtime.weights import LARGE

Array = np.ndarray[Any, Any]


class NotKept(Exception):  # it is no error: the plan is made of nodes each time
    """A plan has something that no entry can hold."""


@dataclass(eq=False)
class WeightNotes:
    """The constants of a plan, and what says how they were made.

    Args:
        packed: the constants.
        graph: of the plan.
        constants: those of the graph that was planned.
        large: the arrays of the model that are read later, by the id of what holds them.
        script: noted the plan's steps.

    Attributes:
        blob: bytes that an entry speaks of.
    """

    packed: PackedWeights
    graph: LoweredGraph
    constants: Mapping[str, Array]
    large: Mapping[int, str]
    script: Script
    blob: bytearray = field(default_factory=bytearray)
    _alone: Script = field(default_factory=Script)
    _end: int = 0

    def data(
        self,
        constants: Sequence[TensorStorage],
        natives: Sequence[Any],
        modules: Collection[str] = (),
    ) -> tuple[Data, list[int]]:
        """What an entry holds of constants and native things, and the lines that make these.

        Args:
            constants: in the order in which a plan has them.
            natives: what the script has noted.
            modules: native ones that are named besides.

        Raises:
            NotKept: no entry can hold it.
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
        together = [pair for pair in packing if pair[0]["nbytes"] >= LARGE]
        apart = [pair for pair in packing if pair[0]["nbytes"] < LARGE]
        lines, places = _told(self.script, [*natives, *(native for _, native in together)])
        alone, own = _told(self._alone, [native for _, native in apart])
        for pairs, found_at in ((together, places[len(natives) :]), (apart, own)):
            for (row, _), place in zip(pairs, found_at, strict=True):
                row["native"] = place
        named = {line[0][0] for line in (*lines, *alone) if isinstance(line[0][0], str)}
        data = {
            "builds": {one: build_of(native_module(one)) for one in {*named, *modules}},
            "lines": lines,
            "alone": alone,
            "weights": self._end,
            "small": small,
            "large": large,
            "constants": regions,
        }
        return data, places[: len(natives)]

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
            NotKept: that is not known.
        """
        names = self.packed.names
        if not names.keys() >= {*constants}:
            raise NotKept("a constant has no name")
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

    def _large(self, name: str, begin: int) -> tuple[Data, Any] | None:
        """How a large array's constant is made, and what packs it, if anything does; None of what
        is no large array's.

        Raises:
            NotKept: no entry can say that.
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
            raise NotKept(f"{root} lies otherwise than it is read")
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
            raise NotKept(f"{name} is transformed twice")
        native, row["slots"] = self._packing(transform, given, value)
        return row, native

    def _change(self, made: Made) -> Sequence[Any]:
        """What is done with a large array.

        Raises:
            NotKept: no entry can say that.
        """
        if made.factor is not None:
            return made.factor.shape, self.keep(_f64(made.factor))
        if made.taken is None:
            raise NotKept("a constant is computed")
        return made.taken

    def _packing(self, node: TransformNode, given: Value, value: Value) -> tuple[Any, list[Any]]:
        """The step that transforms a constant, and its slots."""
        script = self.script if value.nbytes >= LARGE else self._alone
        with noting(script):
            storage = TensorStorage(given.dtype, given.dims, given.layout)
            _, steps = packing(node, given, value, storage)
        if len(steps) != 1 or steps[0].native is None:
            raise NotKept(f"{node.name} is no native step")
        [step] = steps
        roots = [*dict.fromkeys(one for one in step.slots if not isinstance(one, int))]
        if len(roots) != 2 or any(one.root is not one for one in roots):
            raise NotKept(f"{node.name} has other operands")
        kinds = {roots[0]: SOURCE, roots[1]: TARGET}
        if kind_row(roots[0]) != kind_row(given) or kind_row(roots[1]) != kind_row(value):
            raise NotKept(f"{node.name} has other operands")
        return step.native, [one if isinstance(one, int) else kinds[one] for one in step.slots]


def _told(script: Script, natives: Sequence[Any]) -> tuple[list[Any], list[int]]:
    told = script.told(natives)
    if told is None:
        raise NotKept("a step was made past whoever notes")
    return told


def _f64(factor: Array) -> Array:
    return np.ascontiguousarray(factor, np.float64).reshape(-1).view(np.uint8)
