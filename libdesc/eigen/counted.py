"""Eigen's routines of operators that find as many elements as the data decide."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from libdesc.eigen import native
from libdesc.eigen.kernels import emit_kernel
from libdesc.eigen.moves import COMPARED
from libdesc.routine import Routine
from ptensor.layout import Layout
from ptensor.tensor import PTensor
from vtensor.language.dtype import ITEMSIZE
from vtensor.language.tensor import VTensor

#: The element types that are compared.
FOUND = (*COMPARED, "bool", "u16", "s16", "u32", "u64")


def _layouts(tensors: Sequence[VTensor], *orders: Sequence[str]) -> list[Layout]:
    """Return plain layouts: the first operands' in these orders of dims, the others' in theirs."""
    others = (tensor.dims for tensor in tensors[len(orders) :])
    return [Layout.plain(order) for order in (*orders, *others)]


def _slices(x: VTensor, order: Sequence[str], axis: str) -> tuple[int, int, int]:
    """Return the number of elements of x before, along and after a dim; an empty ``axis`` is all
    elements as one dim.
    """
    if not axis:
        return 1, x.num_elements, 1
    place = order.index(axis)
    before, after = (prod(map(x.size, row)) for row in (order[:place], order[place + 1 :]))
    return before, x.size(axis), after


def nonzero(tensors: Sequence[VTensor], order: Sequence[str]) -> Routine:
    """Return the routine of the indices of the elements that are not 0.

    Args:
        tensors: x, the indices and their number.
        order: the dims of x, from slowest to fastest.
    """
    x = tensors[0]

    def run(*operands: PTensor) -> None:
        emit_kernel(native.load().nonzero(x.dtype, [*map(x.size, order)]), operands)

    return Routine(tensors, _layouts(tensors, order), run=run)


def select(tensors: Sequence[VTensor], order: Sequence[str], axis: str) -> Routine:
    """Return the routine that takes the slices for which a condition is true.

    Args:
        tensors: x, the condition, the slices and their number.
        order: the dims of x, from slowest to fastest.
        axis: the dim of the slices; empty takes elements.
    """
    x, condition, *_ = tensors

    def run(*operands: PTensor) -> None:
        sizes = *_slices(x, order, axis), condition.num_elements
        emit_kernel(native.load().select(*sizes, ITEMSIZE[x.dtype]), operands)

    return Routine(tensors, _layouts(tensors, order), run=run)


def unique(tensors: Sequence[VTensor], order: Sequence[str], axis: str, ascending: bool) -> Routine:
    """Return the routine of distinct slices.

    Args:
        tensors: x, the slices, their first occurrences, the index of each slice among them, their
            numbers of occurrences, and their number.
        order: the dims of x, from slowest to fastest.
        axis: the dim of the slices; empty compares elements.
        ascending: False keeps the order of first occurrence.
    """
    x = tensors[0]

    def run(*operands: PTensor) -> None:
        sizes = _slices(x, order, axis)
        emit_kernel(native.load().unique(x.dtype, *sizes, not axis, ascending), operands)

    return Routine(tensors, _layouts(tensors, order), run=run)


def suppression(
    tensors: Sequence[VTensor], most: int, overlap: float, score: float, centered: bool
) -> Routine:
    """Return the routine that chooses boxes of high scores that overlap little.

    Args:
        tensors: boxes, scores, the indices of what is chosen, and its number.
        most: the most boxes of an image and class.
        overlap: the most that two of them overlap: intersection by union.
        score: a box is left out unless its score is larger.
        centered: whether a box is x and y of its centre, width and height.
    """
    boxes, scores, *_ = tensors

    def run(*operands: PTensor) -> None:
        sizes = boxes.size("B"), scores.size("C"), boxes.size("S"), most
        emit_kernel(native.load().suppression(*sizes, overlap, score, centered), operands)

    return Routine(tensors, _layouts(tensors, ("B", "S", "corner"), ("B", "C", "S")), run=run)
