"""Shared parts of operators: outputs, conditions on dims, orders of operands, checked indices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from libdesc.numpy.arrays import Array
from ptensor import Layout
from vtensor.errors import InputError
from vtensor.operators import Context
from vtensor.tensor import VTensor

#: The element types of indices.
INDICES = ("s64", "s32")


def unique_names(parameter: str) -> tuple[Any, str]:
    """Return a condition for ``holds``: a parameter's pairs have different names."""
    rule = f"{parameter} {{op.{parameter}}} names a dim twice"
    return lambda op, *_: len(dict(getattr(op, parameter))) == len(getattr(op, parameter)), rule


def has_dims_of_x(role: str) -> tuple[Any, str]:
    """Return a condition for ``holds``: the second input has only dims of x, in their sizes.

    ``role`` is that input's name in the message.
    """
    fits = f"{role} must have dims of x, and in their sizes"
    return lambda _, x, other: other.dims.items() <= x.dims.items(), fits


def as_output(op: object, *operands: VTensor) -> list[Layout]:
    """Return for each operand the order of the output's dims; the output is the last operand."""
    return [Layout.plain(operands[-1].dims)] * len(operands)


def one_output(
    ctx: Context, op: object, inputs: Sequence[VTensor], dims: Mapping[str, int], dtype: str = ""
) -> VTensor:
    """Make the output of these dims, dispatch the operator, and return the output.

    ``dtype`` is its element type; empty is the first input's.
    """
    y = VTensor(dtype or inputs[0].dtype, dims, ctx.output(0))
    ctx.dispatch(op, inputs, [y])
    return y


def order_starting_with(x: VTensor, *dims: str) -> Layout:
    """Return the layout with these dims first, then the other dims of x."""
    return Layout.plain((*dims, *(dim for dim in x.dims if dim not in dims)))


def by_batch(batch: str, along: str, *operands: VTensor) -> list[Layout]:
    """Return a layout for each operand: ``batch`` and ``along`` first, then its other dims.

    An operand without ``along`` has ``batch`` alone.
    """
    whole = order_starting_with(operands[0], batch, along)
    return [whole if along in tensor.dims else Layout.plain([batch]) for tensor in operands]


def checked_indices(indices: Array, size: int, op: str, axis: str) -> Array:
    """Return indices counted from 0; negative ones count from the end.

    Raises:
        InputError: an index is outside the axis.
    """
    if indices.size and not (-size <= indices.min() and indices.max() < size):
        worst = indices.min() if indices.min() < -size else indices.max()
        raise InputError(f"{op}: index {worst} along {axis}, which has {size} elements")
    return np.asarray(np.where(indices < 0, indices + size, indices))
