"""Windows over H and W of an image, as frameworks' operators take them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from eval.networks.layers import same
from eval.peers.walk import Array, Call
from ops._sliding import along, geometry, spatial


class Sliding(NamedTuple):
    """A window that slides over H and W, with a number for each.

    Attributes:
        kernel: the sizes of the window.
        strides: the strides, in elements.
        pads: pairs, before and after, with which exactly the output's windows fit.
        dilations: the distances of the window's elements; 1 is no dilation.
    """

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    pads: tuple[tuple[int, int], ...]
    dilations: tuple[int, ...]

    @property
    def padded(self) -> bool:
        """Whether there are pads."""
        return any(map(any, self.pads))

    @property
    def symmetric(self) -> bool:
        """Whether H, and likewise W, has as many pads before as after."""
        return all(before == behind for before, behind in self.pads)


def sliding(call: Call, kernel: Sequence[int]) -> Sliding:
    """Return the window of a node, whose sizes over H and W are ``kernel``.

    Raises:
        CannotBuild: the image has other spatial dims than H and W.
    """
    x = call.inputs[0]
    if spatial(x.dims) != ("H", "W"):
        raise call.refuse(f"a window over {' '.join(spatial(x.dims))}; H and W are taken")
    kernel, strides, pads, dilations = geometry(x, call.output, kernel, call.op)
    return Sliding(kernel, strides, tuple(zip(pads[:2], pads[2:], strict=True)), dilations)


def is_same(call: Call, slide: Sliding) -> bool:
    """Return whether the pads are TensorFlow's ``SAME``: the fewest with which there are ceil(size
    / stride) windows.
    """
    x = call.inputs[0]
    rows = zip("HW", *slide, strict=True)
    return all(
        pads == same(x.size(dim), dilation * (kernel - 1) + 1, stride)
        for dim, kernel, stride, pads, dilation in rows
    )


def counted(call: Call, slide: Sliding) -> Array:
    """Return the share of each window's elements that count in a mean, as an array of H and W."""
    rows = []
    for row in along(call.inputs[0], slide.kernel, call.op):
        begin, end = (row.begin, row.end) if call.op.count_include_pad else (0, 0)
        first = np.arange(call.output.size(row.dim)) * row.stride - row.begin
        places = first[:, None] + np.arange(row.kernel) * row.dilation
        rows.append(((places >= -begin) & (places < row.size + end)).mean(axis=1))
    counts: Array = np.multiply.outer(*rows).astype(np.float32)
    return counts
