"""Parts of an image, each at one size."""

from __future__ import annotations

from functools import reduce
from typing import Any

import numpy as np

from libdesc import invoker
from libdesc.numpy.arrays import FLOATS, wide
from ops._places import checked
from ops._sampling import terms
from ptensor import Layout, PTensor, lib_tagger
from vtensor.errors import DimError, InputError
from vtensor.operators import Context, Naming, NodeReader, Pair, Spelling, operator, param
from vtensor.tensor import VTensor

Array = np.ndarray[Any, Any]

#: A box is sampled at this many places along a dim, no more: how many there are, data may decide.
_MOST_SAMPLES = 1 << 12


def _names(node: Naming) -> None:
    node.name("x0", "N C H W")
    node.name("x1", "R corner")
    node.name("x2", "R")
    node.name("y0", "R C H W")


def _read(node: NodeReader) -> VTensor:
    before = "output_half_pixel" if node.opset < 16 else "half_pixel"
    op = RoiAlign(
        (int(node.attribute("output_height", 1)), int(node.attribute("output_width", 1))),
        node.attribute("mode", "avg"),
        int(node.attribute("sampling_ratio", 0)),
        float(node.attribute("spatial_scale", 1.0)),
        node.attribute("coordinate_transformation_mode", before) == "half_pixel",
    )
    images = node.input(0, "N C H W"), node.input(1, "R corner"), node.input(2, "R")
    return node.add(op, *images)


@operator(
    "RoiAlign",
    dims={"x": "N C H W", "boxes": "R corner", "image": "R", "y": "R C H W"},
    equal=[("boxes.R", "image.R"), ("boxes.corner", "4")],
    onnx=Spelling("RoiAlign", 10, _read, _names),
)
class RoiAlign:
    """Cut boxes out of images and bring them to one size.

    A box falls into H' x W' bins; a bin's value is the mean of the image, sampled linearly, at
    places that lie evenly in it, or the largest of what a neighbour adds to a place there. The
    image goes on for one element beyond its border; further off it is 0.

    Dims:
        x: N C H W, with elements    y: R C H W, these of ``output_size``
        boxes: R corner, the corners being left, top, right, bottom    image: R, the box's N
    Args:
        output_size: bins along H and W.
        mode: ``avg`` or ``max``.
        sampling_ratio: places along each dim of a bin; 0: as many as it spans elements, rounded up.
        spatial_scale: elements of x for 1 in boxes.
        half_pixel: an element's centre lies at a half; otherwise it is whole, and a box spans at
            least one element.
    Raises:
        DimError: a box has not four corners, or x no elements.
        InputError: in a run: there is no such image.

    >>> from vtensor.operators import Context
    >>> x = VTensor("f32", {"N": 1, "C": 64, "H": 38, "W": 50})
    >>> boxes, image = VTensor("f32", {"R": 9, "corner": 4}), VTensor("s64", {"R": 9})
    >>> RoiAlign((7, 7)).compute(Context(), x, boxes, image).summary()
    'f32 R=9 C=64 H=7 W=7'

    Source: ONNX operator RoiAlign, opset 22.
    """

    output_size: Pair = param(default=(1, 1), minimum=1)
    mode: str = param(default="avg", choices=("avg", "max"))
    sampling_ratio: int = param(default=0, minimum=0)
    spatial_scale: float = param(default=1.0)
    half_pixel: bool = param(default=True)

    def compute(self, ctx: Context, x: VTensor, boxes: VTensor, image: VTensor) -> VTensor:
        if not x.size("H") * x.size("W"):
            raise DimError("there are no elements to sample")
        height, width = self.output_size
        dims = {"R": boxes.size("R"), "C": x.size("C"), "H": height, "W": width}
        y = VTensor(x.dtype, dims, ctx.output(0))
        ctx.dispatch(self, [x, boxes, image], [y])
        return y


def _places(op: RoiAlign, begin: float, end: float, bins: int) -> Array:
    """Where a box is sampled along one dim: a row a bin."""
    size = end - begin if op.half_pixel else max(end - begin, 1.0)
    many = op.sampling_ratio or max(int(np.ceil(size / bins)), 0)
    if many * bins > _MOST_SAMPLES:
        raise InputError(
            f"RoiAlign: a box spans {size:g} pixels, and would be sampled at {many * bins} places "
            f"along a dim; {_MOST_SAMPLES} at most: to fix: smaller boxes or sampling_ratio"
        )
    inside = (np.arange(many) + 0.5) / max(many, 1)
    first = begin - 0.5 if op.half_pixel else begin
    return np.asarray(first + (np.arange(bins)[:, np.newaxis] + inside) * size / bins)


def _near(places: Array, size: int) -> Array:
    return (places >= -1) & (places <= size)


def _aligned(op: RoiAlign, image: Array, box: Array) -> Array:
    """One box of one image (1 C H W): C H' W'."""
    left, top, right, bottom = box * op.spatial_scale
    height, width = op.output_size
    y, x = _places(op, top, bottom, height), _places(op, left, right, width)
    if not y.size * x.size:
        return np.zeros((image.shape[1], height, width))
    places = y[np.newaxis, :, :, np.newaxis, np.newaxis], x[np.newaxis, np.newaxis, np.newaxis]
    there = _near(places[0], image.shape[2]) & _near(places[1], image.shape[3])
    clipped = [np.clip(p, 0, size - 1) for p, size in zip(places, image.shape[2:], strict=True)]
    values = terms(image, clipped, "linear", "border")
    if op.mode == "max":
        largest = reduce(np.maximum, values)
        return np.asarray(np.where(there, largest, 0)[0].max(axis=(2, 4)))
    return np.asarray(np.where(there, sum(values), 0)[0].mean(axis=(2, 4)))


@invoker("RoiAlign", library="numpy", dtypes={"": FLOATS, "image": ("s64", "s32")}, python=True)
def numpy_roialign(
    ctx: Context, op: RoiAlign, x: VTensor, boxes: VTensor, image: VTensor, y: VTensor
) -> None:
    src, dst = PTensor(x).require("NCHW"), PTensor(y).require("RCHW")
    rows = PTensor(boxes).require(Layout.plain(("R", "corner")))
    which = PTensor(image).require("R")
    if lib_tagger("numpy", [src, rows, which], [dst]):
        return
    of = checked(which.data(), x.size("N"), "RoiAlign", "N")
    for place, (n, box) in enumerate(zip(of, wide(rows.data()), strict=True)):
        dst.data()[place] = _aligned(op, src.data()[n : n + 1], box)
