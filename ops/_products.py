"""Shared parts of matrix products: the names of their dims in ONNX, and their factors."""

from __future__ import annotations

from typing import Any

from ops._names import fresh
from vtensor.operators import Naming, NodeReader
from vtensor.tensor import VTensor


def _turned(node: Naming | NodeReader, factor: str, rank: int) -> list[int]:
    """Return the axes of a factor in the order in which a product reads them.

    Args:
        node: the product.
        factor: ``A`` or ``B``, at the end of the names of the attributes that change the order.
        rank: the number of the factor's axes.
    """
    axes = [*range(rank)]
    batch, matrix = (int(node.attribute(f"trans{part}{factor}", 0)) for part in ("Batch", ""))
    if batch and rank > 1:
        axes = [*axes[1:-1], axes[0], axes[-1]]
    return [*axes[:-2], *axes[:-3:-1]] if matrix and rank > 1 else axes


class _Turned:
    """A product as an ONNX node, whose factors have their axes in the order in which it reads them.

    Args:
        node: the node.
    """

    def __init__(self, node: Naming) -> None:
        self.rank = node.rank
        self._node = node
        self._axes = {role: _turned(node, "AB"[i], node.rank(role)) for i, role in _FACTORS}

    def same(self, role: str, position: int, other: str, other_position: int) -> None:
        """Make an axis of a value the same dim as an axis of another."""
        places: list[Any] = []
        for name, place in ((role, position), (other, other_position)):
            places += [name, self._axes[name][place] if name in self._axes else place]
        self._node.same(*places)


_FACTORS = ((0, "x0"), (1, "x1"))


def turned_names(node: Naming) -> None:
    """Do as ``product_names`` for a product whose attributes change the order of axes."""
    adapted: Any = _Turned(node)
    if node.rank("x0") and node.rank("x1"):
        product_names(adapted)


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


def read_factors(
    node: NodeReader, second: int = 1, turned: bool = False
) -> tuple[VTensor, VTensor, str]:
    """Return both factors of a matrix product, and the name of the dim that it sums over.

    The factors are the node's inputs 0 and ``second``. Their other dims have the output's names. If
    ``turned``, the node's attributes change the order of their axes.
    """
    out = node.output_names()
    left, right = len(node.input(0).dims), len(node.input(second).dims)
    if not left or not right:
        raise node.refuse("an operand without dims")
    orders = [
        _turned(node, factor, rank) if turned else [*range(rank)]
        for factor, rank in (("A", left), ("B", right))
    ]
    over = fresh(list(node.input(0).dims)[orders[0][-1]], out)
    end = len(out) - (right > 1)
    stack = end - (left > 1)
    rows, columns = out[stack:end], out[end:]
    names = [
        [*out[stack - max(left - 2, 0) : stack], *rows, over],
        [*out[stack - max(right - 2, 0) : stack], over, *columns],
    ]
    a, b = (
        node.input(index, " ".join(row[order.index(axis)] for axis in range(len(order))))
        for index, row, order in zip((0, second), names, orders, strict=True)
    )
    return a, b, over


def product_rank(node: Naming) -> int:
    """Return the rank of the output of a matrix product as an ONNX node."""
    left, right = node.rank("x0"), node.rank("x1")
    return max(left, right, 2) - (left == 1) - (right == 1)
