"""Shared parts of spellings: names for the axes of ONNX values, and reading of operands.

``role`` and ``other`` are roles of values: ``x0`` is input 0, ``y0`` output 0.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection
from typing import Any

from vtensor.operators import Naming, NodeReader, named
from vtensor.tensor import VTensor


def same_names(node: Naming, role: str = "x0", other: str = "y0") -> None:
    """Give each axis of the value ``role`` the dim name of the same axis of the value ``other``."""
    for position in range(node.rank(role)):
        node.same(role, position, other, position)


def last_names(node: Naming, role: str = "x0", other: str = "y0") -> None:
    """Give the axes of the value ``role`` the names of the last axes of the value ``other``.

    The last axes of both values match, the ones before them, and so on.
    """
    for back in range(1, node.rank(role) + 1):
        node.same(role, -back, other, -back)


def broadcast_names(node: Naming) -> None:
    """Give the axes of every input the names of the output's last axes, as NumPy broadcasts."""
    for role in node.roles:
        last_names(node, role)


def broadcast_input(node: NodeReader, index: int) -> VTensor:
    """Return input ``index``, its axes named as the output's last axes, as NumPy broadcasts."""
    names = node.output_names()
    rank = len(node.input(index).dims)
    return node.input(index, " ".join(names[len(names) - rank :]))


def _first_position(axis: object, rank: int, second: int) -> int:
    """Return the axis of the first input at which the axes of the second begin.

    Args:
        axis: that axis; None means that the last axes of both inputs match.
        rank, second: the number of axes of the first and of the second input.
    """
    return rank - second if axis is None else int(str(axis)) % max(rank, 1)


def old_broadcast_names(node: Naming) -> None:
    """Name dims as up to opset 6, where an attribute ``axis`` says where input 1 belongs.

    The axes of input 1 get the names of the output's axes from index ``axis`` on.
    """
    same_names(node)
    rank, second = node.rank("x0"), node.rank("x1")
    start = _first_position(node.attribute("axis"), rank, second)
    for position in range(min(second, rank - start)):
        node.same("x1", position, "y0", start + position)


def old_broadcast_input(node: NodeReader) -> VTensor:
    """Return input 1 with the names that ``old_broadcast_names`` gives its axes."""
    names, second = node.output_names(), len(node.input(1).dims)
    start = _first_position(node.attribute("axis"), len(names), second)
    if start + second > len(names):
        raise node.refuse(f"axis {start} leaves no room for {second} dims of {len(names)}")
    return node.input(1, " ".join(names[start : start + second]))


def broadcast_inputs(node: NodeReader) -> list[VTensor]:
    """Return all inputs, each named as ``broadcast_input`` does."""
    return [broadcast_input(node, index) for index in range(len(node.inputs))]


def chained(node: NodeReader, op: object) -> VTensor:
    """Add a node of any number of inputs as a chain of ``op``, which takes two; return the result.

    A single input becomes an Identity.
    """
    first, *others = broadcast_inputs(node)
    result = first if others else node.add(named("Identity")(), first)
    for other in others:
        result = node.add(op, result, other)
    return result


def from_attributes(node: NodeReader, cls: type, **known: Any) -> Any:
    """Return an operator whose parameters have the values of the node's attributes of these names.

    An attribute that is absent gives the parameter's default.

    Args:
        node: the node.
        cls: the operator's class.
        known: values of parameters that are not read from attributes.
    """
    kinds: dict[Any, type] = {"float": float, "bool": bool, "int": int}
    for field in dataclasses.fields(cls):
        default = None if field.default is dataclasses.MISSING else field.default
        if field.name not in known:
            known[field.name] = kinds.get(field.type, str)(node.attribute(field.name, default))
    return cls(**known)


def axes_of(node: NodeReader, x: VTensor, axes: list[int]) -> tuple[str, ...]:
    """Return the dims of ``x`` at the indices ``axes``; negative ones count from the end."""
    return tuple(node.axis(axis, x) for axis in axes)


def axis_of(node: NodeReader, x: VTensor, name: str = "axis", default: int = 0) -> str:
    """Return the dim of ``x`` whose index is the attribute ``name``, by default ``default``."""
    return node.axis(int(node.attribute(name, default)), x)


def all_alike(node: Naming) -> None:
    """Give each axis of every input the name of the output's same axis."""
    for role in node.roles:
        same_names(node, role)


def no_names(node: Naming) -> None:
    """Name no axes: which axes are the same dim depends on values or sizes not known yet."""


def fresh(name: str, taken: Collection[str]) -> str:
    """Return ``name``, with as few underscores appended as make it differ from all of ``taken``."""
    while name in taken:
        name += "_"
    return name
