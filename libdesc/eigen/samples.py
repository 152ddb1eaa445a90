"""Eigen's routines that sample images between their elements."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from libdesc.eigen import native
from libdesc.eigen.kernels import emit_kernel
from libdesc.eigen.moves import SameLayout
from libdesc.routine import Routine
from ptensor.evaluation import Call, emit
from ptensor.layout import Layout
from ptensor.tensor import PTensor
from vtensor.language.dtype import ITEMSIZE
from vtensor.language.tensor import VTensor

if TYPE_CHECKING:
    from libdesc.eigen._eigen import Align, Blend

Array = np.ndarray[Any, Any]


def blended(x: VTensor, y: VTensor, taps: Mapping[str, tuple[Array, Array]]) -> Routine:
    """Return the routine of weighted sums of neighbours, along one dim after another, as resizing
    needs them.

    Args:
        x, y: the same dims.
        taps: by dim, two matrices, each with a row for each index of y. The first has the indices
            in x of the elements that are summed, the second has their weights. Weights of 0 are
            left out.
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

    return SameLayout([x, y], run, unblocked=taps)


def bilinear(x: VTensor, y: VTensor, axes: Mapping[str, Callable[[], Any]]) -> Routine:
    """Return the routine of sums of four weighted neighbours along two dims at once.

    Args:
        x, y: the same dims.
        axes: by dim, in the order of x's dims, a function that returns x's size, for each element
            of y the indices of two elements of x, and the weights of these. Weights along both dims
            are multiplied. Elements of weight 0 do not count.
    """

    def run(src: PTensor, dst: PTensor) -> None:
        shape = list(src.required_layout.physical_shape(src.dims))
        at = src.required_layout.axes.index((next(iter(axes)), 0))
        rows, columns = (axis() for axis in axes.values())
        sizes = prod(shape[:at]), prod(shape[at + 2 :])
        emit(native.load().bilinear(x.dtype, sizes[0], rows, columns, sizes[1]), [src, dst])

    return _Bilinear([x, y], run, unblocked=axes)


class _Bilinear(SameLayout):
    """A routine that needs two dims, ``unblocked``, one after another in memory."""

    def preferred(self, call: Call) -> Mapping[int, Layout | Sequence[Layout]]:
        """Return a layout by operand index: that in which x is produced if it has the dims one
        after another, else x's plain layout.
        """
        answers = super().preferred(call)
        fits = self._refusal(answers[0]) is None
        return answers if fits else dict.fromkeys(answers, Layout.plain(self.tensors[0].dims))

    def confirm(self, call: Call, row: Sequence[Layout]) -> str | None:
        """Return None if the library takes these layouts, else the reason why not."""
        return super().confirm(call, row) or self._refusal(row[0])

    def _refusal(self, layout: Any) -> str | None:
        """Return None if the two dims come one after another in a layout, else the reason why the
        library does not take it.
        """
        dims = [axis.dim for axis in layout.axes]
        first, second = (dim for dim in self.tensors[0].dims if dim in self.unblocked)
        if dims.index(second) == dims.index(first) + 1:
            return None
        return f"{second} must come directly after {first} in memory"


def _to_three_dims(tensor: VTensor, missing: int = 1) -> list[int]:
    sizes = [tensor.size(dim) for dim in "DHW" if dim in tensor.dims]
    return [missing] * (3 - len(sizes)) + sizes


def grid_sample(
    x: VTensor, grid: VTensor, y: VTensor, mode: str, padding: str, corners: bool
) -> Routine:
    """Return the routine of GridSample: an image is sampled at the coordinates in a grid.

    Args:
        x, grid, y: the operands.
        mode, padding: the native kernel's names of ONNX's ``mode`` and ``padding_mode``.
        corners: ONNX's ``align_corners``.
    """
    image = (x.size("N"), x.size("C"), _to_three_dims(x), _to_three_dims(y), grid.size("axis"))

    def run(*tensors: PTensor) -> None:
        form = (image, mode, padding, corners)
        emit(native.load().grid_sample(x.dtype, grid.dtype, *form), tensors)

    wants = [Layout.plain(d for d in "NCDHW" if d in x.dims)] * 3
    wants[1] = Layout.plain([*(d for d in "NDHW" if d in x.dims), "axis"])
    return Routine([x, grid, y], wants, run=run)


def roi_align(tensors: Sequence[VTensor], align: Align) -> Routine:
    """Return the routine of RoiAlign: parts of images (boxes) are resampled to one common size.

    Args:
        tensors: x; the boxes; the index of the image in which each box is; and y.
        align: the sizes and attributes, see ``Align`` in ``_eigen.pyi``.
    """
    x, boxes, image, _ = tensors

    def run(*operands: PTensor) -> None:
        kernel = native.load().roi_align(x.dtype, boxes.dtype, align, ITEMSIZE[image.dtype])
        emit_kernel(kernel, operands)

    return Routine(tensors, ["NCHW", "R corner", "R", "RCHW"], run=run)
