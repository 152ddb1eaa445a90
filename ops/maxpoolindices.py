"""The largest of each window, and where it was."""

from __future__ import annotations

from math import prod

import numpy as np

from libdesc import invoker
from libdesc.numpy.arrays import NUMBERS, lowest, windows
from ops._windows import Sizes, counts, geometry, image_order, pool_cost, refuse_empty
from ops._writing import parameters
from ptensor import PTensor, lib_tagger
from vtensor.operators import Context, Cost, NodeWriter, operator, param, written
from vtensor.tensor import VTensor


def _write(node: NodeWriter, op: MaxPoolIndices) -> None:
    [x], attributes = node.inputs, parameters(op)
    order, columns = image_order(x).dims, attributes.pop("column_major")
    operand = node.operand(x, order)
    node.emit("MaxPool", operand, order=order, storage_order=columns, **attributes)


@operator(
    "MaxPoolIndices",
    dims={"x": "N C D? H? W", "y": "N C D? H? W", "indices": "N C D? H? W"},
    equal=[("x.N", "y.N"), ("x.C", "y.C")],
    onnx=written("MaxPool", 8, _write),
    traits=[Cost(pool_cost)],
)
class MaxPoolIndices:
    """Slide a window over the image, take the largest element in it, and say which that is.

    y is that of MaxPool; indices counts the elements of x from 0, in the order N C D H W: the first
    of those that are largest.

    Dims:
        x, y, indices: N C W, N C H W or N C D H W
        H' = (H + pads - dilation*(kernel - 1) - 1) // stride + 1, and likewise D' and W'.
    Args:
        kernel_shape, strides, pads, dilations, ceil_mode: as for MaxPool.
        column_major: count D, H and W with D fastest.
    Raises:
        DimError: the window does not fit, one would hold nothing but pads, or a dim is missing.
    Cost:
        One operation for each element of each window.

    >>> from vtensor.operators import Context
    >>> x = VTensor("f32", {"N": 1, "C": 64, "H": 8, "W": 8})
    >>> [t.summary() for t in MaxPoolIndices((2, 2), (2, 2)).compute(Context(), x)]
    ['f32 N=1 C=64 H=4 W=4', 's64 N=1 C=64 H=4 W=4']

    Source: ONNX operator MaxPool with two outputs, opset 12, which MaxPool's file reads.
    """

    kernel_shape: Sizes = param(minimum=1)
    strides: Sizes = param(default=(), minimum=1)
    pads: Sizes = param(default=(), minimum=0)
    dilations: Sizes = param(default=(), minimum=1)
    ceil_mode: bool = param(default=False)
    column_major: bool = param(default=False)

    def compute(self, ctx: Context, x: VTensor) -> tuple[VTensor, VTensor]:
        sizes = counts(x, self.kernel_shape, self, self.ceil_mode)
        refuse_empty(x, self.kernel_shape, self, sizes)
        y = VTensor(x.dtype, {**x.dims, **sizes}, ctx.output(0))
        indices = VTensor("s64", y.dims, ctx.output(1))
        ctx.dispatch(self, [x], [y, indices])
        return y, indices


@invoker("MaxPoolIndices", library="numpy", dtypes={"": NUMBERS, "indices": ["s64"]}, python=True)
def numpy_maxpoolindices(
    ctx: Context,
    op: MaxPoolIndices,
    x: VTensor,
    y: VTensor,
    indices: VTensor,
) -> None:
    src, dst, where = (PTensor(t).require(image_order(t)) for t in (x, y, indices))
    if lib_tagger("numpy", [src], [dst, where]):
        return
    image, window = src.data(), geometry(x, y, op.kernel_shape, op)
    inner = np.arange(np.prod(image.shape[2:])).reshape(
        image.shape[2:], order="F" if op.column_major else "C"
    )
    outer = np.arange(np.prod(image.shape[:2])).reshape(*image.shape[:2], *[1] * inner.ndim)
    number = windows(outer * inner.size + inner, *window)
    flat = (*dst.data().shape, prod(op.kernel_shape))
    view = windows(image, *window, fill=lowest(image.dtype)).reshape(flat)
    inside = windows(np.ones_like(image, bool), *window).reshape(flat)
    largest = view.max(axis=-1, keepdims=True)
    found = inside & ((view == largest) | (view != view))  # not equal to itself: not a number
    first = found.argmax(axis=-1)[..., None]
    dst.data()[...] = largest[..., 0]
    where.data()[...] = np.take_along_axis(number.reshape(flat), first, -1)[..., 0]
