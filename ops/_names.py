"""How ONNX's positions get their names, and nodes are read, for the operators that do it alike."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection
from typing import Any

from vtensor.operators import Naming, NodeReader, named
from vtensor.tensor import VTensor


def same_names(node: Naming, role: str = "x0", other: str = "y0") -> None:
    """Every position of one operand is that position of another."""
    for position in range(node.rank(role)):
        node.same(role, position, other, position)


def last_names(node: Naming, role: str = "x0", other: str = "y0") -> None:
    """Likewise, both counted from the last."""
    for back in range(1, node.rank(role) + 1):
        node.same(role, -back, other, -back)


def broadcast_names(node: Naming) -> None:
    """Positions of all inputs are the output's, counted from the last."""
    for role in node.roles:
        last_names(node, role)


def broadcast_input(node: NodeReader, index: int) -> VTensor:
    """Input ``index`` under the output's names, counted from the last."""
    names = node.output_names()
    rank = len(node.input(index).dims)
    return node.input(index, " ".join(names[len(names) - rank :]))


def _start(axis: object, rank: int, second: int) -> int:
    """Where the second input's positions lie among the first's; at the end if nothing is said."""
    return rank - second if axis is None else int(str(axis)) % max(rank, 1)


def old_broadcast_names(node: Naming) -> None:
    """Up to opset 6: the output is like the first input, and the second lies along it."""
    same_names(node)
    rank, second = node.rank("x0"), node.rank("x1")
    start = _start(node.attribute("axis"), rank, second)
    for position in range(min(second, rank - start)):
        node.same("x1", position, "y0", start + position)


def old_broadcast_input(node: NodeReader) -> VTensor:
    """Up to opset 6: input 1 under the output's names, from ``axis`` on."""
    names, second = node.output_names(), len(node.input(1).dims)
    start = _start(node.attribute("axis"), len(names), second)
    if start + second > len(names):
        raise node.refuse(f"axis {start} leaves no room for {second} dims of {len(names)}")
    return node.input(1, " ".join(names[start : start + second]))


def broadcast_inputs(node: NodeReader) -> list[VTensor]:
    """All inputs under the output's names, counted from the last."""
    return [broadcast_input(node, index) for index in range(len(node.inputs))]


def chained(node: NodeReader, op: object) -> VTensor:
    """A variadic element-wise node as a chain of an operator on two inputs; one input is itself."""
    first, *others = broadcast_inputs(node)
    result = first if others else node.add(named("Identity")(), first)
    for other in others:
        result = node.add(op, result, other)
    return result


def from_attributes(node: NodeReader, cls: type, **known: Any) -> Any:
    """An operator whose parameters, but for those known, are the node's attributes of their names.

    Args:
        node: the node.
        cls: the operator's class.
        known: parameters that are something else.
    """
    kinds: dict[Any, type] = {"float": float, "bool": bool, "int": int}
    for field in dataclasses.fields(cls):
        default = None if field.default is dataclasses.MISSING else field.default
        if field.name not in known:
            known[field.name] = kinds.get(field.type, str)(node.attribute(field.name, default))
    return cls(**known)


def axes_of(node: NodeReader, x: VTensor, axes: list[int]) -> tuple[str, ...]:
    """The dims at these positions; negative ones count from the end."""
    return tuple(node.axis(axis, x) for axis in axes)


def axis_of(node: NodeReader, x: VTensor, name: str = "axis", default: int = 0) -> str:
    """The dim of x that an attribute numbers."""
    return node.axis(int(node.attribute(name, default)), x)


def all_alike(node: Naming) -> None:
    """Every position of each input is that position of the output."""
    for role in node.roles:
        same_names(node, role)


def no_names(node: Naming) -> None:
    """Which position is which dim depends on values or sizes, which are not known yet."""


def fresh(name: str, taken: Collection[str]) -> str:
    """A name beside those that are taken: ``K``, else ``K_``, ..."""
    while name in taken:
        name += "_"
    return name
