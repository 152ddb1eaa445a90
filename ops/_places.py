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
    """Return a condition that no name occurs twice: function and message, as ``holds`` has them.

    ``parameter`` is the name of a parameter whose value is pairs that begin with a dim's name.
    """
    rule = f"{parameter} {{op.{parameter}}} names a dim twice"
    return lambda op, *_: len(dict(getattr(op, parameter))) == len(getattr(op, parameter)), rule


def has_dims_of_x(role: str) -> tuple[Any, str]:
    """Return a condition that the second input has only dims of x, of x's sizes.

    It is a function and a message, as ``holds`` has them; ``role`` is the second input's name in
    the message.
    """
    fits = f"{role} must have dims of x, and in their sizes"
    return lambda _, x, other: other.dims.items() <= x.dims.items(), fits


def as_output(op: object, *operands: VTensor) -> list[Layout]:
    """Return for each operand the plain layout of the last one, the output."""
    return [Layout.plain(operands[-1].dims)] * len(operands)


def one_output(
    ctx: Context, op: object, inputs: Sequence[VTensor], dims: Mapping[str, int], dtype: str = ""
) -> VTensor:
    """Make the operator's only output, dispatch the operator, and return the output.

    Args:
        ctx, op, inputs: the context, the operator and its inputs.
        dims: the output's sizes by dim.
        dtype: the output's element type; empty means the first input's.
    """
    y = VTensor(dtype or inputs[0].dtype, dims, ctx.output(0))
    ctx.dispatch(op, inputs, [y])
    return y


def order_starting_with(x: VTensor, *dims: str) -> Layout:
    """Return the layout of ``x`` with ``dims`` first, then its other dims in declared order."""
    return Layout.plain((*dims, *(dim for dim in x.dims if dim not in dims)))


def by_batch(batch: str, along: str, *operands: VTensor) -> list[Layout]:
    """Return a layout for each operand: ``batch`` and ``along`` first, then its other dims.

    An operand without ``along`` must have ``batch`` as its only dim.
    """
    whole = order_starting_with(operands[0], batch, along)
    return [whole if along in tensor.dims else Layout.plain([batch]) for tensor in operands]


def checked_indices(indices: Array, size: int, op: str, axis: str) -> Array:
    """Return ``indices`` with ``size`` added to negative ones, which count from the end.

    Args:
        indices: indices along an axis.
        size: the elements along the axis.
        op, axis: the names of the operator and of the dim, for the error.

    Raises:
        InputError: an index is outside the axis.
    """
    if indices.size and not (-size <= indices.min() and indices.max() < size):
        worst = indices.min() if indices.min() < -size else indices.max()
        raise InputError(f"{op}: index {worst} along {axis}, which has {size} elements")
    return np.asarray(np.where(indices < 0, indices + size, indices))
