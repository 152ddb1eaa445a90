"""What was chosen as plain data, so that it can be kept on disk: lists, texts, numbers.

No code, no addresses, and nothing that the network says itself: operators, outputs, roles and what
is fused are taken from the graph that the data is read for. Whether the choice suits that graph,
``ChosenGraph.on``, the libraries and the checker find out, as for any other; here only what is no
choice at all is refused.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import astuple, fields
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar, get_args, get_type_hints

from libdesc.dispatcher import post_roles
from libdesc.preferences import Preferences
from ptensor.evaluation import Basis, Refusal, Requirement, Variant
from ptensor.form import Form
from ptensor.layout import Layout
from resolver.choice import ChoiceRefused
from resolver.lowered import (
    Certificate,
    LoweredGraph,
    LoweredNode,
    OpNode,
    Reason,
    TransformNode,
    Value,
)
from vtensor.errors import VTensorError
from vtensor.language.operators import info_of

if TYPE_CHECKING:
    from vtensor.language.graph import Graph

T = TypeVar("T")

#: What data that is no choice leads to: wrong types, missing rows, and our own errors.
_WRONG = (VTensorError, TypeError, ValueError, LookupError, AttributeError, ArithmeticError)

#: What the row of a node begins with.
TRANSFORM, OPERATOR = "transform", "operator"

#: How times may be known.
BASES: tuple[Basis, ...] = get_args(Basis)

#: What may have been minimised.
OBJECTIVES = ("shared", "paper", "time")


class _Table:
    """Rows that many nodes have in common, each once."""

    def __init__(self) -> None:
        self._places: dict[Hashable, int] = {}

    def place(self, row: Hashable) -> int:
        """Where a row is, from now on."""
        return self._places.setdefault(row, len(self._places))

    @property
    def rows(self) -> list[Any]:
        """All of them, in order."""
        return list(self._places)


def plain_data(graph: LoweredGraph) -> dict[str, Any]:
    """What was chosen for a network as what JSON can hold.

    Raises:
        ChoiceRefused: a node still has variants of several nodes.
    """
    requirements, refused = _Table(), _Table()
    nodes = [_node_row(node, requirements, refused) for node in graph.nodes]
    values = [
        (one.name, one.dtype, dict(one.dims), str(one.layout), one.constant)
        for one in graph.values.values()
    ]
    return {
        "inputs": graph.inputs,
        "outputs": dict(graph.outputs),
        "values": values,
        "nodes": nodes,
        "requirements": requirements.rows,
        "refused": refused.rows,
        "certificate": graph.certificate and astuple(graph.certificate),
    }


def _node_row(node: LoweredNode, requirements: _Table, refused: _Table) -> tuple[Any, ...]:
    if isinstance(node, TransformNode):
        reasons = [
            (
                *(one.consumer, one.producer, one.role, one.library, one.op, one.producer_op),
                one.requirement and requirements.place(_requirement_row(one.requirement)),
            )
            for one in node.reasons
        ]
        return TRANSFORM, node.name, node.input, node.output, node.library, reasons
    variant = node.variant
    if variant.pieces:
        raise ChoiceRefused(f"{node.name} is not yet several nodes")
    return (
        OPERATOR,
        node.name,
        node.inputs,
        variant.library,
        [str(form) for form in variant.forms],
        [requirements.place(_requirement_row(one)) for one in variant.requirements],
        [refused.place((one.priority, one.library, one.reason)) for one in variant.refused],
        variant.kernel,
        variant.ns,
        variant.basis,
        variant.error,
        len(variant.followers),
        variant.reference,
    )


def _requirement_row(one: Requirement) -> tuple[Hashable, ...]:
    return tuple(map(str, one.layouts)), one.file, one.line


def from_plain_data(
    data: object,
    graph: Graph,
    delivery: Mapping[str, Layout],
    preferences: Preferences,
    passes: Sequence[str],
) -> LoweredGraph:
    """The lowered graph that was kept, over the nodes of a graph of the same network.

    Args:
        data: as ``plain_data`` gives it; it may come from anybody.
        graph: simplified, for the same sizes or others.
        delivery, preferences, passes: as a plan for it has them.

    Raises:
        ChoiceRefused: it is no choice for this graph.
    """
    try:
        return _Reader(data, graph, preferences).lowered(delivery, passes)
    except _WRONG as why:
        raise ChoiceRefused(f"what was kept is no choice for it: {why!r}") from why


class _Reader:
    """Reads one choice; every row is looked at before it is used."""

    def __init__(self, data: object, graph: Graph, preferences: Preferences) -> None:
        self._data: dict[str, Any] = _typed(dict, data)
        self._graph = graph
        self._preferences = preferences
        rows = _typed(list, self._data["requirements"])
        self._requirements = [
            Requirement(tuple(map(_layout, _texts(layouts))), _typed(str, file), _typed(int, line))
            for layouts, file, line in rows
        ]
        rows = _typed(list, self._data["refused"])
        self._refused = [Refusal(*_row(Refusal, row)) for row in rows]

    def lowered(self, delivery: Mapping[str, Layout], passes: Sequence[str]) -> LoweredGraph:
        """The whole of it; names that nodes use are names of values."""
        values = {one.name: one for one in map(self._value, _typed(list, self._data["values"]))}
        nodes = [self._node(_typed(list, row)) for row in _typed(list, self._data["nodes"])]
        inputs = _texts(self._data["inputs"])
        outputs = _typed(dict, self._data["outputs"])
        used = {name for node in nodes for name in (*node.inputs, *node.outputs)}
        unknown = (used | {*inputs, *_texts([*outputs.values()])}) - values.keys()
        if unknown:
            raise ChoiceRefused(f"there are no values {', '.join(sorted(unknown))}")
        return LoweredGraph(
            self._graph.name,
            values=values,
            nodes=nodes,
            inputs=inputs,
            outputs=outputs,
            merged=self._graph.merged,
            passes=tuple(passes),
            certificate=self._certificate(),
            delivery=delivery,
            preferences=self._preferences,
            rewritten=self._graph.rewritten,
        )

    def _value(self, row: Sequence[Any]) -> Value:
        name, dtype, dims, layout, constant = row
        sizes = {_typed(str, dim): _typed(int, size) for dim, size in _typed(dict, dims).items()}
        return Value(
            _typed(str, name), _typed(str, dtype), sizes, _layout(layout), _typed(bool, constant)
        )

    def _node(self, row: Sequence[Any]) -> LoweredNode:
        kind, *rest = row
        if kind not in (TRANSFORM, OPERATOR):
            raise ChoiceRefused(f"{kind!r} is no kind of node")
        return self._transform(rest) if kind == TRANSFORM else self._operator(rest)

    def _transform(self, row: Sequence[Any]) -> TransformNode:
        *names, library, reasons = row
        name, source, target = _texts(names)
        if not self._preferences.allows(_typed(str, library)):
            raise ChoiceRefused(f"{name}: {library} may not be used")
        first, *more = (self._reason(_typed(list, one)) for one in _typed(list, reasons))
        return TransformNode(name, source, target, library, first, tuple(more))

    def _reason(self, row: Sequence[Any]) -> Reason:
        *texts, place = row
        consumer, producer, role, library, op, producer_op = _texts(texts)
        asked = None if place is None else _at(self._requirements, place)
        return Reason(consumer, producer, role, library, op, producer_op, asked)

    def _operator(self, row: Sequence[Any]) -> OpNode:
        name, inputs, library, forms, asked, refused, kernel, ns, basis, error, count, slow = row
        node = self._graph.nodes[_typed(str, name)]
        behind = tuple(self._graph.offers.get(name, ())[: _natural(count)])
        info, names = info_of(node.op), _texts(inputs)
        if len(behind) != count:
            raise ChoiceRefused(f"{name}: not all of what was fused behind it may be")
        if refusal := self._preferences.refusal(name, info.name, _typed(str, library)):
            raise ChoiceRefused(f"{name}: {library} is {refusal}")
        outputs = node.outputs
        for follower in behind:
            outputs = (*follower.outputs, *node.outputs[1:])
        roles = info.roles(len(node.inputs), len(outputs))
        own = len(node.inputs)
        variant = Variant(
            library,
            tuple(map(_form, _texts(forms))),
            tuple(_at(self._requirements, place) for place in _typed(list, asked)),
            tuple(_at(self._refused, place) for place in _typed(list, refused)),
            _typed(str, kernel),
            None if ns is None else _natural(ns),
            _basis(basis),
            float(error),
            tuple(one.name for one in behind),
            _typed(bool, slow),
        )
        if len(variant.forms) != len(names) + len(outputs):
            raise ChoiceRefused(f"{name}: as many layouts as operands are needed")
        return OpNode(
            name,
            node.op,
            " + ".join([node.op_name, *(one.op_name for one in behind)]),
            names,
            outputs,
            (*roles[:own], *post_roles(len(names) - own), *roles[own:]),
            variant,
            behind,
            node.outputs[0] if behind else "",
        )

    def _certificate(self) -> Certificate | None:
        row = self._data["certificate"]
        if row is None:
            return None
        made = Certificate(*_row(Certificate, row))
        _basis(made.basis)
        if made.objective not in OBJECTIVES:
            raise ChoiceRefused(f"{made.objective} is no objective")
        return made


@cache
def _kinds(of: type) -> tuple[tuple[type, ...], ...]:
    """The types that each field of a class of plain fields may have."""
    hints = get_type_hints(of)
    plain = (get_args(hints[one.name]) or (hints[one.name],) for one in fields(of))
    return tuple(
        tuple(kind if isinstance(kind, type) else type(kind) for kind in kinds) for kinds in plain
    )


def _row(of: type, row: object) -> list[Any]:
    """What a class of plain fields is made of."""
    given, kinds = _typed(list, row), _kinds(of)
    for value, allowed in zip(given, kinds, strict=True):
        if not isinstance(value, allowed):
            raise ChoiceRefused(f"{value!r} is no field of {of.__name__}")
    return given


def _typed(kind: type[T], value: object) -> T:
    if not isinstance(value, kind):
        raise ChoiceRefused(f"{value!r} should be of {kind.__name__}")
    return value


def _texts(values: object) -> tuple[str, ...]:
    return tuple(_typed(str, value) for value in _typed(list, values))


def _natural(value: object) -> int:
    number = _typed(int, value)
    if number < 0:
        raise ChoiceRefused(f"{number} is less than 0")
    return number


def _at(rows: Sequence[T], place: object) -> T:
    return rows[_natural(place)]


def _basis(word: object) -> Basis:
    [found] = [one for one in BASES if one == word]
    return found


@cache
def _form(text: str) -> Form:
    return Form.parse(text)


def _layout(text: object) -> Layout:
    return Layout(_typed(str, text))
