"""What normalizations share: the dims that they go over, and scales along others."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from libdesc.numpy.arrays import wide
from ptensor import Layout, PTensor
from vtensor.errors import DimError
from vtensor.operators import NodeReader, NodeWriter, Write
from vtensor.tensor import VTensor

Array = np.ndarray[Any, Any]


def parameter(node: NodeReader, index: int, x: VTensor) -> VTensor:
    """Scale or bias under the last dims of x; those that it repeats are left out."""
    t, names = node.input(index), list(x.dims)
    rank = len(t.dims)
    if rank > len(names):
        raise node.refuse(f"input {index} has more dims than the first")
    own = dict(zip(names[len(names) - rank :], t.dims.values(), strict=True))
    t = node.input(index, " ".join(own))
    long = {dim: size for dim, size in own.items() if size != 1}
    return t if len(long) == rank else node.reshape(t, long)


def write_normalization(op_type: str) -> Write:
    """The axes behind all other dims; the scale in the same order."""

    def write(node: NodeWriter, op: Any) -> None:
        x, scale = node.inputs
        order = behind(list(x.dims), op.axes)
        operands = node.operand(x, order), node.operand(scale, order)
        node.emit(op_type, *operands, order=order, axis=-len(op.axes), epsilon=float(op.epsilon))

    return write


def behind(dims: Sequence[str], last: Sequence[str]) -> list[str]:
    """The dims, these behind all others."""
    return [*(dim for dim in dims if dim not in last), *last]


def within(x: VTensor, axes: tuple[str, ...], scale: VTensor | None = None) -> None:
    """See that x has the dims that are normalized over and those that it is scaled along.

    Raises:
        DimError: it has not.
    """
    if not x.dims.keys() >= set(axes):
        raise DimError(f"axes {axes} must name dims of x")
    for dim, size in scale.dims.items() if scale is not None else ():
        if x.dims.get(dim) != size:
            raise DimError(f"scale must have dims of x, and in their sizes; {dim}={size} is not")


def positions(x: VTensor | PTensor, axes: Sequence[str]) -> tuple[int, ...]:
    """Where dims stand in declared order."""
    return tuple(list(x.dims).index(dim) for dim in axes)


def average(values: Array, axes: tuple[int, ...]) -> Array:
    """The mean over some axes, which are kept; of no elements 0: nothing is normalized by it."""
    count = prod(values.shape[axis] for axis in axes)
    return np.asarray(values.sum(axis=axes, keepdims=True) / max(count, 1))


def spread(scale: PTensor, x: VTensor) -> Array:
    """A scale in x's order of dims, with one axis for each, so that NumPy repeats it."""
    return wide(scale.data()).reshape([scale.dims.get(dim, 1) for dim in x.dims])


def scale_order(scale: VTensor, x: VTensor) -> Layout:
    """The order of a scale's dims in x."""
    return Layout.plain(dim for dim in x.dims if dim in scale.dims)
