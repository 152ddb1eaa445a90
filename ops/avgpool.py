"""The mean of each window."""

from __future__ import annotations

import numpy as np

from libdesc import eigen, invoker, onednn
from libdesc.numpy.arrays import FLOATS, wide, windows
from libdesc.routine import Routine
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
    refuse_empty,
    write_image,
)
from ptensor import PTensor, lib_tagger
from vtensor.operators import Context, Cost, NodeReader, Spelling, operator, param
from vtensor.tensor import VTensor


def _read(node: NodeReader) -> VTensor:
    x = read_image(node)
    include = bool(node.attribute("count_include_pad", 0))
    return node.add(AvgPool(**read_pool(node, x), count_include_pad=include), x)


def _read_whole(node: NodeReader) -> VTensor:
    x = read_image(node)
    return node.add(AvgPool(read_whole(node, x)), x)


@operator(
    "AvgPool",
    dims={"x": "N C D? H? W", "y": "N C D? H? W"},
    equal=[("x.N", "y.N"), ("x.C", "y.C")],
    onnx=[
        Spelling("AveragePool", 1, _read, pool_names, write=write_image("AveragePool")),
        Spelling("GlobalAveragePool", 1, _read_whole, pool_names),
    ],
    traits=[Cost(pool_cost)],
)
class AvgPool:
    """Slide a window over the image and take the mean of what is in it.

    y[N, C, H', W'] = mean over h, w of x[N, C, H'*stride + h*dilation - pad, ...]; pads are left
    out of the mean, or count as zeros.

    Dims:
        x, y: N C W, N C H W or N C D H W
        H' = (H + pads - dilation*(kernel - 1) - 1) // stride + 1, and likewise D' and W'.
    Args:
        kernel_shape: size of the window over D, H and W, as far as x has them, in elements.
        strides: step of the window along each, in elements, at least 1; none given: 1.
        pads: elements added at begin D, H, W, then at end D, H, W, fewer than the window spans;
            none given: 0.
        dilations: distance of neighbours in the window, in elements, at least 1; none given: 1.
        ceil_mode: divide by the stride rounding up: elements left over get a window too.
        count_include_pad: pads count as zeros; what ``ceil_mode`` reaches beyond them does not.
    Raises:
        DimError: the window does not fit, one would hold nothing but pads, or a dim is missing.
    Cost:
        One operation for each element of each window.

    >>> from vtensor.operators import Context
    >>> x = VTensor("f32", {"N": 1, "C": 2048, "H": 7, "W": 7})
    >>> AvgPool((7, 7)).compute(Context(), x).summary()
    'f32 N=1 C=2048 H=1 W=1'

    Source: ONNX operators AveragePool, opset 19, and GlobalAveragePool, opset 1.
    """

    kernel_shape: Sizes = param(minimum=1)
    strides: Sizes = param(default=(), minimum=1)
    pads: Sizes = param(default=(), minimum=0)
    dilations: Sizes = param(default=(), minimum=1)
    ceil_mode: bool = param(default=False)
    count_include_pad: bool = param(default=False)

    def compute(self, ctx: Context, x: VTensor) -> VTensor:
        sizes = counts(x, self.kernel_shape, self, self.ceil_mode)
        refuse_empty(x, self.kernel_shape, self, sizes)
        y = VTensor(x.dtype, {**x.dims, **sizes}, ctx.output(0))
        ctx.dispatch(self, [x], [y])
        return y


def _counts_so(op: AvgPool, x: VTensor, y: VTensor) -> bool | str:
    pads = geometry(x, y, op.kernel_shape, op)[2]
    if op.count_include_pad and pads != (op.pads or (0,) * len(pads)):
        return "counts what ceil_mode reaches beyond the pads"
    return True


@invoker("AvgPool", library="onednn", dtypes=["f32", "bf16", "f16"], when=_counts_so)
def onednn_avgpool(ctx: Context, op: AvgPool, x: VTensor, y: VTensor) -> Routine:
    kind = "avg_include_padding" if op.count_include_pad else "avg_exclude_padding"
    return onednn.Pooling(kind, x, y, *geometry(x, y, op.kernel_shape, op))


@invoker("AvgPool", library="eigen", dtypes=eigen.DTYPES, when=_counts_so)
def eigen_avgpool(ctx: Context, op: AvgPool, x: VTensor, y: VTensor) -> Routine:
    kind = "avg_include_padding" if op.count_include_pad else "avg_exclude_padding"
    return eigen.pooling(kind, x, y, eigen.Slide(*geometry(x, y, op.kernel_shape, op)))


@invoker("AvgPool", library="numpy", dtypes=FLOATS, python=True)
def numpy_avgpool(ctx: Context, op: AvgPool, x: VTensor, y: VTensor) -> None:
    src, dst = (PTensor(t).require(image_order(t)) for t in (x, y))
    if lib_tagger("numpy", [src], [dst]):
        return
    kernel, strides, pads, dilations = geometry(x, y, op.kernel_shape, op)
    image = wide(src.data())
    rank = len(kernel)
    own = (op.pads or (0,) * len(pads)) if op.count_include_pad else (0,) * len(pads)
    around = [(0, 0), (0, 0), *zip(own[:rank], own[rank:], strict=True)]
    counted = np.pad(np.ones((1, 1, *image.shape[2:]), image.dtype), around, constant_values=1)
    beyond = [pad - inner for pad, inner in zip(pads, own, strict=True)]
    window = tuple(range(-rank, 0))
    total = windows(image, kernel, strides, pads, dilations).sum(axis=window)
    number = windows(counted, kernel, strides, beyond, dilations).sum(axis=window)
    dst.data()[...] = total / number
