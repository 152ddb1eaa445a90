"""Shared ways to name dims at ONNX's positions, and to read operands and attributes."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection
from typing import Any

from vtensor.operators import Naming, NodeReader, named
from vtensor.tensor import VTensor


def same_names(node: Naming, role: str = "x0", other: str = "y0") -> None:
    """Give each position of one operand the name of the same position of another."""
    for position in range(node.rank(role)):
        node.same(role, position, other, position)


def last_names(node: Naming, role: str = "x0", other: str = "y0") -> None:
    """Give positions of one operand the names of another's, both counted from the last."""
    for back in range(1, node.rank(role) + 1):
        node.same(role, -back, other, -back)


def broadcast_names(node: Naming) -> None:
    """Give positions of all inputs the output's names, counted from the last."""
    for role in node.roles:
        last_names(node, role)


def broadcast_input(node: NodeReader, index: int) -> VTensor:
    """Return input ``index`` under the output's names, counted from the last."""
    names = node.output_names()
    rank = len(node.input(index).dims)
    return node.input(index, " ".join(names[len(names) - rank :]))


def _first_position(axis: object, rank: int, second: int) -> int:
    """Return the first input's position where the second begins; by default both end together."""
    return rank - second if axis is None else int(str(axis)) % max(rank, 1)


def old_broadcast_names(node: Naming) -> None:
    """Name dims as up to opset 6: the second input is along the first from ``axis`` on."""
    same_names(node)
    rank, second = node.rank("x0"), node.rank("x1")
    start = _first_position(node.attribute("axis"), rank, second)
    for position in range(min(second, rank - start)):
        node.same("x1", position, "y0", start + position)


def old_broadcast_input(node: NodeReader) -> VTensor:
    """Return input 1 under the output's names from ``axis`` on, as up to opset 6."""
    names, second = node.output_names(), len(node.input(1).dims)
    start = _first_position(node.attribute("axis"), len(names), second)
    if start + second > len(names):
        raise node.refuse(f"axis {start} leaves no room for {second} dims of {len(names)}")
    return node.input(1, " ".join(names[start : start + second]))


def broadcast_inputs(node: NodeReader) -> list[VTensor]:
    """Return all inputs under the output's names, counted from the last."""
    return [broadcast_input(node, index) for index in range(len(node.inputs))]


def chained(node: NodeReader, op: object) -> VTensor:
    """Add a variadic element-wise node as a chain of an operator on two inputs.

    A single input is returned through an Identity.
    """
    first, *others = broadcast_inputs(node)
    result = first if others else node.add(named("Identity")(), first)
    for other in others:
        result = node.add(op, result, other)
    return result


def from_attributes(node: NodeReader, cls: type, **known: Any) -> Any:
    """Return an operator whose parameters are the node's attributes of their names.

    Args:
        node: the node.
        cls: the operator's class.
        known: parameters that are not taken from attributes.
    """
    kinds: dict[Any, type] = {"float": float, "bool": bool, "int": int}
    for field in dataclasses.fields(cls):
        default = None if field.default is dataclasses.MISSING else field.default
        if field.name not in known:
            known[field.name] = kinds.get(field.type, str)(node.attribute(field.name, default))
    return cls(**known)


def axes_of(node: NodeReader, x: VTensor, axes: list[int]) -> tuple[str, ...]:
    """Return the dims at these positions; negative ones count from the end."""
    return tuple(node.axis(axis, x) for axis in axes)


def axis_of(node: NodeReader, x: VTensor, name: str = "axis", default: int = 0) -> str:
    """Return the dim of x that the attribute ``name`` numbers."""
    return node.axis(int(node.attribute(name, default)), x)


def all_alike(node: Naming) -> None:
    """Give each position of every input the name of the output's same position."""
    for role in node.roles:
        same_names(node, role)


def no_names(node: Naming) -> None:
    """Name nothing: the dims of positions depend on values or sizes that are not known yet."""


def fresh(name: str, taken: Collection[str]) -> str:
    """Return ``name`` with as few underscores added as make it none of ``taken``."""
    while name in taken:
        name += "_"
    return name
