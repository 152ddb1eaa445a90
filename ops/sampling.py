"""GridSample, RoiAlign and DeformConv: images sampled at coordinates that are data."""

from __future__ import annotations

from functools import reduce
from math import prod
from typing import Any

import numpy as np

from libdesc import Routine, eigen, invoker
from libdesc.numpy import definition
from libdesc.numpy.arrays import FLOATS, Array, wide
from libdesc.numpy.casts import stored
from ops._convolution import KERNELS, convolution_names, cost, kernel_sizes, read_kernel, with_bias
from ops._elementwise import ALL
from ops._names import from_attributes
from ops._places import INDICES, checked_indices, one_output
from ops._sampling import HAS_ELEMENTS, sample, shaped, terms
from ops._sliding import Sizes, along, counts, geometry, spatial
from ops._windows import IMAGES, image_names, in_order, read_image, read_window
from ptensor import PTensor
from vtensor.errors import DimError, InputError
from vtensor.operators import Context, Cost, Naming, NodeReader, Pair, Spelling, operator, param
from vtensor.tensor import VTensor

#: GridSample's modes by their names before opset 20.
_OLD_MODES = {"bilinear": "linear", "bicubic": "cubic"}

#: A grid's dim names in ONNX's order of axes, by the number of the image's axes.
_GRIDS = {rank: f"{names.replace(' C', '')} axis" for rank, names in IMAGES.items()}


def _grid_names(node: Naming) -> None:
    image_names(node)
    if names := _GRIDS.get(node.rank("x0")):
        node.name("x1", names)


def _read_grid(node: NodeReader) -> VTensor:
    x, mode = read_image(node), node.attribute("mode", "linear")
    op = from_attributes(node, GridSample, mode=_OLD_MODES.get(mode, mode))
    return node.add(op, x, node.input(1, _GRIDS[len(x.dims)]))


def _leads_into(op: GridSample, x: VTensor, grid: VTensor) -> bool:
    dims = spatial(x.dims)
    return spatial(grid.dims) == dims and grid.size("axis") == len(dims)


@operator(
    "GridSample",
    dims={"x": "N C D? H? W", "grid": "N D? H? W axis", "y": "N C D? H? W"},
    equal=[("x.N", "grid.N")],
    holds=[(_leads_into, "grid must have a place along each of x's dims"), HAS_ELEMENTS],
    onnx=Spelling("GridSample", 16, _read_grid, _grid_names),
)
class GridSample:
    """Sample an image at the coordinates in a grid.

    -1 and 1 in grid are the outer ends of the first and the last element along a dim, or their
    centres with ``align_corners``. Sums of integers lose their fraction and saturate.

    Dims:
        x: N C W, N C H W or N C D H W, with elements    y: N C of x, the others of grid
        grid: N, the spatial dims of y, and axis: the coordinate along the last dim of x first
    Args:
        mode: ``nearest`` element, ties to even, or a ``linear`` or ``cubic`` sum of neighbours.
        padding_mode: values beyond the border: ``zeros``, the border's elements (``border``), or
            the image mirrored at the border (``reflection``).
        align_corners: True counts -1 and 1 at centres of elements, False at their outer ends.
    Raises:
        DimError: grid does not have a coordinate for each spatial dim of x, or x has no elements.

    >>> from vtensor.operators import Context
    >>> x = VTensor("f32", {"N": 1, "C": 3, "H": 9, "W": 9})
    >>> grid = VTensor("f32", {"N": 1, "H": 4, "W": 5, "axis": 2})
    >>> GridSample().compute(Context(), x, grid).summary()
    'f32 N=1 C=3 H=4 W=5'

    Source: ONNX operator GridSample, opset 22.
    """

    mode: str = param(default="linear", choices=("nearest", "linear", "cubic"))
    padding_mode: str = param(default="zeros", choices=("zeros", "border", "reflection"))
    align_corners: bool = param(default=False)

    def compute(self, ctx: Context, x: VTensor, grid: VTensor) -> VTensor:
        sizes = {dim: grid.size(dim) for dim in spatial(x.dims)}
        return one_output(ctx, self, [x, grid], {**x.dims, **sizes})


@invoker("GridSample", library="eigen", dtypes=eigen.FRACTIONS)
def eigen_gridsample(
    ctx: Context, op: GridSample, x: VTensor, grid: VTensor, y: VTensor
) -> Routine:
    return eigen.grid_sample(x, grid, y, op.mode, op.padding_mode, op.align_corners)


@definition("GridSample", dtypes={"": ALL, "grid": FLOATS}, order=in_order("axis N C D H W"))
def gridsample(ctx: Context, op: GridSample, x: PTensor, grid: PTensor, y: PTensor) -> None:
    image, rows = x.data(), wide(grid.data())[::-1].astype(np.float64)
    places = [
        (row + 1) / 2 * (size - 1) if op.align_corners else ((row + 1) * size - 1) / 2
        for row, size in zip(rows, image.shape[2:], strict=True)
    ]
    values = sample(image, places, op.mode, op.padding_mode, op.align_corners)
    y.data()[...] = stored(values, y.dtype)


#: The most places at which a box is sampled along a dim: data may decide their number.
_MOST_SAMPLES = 1 << 12


def _box_names(node: Naming) -> None:
    for role, names in {"x0": "N C H W", "x1": "R corner", "x2": "R", "y0": "R C H W"}.items():
        node.name(role, names)


def _read_boxes(node: NodeReader) -> VTensor:
    before = "output_half_pixel" if node.opset < 16 else "half_pixel"
    half_pixel = node.attribute("coordinate_transformation_mode", before) == "half_pixel"
    size = tuple(int(node.attribute(f"output_{side}", 1)) for side in ("height", "width"))
    op = from_attributes(node, RoiAlign, output_size=size, half_pixel=half_pixel)
    return node.add(op, node.input(0, "N C H W"), node.input(1, "R corner"), node.input(2, "R"))


@operator(
    "RoiAlign",
    dims={"x": "N C H W", "boxes": "R corner", "image": "R", "y": "R C H W"},
    equal=[("boxes.R", "image.R"), ("boxes.corner", "4")],
    holds=[HAS_ELEMENTS],
    onnx=Spelling("RoiAlign", 10, _read_boxes, _box_names),
)
class RoiAlign:
    """Crop boxes out of images and resize them to one size.

    A box is divided into H' x W' bins. The image is sampled linearly at evenly spaced places in
    each bin. A bin's value is the mean of its samples, or in mode ``max`` the largest product of an
    element and its weight in a sample. The image continues for one element beyond its border;
    further off it is 0.

    Dims:
        x: N C H W, with elements    y: R C H W, H and W of ``output_size``
        boxes: R corner, the corners being left, top, right, bottom    image: R, each box's index
        along N
    Args:
        output_size: bins along H and W.
        mode: ``avg`` or ``max``.
        sampling_ratio: places along each dim of a bin; 0 is the elements that it spans, rounded up.
        spatial_scale: elements of x for a distance of 1 in boxes.
        half_pixel: True: centres of elements are at halves; False: they are at whole numbers, and
            a box spans at least one element.
    Raises:
        DimError: a box does not have four corners, or x has no elements.
        InputError: in a run: an index in image is outside N, or a box is too large to be sampled.

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
        height, width = self.output_size
        dims = {"R": boxes.size("R"), "C": x.size("C"), "H": height, "W": width}
        return one_output(ctx, self, [x, boxes, image], dims)


def _places(op: RoiAlign, begin: float, end: float, bins: int) -> Array:
    """Return the coordinates, in elements, at which a box is sampled along a dim.

    The result has a row for each bin. ``begin`` and ``end`` are the box's ends along the dim,
    ``bins`` is the number of its bins.

    Raises:
        InputError: the box is too large.
    """
    size = end - begin if op.half_pixel else max(end - begin, 1.0)
    spanned = op.sampling_ratio or max(np.ceil(size / bins), 0)
    if not spanned * bins <= _MOST_SAMPLES:  # also true for a NaN
        raise InputError(
            f"RoiAlign: a box spans {size:g} pixels, and would be sampled at {spanned * bins:g} "
            f"places along a dim; {_MOST_SAMPLES} at most: to fix: smaller boxes or sampling_ratio"
        )
    many = int(spanned)
    inside = (np.arange(many) + 0.5) / max(many, 1)
    first = begin - 0.5 if op.half_pixel else begin
    return np.asarray(first + (np.arange(bins)[:, np.newaxis] + inside) * size / bins)


def _is_near(places: Array, size: int) -> Array:
    return (places >= -1) & (places <= size)


def _box_values(op: RoiAlign, image: Array, box: Array) -> Array:
    """Return the values of a box (its four corners) of one image (1 C H W), as an array C H' W'."""
    left, top, right, bottom = box * op.spatial_scale
    height, width = op.output_size
    y, x = _places(op, top, bottom, height), _places(op, left, right, width)
    if not y.size * x.size:
        return np.zeros((image.shape[1], height, width))
    places = y[np.newaxis, :, :, np.newaxis, np.newaxis], x[np.newaxis, np.newaxis, np.newaxis]
    inside = _is_near(places[0], image.shape[2]) & _is_near(places[1], image.shape[3])
    clipped = [np.clip(p, 0, size - 1) for p, size in zip(places, image.shape[2:], strict=True)]
    values = terms(image, clipped, "linear", "border")
    if op.mode == "max":
        largest = reduce(np.maximum, values)
        return np.asarray(np.where(inside, largest, 0)[0].max(axis=(2, 4)))
    return np.asarray(np.where(inside, sum(values), 0)[0].mean(axis=(2, 4)))


@invoker("RoiAlign", library="eigen", dtypes={"": eigen.FRACTIONS, "image": INDICES})
def eigen_roialign(ctx: Context, op: RoiAlign, *operands: VTensor) -> Routine:
    x, boxes, *_ = operands
    images = (boxes.size("R"), x.size("N"), x.size("C"), x.size("H"), x.size("W"))
    places = (op.mode == "max", op.sampling_ratio, _MOST_SAMPLES)
    align = (*images, *op.output_size, *places, op.spatial_scale, op.half_pixel)
    return eigen.roi_align(operands, align)


@definition("RoiAlign", dtypes={"": FLOATS, "image": INDICES}, order=in_order("R N C H W corner"))
def roialign(
    ctx: Context, op: RoiAlign, x: PTensor, boxes: PTensor, image: PTensor, y: PTensor
) -> None:
    of = checked_indices(image.data(), x.size("N"), "RoiAlign", "N")
    for place, (n, box) in enumerate(zip(of, wide(boxes.data()), strict=True)):
        y.data()[place] = _box_values(op, x.data()[n : n + 1], box)


#: The dim names of offsets and masks in ONNX's order of axes, by the number of the image's axes.
_OFFSET_DIMS = {rank: names.replace("C", "K") for rank, names in IMAGES.items()}


def _deform_names(node: Naming) -> None:
    convolution_names(node, bias="x3")
    for role in ("x2", "x4"):
        if (names := _OFFSET_DIMS.get(node.rank("x1"))) is not None:
            node.name(role, names)


def _read_deform(node: NodeReader) -> VTensor:
    x = read_image(node)
    w = node.input(1, KERNELS[len(x.dims)])
    window = read_window(node, x, read_kernel(node, w))
    groups = (int(node.attribute(name, 1)) for name in ("group", "offset_group"))
    bends = [node.input(i, _OFFSET_DIMS[len(x.dims)]) for i in (2, 4) if node.has(i)]
    return with_bias(node, node.add(DeformConv(*window.values(), *groups), x, w, *bends), 3)


def _equal_parts(op: DeformConv, x: VTensor, w: VTensor, *bends: VTensor) -> bool:
    return x.size("C") % op.offset_group == 0 == w.size("O") % op.group


@operator(
    "DeformConv",
    dims={
        "x": "N C D? H? W",
        "w": "O I d? h? w",
        "offset": "N K D? H? W",
        "mask": "N K D? H? W",
        "y": "N C D? H? W",
    },
    equal=[("x.C", "w.I * group"), ("x.N", "offset.N"), ("y.C", "w.O")],
    holds=[
        (_equal_parts, "groups must be equal parts of the channels"),
        (lambda _, *inputs: len(inputs) < 5, "there may be one mask"),
        HAS_ELEMENTS,
    ],
    onnx=Spelling("DeformConv", 19, _read_deform, _deform_names),
    traits=[Cost(cost)],
)
class DeformConv:
    """Convolve an image with windows whose elements are shifted by offsets.

    As Conv2D, but x is sampled linearly at H'*stride + h*dilation - pad + offset, likewise along
    W', and the sample is multiplied by mask. x is 0 outside.

    Dims:
        x: N C W, N C H W or N C D H W    w: O I, then w, h w or d h w
        y: N C with C = O, and D H W
        offset: N, y's D H W, and K: offset_group, d h w, then one for each spatial dim, merged
        mask: as offset, with K: offset_group, d h w, merged; if absent, 1
    Args:
        strides, pads, dilations: the window's, in elements; none given: 1, 0 and 1.
        group: number of equal parts of the channels.
        offset_group: number of equal parts of the channels that share offsets.
    Raises:
        DimError: sizes do not fit together, or x has no elements.
    Cost:
        2 * N*O*H'*W' * I*h*w floating-point operations, without those of sampling.

    >>> from vtensor.operators import Context
    >>> x = VTensor("f32", {"N": 1, "C": 3, "H": 9, "W": 9})
    >>> w = VTensor("f32", {"O": 8, "I": 3, "h": 2, "w": 2})
    >>> offset = VTensor("f32", {"N": 1, "K": 8, "H": 8, "W": 8})
    >>> DeformConv().compute(Context(), x, w, offset).summary()
    'f32 N=1 C=8 H=8 W=8'

    Source: ONNX operator DeformConv, opset 22.
    """

    strides: Sizes = param(default=(), minimum=1)
    pads: Sizes = param(default=(), minimum=0)
    dilations: Sizes = param(default=(), minimum=1)
    group: int = param(default=1, minimum=1)
    offset_group: int = param(default=1, minimum=1)

    def compute(
        self, ctx: Context, x: VTensor, w: VTensor, offset: VTensor, *mask: VTensor
    ) -> VTensor:
        kernel = kernel_sizes(w)
        sizes, places = counts(x, kernel, self), self.offset_group * prod(kernel)
        for bends, many in zip((offset, *mask), (places * len(kernel), places), strict=False):
            if dict(bends.dims) != {"N": x.size("N"), "K": many, **sizes}:
                raise DimError(f"offsets and masks must have {many} numbers for each of {sizes}")
        return one_output(ctx, self, [x, w, offset, *mask], {**x.dims, "C": w.size("O"), **sizes})


@invoker("DeformConv", library="eigen", dtypes=eigen.DTYPES)
def eigen_deformconv(ctx: Context, op: DeformConv, *operands: VTensor) -> Routine:
    x, w, *_, y = operands
    slide = eigen.Slide(*geometry(x, y, kernel_sizes(w), op))
    return eigen.deformed(operands, slide, op.group, op.offset_group)


@definition("DeformConv", dtypes=FLOATS, order=in_order("N C K O I D H W d h w"))
def deformconv(ctx: Context, op: DeformConv, x: PTensor, w: PTensor, *more: PTensor) -> None:
    offset, *masks, y = (operand.data() for operand in more)
    kernel, parts, (n, _, *out) = kernel_sizes(w), op.offset_group, y.shape
    axes, rank = len(kernel), 1 + 2 * len(kernel)  # N, the kernel's dims, then y's
    offsets = wide(offset).reshape(n, parts, *kernel, axes, *out)
    rows, taken = along(x, kernel, op), []
    for part, channels in enumerate(np.split(x.data(), parts, axis=1)):
        places: list[Any] = []
        for axis, row in enumerate(rows):
            inside = shaped(np.arange(row.kernel) * row.dilation, 1 + axis, rank)
            start = np.arange(out[axis]) * row.stride - row.begin
            shift = offsets[:, part].take(axis, axis=1 + axes)
            places.append(inside + shaped(start, 1 + axes + axis, rank) + shift)
        taken.append(sample(channels, places, "linear", "zeros", corners=True))
        for mask in masks:
            taken[-1] = taken[-1] * wide(mask).reshape(n, parts, 1, *kernel, *out)[:, part]
    row_of = (op.group, w.size("I"), prod(kernel))
    columns = np.concatenate(taken, axis=1).reshape(n, *row_of, prod(out))
    factors = wide(w.data()).reshape(op.group, w.size("O") // op.group, *row_of[1:])
    products = np.einsum("ngikp,goik->ngop", columns, factors, optimize=True)
    y[...] = products.reshape(y.shape)
