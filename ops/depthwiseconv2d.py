"""Two-dimensional convolution of each channel by itself."""

from __future__ import annotations

from libdesc import eigen, invoker, onednn
from libdesc.numpy.arrays import NUMBERS, convolution
from libdesc.routine import Routine
from ops._windows import convolution_cost, counts, picks, thins, write_convolution
from ptensor import PTensor, lib_tagger
from vtensor.operators import (
    Context,
    Cost,
    Linear,
    Pads,
    Pair,
    Picks,
    Thins,
    operator,
    param,
    written,
)
from vtensor.tensor import VTensor


@operator(
    "DepthwiseConv2D",
    dims={"x": "N C H W", "w": "G O I h w", "y": "N C H W"},
    equal=[("x.C", "w.G"), ("w.I", "1"), ("y.C", "w.G * w.O")],
    onnx=written("Conv", 1, write_convolution),
    traits=[Cost(convolution_cost), Picks(picks), Thins(thins), Linear({"w": {"C": "G O"}})],
)
class DepthwiseConv2D:
    """Slide over each channel of ``x`` the kernels that are its own.

    y[N, G*O, H', W'] = sum over h, w of x[N, G, H'*stride + h*dilation - pad, ...] * w[G, O, h, w]

    x is 0 outside.

    Dims:
        x: N C H W    w: G O I h w with G = C and I = 1    y: N C H W with C = G * O
        H' = (H + pads - dilation*(h - 1) - 1) // stride + 1, and likewise W'.
    Args:
        strides: step of the window over H and W, in elements, at least 1.
        pads: zeros added at begin H, begin W, end H, end W, in elements.
        dilations: distance of neighbours in the window, in elements, at least 1.
    Raises:
        DimError: w has not one group a channel, the window does not fit, or a dim is missing.
        NoInvokerError: no library takes this call on this device.
    Cost:
        2 * N*C*H'*W' * h*w floating-point operations (C of y).

    >>> from vtensor.operators import Context
    >>> x = VTensor("f32", {"N": 1, "C": 32, "H": 112, "W": 112})
    >>> w = VTensor("f32", {"G": 32, "O": 1, "I": 1, "h": 3, "w": 3})
    >>> DepthwiseConv2D(pads=(1, 1, 1, 1)).compute(Context(), x, w).summary()
    'f32 N=1 C=32 H=112 W=112'

    Source: ONNX operator Conv with group = C, opset 11, which Conv2D's file reads.
    """

    strides: Pair = param(default=(1, 1), minimum=1)
    pads: Pads = param(default=(0, 0, 0, 0), minimum=0)
    dilations: Pair = param(default=(1, 1), minimum=1)

    def compute(self, ctx: Context, x: VTensor, w: VTensor) -> VTensor:
        sizes = counts(x, (w.size("h"), w.size("w")), self)
        dims = {**x.dims, "C": w.size("G") * w.size("O"), **sizes}
        y = VTensor(x.dtype, dims, ctx.output(0))
        ctx.dispatch(self, [x, w], [y])
        return y


@invoker("DepthwiseConv2D", library="onednn", dtypes=["f32", "bf16", "f16"])
def onednn_depthwise(
    ctx: Context, op: DepthwiseConv2D, x: VTensor, w: VTensor, y: VTensor
) -> Routine:
    return onednn.Convolution(x, w, y, op.strides, op.pads, op.dilations, follow=ctx.followers)


@invoker("DepthwiseConv2D", library="eigen", dtypes=eigen.DTYPES)
def eigen_depthwiseconv2d(
    ctx: Context, op: DepthwiseConv2D, x: VTensor, w: VTensor, y: VTensor
) -> Routine:
    kernel = (w.size("h"), w.size("w"))
    return eigen.depthwise(x, w, y, eigen.Slide(kernel, op.strides, op.pads, op.dilations))


@invoker("DepthwiseConv2D", library="numpy", dtypes=NUMBERS, python=True)
def numpy_depthwise(
    ctx: Context,
    op: DepthwiseConv2D,
    x: VTensor,
    w: VTensor,
    y: VTensor,
) -> None:
    src, dst = PTensor(x).require("NCHW"), PTensor(y).require("NCHW")
    weights = PTensor(w).require("GOIhw")
    if lib_tagger("numpy", [src, weights], [dst]):
        return
    dst.data()[...] = convolution(src.data(), weights.data(), op.strides, op.pads, op.dilations)
