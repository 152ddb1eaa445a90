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
    """Return a condition on an operator: no dim is named twice in one of its parameters.

    The condition is a pair for ``holds`` of ``operator``: a function, and the message if it returns
    False. ``parameter`` is the parameter's name; its value is pairs that begin with a dim's name.
    """
    rule = f"{parameter} {{op.{parameter}}} names a dim twice"
    return lambda op, *_: len(dict(getattr(op, parameter))) == len(getattr(op, parameter)), rule


def has_dims_of_x(role: str) -> tuple[Any, str]:
    """Return a condition on an operator's inputs x and ``role``: each dim of ``role`` is one of x.

    The sizes must be equal, too. The condition is a pair for ``holds`` of ``operator``: a function,
    and the message if it returns False.
    """
    fits = f"{role} must have dims of x, and in their sizes"
    return lambda _, x, other: other.dims.items() <= x.dims.items(), fits


def as_output(op: object, *operands: VTensor) -> list[Layout]:
    """Return a layout for each operand: the dims of the last operand, the output, in its order."""
    return [Layout.plain(operands[-1].dims)] * len(operands)


def one_output(
    ctx: Context, op: object, inputs: Sequence[VTensor], dims: Mapping[str, int], dtype: str = ""
) -> VTensor:
    """Make the only output of an operator, dispatch the operator to a library, return the output.

    Args:
        ctx: the context that dispatches.
        op: the operator.
        inputs: the operator's inputs.
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
    """Return a layout for each operand: ``batch`` and ``along``, then the other dims of the first.

    An operand that lacks ``along`` must have ``batch`` as its only dim.
    """
    whole = order_starting_with(operands[0], batch, along)
    return [whole if along in tensor.dims else Layout.plain([batch]) for tensor in operands]


def checked_indices(indices: Array, size: int, op: str, axis: str) -> Array:
    """Return ``indices`` with ``size`` added to negative ones, which count from the end.

    Args:
        indices: indices along one dim of a tensor.
        size: the tensor's size along this dim.
        op, axis: the names of the operator and of the dim, for the error's text.

    Raises:
        InputError: an index is below -``size``, or not below ``size``.
    """
    if indices.size and not (-size <= indices.min() and indices.max() < size):
        worst = indices.min() if indices.min() < -size else indices.max()
        raise InputError(f"{op}: index {worst} along {axis}, which has {size} elements")
    return np.asarray(np.where(indices < 0, indices + size, indices))
