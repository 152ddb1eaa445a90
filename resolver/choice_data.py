"""A choice as plain data for the cache: lists, texts, numbers.

The data has no code and no addresses. The nodes' operators, outputs, roles and fused nodes are not
in the data: the reader takes them from the graph for which it reads the choice. This module refuses
only data that is no choice at all. Whether a choice suits the graph is found out by
``ChosenGraph.on``, the libraries and the checker.
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

#: Exceptions that may be raised when malformed data is read: for wrong types, missing rows, ...
_MALFORMED = (VTensorError, TypeError, ValueError, LookupError, AttributeError, ArithmeticError)

#: The kinds of nodes; a node's row begins with its kind.
TRANSFORM, OPERATOR = "transform", "operator"

#: Possible values of ``Variant.basis``.
BASES: tuple[Basis, ...] = get_args(Basis)

#: Possible values of ``Certificate.objective``.
OBJECTIVES = ("shared", "paper", "time")


class _Table:
    """Rows of plain data, each stored once, to which the rows of many nodes refer by index."""

    def __init__(self) -> None:
        self._places: dict[Hashable, int] = {}

    def place(self, row: Hashable) -> int:
        """Return the index of ``row`` in the table; add the row if it is new."""
        return self._places.setdefault(row, len(self._places))

    @property
    def rows(self) -> list[Any]:
        """All rows, in the order of their indices."""
        return list(self._places)


def plain_data(graph: LoweredGraph) -> dict[str, Any]:
    """Return the choice in a lowered graph as data that JSON can hold.

    Raises:
        ChoiceRefused: a node's variant still has pieces, that is, followers that run in steps of
            their own.
    """
    requirements, refused = _Table(), _Table()
    nodes = [_node_row(node, requirements, refused) for node in graph.nodes]
    values = [
        (value.name, value.dtype, dict(value.dims), str(value.layout), value.constant)
        for value in graph.values.values()
    ]
    return {
        "inputs": graph.inputs,
        "outputs": dict(graph.outputs),
        "values": values,
        "nodes": nodes,
        "requirements": requirements.rows,
        "refused": refused.rows,
        "certificate": graph.certificate and astuple(graph.certificate),
        "notes": dict(graph.notes),
    }


def _node_row(node: LoweredNode, requirements: _Table, refused: _Table) -> tuple[Any, ...]:
    """Return a node as a row of plain data.

    The row refers to the node's requirements, and to the libraries that declined it, by their
    indices in two tables. They are added to these tables.

    Args:
        requirements: the table of requirements.
        refused: the table of refusals, that is, of libraries that declined, each with its reason.

    Raises:
        ChoiceRefused: the node's variant still has pieces, that is, followers that run in steps of
            their own.
    """
    if isinstance(node, TransformNode):
        reasons = [
            (
                *(why.consumer, why.producer, why.role, why.library, why.op, why.producer_op),
                why.requirement and requirements.place(_requirement_row(why.requirement)),
            )
            for why in node.reasons
        ]
        return TRANSFORM, node.name, node.input, node.output, node.library, reasons
    variant = node.variant
    if variant.pieces:
        raise ChoiceRefused(f"{node.name}: its variant still has pieces")
    return (
        OPERATOR,
        node.name,
        node.inputs,
        variant.library,
        [str(form) for form in variant.forms],
        [requirements.place(_requirement_row(each)) for each in variant.requirements],
        [refused.place((each.priority, each.library, each.reason)) for each in variant.refused],
        variant.kernel,
        variant.ns,
        variant.basis,
        variant.error,
        len(variant.followers),
        variant.reference,
    )


def _requirement_row(requirement: Requirement) -> tuple[Hashable, ...]:
    return tuple(map(str, requirement.layouts)), requirement.file, requirement.line


def from_plain_data(
    data: object,
    graph: Graph,
    delivery: Mapping[str, Layout],
    preferences: Preferences,
    passes: Sequence[str],
) -> LoweredGraph:
    """Return the lowered graph of a saved choice, over the nodes of a graph of the same network.

    Args:
        data: result of ``plain_data``; it is not trusted.
        graph: simplified, for the same sizes or others.
        delivery, preferences, passes: as in ``LoweredGraph``, for the result.

    Raises:
        ChoiceRefused: the data is no choice for this graph.
    """
    try:
        return _ChoiceReader(data, graph, preferences).lowered(delivery, passes)
    except _MALFORMED as why:
        raise ChoiceRefused(f"the saved choice does not fit the graph: {why!r}") from why


class _ChoiceReader:
    """Reader of one choice from plain data. It checks every row of the data before use."""

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
        """Return the lowered graph of the choice.

        Args:
            delivery, passes: as in ``LoweredGraph``, for the result.

        Raises:
            ChoiceRefused: the choice lacks a value that an input, a node or an output names, or
                does not fit the graph. Malformed rows raise any of ``_MALFORMED``, too.
        """
        rows = map(self._value, _typed(list, self._data["values"]))
        values = {value.name: value for value in rows}
        nodes = [self._node(_typed(list, row)) for row in _typed(list, self._data["nodes"])]
        inputs = _texts(self._data["inputs"])
        outputs = _typed(dict, self._data["outputs"])
        used = {name for node in nodes for name in (*node.inputs, *node.outputs)}
        notes = _typed(dict, self._data["notes"])
        _texts([*notes.values()])
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
            notes={**notes, **self._graph.notes},
        )

    def _value(self, row: Sequence[Any]) -> Value:
        name, dtype, dims, layout, constant = row
        sizes = {_typed(str, dim): _typed(int, size) for dim, size in _typed(dict, dims).items()}
        return Value(
            _typed(str, name), _typed(str, dtype), sizes, _layout(layout), _typed(bool, constant)
        )

    def _node(self, row: Sequence[Any]) -> LoweredNode:
        kind, *fields_of_node = row
        if kind not in (TRANSFORM, OPERATOR):
            raise ChoiceRefused(f"{kind!r} is no kind of node")
        return (
            self._transform(fields_of_node) if kind == TRANSFORM else self._operator(fields_of_node)
        )

    def _transform(self, row: Sequence[Any]) -> TransformNode:
        *names, library, reasons = row
        name, source, target = _texts(names)
        if not self._preferences.allows(_typed(str, library)):
            raise ChoiceRefused(f"{name}: {library} may not be used")
        first, *more = (self._reason(_typed(list, reason)) for reason in _typed(list, reasons))
        return TransformNode(name, source, target, library, first, tuple(more))

    def _reason(self, row: Sequence[Any]) -> Reason:
        *texts, place = row
        consumer, producer, role, library, op, producer_op = _texts(texts)
        requirement = None if place is None else _at(self._requirements, place)
        return Reason(consumer, producer, role, library, op, producer_op, requirement)

    def _operator(self, row: Sequence[Any]) -> OpNode:
        name, inputs, library, forms, asked, refused, kernel, ns, basis, error, count, slow = row
        node = self._graph.nodes[_typed(str, name)]
        fused = tuple(self._graph.offers.get(name, ())[: _natural(count)])
        info, names = info_of(node.op), _texts(inputs)
        if len(fused) != count:
            raise ChoiceRefused(f"{name}: fewer nodes may be fused into it than before")
        if refusal := self._preferences.refusal(name, info.name, _typed(str, library)):
            raise ChoiceRefused(f"{name}: {library} is {refusal}")
        outputs = node.outputs
        for follower in fused:
            outputs = (*follower.outputs, *node.outputs[1:])
        roles = info.roles(len(node.inputs), len(outputs))
        own_count = len(node.inputs)
        variant = Variant(
            library,
            tuple(map(_form, _texts(forms))),
            tuple(_at(self._requirements, place) for place in _typed(list, asked)),
            tuple(_at(self._refused, place) for place in _typed(list, refused)),
            _typed(str, kernel),
            None if ns is None else _natural(ns),
            _basis(basis),
            float(error),
            tuple(follower.name for follower in fused),
            _typed(bool, slow),
        )
        if len(variant.forms) != len(names) + len(outputs):
            raise ChoiceRefused(f"{name}: it has another number of layouts than operands")
        return OpNode(
            name,
            node.op,
            " + ".join([node.op_name, *(follower.op_name for follower in fused)]),
            names,
            outputs,
            (*roles[:own_count], *post_roles(len(names) - own_count), *roles[own_count:]),
            variant,
            fused,
            node.outputs[0] if fused else "",
        )

    def _certificate(self) -> Certificate | None:
        row = self._data["certificate"]
        if row is None:
            return None
        certificate = Certificate(*_row(Certificate, row))
        _basis(certificate.basis)
        if certificate.objective not in OBJECTIVES:
            raise ChoiceRefused(f"{certificate.objective} is no objective")
        return certificate


@cache
def _kinds(of: type) -> tuple[tuple[type, ...], ...]:
    """Return for each field of the dataclass ``of`` the types that its value may have."""
    hints = get_type_hints(of)
    plain = (get_args(hints[field.name]) or (hints[field.name],) for field in fields(of))
    return tuple(
        tuple(kind if isinstance(kind, type) else type(kind) for kind in kinds) for kinds in plain
    )


def _row(of: type, row: object) -> list[Any]:
    """Check that the list ``row`` has a value of the right type for each field of the dataclass
    ``of``; return it.

    Raises:
        ChoiceRefused: the row is no list, or a value is not of its field's type.
        ValueError: the row has more or fewer values than the class has fields.
    """
    values, kinds = _typed(list, row), _kinds(of)
    for value, allowed in zip(values, kinds, strict=True):
        if not isinstance(value, allowed):
            raise ChoiceRefused(f"{value!r} is no field of {of.__name__}")
    return values


def _typed(kind: type[T], value: object) -> T:
    """Return a value of the type ``kind``; raise ChoiceRefused for any other."""
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
    [basis] = [known for known in BASES if known == word]
    return basis


@cache
def _form(text: str) -> Form:
    return Form.parse(text)


def _layout(text: object) -> Layout:
    return Layout(_typed(str, text))
