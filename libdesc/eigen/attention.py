"""The routine of attention on Eigen, whose operands may have several layouts."""

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
    """The constants of an attention: of softmax(scale * q * k) * v.

    Attributes:
        scale: the factor by which the products q * k are multiplied; the results are the scores.
        masked: the score that replaces the computed one where a mask of truth values is false.
        zero: True if the result is 0 for a query whose weights, the softmax, are NaN; if False, it
            is NaN.
    """

    scale: float
    masked: float
    zero: bool


class Attention(Routine):
    """The product of softmax(q * k) and v, summed over ``along``; q * k is summed over ``over``.

    A row of q, k, v or dst has the elements of one query or key. In each operand, the rows of a
    head may follow one another, or the rows of all heads may alternate. An input may also have any
    other layout in which each row is contiguous, even one with blocks. If q has such a layout, dst
    may have the same.

    Args:
        operands: q, k, v, any masks, and dst.
        over: the dim of q and k that the product q * k is summed over.
        along: the dim of the keys. The softmax and the product with v run over it.
        numbers: the constants.
    """

    def __init__(self, *operands: VTensor, over: str, along: str, numbers: Numbers) -> None:
        q, k, v, *masks, dst = operands
        [query], [value] = ([dim for dim in t.dims if dim not in k.dims] for t in (q, v))
        batch = [dim for dim in dst.dims if dim not in (query, value)]
        sizes = {**dst.dims, along: k.size(along)}
        self.extents = {dim: sizes[dim] for dim in (*batch, query, along)}
        self.rows, self.columns, self.numbers = (query, along), (over, value), numbers
        near = [*batch, along, query]  # queries last: a vector holds several of them
        wants = [
            list(dict.fromkeys([*_orders(tensor, row, column), *_produced(tensor, column)]))
            for tensor, row, column in ((q, query, over), (k, along, over), (v, along, value))
        ]
        wants += [[Layout.plain(dim for dim in near if dim in mask.dims)] for mask in masks]
        wants.append([*_like_query(q, over, dst, value), *_orders(dst, query, value)])
        super().__init__(operands, wants)

    def confirm(self, call: Call, row: Sequence[Layout]) -> str | None:
        """Return None if the library takes these layouts, else the reason why not.

        The block sizes of all operands must divide one another; dst must be plain, or have the
        layout of q.
        """
        q, *others, dst = (row[call.index(tensor)] for tensor in self.tensors)
        over, value = self.columns
        if not (dst.is_plain or dst == q.rename({over: value})):
            return f"makes {dst} of queries in the same order, not in {q}"
        fits = self._axes([q, *others, dst]) is not None
        return None if fits else f"blocks of {' '.join(map(str, row))} do not fit one another"

    def __call__(self, *tensors: PTensor) -> None:
        """Emit one step, which reads the rows of q, k and v where they are."""
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
        """Return the dims of batch, queries and keys, cut into parts at the blocks of all layouts.

        None if the block sizes of a dim do not divide one another, or do not divide the size of the
        dim.
        """
        return nested([Layout.plain(self.extents), *layouts], self.extents)


def _orders(tensor: VTensor, row: str, column: str) -> Iterator[Layout]:
    """Yield plain layouts of a tensor in which the dim ``column`` is last.

    In the first layout the dim ``row`` follows the first batch dim (any other dim), in the next one
    the first two, and so on.
    """
    batch = [dim for dim in tensor.dims if dim not in (row, column)]
    for count in range(min(len(batch), 1), len(batch) + 1):
        yield Layout.plain([*batch[:count], row, *batch[count:], column])


def _produced(tensor: VTensor, column: str) -> Iterator[Layout]:
    """Yield the layout in which a tensor is produced, if each of its rows, along the dim
    ``column``, is contiguous in it.

    Otherwise yield nothing.
    """
    layout = tensor.produced_layout
    if layout is not None and not layout.is_any and side_by_side(layout, tensor.dims, column):
        yield layout


def _like_query(q: VTensor, over: str, dst: VTensor, value: str) -> Iterator[Layout]:
    """Yield the layout in which q is produced as a layout of dst: with the dim ``value`` instead of
    ``over``.

    Yield nothing if this layout is plain, or if rows of dst would not be contiguous in it.
    """
    for layout in _produced(q, over):
        alike = layout.rename({over: value})
        fits = set(alike.dims) == dst.dims.keys() and side_by_side(alike, dst.dims, value)
        if not layout.is_plain and fits:
            yield alike


def _strides(tensor: PTensor, axes: Sequence[DimPart]) -> list[int]:
    return strides_along(axes, tensor.required_layout, tensor.dims)


def _rows(tensor: PTensor, batch: Sequence[DimPart], axes: Sequence[DimPart]) -> list[int]:
    """Return a tensor's strides along the parts ``batch``, then the offsets of its rows from the
    first one, all in elements.

    There is a row for each index of one dim; ``axes`` are the parts of this dim.
    """
    counts = [axis.size for axis in axes]
    return traced(native.joined)(_strides(tensor, batch), counts, _strides(tensor, axes))
