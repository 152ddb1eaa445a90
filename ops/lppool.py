"""The norm of each window."""

from __future__ import annotations

import numpy as np

from libdesc import invoker
from libdesc.numpy.arrays import FLOATS, wide, windows
from ops._windows import (
    Sizes,
    counts,
    geometry,
    image_order,
    pool_cost,
    pool_names,
    read_image,
    read_pool,
    read_whole,
    write_image,
)
from ptensor import PTensor, lib_tagger
from vtensor.operators import Context, Cost, NodeReader, Spelling, operator, param
from vtensor.tensor import VTensor


def _read(node: NodeReader) -> VTensor:
    x = read_image(node)
    return node.add(LpPool(**read_pool(node, x), p=int(node.attribute("p", 2))), x)


def _read_whole(node: NodeReader) -> VTensor:
    x = read_image(node)
    return node.add(LpPool(read_whole(node, x), p=int(node.attribute("p", 2))), x)


@operator(
    "LpPool",
    dims={"x": "N C D? H? W", "y": "N C D? H? W"},
    equal=[("x.N", "y.N"), ("x.C", "y.C")],
    onnx=[
        Spelling("LpPool", 1, _read, pool_names, write=write_image("LpPool")),
        Spelling("GlobalLpPool", 1, _read_whole, pool_names),
    ],
    traits=[Cost(pool_cost)],
)
class LpPool:
    """Slide a window over the image and take the norm of what is in it.

    y[N, C, H', ...] = (sum over h, ... of |x[N, C, H'*stride + h*dilation - pad, ...]|^p)^(1/p)

    Dims:
        x, y: N C W, N C H W or N C D H W
        H' = (H + pads - dilation*(kernel - 1) - 1) // stride + 1, and likewise D' and W'.
    Args:
        kernel_shape: size of the window over D, H and W, as far as x has them, in elements.
        strides: step of the window along each, in elements, at least 1; none given: 1.
        pads: zeros added at begin D, H, W, then at end D, H, W; none given: 0.
        dilations: distance of neighbours in the window, in elements, at least 1; none given: 1.
        ceil_mode: divide by the stride rounding up: elements left over get a window too.
        p: the norm, at least 1.
    Raises:
        DimError: the window does not fit, or a dim is missing.
    Cost:
        One operation for each element of each window.

    >>> from vtensor.operators import Context
    >>> x = VTensor("f32", {"N": 1, "C": 64, "H": 8, "W": 8})
    >>> LpPool((2, 2), strides=(2, 2)).compute(Context(), x).summary()
    'f32 N=1 C=64 H=4 W=4'

    Source: ONNX operators LpPool, opset 18, and GlobalLpPool, opset 2.
    """

    kernel_shape: Sizes = param(minimum=1)
    strides: Sizes = param(default=(), minimum=1)
    pads: Sizes = param(default=(), minimum=0)
    dilations: Sizes = param(default=(), minimum=1)
    ceil_mode: bool = param(default=False)
    p: int = param(default=2, minimum=1)

    def compute(self, ctx: Context, x: VTensor) -> VTensor:
        sizes = counts(x, self.kernel_shape, self, self.ceil_mode)
        y = VTensor(x.dtype, {**x.dims, **sizes}, ctx.output(0))
        ctx.dispatch(self, [x], [y])
        return y


@invoker("LpPool", library="numpy", dtypes=FLOATS, python=True)
def numpy_lppool(ctx: Context, op: LpPool, x: VTensor, y: VTensor) -> None:
    src, dst = (PTensor(t).require(image_order(t)) for t in (x, y))
    if lib_tagger("numpy", [src], [dst]):
        return
    powers = np.abs(wide(src.data())) ** op.p
    view = windows(powers, *geometry(x, y, op.kernel_shape, op))
    window = tuple(range(-len(op.kernel_shape), 0))
    dst.data()[...] = view.sum(axis=window) ** (1 / op.p)
