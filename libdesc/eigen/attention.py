"""Attention on Eigen: what its kernel is told of operands as they lie."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from libdesc.eigen import native
from libdesc.eigen.memory import Axis, nested, strides_along
from libdesc.groups import side_by_side
from libdesc.routine import Routine
from libdesc.tracing import traced
from ptensor.evaluation import Call, emit
from ptensor.layout import Layout
from ptensor.tensor import PTensor
from vtensor.language.tensor import VTensor


class Numbers(NamedTuple):
    """Of an attention: the factor of products, what hides one, and whether no weights are zeros."""

    scale: float
    masked: float
    zero: bool


class Attention(Routine):
    """softmax over ``along`` of (q times k, summed over ``over``), times v.

    Each of q, k, v and dst may lie with its rows side by side, or with those of all heads inside a
    row. Each input may also lie as it is made, in whatever order of whole rows, in blocks too; dst
    then lies as q does.

    Args:
        operands: q, k, v, masks and dst.
        over, along: the dims that are summed over.
        numbers: what else the operator says.
    """

    def __init__(self, *operands: VTensor, over: str, along: str, numbers: Numbers) -> None:
        q, k, v, *masks, dst = operands
        [query], [value] = ([dim for dim in t.dims if dim not in k.dims] for t in (q, v))
        batch = [dim for dim in dst.dims if dim not in (query, value)]
        sizes = {**dst.dims, along: k.size(along)}
        self.extents = {dim: sizes[dim] for dim in (*batch, query, along)}
        self.rows, self.columns, self.numbers = (query, along), (over, value), numbers
        near = [*batch, along, query]  # a vector holds neighbouring queries
        wants = [
            list(dict.fromkeys([*_orders(tensor, row, column), *_own(tensor, column)]))
            for tensor, row, column in ((q, query, over), (k, along, over), (v, along, value))
        ]
        wants += [[Layout.plain(dim for dim in near if dim in mask.dims)] for mask in masks]
        wants.append([*_like(q, over, dst, value), *_orders(dst, query, value)])
        super().__init__(operands, wants)

    def confirm(self, call: Call, row: Sequence[Layout]) -> str | None:
        """None where the blocks of all operands fit one another, and those of dst are q's."""
        q, *others, dst = (row[call.index(tensor)] for tensor in self.tensors)
        over, value = self.columns
        if not (dst.is_plain or dst == q.rename({over: value})):
            return f"makes {dst} of queries in the same order, not in {q}"
        fits = self._axes([q, *others, dst]) is not None
        return None if fits else f"blocks of {' '.join(map(str, row))} do not fit one another"

    def __call__(self, *tensors: PTensor) -> None:
        """One step, which takes rows from where they are."""
        q, k, v, *masks, y = tensors
        axes = self._axes([tensor.required_layout for tensor in tensors])
        assert axes is not None, "it was confirmed"
        batch = [axis for axis in axes if axis.dim not in self.rows]
        (query, along), (over, value) = self.rows, self.columns
        whole = [*batch, *(Axis(dim, 1, self.extents[dim]) for dim in self.rows)]
        rows = [
            _rows(tensor, batch, [axis for axis in axes if axis.dim == dim])
            for tensor, dim in ((q, query), (k, along), (v, along), (y, query))
        ]
        kernel = native.load().attention(
            [axis.size for axis in batch],
            (y.size(query), k.size(along), q.size(over), y.size(value)),
            rows,
            [(_strides(mask, whole), mask.dtype == "bool") for mask in masks],
            *self.numbers,
        )
        emit(kernel, tensors)

    def _axes(self, layouts: Sequence[Layout]) -> list[Axis] | None:
        """Batch, queries and keys, cut where any operand has blocks; None where it cannot be."""
        return nested([Layout.plain(self.extents), *layouts], self.extents)


def _orders(tensor: VTensor, row: str, column: str) -> Iterator[Layout]:
    """Rows of the first axis of the batch side by side, then those of all."""
    batch = [dim for dim in tensor.dims if dim not in (row, column)]
    for count in range(min(len(batch), 1), len(batch) + 1):
        yield Layout.plain([*batch[:count], row, *batch[count:], column])


def _own(tensor: VTensor, column: str) -> Iterator[Layout]:
    """The layout in which a tensor is made, if its rows are whole there."""
    own = tensor.produced_layout
    if own is not None and not own.is_any and side_by_side(own, tensor.dims, column):
        yield own


def _like(q: VTensor, over: str, dst: VTensor, value: str) -> Iterator[Layout]:
    """The layout of dst in which it lies as q does, where q lies in blocks."""
    for own in _own(q, over):
        alike = own.rename({over: value})
        fits = set(alike.dims) == dst.dims.keys() and side_by_side(alike, dst.dims, value)
        if not own.is_plain and fits:
            yield alike


def _strides(tensor: PTensor, axes: Sequence[Axis]) -> list[int]:
    return strides_along(axes, tensor.required_layout, tensor.dims)


def _rows(tensor: PTensor, batch: Sequence[Axis], axes: Sequence[Axis]) -> list[int]:
    """The strides of a batch, then where each of its rows begins, which run along some axes."""
    counts = [axis.size for axis in axes]
    return traced(native.joined)(_strides(tensor, batch), counts, _strides(tensor, axes))
