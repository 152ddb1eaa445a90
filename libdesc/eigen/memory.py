"""Boxes of memory: what changes of layout, concatenation and padding are made of."""

from __future__ import annotations

from collections.abc import Iterable
from math import prod
from typing import Any

import numpy as np

from ptensor.layout import Layout
from ptensor.tensor import PTensor
from ptensor.transform import moves, pad_slabs

Array = np.ndarray[Any, Any]

#: Source (-1: none), shape, where it begins there, strides there, where in dst, strides, value.
Box = tuple[int, tuple[int, ...], int, tuple[int, ...], int, tuple[int, ...], float]


class Space:
    """Memory that is only reckoned with: an array of the shape, whose elements nobody touches."""

    def __init__(self, shape: Iterable[int]) -> None:
        sizes = tuple(shape)
        strides = [4 * prod(sizes[i + 1 :]) for i in range(len(sizes))]
        self.size = prod(sizes)
        self.array: Array = np.lib.stride_tricks.as_strided(np.empty(1, np.float32), sizes, strides)

    def place(self, view: Array) -> tuple[int, tuple[int, ...]]:
        """Where a view begins, and its strides, both in elements."""
        offset = _address(view) - _address(self.array)
        return offset // 4, tuple(stride // 4 for stride in view.strides)


def _address(array: Array) -> int:
    return int(array.__array_interface__["data"][0])


def space(tensor: PTensor) -> Space:
    """The memory of a PTensor, an axis for each axis of its layout."""
    return Space(tensor.required_layout.physical_shape(tensor.dims))


def copied(source: int, src: Space, read: Array, dst: Space, write: Array) -> Box:
    """A view of a source that goes to a view of dst."""
    return (source, read.shape, *src.place(read), *dst.place(write), 0.0)


def filled(dst: Space, write: Array, value: float) -> Box:
    """A view of dst that takes a value."""
    return (-1, write.shape, 0, (0,) * write.ndim, *dst.place(write), value)


def pads(tensor: PTensor) -> list[Box]:
    """The lanes past the true extents, filled with 0."""
    whole = space(tensor)
    return [
        filled(whole, whole.array[slab], 0.0)
        for slab in pad_slabs(tensor.required_layout, tensor.dims)
    ]


def changes(source: PTensor, target: PTensor) -> list[Box]:
    """Every element from one layout to the other, and zeros for the target's pads.

    Raises:
        LayoutError: the blocks of the two do not nest.
    """
    src, dst = space(source), space(target)
    layouts: tuple[Layout, Layout] = (source.required_layout, target.required_layout)
    pairs = moves(src.array, layouts[0], dst.array, layouts[1], target.dims)
    return [*(copied(0, src, read, dst, write) for read, write in pairs), *pads(target)]
