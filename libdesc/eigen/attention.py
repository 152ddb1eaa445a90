"""The routine of attention on Eigen, for operands in several layouts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from libdesc.eigen import native
from libdesc.eigen.memory import DimPart, nested, strides_along
from libdesc.groups import side_by_side
from libdesc.routine import Routine
from libdesc.tracing import traced
from ptensor.evaluation import Call, emit
from ptensor.layout import Layout
from ptensor.tensor import PTensor
from vtensor.language.tensor import VTensor


class Numbers(NamedTuple):
    """The constants of an attention.

    Attributes:
        scale: factor of the scores.
        masked: the score where a truth mask is false.
        zero: True if a query whose weights are NaN gets 0.
    """

    scale: float
    masked: float
    zero: bool


class Attention(Routine):
    """The product of softmax(q * k) and v, with the softmax over ``along`` and q * k over ``over``.

    Each of q, k, v and dst may have the rows of a head contiguous, or the rows of all heads
    interleaved. An input may also have any other layout with contiguous rows, with blocks, too; dst
    then has q's.

    Args:
        operands: q, k, v, masks and dst.
        over, along: the dims that are summed over.
        numbers: the constants.
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
            list(dict.fromkeys([*_orders(tensor, row, column), *_produced(tensor, column)]))
            for tensor, row, column in ((q, query, over), (k, along, over), (v, along, value))
        ]
        wants += [[Layout.plain(dim for dim in near if dim in mask.dims)] for mask in masks]
        wants.append([*_like_query(q, over, dst, value), *_orders(dst, query, value)])
        super().__init__(operands, wants)

    def confirm(self, call: Call, row: Sequence[Layout]) -> str | None:
        """Return None if the blocks of all operands divide one another and dst is plain or like q,
        else the reason why not.
        """
        q, *others, dst = (row[call.index(tensor)] for tensor in self.tensors)
        over, value = self.columns
        if not (dst.is_plain or dst == q.rename({over: value})):
            return f"makes {dst} of queries in the same order, not in {q}"
        fits = self._axes([q, *others, dst]) is not None
        return None if fits else f"blocks of {' '.join(map(str, row))} do not fit one another"

    def __call__(self, *tensors: PTensor) -> None:
        """Emit one step that reads rows in place."""
        q, k, v, *masks, y = tensors
        axes = self._axes([tensor.required_layout for tensor in tensors])
        assert axes is not None, "it was confirmed"
        batch = [axis for axis in axes if axis.dim not in self.rows]
        (query, along), (over, value) = self.rows, self.columns
        whole = [*batch, *(DimPart(dim, 1, self.extents[dim]) for dim in self.rows)]
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

    def _axes(self, layouts: Sequence[Layout]) -> list[DimPart] | None:
        """Return batch, queries and keys as axes, cut at all blocks; None if blocks do not fit."""
        return nested([Layout.plain(self.extents), *layouts], self.extents)


def _orders(tensor: VTensor, row: str, column: str) -> Iterator[Layout]:
    """Yield plain layouts with the row dim after the first batch dim, ..., after all of them."""
    batch = [dim for dim in tensor.dims if dim not in (row, column)]
    for count in range(min(len(batch), 1), len(batch) + 1):
        yield Layout.plain([*batch[:count], row, *batch[count:], column])


def _produced(tensor: VTensor, column: str) -> Iterator[Layout]:
    """Yield the layout in which a tensor is produced, if its rows are contiguous in it."""
    layout = tensor.produced_layout
    if layout is not None and not layout.is_any and side_by_side(layout, tensor.dims, column):
        yield layout


def _like_query(q: VTensor, over: str, dst: VTensor, value: str) -> Iterator[Layout]:
    """Yield the layout of dst that corresponds to q's, if q's has blocks."""
    for layout in _produced(q, over):
        alike = layout.rename({over: value})
        fits = set(alike.dims) == dst.dims.keys() and side_by_side(alike, dst.dims, value)
        if not layout.is_plain and fits:
            yield alike


def _strides(tensor: PTensor, axes: Sequence[DimPart]) -> list[int]:
    return strides_along(axes, tensor.required_layout, tensor.dims)


def _rows(tensor: PTensor, batch: Sequence[DimPart], axes: Sequence[DimPart]) -> list[int]:
    """Return the strides along ``batch``, then the offset of each row; rows run along ``axes``."""
    counts = [axis.size for axis in axes]
    return traced(native.joined)(_strides(tensor, batch), counts, _strides(tensor, axes))
