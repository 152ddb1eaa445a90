"""Three-dimensional convolution."""

from __future__ import annotations

from libdesc import invoker, onednn
from libdesc.numpy.arrays import NUMBERS, convolution
from libdesc.routine import Routine
from ops._windows import convolution_cost, counts, image_order, picks, thins, write_convolution
from ptensor import Layout, PTensor, lib_tagger
from vtensor.operators import Context, Cost, Linear, Picks, Thins, operator, param, written
from vtensor.tensor import VTensor

Three = tuple[int, int, int]
Six = tuple[int, int, int, int, int, int]


@operator(
    "Conv3D",
    dims={"x": "N C D H W", "w": "G? O I d h w", "y": "N C D H W"},
    equal=[("w.G", "group"), ("x.C", "w.I * group"), ("y.C", "w.O * group")],
    onnx=written("Conv", 1, write_convolution),
    traits=[Cost(convolution_cost), Picks(picks), Thins(thins), Linear({"w": {"C": "G O"}})],
)
class Conv3D:
    """Slide the kernel ``w`` through the volume ``x`` and sum over its window.

    y[N, O, D', H', W'] = sum over I, d, h, w of
    x[N, I, D'*stride + d*dilation - pad, ...] * w[O, I, d, h, w]

    x is 0 outside. With groups, group G of the kernels sees the G-th part of the channels alone.

    Dims:
        x: N C D H W    w: O I d h w, or G O I d h w with G = group
        y: N C D H W with C = O * group
        D' = (D + pads - dilation*(d - 1) - 1) // stride + 1, and likewise H' and W'.
    Args:
        strides: step of the window over D, H and W, in elements, at least 1.
        pads: zeros added at begin D, H and W, then at end D, H and W, in elements.
        dilations: distance of neighbours in the window, in elements, at least 1.
        group: number of parts that the channels fall into.
    Raises:
        DimError: x and w disagree on the number of channels, the window does not fit, or a dim is
            missing.
        NoInvokerError: no library takes this call on this device.
    Cost:
        2 * N*O*D'*H'*W' * I*d*h*w floating-point operations.

    >>> from vtensor.operators import Context
    >>> x = VTensor("f32", {"N": 1, "C": 3, "D": 16, "H": 112, "W": 112})
    >>> w = VTensor("f32", {"O": 64, "I": 3, "d": 3, "h": 7, "w": 7})
    >>> Conv3D((1, 2, 2), (1, 3, 3, 1, 3, 3)).compute(Context(), x, w).summary()
    'f32 N=1 C=64 D=16 H=56 W=56'

    Source: ONNX operator Conv, opset 11, over three spatial dims, which Conv2D's file reads.
    """

    strides: Three = param(default=(1, 1, 1), minimum=1)
    pads: Six = param(default=(0, 0, 0, 0, 0, 0), minimum=0)
    dilations: Three = param(default=(1, 1, 1), minimum=1)
    group: int = param(default=1, minimum=1)

    def compute(self, ctx: Context, x: VTensor, w: VTensor) -> VTensor:
        sizes = counts(x, [w.size(dim) for dim in "dhw"], self)
        y = VTensor(x.dtype, {**x.dims, "C": w.size("O") * self.group, **sizes}, ctx.output(0))
        ctx.dispatch(self, [x, w], [y])
        return y


@invoker("Conv3D", library="onednn", dtypes=["f32", "bf16", "f16"])
def onednn_conv3d(ctx: Context, op: Conv3D, x: VTensor, w: VTensor, y: VTensor) -> Routine:
    return onednn.Convolution(x, w, y, op.strides, op.pads, op.dilations, follow=ctx.followers)


@invoker("Conv3D", library="numpy", dtypes=NUMBERS, python=True)
def numpy_conv3d(ctx: Context, op: Conv3D, x: VTensor, w: VTensor, y: VTensor) -> None:
    src, dst = (PTensor(t).require(image_order(t)) for t in (x, y))
    order = Layout.plain(dim for dim in "GOIdhw" if dim in w.dims)
    weights = PTensor(w).require(order)
    if lib_tagger("numpy", [src, weights], [dst]):
        return
    dst.data()[...] = convolution(src.data(), weights.data(), op.strides, op.pads, op.dilations)
