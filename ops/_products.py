"""Shared parts of matrix products: the names of their dims in ONNX, and their factors."""

from __future__ import annotations

from ops._names import fresh
from vtensor.operators import Naming, NodeReader
from vtensor.tensor import VTensor


def product_names(node: Naming, second: str = "x1") -> None:
    """Give dim names to the axes of a matrix product's factors and of its output.

    A factor is a vector, a matrix or a stack of matrices. Input 0 is the first factor; ``second``
    is the role of the second one: ``x1`` is input 1.
    """
    left, right = node.rank("x0"), node.rank(second)
    node.same("x0", -1, second, max(right - 2, 0) - right)
    if left > 1:
        node.same("x0", -2, "y0", -2 if right > 1 else -1)
    if right > 1:
        node.same(second, -1, "y0", -1)
    gap = (left == 1) + (right == 1)  # a vector adds no row or column to the output
    for role, rank in (("x0", left), (second, right)):
        for back in range(3, rank + 1):
            node.same(role, -back, "y0", gap - back)


def read_factors(node: NodeReader, second: int = 1) -> tuple[VTensor, VTensor, str]:
    """Return both factors of a matrix product, and the name of the dim that it sums over.

    The factors are the node's inputs 0 and ``second``. Their other dims have the output's names.
    """
    out = node.output_names()
    left, right = len(node.input(0).dims), len(node.input(second).dims)
    if not left or not right:
        raise node.refuse("an operand without dims")
    over = fresh(list(node.input(0).dims)[-1], out)
    end = len(out) - (right > 1)
    stack = end - (left > 1)
    rows, columns = out[stack:end], out[end:]
    a = node.input(0, " ".join([*out[stack - max(left - 2, 0) : stack], *rows, over]))
    b = node.input(second, " ".join([*out[stack - max(right - 2, 0) : stack], over, *columns]))
    return a, b, over


def product_rank(node: Naming) -> int:
    """Return the rank of the output of a matrix product as an ONNX node."""
    left, right = node.rank("x0"), node.rank("x1")
    return max(left, right, 2) - (left == 1) - (right == 1)
