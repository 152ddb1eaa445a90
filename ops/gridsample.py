"""An image at places that are data."""

from __future__ import annotations

import numpy as np

from libdesc import invoker
from libdesc.numpy.arrays import FLOATS, wide
from ops._elementwise import ALL
from ops._sampling import sample, settled
from ops._windows import IMAGES, image_names, image_order, read_image, spatial
from ptensor import Layout, PTensor, lib_tagger
from vtensor.errors import DimError
from vtensor.operators import Context, Naming, NodeReader, Spelling, operator, param
from vtensor.tensor import VTensor

#: How ONNX called the modes before opset 20.
_OLD_MODES = {"bilinear": "linear", "bicubic": "cubic"}


def _grid_names(names: str) -> str:
    return names.replace(" C", "") + " axis"


def _names(node: Naming) -> None:
    image_names(node)
    if names := IMAGES.get(node.rank("x0")):
        node.name("x1", _grid_names(names))


def _read(node: NodeReader) -> VTensor:
    x, mode = read_image(node), node.attribute("mode", "linear")
    op = GridSample(
        _OLD_MODES.get(mode, mode),
        node.attribute("padding_mode", "zeros"),
        bool(node.attribute("align_corners", 0)),
    )
    return node.add(op, x, node.input(1, _grid_names(IMAGES[len(x.dims)])))


@operator(
    "GridSample",
    dims={"x": "N C D? H? W", "grid": "N D? H? W axis", "y": "N C D? H? W"},
    equal=[("x.N", "grid.N")],
    onnx=Spelling("GridSample", 16, _read, _names),
)
class GridSample:
    """Sample an image at the places that a grid says.

    grid's -1 and 1 are the first and the last element along a dim: their outer ends, or with
    ``align_corners`` their centres. Sums of integers lose their fraction and saturate.

    Dims:
        x: N C W, N C H W or N C D H W, with elements    y: N C of x, the others of grid
        grid: N, the spatial dims of y, and axis: the place along the last dim of x comes first
    Args:
        mode: ``nearest`` element, ties to even, or a ``linear`` or ``cubic`` sum of neighbours.
        padding_mode: beyond the border are ``zeros``, the border's elements (``border``), or those
            before it again (``reflection``).
        align_corners: see above.
    Raises:
        DimError: grid has not as many places as x has spatial dims, or x no elements.

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
        dims = spatial(x.dims)
        if spatial(grid.dims) != dims or grid.size("axis") != len(dims):
            raise DimError(f"grid must have a place along each of {' '.join(dims)}, for each")
        if any(x.size(dim) == 0 for dim in dims):
            raise DimError("there are no elements to sample")
        y = VTensor(x.dtype, {**x.dims, **{d: grid.size(d) for d in dims}}, ctx.output(0))
        ctx.dispatch(self, [x, grid], [y])
        return y


@invoker("GridSample", library="numpy", dtypes={"": ALL, "grid": FLOATS}, python=True)
def numpy_gridsample(ctx: Context, op: GridSample, x: VTensor, grid: VTensor, y: VTensor) -> None:
    src, dst = PTensor(x).require(image_order(x)), PTensor(y).require(image_order(y))
    rows = PTensor(grid).require(Layout.plain(("axis", "N", *spatial(x.dims))))
    if lib_tagger("numpy", [src, rows], [dst]):
        return
    places = [
        (row + 1) / 2 * (size - 1) if op.align_corners else ((row + 1) * size - 1) / 2
        for row, size in zip(wide(rows.data())[::-1], src.data().shape[2:], strict=True)
    ]
    with np.errstate(invalid="ignore"):  # a place may be infinite
        values = sample(src.data(), places, op.mode, op.padding_mode, op.align_corners)
    dst.data()[...] = settled(values, y.dtype)
