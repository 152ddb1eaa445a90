"""What NumPy invokers share: operands aligned for broadcasting, and windows over an image."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from ptensor.tensor import PTensor
from ptensor.transform import zero_pads

Array = np.ndarray[Any, Any]

#: The element types that an operator takes which divides or takes roots.
FLOATS = ("f64", "f32", "f16", "bf16")
#: The element types that one can add and compare.
NUMBERS = (*FLOATS, "s64", "s32", "s16", "s8", "u64", "u32", "u16", "u8")


def aligned(tensor: PTensor, like: PTensor) -> Array:
    """The elements of an operand with one axis for each axis of ``like``, so that NumPy broadcasts.

    Both are in one joint layout: an axis that the operand lacks, or a block that it broadcasts, has
    length 1.
    """
    array = tensor.data()
    have = dict(zip(tensor.required_layout.axes, array.shape, strict=True))
    return array.reshape([have.get(axis, 1) for axis in like.required_layout.axes])


def finish(target: PTensor) -> None:
    """Keep the padding contract: zero every lane past the true extents."""
    zero_pads(target.data(), target.required_layout, target.dims)


def windows(
    x: Array,
    kernel: Sequence[int],
    strides: Sequence[int],
    pads: Sequence[int],
    dilations: Sequence[int],
    fill: float = 0.0,
) -> Array:
    """Every window of an image: N C H' W' kh kw, a view of the padded image.

    Args:
        x: N C H W.
        kernel, strides, dilations: for H and W, in elements.
        pads: begin H, begin W, end H, end W; negative pads are not taken.
        fill: what lies outside.
    """
    top, left, bottom, right = pads
    padded = np.pad(x, ((0, 0), (0, 0), (top, bottom), (left, right)), constant_values=fill)
    reach = tuple(d * (k - 1) + 1 for k, d in zip(kernel, dilations, strict=True))
    view = sliding_window_view(padded, reach, axis=(2, 3))
    return view[:, :, :: strides[0], :: strides[1], :: dilations[0], :: dilations[1]]


def wide(array: Array) -> Array:
    """What NumPy can sum products of: half and bf16 as f32."""
    return array.astype(np.float32) if array.dtype.name in ("float16", "bfloat16") else array


def convolution(
    x: Array, w: Array, strides: Sequence[int], pads: Sequence[int], dilations: Sequence[int]
) -> Array:
    """The sum over each window of the image times the kernel: N C' H' W'.

    Args:
        x: N C H W.
        w: O I h w, or G O I h w: group g sees channels g*I to (g+1)*I and makes g*O to (g+1)*O.
        strides, pads, dilations: as for ``windows``.
    """
    if w.ndim == 4:
        view = windows(wide(x), w.shape[2:], strides, pads, dilations)
        return np.moveaxis(np.tensordot(view, wide(w), axes=((1, 4, 5), (1, 2, 3))), 3, 1)
    channels = w.shape[2]
    groups = [
        convolution(x[:, g * channels : (g + 1) * channels], w[g], strides, pads, dilations)
        for g in range(w.shape[0])
    ]
    return np.concatenate(groups, axis=1)


def lowest(dtype: np.dtype[Any]) -> float:
    """What no element is below."""
    if dtype.kind == "b":
        return False
    return int(np.iinfo(dtype).min) if dtype.kind in "iu" else -np.inf


def highest(dtype: np.dtype[Any]) -> float:
    """What no element is above."""
    if dtype.kind == "b":
        return True
    return int(np.iinfo(dtype).max) if dtype.kind in "iu" else np.inf
