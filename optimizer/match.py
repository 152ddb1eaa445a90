"""Finds the pattern of a rewrite rule in a graph.

A pattern is met from its last operator on, against the direction of the values. Where an operator
commutes, its operands may stand in any order and be bracketed in any way. A view that neither
renames nor counts anew is looked through: dims go by name.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import Field, fields
from functools import cache
from itertools import permutations
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from optimizer.readers import Readers
from vtensor.language.dtype import NARROW_FLOATS
from vtensor.language.graph import Graph, Node
from vtensor.language.operators import info_of
from vtensor.language.records import dataclass
from vtensor.language.rules import Apply, Either, Hole, Named, Number, Part, Pattern
from vtensor.language.symbolic_arrays import SymbolicArray
from vtensor.language.traits import Commutes

#: How far a constant may be off the number that a pattern wants: what rounding it may have done.
TOLERANCE = {"f16": 2e-3, "bf16": 2e-2, **dict.fromkeys(NARROW_FLOATS, 2e-1)}
#: The same of any other element type.
ROUNDED = 1e-6


class Met(NamedTuple):
    """What has been met so far.

    Attributes:
        values: of the graph, by hole.
        parameters: by name.
        parts: the values of named parts.
        nodes: those that the pattern replaces.
    """

    values: Mapping[str, str] = MappingProxyType({})
    parts: Mapping[str, str] = MappingProxyType({})
    parameters: Mapping[str, Any] = MappingProxyType({})
    nodes: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Matcher:
    """A graph in which patterns are looked for."""

    graph: Graph
    readers: Readers

    def find(self, pattern: Apply, root: Node) -> Iterator[Met]:
        """All ways to meet a pattern that ends at a node, and whose inside nobody else needs."""
        for met in self._apply(pattern, root.outputs[0], Met()):
            inner = [self.graph.nodes[name] for name in met.nodes if name != root.name]
            hidden = [name for node in inner for name in node.outputs] + [*root.outputs[1:]]
            if all(self.readers.inside(name, met.nodes) for name in hidden):
                yield met

    def _meet(self, pattern: Pattern, value: str, met: Met) -> Iterator[Met]:
        match pattern:
            case Hole():
                yield from self._hole(pattern, value, met)
            case Number():
                if self._is(value, pattern.value):
                    yield met
            case Either():
                for one in pattern.choices:
                    yield from self._meet(one, value, met)
            case Apply():
                yield from self._apply(pattern, value, met)
            case Part(name, inner):
                value, silent = self._seen(value)
                known = met._replace(nodes=met.nodes | silent)
                if name in met.parts:
                    yield from [known] if met.parts[name] == value else []
                    return
                for longer in self._meet(inner, value, known):
                    yield longer._replace(parts={**longer.parts, name: value})

    def _seen(self, value: str) -> tuple[str, frozenset[str]]:
        """What a value is under the views that are looked through, and those."""
        silent = frozenset[str]()
        while (node := self.readers.maker(value)) is not None and _silent(node):
            silent, [value] = silent | {node.name}, node.inputs
        return value, silent

    def _operands(self, pattern: Apply, node: Node, met: Met) -> Iterator[Met]:
        """Meet operands in the order in which a node has them."""
        if len(node.inputs) != len(pattern.operands):
            return
        if info_of(node.op).structural == "reshape":  # it counts elements: their order matters
            maker, [operand] = self.readers.maker(node.inputs[0]), pattern.operands
            named = isinstance(operand, Apply) and maker and info_of(maker.op).name == operand.op
            if maker and _silent(maker) and not (named or isinstance(operand, Hole)):
                return
        yield from self._all(pattern.operands, node.inputs, met)

    def _hole(self, hole: Hole, value: str, met: Met) -> Iterator[Met]:
        constant = bool(hole.kind) and value in self.graph.constants
        if hole.kind and not constant:
            return
        if hole.kind == "scalar" and (
            self._is_symbolic(value) or self.graph.values[value].num_elements != 1
        ):
            return
        have = met.values.get(hole.name)
        if have is None:
            yield met._replace(values={**met.values, hole.name: value})
        elif have == value or (constant and self._same(have, value)):
            yield met

    def _same(self, one: str, other: str) -> bool:
        """Two constants are alike."""
        a, b = self.graph.values[one], self.graph.values[other]
        arrays = self.graph.constants
        return (a.dtype, a.dims) == (b.dtype, b.dims) and np.array_equal(arrays[one], arrays[other])

    def _is_symbolic(self, value: str) -> bool:
        """Return whether a constant's elements differ from size to size."""
        array: object = self.graph.constants.get(value)
        return isinstance(array, SymbolicArray)

    def _is(self, value: str, number: float) -> bool:
        array = self.graph.constants.get(value)
        if array is None or self._is_symbolic(value):
            return False
        if not array.size or array.dtype.kind in "bOSU":
            return False
        tolerance = TOLERANCE.get(self.graph.values[value].dtype, ROUNDED) * abs(number)
        first = float(array.flat[0])
        return abs(first - number) <= tolerance and (
            array.size == 1 or bool((array == first).all())
        )

    def _apply(self, pattern: Apply, value: str, met: Met) -> Iterator[Met]:
        node = self.readers.maker(value)
        if node is not None and info_of(node.op).name != pattern.op:
            value, silent = self._seen(value)
            node = self.readers.maker(value)
            met = met._replace(nodes=met.nodes | silent)
        if node is None or node.outputs[0] != value or info_of(node.op).name != pattern.op:
            return
        parameters = _parameters(pattern, node.op, met.parameters)
        if parameters is None:
            return
        met = Met(met.values, met.parts, parameters, met.nodes | {node.name})
        count = len(pattern.operands)
        if info_of(node.op).trait(Commutes) is None:
            yield from self._operands(pattern, node, met)
            return
        for values, inside in self._split(node, node.inputs, count):
            known = Met(met.values, met.parts, met.parameters, met.nodes | inside)
            for order in permutations(pattern.operands):
                yield from self._all(order, values, known)

    def _all(self, patterns: Sequence[Pattern], values: Sequence[str], met: Met) -> Iterator[Met]:
        if not patterns:
            yield met
            return
        for longer in self._meet(patterns[0], values[0], met):
            yield from self._all(patterns[1:], values[1:], longer)

    def _split(
        self, node: Node, values: Sequence[str], count: int
    ) -> Iterator[tuple[Sequence[str], frozenset[str]]]:
        """The operands of a chain of an operator, so many of them, and the nodes in between."""
        if len(values) >= count:
            if len(values) == count:
                yield values, frozenset()
            return
        for i, value in enumerate(values):
            maker = self.readers.maker(value)
            if maker is not None and maker.op == node.op and self.readers.only(value) is not None:
                longer = (*values[:i], *maker.inputs, *values[i + 1 :])
                for found, inside in self._split(node, longer, count):
                    yield found, inside | {maker.name}


def _silent(node: Node) -> bool:
    """A view under the same names, in whatever order."""
    kind = info_of(node.op).structural
    names = getattr(node.op, "names", ())
    return kind == "identity" or (kind == "rename" and all(old == new for old, new in names))


def _parameters(pattern: Apply, op: Any, known: Mapping[str, Any]) -> dict[str, Any] | None:
    """What names of parameters stand for, with those of an operator; None where it has others."""
    known = dict(known)
    for one in _declared(type(op)):  # type: ignore[arg-type]  # any class has a hash
        have, wanted = getattr(op, one.name), pattern.parameters.get(one.name, one.default)
        if not isinstance(wanted, Named):
            if not _alike(have, wanted):
                return None
        elif wanted.name != "_" and not _alike(have, known.setdefault(wanted.name, have)):
            return None
    return known


@cache
def _declared(kind: Any) -> tuple[Field[Any], ...]:
    """An operator's parameters."""
    return fields(kind)


def _alike(have: object, wanted: object) -> bool:
    if isinstance(have, float) and isinstance(wanted, (int, float)):
        return have == wanted or abs(have - wanted) <= ROUNDED * abs(wanted)
    return bool(have == wanted)
