"""How ONNX's positions get their names, for the operators that do it alike."""

from __future__ import annotations

from vtensor.operators import Naming, NodeReader
from vtensor.tensor import VTensor


def same_names(node: Naming) -> None:
    """Every position of the first input is that position of the output."""
    for position in range(node.rank("x0")):
        node.same("x0", position, "y0", position)


def broadcast_names(node: Naming) -> None:
    """Positions of all inputs are the output's, counted from the last."""
    for role in node.roles:
        for back in range(1, node.rank(role) + 1):
            node.same(role, -back, "y0", -back)


def broadcast_input(node: NodeReader, index: int) -> VTensor:
    """Input ``index`` under the output's names, counted from the last."""
    names = node.output_names()
    rank = len(node.input(index).dims)
    return node.input(index, " ".join(names[len(names) - rank :]))


def chained(node: NodeReader, op: object) -> VTensor:
    """A variadic element-wise node as a chain of an operator on two inputs."""
    result = broadcast_input(node, 0)
    for index in range(1, len(node.inputs)):
        result = node.add(op, result, broadcast_input(node, index))
    return result


def axes_of(node: NodeReader, x: VTensor, axes: list[int]) -> tuple[str, ...]:
    """The dims at these positions; negative ones count from the end."""
    return tuple(node.axis(axis, x) for axis in axes)
