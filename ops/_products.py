"""Shared parts of matrix products: the names of their dims in ONNX, and their factors."""

from __future__ import annotations

from ops._names import fresh
from vtensor.operators import Naming, NodeReader
from vtensor.tensor import VTensor


def product_names(node: Naming, second: str = "x1") -> None:
    """Name the dims of a matrix product's factors and output: vectors, matrices or stacks of them.

    ``second`` is the role of the second factor; the first factor is ``x0``.
    """
    left, right = node.rank("x0"), node.rank(second)
    node.same("x0", -1, second, max(right - 2, 0) - right)
    if left > 1:
        node.same("x0", -2, "y0", -2 if right > 1 else -1)
    if right > 1:
        node.same(second, -1, "y0", -1)
    gap = (left == 1) + (right == 1)  # matrix dims that the output lacks
    for role, rank in (("x0", left), (second, right)):
        for back in range(3, rank + 1):
            node.same(role, -back, "y0", gap - back)


def read_factors(node: NodeReader, second: int = 1) -> tuple[VTensor, VTensor, str]:
    """Return the factors of a matrix product, inputs 0 and ``second``, and the dim to sum over.

    The factors' dims have the output's names, but for the dim to sum over, which the output lacks.
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
