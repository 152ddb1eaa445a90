"""Nodes, Transforms and costs of a choice, converted to rows of a lock file and back."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, get_args

from libdesc.transforms import LayoutChange
from optimizer.choice.problem import Clock
from ptensor.evaluation import Basis, Refusal, Requirement, Variant
from ptensor.form import Form
from ptensor.layout import Layout
from resolver.lock_choice import Choices, NodeChoice
from resolver.lowered import LoweredGraph, OpNode, Reason, TransformNode, Value
from vtensor.errors import VTensorError
from vtensor.runtime.lock.toml import Table

#: The texts that a lock file has for the operator of a Transform, and for a requirement that every
#: layout fulfils.
TRANSFORM, ANY = "Transform", "ANY"

Row = dict[str, Any]


def node_rows(choices: Choices) -> list[Row]:
    """Return a row for each node, in execution order, without costs."""
    return [
        _transform_row(row, choices) if isinstance(row, TransformNode) else _node_row(row, choices)
        for row in choices.rows
    ]


def cost_rows(graph: LoweredGraph, clock: Clock) -> Row:
    """Return the costs of a plan's nodes: a row for each node that runs, by the node's name.

    If several variants of a node were compared, its row has the time that was compared. Other times
    are estimated by ``clock`` and rounded.

    Args:
        graph: the plan's lowered graph.
        clock: estimates times that were not compared.
    """
    costs: Row = {}
    rows = zip(graph.nodes, Choices.of(graph).rows, strict=True)
    ahead = {node.name for node in graph.ahead()}
    for node, row in rows:
        if isinstance(node, OpNode) and node.variant.ns is not None:
            costs[row.name] = {"ns": node.variant.ns, "basis": node.variant.basis, "open": True}
        elif isinstance(node, OpNode):
            costs[row.name] = _estimated(clock.node(node, graph.tensors), clock)
        elif node.name not in ahead:
            source, target = graph.values[node.input], graph.values[node.output]
            ns = clock.transform(source.tensor(), LayoutChange(source.layout, target.layout))
            costs[row.name] = {"bytes": source.nbytes + target.nbytes, **_estimated(ns, clock)}
    return costs


def _estimated(ns: int | None, clock: Clock) -> Row:
    return {} if ns is None else {"ns": rough(ns), "basis": clock.basis}


def rough(number: int) -> int:
    """Return a number rounded to two significant digits.

    >>> rough(3098), rough(7), rough(0)
    (3100, 7, 0)
    """
    step: int = 10 ** max(0, len(str(number)) - 2)
    return round(number / step) * step


def costs_of(row: Table) -> dict[str, Row]:
    """Return the costs of nodes from their table in a lock file: a row for each node, by the node's
    name.

    Raises:
        LockError: a key is unknown, or its value is invalid.
    """
    costs = {}
    for name in row.data:
        cost = row.table(name)
        cost.only("ns", "basis", "open", "bytes")
        entry: Row = {key: cost.get(key, int) for key in ("bytes", "ns") if key in cost.data}
        entry |= {"basis": basis_of(cost)} if "ns" in entry else {}
        costs[name] = entry | ({"open": True} if cost.get("open", bool, False) else {})
    return costs


def input_rows(choices: Choices) -> Row:
    """Return a row for each input, by name: the element type, sizes and layout of the plan."""
    return {
        name: {"dtype": value.dtype, "sizes": dict(value.dims), "layout": str(value.layout)}
        for name, value in choices.inputs.items()
    }


def _node_row(row: NodeChoice, choices: Choices) -> Row:
    variant = row.variant
    names, node_place = (*row.inputs, *row.outputs), variant.requirements[0].place
    operands = []
    for name, role, form, asked in zip(
        names, row.roles, variant.forms, variant.requirements, strict=True
    ):
        operand: Row = {"role": role, "value": name, "layout": str(form)}
        if name in row.outputs and (lies := choices.layouts[name]) != form.layout:
            operand["lies"] = str(lies)  # the value's layout, if spelled otherwise than the form's
        operand |= {"asked": _layout_texts(asked)} if asked.layouts != (form.layout,) else {}
        operands.append(operand | ({"at": asked.place} if asked.place != node_place else {}))
    entry: Row = {
        "name": row.name,
        "operator": row.op_name,
        "library": variant.library,
        "at": node_place,
    }
    entry |= {"kernel": variant.kernel} if variant.kernel else {}
    entry |= {"fuses": list(variant.followers)} if variant.followers else {}
    entry |= {"error": variant.error} if variant.inexact else {}
    entry |= {"reference": True} if variant.reference else {}
    entry |= {"reads": operands[: len(row.inputs)], "makes": operands[len(row.inputs) :]}
    declined = [
        {"library": refusal.library, "priority": refusal.priority, "reason": refusal.reason}
        for refusal in variant.refused
    ]
    return entry | ({"declined": declined} if declined else {})


def _transform_row(row: TransformNode, choices: Choices) -> Row:
    reasons = []
    for reason in row.reasons:
        operand: Row = {"node": reason.consumer, "operator": reason.op, "library": reason.library}
        operand |= {"role": reason.role, "made_by": reason.producer_op, "value": reason.producer}
        operand = {key: text for key, text in operand.items() if text}
        if reason.requirement:
            operand |= {"asked": _layout_texts(reason.requirement), "at": reason.requirement.place}
        reasons.append(operand)
    target = {"value": row.output, "layout": str(choices.layouts[row.output])}
    return {
        "name": row.name,
        "operator": TRANSFORM,
        "library": row.library,
        "reads": [{"value": row.input}],
        "makes": [target],
        "required_by": reasons,
    }


def _layout_texts(requirement: Requirement) -> list[str]:
    return [str(layout) for layout in requirement.layouts] or [ANY]


def choices_of(data: Table, nodes: Sequence[Table]) -> Choices:
    """Return the choice from the tables of a lock file, with the times that were compared.

    Args:
        data: the table of the whole file.
        nodes: the tables of its nodes.

    Raises:
        LockError: a key is missing or unknown, or its value is invalid.
    """
    inputs, layouts = {}, {}
    input_tables = data.table("inputs")
    for name in input_tables.data:
        inputs[name] = value = _input(name, input_tables.table(name))
        layouts[name] = value.layout
    costs = costs_of(data.table("costs"))
    rows = [_row(node, costs, layouts) for node in nodes]
    outputs = data.table("outputs")
    return Choices(
        inputs, {alias: outputs.get(alias, str) for alias in outputs.data}, tuple(rows), layouts
    )


def _input(name: str, row: Table) -> Value:
    row.only("dtype", "sizes", "layout")
    sizes = row.table("sizes")
    dims = {dim: sizes.get(dim, int) for dim in sizes.data}
    layout = _parsed(row, "layout", Layout)
    return Value(name, row.get("dtype", str), dims, layout)


def _row(
    row: Table, costs: Mapping[str, Row], layouts: dict[str, Layout]
) -> NodeChoice | TransformNode:
    if row.get("operator", str) == TRANSFORM:
        return _transform(row, layouts)
    row.only(
        *("name", "operator", "library", "at", "kernel", "fuses", "error", "reference"),
        *("reads", "makes", "declined"),
    )
    reads, makes = row.tables("reads"), row.tables("makes")
    operands = [*reads, *makes]
    for operand in operands:
        operand.only("role", "value", "layout", "lies", "asked", "at")
    if not makes:
        raise row.error("makes", "must hold what the node makes")
    forms = tuple(_parsed(operand, "layout", Form) for operand in operands)
    for operand, form in zip(makes, forms[len(reads) :], strict=True):
        lies = _parsed(operand, "lies", Layout) if "lies" in operand.data else form.layout
        layouts[operand.get("value", str)] = lies
    name = row.get("name", str)
    cost = costs.get(name, {})
    weighed = cost if "open" in cost else {}
    variant = Variant(
        row.get("library", str),
        forms,
        tuple(map(partial(_requirement, row.get("at", str)), operands, forms)),
        tuple(map(_refusal, row.tables("declined"))),
        row.get("kernel", str, ""),
        weighed.get("ns"),
        weighed.get("basis", "declared"),
        row.get("error", float, 0.0),
        row.texts("fuses"),
        row.get("reference", bool, False),
        inexact="error" in row.data,
    )
    return NodeChoice(
        name,
        row.get("operator", str),
        tuple(operand.get("value", str) for operand in reads),
        tuple(operand.get("value", str) for operand in makes),
        tuple(operand.get("role", str) for operand in operands),
        variant,
    )


def _transform(row: Table, layouts: dict[str, Layout]) -> TransformNode:
    row.only("name", "operator", "library", "reads", "makes", "required_by")
    reads, makes, why = row.tables("reads"), row.tables("makes"), row.tables("required_by")
    for key, tables in (("reads", reads), ("makes", makes)):
        if len(tables) != 1:
            raise row.error(key, f"must hold one value, not {len(tables)}")
    if not why:
        raise row.error("required_by", "must name the requirements that caused it")
    target = makes[0].get("value", str)
    layouts[target] = _parsed(makes[0], "layout", Layout)
    first, *more = map(_reason, why)
    source = reads[0].get("value", str)
    return TransformNode(
        row.get("name", str), source, target, row.get("library", str), first, tuple(more)
    )


def _reason(row: Table) -> Reason:
    row.only("node", "operator", "library", "role", "made_by", "value", "asked", "at")
    return Reason(
        row.get("node", str),
        row.get("value", str),
        row.get("role", str, ""),
        row.get("library", str, ""),
        row.get("operator", str, ""),
        row.get("made_by", str, ""),
        _requirement("", row) if "asked" in row.data else None,
    )


def _refusal(row: Table) -> Refusal:
    row.only("library", "priority", "reason")
    return Refusal(row.get("priority", int), row.get("library", str), row.get("reason", str))


def _requirement(at: str, row: Table, form: Form | None = None) -> Requirement:
    """Return the requirement of an operand from its row in a lock file.

    Args:
        at: the source file and line of the requirement, as ``FILE:LINE``, for a row that names
            none.
        row: the operand's row.
        form: the form of the operand. Its layout is required if the row asks for no layout. None
            for a Transform.
    """
    texts, layouts = row.texts("asked"), tuple[Layout, ...]()
    if texts != (ANY,):
        layouts = tuple(map(_parser(row, "asked", Layout), texts))
        layouts = layouts or ((form.layout,) if form is not None else ())
    file, _, line = row.get("at", str, at).rpartition(":")
    if not line.isdecimal():
        raise row.error("at", f"must be a file and a line, not {row.data.get('at', at)!r}")
    return Requirement(layouts, file, int(line))


def basis_of(row: Table) -> Basis:
    """Return the basis of a row's time: how the time is known (declared, measured and so on).

    Raises:
        LockError: the basis is unknown.
    """
    for known in get_args(Basis):
        if row.get("basis", str, "declared") == known:
            basis: Basis = known
            return basis
    raise row.error("basis", f"must be one of {', '.join(get_args(Basis))}")


_PARSERS: Mapping[type, Callable[[str], Any]] = {Layout: Layout, Form: Form.parse}


def _parsed(row: Table, key: str, kind: type[Any]) -> Any:
    return _parser(row, key, kind)(row.get(key, str))


def _parser(row: Table, key: str, kind: type[Any]) -> Callable[[str], Any]:
    def parse(text: str) -> Any:
        try:
            return _PARSERS[kind](text)
        except VTensorError as error:
            raise row.error(key, str(error)) from error

    return parse
