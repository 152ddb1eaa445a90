"""Attention on Eigen: what its kernel is told of operands as they lie."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from libdesc.eigen import native
from libdesc.routine import Routine
from ptensor.evaluation import emit
from ptensor.layout import Layout
from ptensor.tensor import PTensor
from vtensor.language.tensor import VTensor


class Numbers(NamedTuple):
    """Of an attention: the factor of products, what hides one, and whether no weights are zeros."""

    scale: float
    masked: float
    zero: bool


def attention(*operands: VTensor, over: str, along: str, numbers: Numbers) -> Routine:
    """softmax over ``along`` of (q times k, summed over ``over``), times v.

    The operands are q, k, v, masks and dst. Each may lie with its rows side by side, or with those
    of all heads inside a row.
    """
    q, k, v, *masks, dst = operands
    [query], [value] = ([dim for dim in t.dims if dim not in k.dims] for t in (q, v))
    batch = [dim for dim in dst.dims if dim not in (query, value)]
    rows = [*batch, query, along]

    def run(*tensors: PTensor) -> None:
        *sources, y = tensors
        factors, hidden = sources[:3], sources[3:]
        sizes = (y.size(query), k.size(along), k.size(over), y.size(value))
        firsts = zip((*factors, y), (query, along, along, query), strict=True)
        kernel = native.load().attention(
            [y.size(dim) for dim in batch],
            sizes,
            [_strides(tensor, [*batch, row]) for tensor, row in firsts],
            [(_strides(mask, rows), mask.dtype == "bool") for mask in hidden],
            *numbers,
        )
        emit(kernel, tensors)

    last = zip(
        (q, k, v, dst), (query, along, along, query), (over, over, value, value), strict=True
    )
    wants = [list(_orders(tensor, row, column)) for tensor, row, column in last]
    near = [*batch, along, query]  # a vector holds neighbouring queries
    wants[3:3] = [[Layout.plain(dim for dim in near if dim in mask.dims)] for mask in masks]
    return Routine(operands, wants, run=run)


def _orders(tensor: VTensor, row: str, column: str) -> Iterator[Layout]:
    """Rows of the first axis of the batch side by side, then those of all."""
    batch = [dim for dim in tensor.dims if dim not in (row, column)]
    for count in range(min(len(batch), 1), len(batch) + 1):
        yield Layout.plain([*batch[:count], row, *batch[count:], column])


def _strides(tensor: PTensor, dims: Sequence[str]) -> list[int]:
    """How far neighbours along dims are, 0 where the tensor is repeated."""
    layout = tensor.required_layout
    steps = dict(zip(layout.dims, layout.strides(tensor.dims), strict=True))
    return [steps[dim] if tensor.dims.get(dim, 1) > 1 else 0 for dim in dims]
