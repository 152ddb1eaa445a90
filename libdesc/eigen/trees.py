"""Eigen's routines for ensembles of decision trees, and for tables of keys."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from libdesc.eigen import native
from libdesc.eigen.kernels import emit_kernel
from libdesc.routine import Routine
from ptensor.layout import Layout
from ptensor.tensor import PTensor
from vtensor.language.dtype import ITEMSIZE
from vtensor.language.tensor import VTensor

if TYPE_CHECKING:
    from libdesc.eigen._eigen import Forest


#: The dims of operands that have two, in the kernels' order.
_ORDER = ("N", "F", "node", "word", "pair", "target", "class")


def _in_order(tensors: Sequence[VTensor]) -> list[Layout]:
    """Return the layouts in which the kernels take these operands."""
    return [
        Layout.plain(sorted(tensor.dims, key=_ORDER.index) if len(tensor.dims) > 1 else tensor.dims)
        for tensor in tensors
    ]


def _sizes(tensors: Sequence[VTensor], targets: int, aggregate: str, plain: bool) -> Forest:
    x, nodes, roots, votes, *_ = tensors
    trees, count, of_votes = roots.num_elements, nodes.size("node"), votes.num_elements
    return x.size("N"), x.size("F"), trees, count, of_votes, targets, aggregate, plain


def forest(tensors: Sequence[VTensor], aggregate: str, plain: bool) -> Routine:
    """Return the routine of the aggregated votes of decision trees.

    Args:
        tensors: x, nodes, roots, targets, weights, base and y.
        aggregate, plain: see ``Forest`` in ``_eigen.pyi``.
    """
    y = tensors[-1]
    sizes = _sizes(tensors, y.size("target"), aggregate, plain)

    def run(*operands: PTensor) -> None:
        emit_kernel(native.load().forest(tensors[0].dtype, y.dtype, sizes), operands)

    return Routine(tensors, _in_order(tensors), run=run)


def tree_classifier(
    tensors: Sequence[VTensor], plain: bool, binary: bool, positive: bool, complement: bool
) -> Routine:
    """Return the routine of a classifier that consists of decision trees.

    Args:
        tensors: x, nodes, roots, targets, weights, base, labels, label and scores.
        plain: see ``Forest`` in ``_eigen.pyi``.
        binary, positive, complement: see ``tree_classifier`` in ``_eigen.pyi``.
    """
    sizes = _sizes(tensors, tensors[-1].size("class"), "SUM", plain)
    classes = tensors[5].num_elements, binary, positive, complement

    def run(*operands: PTensor) -> None:
        emit_kernel(native.load().tree_classifier(tensors[0].dtype, sizes, classes), operands)

    return Routine(tensors, _in_order(tensors), run=run)


def lookup(x: VTensor, keys: VTensor, values: VTensor, y: VTensor) -> Routine:
    """Return the routine that replaces each element of x by the value of its key, in any layout.

    Args:
        x, y: the elements, in one layout.
        keys: the keys, ascending, NaN last.
        values: the value of each key, then that of elements that are no key.
    """

    def run(src: PTensor, *others: PTensor) -> None:
        count = src.required_layout.num_elements(src.dims)
        item = ITEMSIZE[y.dtype]
        kernel = native.load().lookup(x.dtype, item, count, keys.num_elements)
        emit_kernel(kernel, [src, *others])

    orders = [Layout.plain(x.dims), *_in_order([keys, values]), Layout.plain(y.dims)]
    return Routine([x, keys, values, y], orders, run=run)


def pair_probabilities(x: VTensor, y: VTensor) -> Routine:
    """Return the routine that computes probabilities of classes (N class) from pairs (N pair)."""

    def run(*operands: PTensor) -> None:
        emit_kernel(native.load().pair_probabilities(y.size("N"), y.size("class")), operands)

    return Routine([x, y], _in_order([x, y]), run=run)
