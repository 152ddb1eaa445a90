"""The mean of each window."""

from __future__ import annotations

import numpy as np

from libdesc import guideline, invoker, onednn
from libdesc.numpy.arrays import FLOATS, windows
from ops._windows import (
    counts,
    fitted_pads,
    pool_names,
    read_image,
    read_pool,
    read_whole,
    refuse_empty,
)
from ptensor import PTensor, lib_tagger
from vtensor.operators import Context, NodeReader, Pads, Pair, Spelling, operator, param
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
    dims={"x": "N C H W", "y": "N C H W"},
    equal=[("x.N", "y.N"), ("x.C", "y.C")],
    onnx=[
        Spelling("AveragePool", 1, _read, pool_names),
        Spelling("GlobalAveragePool", 1, _read_whole, pool_names),
    ],
)
class AvgPool:
    """Slide a window over the image and take the mean of what is in it.

    y[N, C, H', W'] = mean over h, w of x[N, C, H'*stride + h*dilation - pad, ...]; pads are left
    out of the mean, or count as zeros.

    Dims:
        x, y: N C H W
        H' = (H + pads - dilation*(kernel - 1) - 1) // stride + 1, and likewise W'.
    Args:
        kernel_shape: size of the window over H and W, in elements.
        strides: step of the window, in elements, at least 1.
        pads: elements added at begin H, begin W, end H, end W, fewer than the window spans.
        dilations: distance of neighbours in the window, in elements, at least 1.
        ceil_mode: divide by the stride rounding up: elements left over get a window too.
        count_include_pad: pads count as zeros; what ``ceil_mode`` reaches beyond them does not.
    Raises:
        DimError: the window does not fit, one would hold nothing but pads, or a dim is missing.

    >>> from vtensor.operators import Context
    >>> x = VTensor("f32", {"N": 1, "C": 2048, "H": 7, "W": 7})
    >>> AvgPool((7, 7)).compute(Context(), x).summary()
    'f32 N=1 C=2048 H=1 W=1'

    Source: ONNX operators AveragePool, opset 19, and GlobalAveragePool, opset 1.
    """

    kernel_shape: Pair = param(minimum=1)
    strides: Pair = param(default=(1, 1), minimum=1)
    pads: Pads = param(default=(0, 0, 0, 0), minimum=0)
    dilations: Pair = param(default=(1, 1), minimum=1)
    ceil_mode: bool = param(default=False)
    count_include_pad: bool = param(default=False)

    def compute(self, ctx: Context, x: VTensor) -> VTensor:
        sizes = counts(x, self.kernel_shape, self, self.ceil_mode)
        refuse_empty(x, self.kernel_shape, self, sizes)
        y = VTensor(x.dtype, {**x.dims, **sizes}, ctx.output(0))
        ctx.dispatch(self, [x], [y])
        return y


def _onednn_counts_so(op: AvgPool, x: VTensor, y: VTensor) -> bool | str:
    beyond = fitted_pads(x, y, op.kernel_shape, op) != op.pads
    if op.count_include_pad and beyond:
        return "counts what ceil_mode reaches beyond the pads"
    return True


@invoker("AvgPool", library="onednn", dtypes=["f32", "bf16", "f16"], when=_onednn_counts_so)
def onednn_avgpool(ctx: Context, op: AvgPool, x: VTensor, y: VTensor) -> None:
    src, dst = PTensor(x), PTensor(y)
    kind = "avg_include_padding" if op.count_include_pad else "avg_exclude_padding"
    pads = fitted_pads(x, y, op.kernel_shape, op)
    pool = onednn.Pooling(
        kind, src, dst, op.kernel_shape, op.strides, pads, op.dilations, post=ctx.post
    )
    for tensor in (src, dst):
        tensor.require(guideline("onednn", tensor))
    if lib_tagger("onednn", [src], [dst]):
        return
    pool()


@invoker("AvgPool", library="numpy", dtypes=FLOATS, python=True)
def numpy_avgpool(ctx: Context, op: AvgPool, x: VTensor, y: VTensor) -> None:  # noqa: ARG001
    src, dst = PTensor(x).require("NCHW"), PTensor(y).require("NCHW")
    if lib_tagger("numpy", [src], [dst]):
        return
    image, pads = src.data(), fitted_pads(x, y, op.kernel_shape, op)
    counted = np.ones((1, 1, x.size("H"), x.size("W")), image.dtype)
    beyond = pads
    if op.count_include_pad:
        top, left, bottom, right = op.pads
        counted = np.pad(counted, ((0, 0), (0, 0), (top, bottom), (left, right)), constant_values=1)
        beyond = (0, 0, pads[2] - bottom, pads[3] - right)
    total = windows(image, op.kernel_shape, op.strides, pads, op.dilations).sum(axis=(4, 5))
    number = windows(counted, op.kernel_shape, op.strides, beyond, op.dilations).sum(axis=(4, 5))
    dst.data()[...] = total / number
