"""The search for patterns of rewrite rules in a graph.

A pattern is matched from its last operator backwards. Operands of an operator that commutes may be
in any order and bracketed in any way. Identities and nodes that only change the order of dims are
ignored (``_silent``), since dims are matched by name.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import Field, fields
from functools import cache
from itertools import permutations
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from optimizer.constants.computed import origin
from optimizer.constants.originals import Original
from optimizer.readers import Readers
from vtensor.language.dtype import NARROW_FLOATS, from_numpy
from vtensor.language.graph import Graph, Node
from vtensor.language.operators import info_of
from vtensor.language.records import dataclass
from vtensor.language.rules import Apply, Either, Hole, Named, Number, Part, Pattern
from vtensor.language.symbolic.symbolic_arrays import SymbolicArray
from vtensor.language.traits import Commutes

#: The most by which a constant may differ from a number in a pattern, relative to it, by element
#: type: what rounding to the type may cause.
TOLERANCE = {"f16": 2e-3, "bf16": 2e-2, **dict.fromkeys(NARROW_FLOATS, 2e-1)}
#: The same for element types that are not in ``TOLERANCE``.
ROUNDED = 1e-6


class Matched(NamedTuple):
    """A partial or whole match of a pattern.

    Attributes:
        values: by name of a hole (a variable of the pattern), the name of the value in the graph to
            which it is bound.
        parts: by name of a named part of the pattern, the name of the graph's value that this part
            computes.
        parameters: the values of the pattern's named operator parameters, by name.
        nodes: names of the nodes that the pattern replaces.
    """

    values: Mapping[str, str] = MappingProxyType({})
    parts: Mapping[str, str] = MappingProxyType({})
    parameters: Mapping[str, Any] = MappingProxyType({})
    nodes: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Matcher:
    """A search for patterns in a graph; ``readers`` has the makers and readers of its values."""

    graph: Graph
    readers: Readers

    def find(self, pattern: Apply, root: Node) -> Iterator[Matched]:
        """Yield the matches of ``pattern`` whose last node is ``root``.

        A match is left out if a value inside it is read by a node outside it, or is an output of
        the graph.
        """
        for met in self._apply(pattern, root.outputs[0], Matched()):
            inner = [self.graph.nodes[name] for name in met.nodes if name != root.name]
            hidden = [name for node in inner for name in node.outputs] + [*root.outputs[1:]]
            if all(self.readers.inside(name, met.nodes) for name in hidden):
                yield met

    def _match(self, pattern: Pattern, value: str, met: Matched) -> Iterator[Matched]:
        """Yield each way in which the value named ``value`` matches ``pattern``, as a match that
        extends ``met``, the match so far.
        """
        match pattern:
            case Hole():
                yield from self._hole(pattern, value, met)
            case Number():
                if self._is_number(value, pattern.value):
                    yield met
            case Either():
                for choice in pattern.choices:
                    yield from self._match(choice, value, met)
            case Apply():
                yield from self._apply(pattern, value, met)
            case Part(name, inner):
                value, silent = self._under_views(value)
                known = met._replace(nodes=met.nodes | silent)
                if name in met.parts:
                    yield from [known] if met.parts[name] == value else []
                    return
                for longer in self._match(inner, value, known):
                    yield longer._replace(parts={**longer.parts, name: value})

    def _under_views(self, value: str) -> tuple[str, frozenset[str]]:
        """Return the value from which nodes that are ignored (``_silent``) make ``value``, and the
        names of these nodes.

        It is ``value`` itself if no such node makes it.
        """
        silent = frozenset[str]()
        while (node := self.readers.maker(value)) is not None and _silent(node):
            silent, [value] = silent | {node.name}, node.inputs
        return value, silent

    def _operands(self, pattern: Apply, node: Node, met: Matched) -> Iterator[Matched]:
        """Yield each way in which the inputs of ``node`` match the operands of ``pattern``, in
        order, as a match that extends ``met``, the match so far.
        """
        if len(node.inputs) != len(pattern.operands):
            return
        if info_of(node.op).structural == "reshape":  # a reshape depends on the order of elements
            maker, [operand] = self.readers.maker(node.inputs[0]), pattern.operands
            named = isinstance(operand, Apply) and maker and info_of(maker.op).name == operand.op
            if maker and _silent(maker) and not (named or isinstance(operand, Hole)):
                return
        yield from self._all(pattern.operands, node.inputs, met)

    def _hole(self, hole: Hole, value: str, met: Matched) -> Iterator[Matched]:
        """Yield ``met``, the match so far, with a hole (a variable of the pattern) bound to
        ``value``.

        Yield nothing if the hole is of a kind that ``value`` is not, or is already bound to another
        value.
        """
        constant = bool(hole.kind) and value in self.graph.constants
        if hole.kind and not constant:
            return
        if hole.kind == "scalar" and (
            self._is_symbolic(value) or self.graph.values[value].num_elements != 1
        ):
            return
        bound = met.values.get(hole.name)
        if bound is None:
            yield met._replace(values={**met.values, hole.name: value})
        elif bound == value or (constant and self._same(bound, value)):
            yield met

    def _same(self, name: str, other_name: str) -> bool:
        """Return whether two constants have equal element types, dims and elements."""
        a, b = self.graph.values[name], self.graph.values[other_name]
        arrays = self.graph.constants
        return (a.dtype, a.dims) == (b.dtype, b.dims) and np.array_equal(
            arrays[name], arrays[other_name]
        )

    def _is_symbolic(self, value: str) -> bool:
        """Return whether the elements of a constant depend on symbolic sizes."""
        array: object = self.graph.constants.get(value)
        return isinstance(array, SymbolicArray)

    def _is_number(self, value: str, number: float) -> bool:
        """Return whether ``value`` is a constant whose elements all are about ``number``."""
        array = self.graph.constants.get(value)
        if array is None or self._is_symbolic(value):
            return False
        if not array.size or array.dtype.kind in "bOSU":
            return False
        tolerance = TOLERANCE.get(self._stored_type(value), ROUNDED) * abs(number)
        first = float(array.flat[0])
        return abs(first - number) <= tolerance and (
            array.size == 1 or bool((array == first).all())
        )

    def _stored_type(self, constant: str) -> str:
        """Return the element type in which the model stores a constant: its own, or the narrower
        one that it was widened from.
        """
        array, _ = origin(self.graph.constants, constant)
        if isinstance(array, Original):
            return from_numpy(array.root.dtype)
        return self.graph.values[constant].dtype

    def _apply(self, pattern: Apply, value: str, met: Matched) -> Iterator[Matched]:
        """Yield each way in which the node that makes ``value``, and its inputs, match ``pattern``,
        as a match that extends ``met``, the match so far.
        """
        node = self.readers.maker(value)
        if node is not None and info_of(node.op).name != pattern.op:
            value, silent = self._under_views(value)
            node = self.readers.maker(value)
            met = met._replace(nodes=met.nodes | silent)
        if node is None or node.outputs[0] != value or info_of(node.op).name != pattern.op:
            return
        parameters = _parameters(pattern, node.op, met.parameters)
        if parameters is None:
            return
        met = Matched(met.values, met.parts, parameters, met.nodes | {node.name})
        count = len(pattern.operands)
        if info_of(node.op).trait(Commutes) is None:
            yield from self._operands(pattern, node, met)
            return
        for values, inside in self._split(node, node.inputs, count):
            known = Matched(met.values, met.parts, met.parameters, met.nodes | inside)
            for order in permutations(pattern.operands):
                yield from self._all(order, values, known)

    def _all(
        self, patterns: Sequence[Pattern], values: Sequence[str], met: Matched
    ) -> Iterator[Matched]:
        """Yield each way in which as many values match several patterns, in order, as a match that
        extends ``met``, the match so far.
        """
        if not patterns:
            yield met
            return
        for longer in self._match(patterns[0], values[0], met):
            yield from self._all(patterns[1:], values[1:], longer)

    def _split(
        self, node: Node, values: Sequence[str], count: int
    ) -> Iterator[tuple[Sequence[str], frozenset[str]]]:
        """Yield (operands, names) for each way to see ``node`` as the last of a chain of equal
        operators with ``count`` operands.

        ``operands`` are those of the chain, ``names`` those of its other nodes. The argument
        ``values`` has the operands of the chain so far.
        """
        if len(values) >= count:
            if len(values) == count:
                yield values, frozenset()
            return
        for i, value in enumerate(values):
            maker = self.readers.maker(value)
            if maker is not None and maker.op == node.op and self.readers.only(value) is not None:
                longer = (*values[:i], *maker.inputs, *values[i + 1 :])
                for operands, inside in self._split(node, longer, count):
                    yield operands, inside | {maker.name}


def _silent(node: Node) -> bool:
    """Return whether a node is an identity, or changes nothing but the order of dims."""
    kind = info_of(node.op).structural
    names = getattr(node.op, "names", ())
    return kind == "identity" or (kind == "rename" and all(old == new for old, new in names))


def _parameters(pattern: Apply, op: Any, known: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the named parameters of a match, extended by those that ``pattern`` names and ``op``
    has.

    Returns None if a parameter of ``op`` differs from the value in ``pattern``, or from an earlier
    value in ``known``.
    """
    known = dict(known)
    for parameter in _declared(type(op)):  # type: ignore[arg-type]  # any class has a hash
        have, wanted = (
            getattr(op, parameter.name),
            pattern.parameters.get(parameter.name, parameter.default),
        )
        if not isinstance(wanted, Named):
            if not _alike(have, wanted):
                return None
        elif wanted.name != "_" and not _alike(have, known.setdefault(wanted.name, have)):
            return None
    return known


@cache
def _declared(kind: Any) -> tuple[Field[Any], ...]:
    """Return the fields of an operator class, its parameters."""
    return fields(kind)


def _alike(have: object, wanted: object) -> bool:
    """Return whether a parameter has the wanted value, up to rounding of floats."""
    if isinstance(have, float) and isinstance(wanted, (int, float)):
        return have == wanted or abs(have - wanted) <= ROUNDED * abs(wanted)
    return bool(have == wanted)
