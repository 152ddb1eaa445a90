"""Helpers of NumPy invokers: operands aligned for broadcasting, and windows over an image."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from ptensor.physical import zero_pads
from ptensor.tensor import PTensor
from vtensor.language.dtype import NARROW_FLOATS, NARROW_INTEGERS, from_numpy

Array = np.ndarray[Any, Any]

#: The element types of operators that divide or take roots.
FLOATS = ("f64", "f32", "f16", "bf16")
#: The element types that can be added and compared.
NUMBERS = (*FLOATS, "s64", "s32", "s16", "s8", "u64", "u32", "u16", "u8")


def aligned(tensor: PTensor, like: PTensor) -> Array:
    """Return the array of an operand with one axis for each axis of ``like``, for broadcasting.

    An axis that the operand lacks, or along whose dim it is repeated, has length 1.

    Args:
        tensor: the operand.
        like: the output. Both have the same layout; the operand has it without the dims that it
            lacks.
    """
    array = tensor.data()
    lengths = dict(zip(tensor.required_layout.axes, array.shape, strict=True))
    return array.reshape([lengths.get(axis, 1) for axis in like.required_layout.axes])


def finish(target: PTensor) -> None:
    """Set all padding of an output to 0, as the contract of layouts demands."""
    zero_pads(target.data(), target.required_layout, target.dims)


def windows(
    x: Array,
    kernel: Sequence[int],
    strides: Sequence[int],
    pads: Sequence[int],
    dilations: Sequence[int],
    fill: float = 0.0,
) -> Array:
    """Return every window of an image as N C H' W' kh kw, a view of the padded image.

    The dims H' and W' are the positions of the window; kh and kw are the elements of a window.

    Args:
        x: N C and any number of spatial dims.
        kernel, strides, dilations: one number per spatial dim, in elements.
        pads: elements added before each spatial dim, then after each; at least 0.
        fill: the value of the pads.
    """
    rank = len(kernel)
    around = [(0, 0), (0, 0), *zip(pads[:rank], pads[rank:], strict=True)]
    padded = np.pad(x, around, constant_values=fill)
    reach = tuple(d * (k - 1) + 1 for k, d in zip(kernel, dilations, strict=True))
    view = sliding_window_view(padded, reach, axis=tuple(range(2, 2 + rank)))
    steps = [slice(None, None, step) for step in (*strides, *dilations)]
    return view[(slice(None), slice(None), *steps)]


def wide(array: Array) -> Array:
    """Return an array in a type that NumPy computes with: f32 for half and narrower floats, s8 for
    integers below a byte, else its own.
    """
    name = from_numpy(array.dtype)
    if name in NARROW_INTEGERS:
        return array.astype(np.int8)
    return array.astype(np.float32) if name in ("f16", "bf16", *NARROW_FLOATS) else array


def convolution(
    x: Array, w: Array, strides: Sequence[int], pads: Sequence[int], dilations: Sequence[int]
) -> Array:
    """Return a convolution as N C' H' W', computed by a matrix product per group.

    Args:
        x: N C and any number of spatial dims.
        w: O I h w, or G O I h w: group g sees channels g*I to (g+1)*I and makes g*O to (g+1)*O.
        strides, dilations: one number per spatial dim, in elements.
        pads: elements added before each spatial dim, then after each; at least 0.
    """
    groups, out, inner, *kernel = w.shape if w.ndim > x.ndim else (1, *w.shape)
    view = windows(wide(x), kernel, strides, pads, dilations)
    rank, count, places = len(kernel), len(x), view.shape[2 : 2 + len(kernel)]
    parts = view.reshape(count, groups, inner, *places, *kernel)
    order = (1, 0, *range(3, 3 + rank), 2, *range(3 + rank, 3 + 2 * rank))
    rows = parts.transpose(order).reshape(groups, count * prod(places), inner * prod(kernel))
    columns = wide(w).reshape(groups, out, inner * prod(kernel)).swapaxes(1, 2)
    sums = (rows @ columns).reshape(groups, count, *places, out)
    return np.moveaxis(sums, (0, -1), (1, 2)).reshape(count, groups * out, *places)


def transposed_convolution(
    x: Array,
    w: Array,
    strides: Sequence[int],
    pads: Sequence[int],
    dilations: Sequence[int],
    extra: Sequence[int],
) -> Array:
    """Return a transposed convolution as N C' H' W': each element spreads over a window.

    Args:
        x: N C and any number of spatial dims.
        w: I O h w, or G I O h w: group g sees channels g*I to (g+1)*I and makes g*O to (g+1)*O.
        strides, dilations: one number per spatial dim, in elements.
        extra: number of elements that are added at the end of each spatial dim.
        pads: elements cut off before each spatial dim of the result, then after each.
    """
    if w.ndim > x.ndim:
        channels = w.shape[1]
        parts = [x[:, g * channels : (g + 1) * channels] for g in range(w.shape[0])]
        window = (strides, pads, dilations, extra)
        groups = [transposed_convolution(p, k, *window) for p, k in zip(parts, w, strict=True)]
        return np.concatenate(groups, axis=1)
    spans = [(size - 1) * stride + 1 for size, stride in zip(x.shape[2:], strides, strict=True)]
    rows = zip(spans, w.shape[2:], dilations, extra, strict=True)
    whole = [span + dilation * (k - 1) + more for span, k, dilation, more in rows]
    result = np.zeros((x.shape[0], w.shape[1], *whole), wide(x).dtype)
    for place in np.ndindex(*w.shape[2:]):
        begins = [step * dilation for step, dilation in zip(place, dilations, strict=True)]
        along = zip(begins, spans, strides, strict=True)
        at = [slice(begin, begin + span, stride) for begin, span, stride in along]
        kernel = wide(w)[(slice(None), slice(None), *place)]
        result[(slice(None), slice(None), *at)] += np.moveaxis(
            np.tensordot(wide(x), kernel, (1, 0)), -1, 1
        )
    rank = len(whole)
    borders = zip(pads[:rank], whole, pads[rank:], strict=True)
    inside = [slice(begin, size - end) for begin, size, end in borders]
    return result[(slice(None), slice(None), *inside)]


def lowest(dtype: np.dtype[Any]) -> float:
    """Return the smallest value of an element type, minus infinity for floats."""
    if dtype.kind == "b":
        return False
    return int(np.iinfo(dtype).min) if dtype.kind in "iu" else -np.inf


def highest(dtype: np.dtype[Any]) -> float:
    """Return the largest value of an element type, infinity for floats."""
    if dtype.kind == "b":
        return True
    return int(np.iinfo(dtype).max) if dtype.kind in "iu" else np.inf
