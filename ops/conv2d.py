"""Two-dimensional convolution."""

from __future__ import annotations

from libdesc import eigen, invoker, onednn
from libdesc.numpy.arrays import NUMBERS, convolution
from libdesc.routine import Routine
from ops._windows import (
    convolution_cost,
    counts,
    image_names,
    picks,
    read_image,
    read_window,
    thins,
    write_convolution,
)
from ops.biasadd import BiasAdd
from ops.conv1d import Conv1D
from ops.conv3d import Conv3D
from ops.depthwiseconv2d import DepthwiseConv2D
from ptensor import PTensor, lib_tagger
from vtensor.operators import (
    Context,
    Cost,
    Linear,
    Naming,
    NodeReader,
    Pads,
    Pair,
    Picks,
    Spelling,
    Thins,
    operator,
    param,
)
from vtensor.tensor import VTensor

#: How ONNX's positions of a convolution's weights are called, by rank.
KERNELS = {3: "O I w", 4: "O I h w", 5: "O I d h w"}


def convolution_names(node: Naming, weights: str = "x1", bias: str = "x2") -> None:
    """The dims of image and kernel; the roles say which inputs the kernel and the bias are."""
    image_names(node)
    if (kernel := KERNELS.get(node.rank(weights))) is not None:
        node.name(weights, kernel)
    node.name(bias, "C")
    node.same("x0", 0, "y0", 0)


def _read(node: NodeReader) -> VTensor:
    x = read_image(node)
    y = read_convolution(node, x, node.input(1, KERNELS[len(x.dims)]))
    return node.add(BiasAdd(), y, node.input(2, "C")) if node.has(2) else y


def read_convolution(node: NodeReader, x: VTensor, w: VTensor) -> VTensor:
    """The convolution that a node's attributes describe, of this image with this kernel."""
    kernel = tuple(w.dims.values())[2:]
    if tuple(node.attribute("kernel_shape") or kernel) != kernel:
        raise node.refuse(f"kernel_shape {node.attribute('kernel_shape')}, the kernel is {kernel}")
    group = int(node.attribute("group", 1))
    if group < 1 or w.size("O") % group or x.size("C") != w.size("I") * group:
        what = f"{x.size('C')} channels, {w.size('O')} kernels of {w.size('I')}"
        raise node.refuse(f"group {group} with {what}")
    window = read_window(node, x, kernel)
    op: object = {1: Conv1D, 2: Conv2D, 3: Conv3D}[len(kernel)](**window, group=group)
    if group > 1:
        w = node.reshape(w, {"G": group, **w.dims, "O": w.size("O") // group})
        if len(kernel) == 2 and w.size("I") == 1:
            op = DepthwiseConv2D(**window)
    y: VTensor = node.add(op, x, w)
    return y


@operator(
    "Conv2D",
    dims={"x": "N C H W", "w": "G? O I h w", "y": "N C H W"},
    equal=[("w.G", "group"), ("x.C", "w.I * group"), ("y.C", "w.O * group")],
    onnx=Spelling("Conv", 1, _read, convolution_names, write=write_convolution),
    traits=[Cost(convolution_cost), Picks(picks), Thins(thins), Linear({"w": {"C": "G O"}})],
)
class Conv2D:
    """Slide the kernel ``w`` over the image ``x`` and sum over its window.

    y[N, O, H', W'] = sum over I, h, w of x[N, I, H'*stride + h*dilation - pad, ...] * w[O, I, h, w]

    x is 0 outside. With groups, group G of the kernels sees the G-th part of the channels alone.

    Dims:
        x: N C H W    w: O I h w, or G O I h w with G = group    y: N C H W with C = O * group
        H' = (H + pads - dilation*(h - 1) - 1) // stride + 1, and likewise W'.
    Args:
        strides: step of the window over H and W, in elements, at least 1.
        pads: zeros added at begin H, begin W, end H, end W, in elements.
        dilations: distance of neighbours in the window, in elements, at least 1.
        group: number of parts that the channels fall into.
    Raises:
        DimError: x and w disagree on the number of channels, the window does not fit, or a dim is
            missing.
        NoInvokerError: no library takes this call on this device.
    Cost:
        2 * N*O*H'*W' * I*h*w floating-point operations.

    >>> from vtensor.operators import Context
    >>> x = VTensor("f32", {"N": 1, "C": 3, "H": 224, "W": 224})
    >>> w = VTensor("f32", {"O": 64, "I": 3, "h": 7, "w": 7})
    >>> Conv2D(strides=(2, 2), pads=(3, 3, 3, 3)).compute(Context(), x, w).summary()
    'f32 N=1 C=64 H=112 W=112'

    Source: ONNX operator Conv, opset 11; the paper, section 4.
    """

    strides: Pair = param(default=(1, 1), minimum=1)
    pads: Pads = param(default=(0, 0, 0, 0), minimum=0)
    dilations: Pair = param(default=(1, 1), minimum=1)
    group: int = param(default=1, minimum=1)

    def compute(self, ctx: Context, x: VTensor, w: VTensor) -> VTensor:
        sizes = counts(x, (w.size("h"), w.size("w")), self)
        dims = {**x.dims, "C": w.size("O") * self.group, **sizes}
        y = VTensor(x.dtype, dims, ctx.output(0))
        ctx.dispatch(self, [x, w], [y])
        return y


@invoker("Conv2D", library="onednn", dtypes=["f32", "bf16", "f16"])
def onednn_conv2d(ctx: Context, op: Conv2D, x: VTensor, w: VTensor, y: VTensor) -> Routine:
    return onednn.Convolution(x, w, y, op.strides, op.pads, op.dilations, follow=ctx.followers)


@invoker("Conv2D", library="eigen", dtypes=eigen.DTYPES)
def eigen_conv2d(ctx: Context, op: Conv2D, x: VTensor, w: VTensor, y: VTensor) -> Routine:
    kernel = (w.size("h"), w.size("w"))
    slide = eigen.Slide(kernel, op.strides, op.pads, op.dilations)
    return eigen.convolution(x, w, y, slide, op.group)


@invoker("Conv2D", library="numpy", dtypes=NUMBERS, python=True)
def numpy_conv2d(ctx: Context, op: Conv2D, x: VTensor, w: VTensor, y: VTensor) -> None:
    src, dst = PTensor(x).require("NCHW"), PTensor(y).require("NCHW")
    weights = PTensor(w).require("GOIhw" if "G" in w.dims else "OIhw")
    if lib_tagger("numpy", [src, weights], [dst]):
        return
    dst.data()[...] = convolution(src.data(), weights.data(), op.strides, op.pads, op.dilations)
