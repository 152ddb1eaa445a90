"""Windows put back into the image that they were taken from."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from libdesc import invoker
from libdesc.numpy.arrays import transposed_convolution
from ops._elementwise import ALL
from ops._windows import IMAGES, Sizes, along, count, counts, image_order, read_window
from ptensor import PTensor, lib_tagger
from vtensor.errors import DimError
from vtensor.operators import Context, Naming, NodeReader, Spelling, operator, param
from vtensor.tensor import VTensor


def _names(node: Naming) -> None:
    node.name("x0", "N K L")
    if names := IMAGES.get(node.rank("y0")):
        node.name("y0", names)
    node.same("x0", 0, "y0", 0)


def _read(node: NodeReader) -> VTensor:
    shape, block = (tuple(int(size) for size in node.constant(index)) for index in (1, 2))
    if len(shape) + 2 not in IMAGES:
        raise node.refuse(f"{len(shape)} spatial dims; one to three are taken")
    image = VTensor("f32", dict(zip(IMAGES[len(shape) + 2].split(), (1, 1, *shape), strict=True)))
    return node.add(Col2Im(shape, block, **read_window(node, image, block)), node.input(0, "N K L"))


@operator(
    "Col2Im",
    dims={"x": "N K L", "y": "N C D? H? W"},
    onnx=Spelling("Col2Im", 18, _read, _names),
)
class Col2Im:
    """Add the windows of an image up, each at its own place.

    Sums of integers wrap around; one of booleans is true where any of them is.

    Dims:
        x: N, K of size C * the block's elements, L the windows    y: N C and the spatial dims
    Args:
        image_shape: sizes of y along its spatial dims.
        block_shape: those of a window.
        strides, pads, dilations: as the windows were taken, in elements; none: 1, 0 and 1.
    Raises:
        DimError: x has not as many windows as the image, or they are not whole.

    >>> from vtensor.operators import Context
    >>> x = VTensor("f32", {"N": 1, "K": 5, "L": 5})
    >>> Col2Im((5, 5), (1, 5)).compute(Context(), x).summary()
    'f32 N=1 C=1 H=5 W=5'

    Source: ONNX operator Col2Im, opset 18.
    """

    image_shape: Sizes = param(minimum=1)
    block_shape: Sizes = param(minimum=1)
    strides: Sizes = param(default=(), minimum=1)
    pads: Sizes = param(default=(), minimum=0)
    dilations: Sizes = param(default=(), minimum=1)

    def compute(self, ctx: Context, x: VTensor) -> VTensor:
        names = IMAGES.get(len(self.image_shape) + 2)
        if names is None:
            raise DimError("an image has one to three spatial dims")
        sizes = (x.size("N"), x.size("K") // prod(self.block_shape), *self.image_shape)
        y = VTensor(x.dtype, dict(zip(names.split(), sizes, strict=True)), ctx.output(0))
        windows = prod(counts(y, self.block_shape, self).values())
        if x.size("K") % prod(self.block_shape) or x.size("L") != windows:
            raise DimError(f"x must have {windows} windows of {self.block_shape} for each channel")
        ctx.dispatch(self, [x], [y])
        return y


@invoker("Col2Im", library="numpy", dtypes=ALL, python=True)
def numpy_col2im(ctx: Context, op: Col2Im, x: VTensor, y: VTensor) -> None:
    src, dst = PTensor(x).require("NKL"), PTensor(y).require(image_order(y))
    if lib_tagger("numpy", [src], [dst]):
        return
    rows, elements = along(y, op.block_shape, op), prod(op.block_shape)
    windows = src.data().reshape(-1, elements, *(count(row) for row in rows))
    one: Any = np.eye(elements, dtype=src.data().dtype).reshape(elements, 1, *op.block_shape)
    strides, pads, dilations = zip(*((r.stride, r.begin, r.dilation) for r in rows), strict=True)
    left = [(row.size + row.begin + row.end - row.reach) % row.stride for row in rows]
    ends = tuple(row.end for row in rows)
    # Kernels with a single 1 put each element of a window at its place in it.
    image = transposed_convolution(windows, one, strides, (*pads, *ends), dilations, left)
    dst.data()[...] = image.reshape(dst.data().shape)
