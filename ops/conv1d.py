"""One-dimensional convolution."""

from __future__ import annotations

from libdesc import invoker, onednn
from libdesc.numpy.arrays import NUMBERS, convolution
from libdesc.routine import Routine
from ops._windows import convolution_cost, counts, image_order, picks, thins, write_convolution
from ptensor import Layout, PTensor, lib_tagger
from vtensor.operators import Context, Cost, Linear, Picks, Thins, operator, param, written
from vtensor.tensor import VTensor

One = tuple[int]
Two = tuple[int, int]


@operator(
    "Conv1D",
    dims={"x": "N C W", "w": "G? O I w", "y": "N C W"},
    equal=[("w.G", "group"), ("x.C", "w.I * group"), ("y.C", "w.O * group")],
    onnx=written("Conv", 1, write_convolution),
    traits=[Cost(convolution_cost), Picks(picks), Thins(thins), Linear({"w": {"C": "G O"}})],
)
class Conv1D:
    """Slide the kernel ``w`` along the series ``x`` and sum over its window.

    y[N, O, W'] = sum over I, w of x[N, I, W'*stride + w*dilation - pad] * w[O, I, w]

    x is 0 outside. With groups, group G of the kernels sees the G-th part of the channels alone.

    Dims:
        x: N C W    w: O I w, or G O I w with G = group    y: N C W with C = O * group
        W' = (W + pads - dilation*(w - 1) - 1) // stride + 1
    Args:
        strides: step of the window, in elements, at least 1.
        pads: zeros added at begin W, end W, in elements.
        dilations: distance of neighbours in the window, in elements, at least 1.
        group: number of parts that the channels fall into.
    Raises:
        DimError: x and w disagree on the number of channels, the window does not fit, or a dim is
            missing.
        NoInvokerError: no library takes this call on this device.
    Cost:
        2 * N*O*W' * I*w floating-point operations.

    >>> from vtensor.operators import Context
    >>> x, w = VTensor("f32", {"N": 1, "C": 16, "W": 80}), VTensor("f32", {"O": 8, "I": 16, "w": 5})
    >>> Conv1D(strides=(2,), pads=(2, 2)).compute(Context(), x, w).summary()
    'f32 N=1 C=8 W=40'

    Source: ONNX operator Conv, opset 11, over one spatial dim, which Conv2D's file reads.
    """

    strides: One = param(default=(1,), minimum=1)
    pads: Two = param(default=(0, 0), minimum=0)
    dilations: One = param(default=(1,), minimum=1)
    group: int = param(default=1, minimum=1)

    def compute(self, ctx: Context, x: VTensor, w: VTensor) -> VTensor:
        sizes = counts(x, (w.size("w"),), self)
        y = VTensor(x.dtype, {**x.dims, "C": w.size("O") * self.group, **sizes}, ctx.output(0))
        ctx.dispatch(self, [x, w], [y])
        return y


@invoker("Conv1D", library="onednn", dtypes=["f32", "bf16", "f16"])
def onednn_conv1d(ctx: Context, op: Conv1D, x: VTensor, w: VTensor, y: VTensor) -> Routine:
    return onednn.Convolution(x, w, y, op.strides, op.pads, op.dilations, follow=ctx.followers)


@invoker("Conv1D", library="numpy", dtypes=NUMBERS, python=True)
def numpy_conv1d(ctx: Context, op: Conv1D, x: VTensor, w: VTensor, y: VTensor) -> None:
    src, dst = (PTensor(t).require(image_order(t)) for t in (x, y))
    order = Layout.plain(dim for dim in "GOIw" if dim in w.dims)
    weights = PTensor(w).require(order)
    if lib_tagger("numpy", [src, weights], [dst]):
        return
    dst.data()[...] = convolution(src.data(), weights.data(), op.strides, op.pads, op.dilations)
