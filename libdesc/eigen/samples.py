"""Eigen's routines that sample images between their elements."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from libdesc.eigen import native
from libdesc.eigen.kernels import emit_kernel
from libdesc.eigen.moves import Following
from libdesc.routine import Routine
from ptensor.evaluation import emit
from ptensor.layout import Layout
from ptensor.tensor import PTensor
from vtensor.language.dtype import ITEMSIZE
from vtensor.language.tensor import VTensor

if TYPE_CHECKING:
    from libdesc.eigen._eigen import Align, Blend

Array = np.ndarray[Any, Any]


def blended(x: VTensor, y: VTensor, taps: Mapping[str, tuple[Array, Array]]) -> Routine:
    """Weighted sums of neighbours, one dim after another.

    Args:
        taps: by dim, which elements of x are summed for each element of y, a row each, and what
            they count; what counts nothing is left out.
    """

    def run(src: PTensor, dst: PTensor) -> None:
        shape = list(src.required_layout.physical_shape(src.dims))
        axes: list[Blend] = []
        for dim, (near, weights) in taps.items():
            at = src.required_layout.axes.index((dim, 0))
            counts = weights.astype(np.float32) != 0
            ends = counts.sum(1).cumsum().tolist()
            sizes = prod(shape[:at]), shape[at], prod(shape[at + 1 :])
            axes.append((*sizes, ends, near[counts].tolist(), weights[counts].tolist()))
            shape[at] = len(ends)
        emit_kernel(native.load().blend(x.dtype, axes), [src, dst])

    return Following([x, y], run, unblocked=taps)


def _three(tensor: VTensor, missing: int = 1) -> list[int]:
    sizes = [tensor.size(dim) for dim in "DHW" if dim in tensor.dims]
    return [missing] * (3 - len(sizes)) + sizes


def grid_sample(
    x: VTensor, grid: VTensor, y: VTensor, mode: str, padding: str, corners: bool
) -> Routine:
    """An image sampled where a grid says."""
    image = (x.size("N"), x.size("C"), _three(x), _three(y), grid.size("axis"))

    def run(*tensors: PTensor) -> None:
        form = (image, mode, padding, corners)
        emit(native.load().grid_sample(x.dtype, grid.dtype, *form), tensors)

    wants = [Layout.plain(d for d in "NCDHW" if d in x.dims)] * 3
    wants[1] = Layout.plain([*(d for d in "NDHW" if d in x.dims), "axis"])
    return Routine([x, grid, y], wants, run=run)


def roi_align(tensors: Sequence[VTensor], align: Align) -> Routine:
    """x, boxes, image and y: boxes of images, brought to one size."""
    x, boxes, image, _ = tensors

    def run(*operands: PTensor) -> None:
        kernel = native.load().roi_align(x.dtype, boxes.dtype, align, ITEMSIZE[image.dtype])
        emit_kernel(kernel, operands)

    return Routine(tensors, ["NCHW", "R corner", "R", "RCHW"], run=run)
