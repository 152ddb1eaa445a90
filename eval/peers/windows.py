"""Windows over an image of H and W, as frameworks' operators want to be told of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from eval.networks.layers import same
from eval.peers.walk import Array, Call
from ops._sliding import along, geometry, spatial


class Sliding(NamedTuple):
    """What is slid over H and W; pads are before and behind each, such that all windows fit."""

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    pads: tuple[tuple[int, int], ...]
    dilations: tuple[int, ...]

    @property
    def padded(self) -> bool:
        """There are pads."""
        return any(map(any, self.pads))

    @property
    def symmetric(self) -> bool:
        """There are as many before as behind."""
        return all(before == behind for before, behind in self.pads)


def sliding(call: Call, kernel: Sequence[int]) -> Sliding:
    """Return the window of a node.

    Raises:
        CannotBuild: the image has other dims.
    """
    x = call.inputs[0]
    if spatial(x.dims) != ("H", "W"):
        raise call.refuse(f"a window over {' '.join(spatial(x.dims))}; H and W are taken")
    kernel, strides, pads, dilations = geometry(x, call.output, kernel, call.op)
    return Sliding(kernel, strides, tuple(zip(pads[:2], pads[2:], strict=True)), dilations)


def is_same(call: Call, slide: Sliding) -> bool:
    """True where there are the fewest pads with which as many windows fit as there are strides."""
    x = call.inputs[0]
    rows = zip("HW", *slide, strict=True)
    return all(
        pads == same(x.size(dim), dilation * (kernel - 1) + 1, stride)
        for dim, kernel, stride, pads, dilation in rows
    )


def counted(call: Call, slide: Sliding) -> Array:
    """Return the number of elements of which a pool takes the mean, as an array of H and W."""
    rows = []
    for row in along(call.inputs[0], slide.kernel, call.op):
        begin, end = (row.begin, row.end) if call.op.count_include_pad else (0, 0)
        first = np.arange(call.output.size(row.dim)) * row.stride - row.begin
        places = first[:, None] + np.arange(row.kernel) * row.dilation
        rows.append(((places >= -begin) & (places < row.size + end)).mean(axis=1))
    counts: Array = np.multiply.outer(*rows).astype(np.float32)
    return counts
