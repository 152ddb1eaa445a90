"""What operators share that pick, put and cut: rules, orders of operands, indices."""

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


def once(parameter: str) -> tuple[Any, str]:
    """For ``holds``: the pairs that a parameter gives start with different names."""
    rule = f"{parameter} {{op.{parameter}}} names a dim twice"
    return lambda op, *_: len(dict(getattr(op, parameter))) == len(getattr(op, parameter)), rule


def within(role: str) -> tuple[Any, str]:
    """For ``holds``: the second input, of this name, has dims of the first, in their sizes."""
    fits = f"{role} must have dims of x, and in their sizes"
    return lambda _, x, other: other.dims.items() <= x.dims.items(), fits


def as_output(op: object, *operands: VTensor) -> list[Layout]:
    """All operands in the order of the dims of the output, which is the last."""
    return [Layout.plain(operands[-1].dims)] * len(operands)


def one_output(
    ctx: Context, op: object, inputs: Sequence[VTensor], dims: Mapping[str, int], dtype: str = ""
) -> VTensor:
    """What the best library makes of the inputs, of the first one's type if none is said."""
    y = VTensor(dtype or inputs[0].dtype, dims, ctx.output(0))
    ctx.dispatch(op, inputs, [y])
    return y


def first(x: VTensor, *dims: str) -> Layout:
    """These dims, then the others of x."""
    return Layout.plain((*dims, *(dim for dim in x.dims if dim not in dims)))


def by_batch(batch: str, along: str, *operands: VTensor) -> list[Layout]:
    """The batch first, then the dim along which its elements follow; some have the batch alone."""
    whole = first(operands[0], batch, along)
    return [whole if along in tensor.dims else Layout.plain([batch]) for tensor in operands]


def checked(indices: Array, size: int, op: str, axis: str) -> Array:
    """Indices from 0 on; negative ones count from the end.

    Raises:
        InputError: one lies outside.
    """
    if indices.size and not (-size <= indices.min() and indices.max() < size):
        worst = indices.min() if indices.min() < -size else indices.max()
        raise InputError(f"{op}: index {worst} along {axis}, which has {size} elements")
    return np.asarray(np.where(indices < 0, indices + size, indices))
