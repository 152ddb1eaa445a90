"""Convolutions over one to three spatial dims."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from libdesc import eigen, invoker, onednn, winograd
from libdesc.numpy.arrays import NUMBERS, convolution
from libdesc.routine import Routine
from ops._convolution import (
    TRAITS,
    fused,
    kernel_sizes,
    read_convolution,
    spelling,
    write_convolution,
)
from ops._microsoft import of_one_processor
from ops._places import one_output
from ops._sliding import counts, spatial
from ops._windows import image_order, in_order, takes_pads
from ptensor import PTensor, lib_tagger
from vtensor.language.records import dataclass
from vtensor.operators import Context, Pads, Pair, Picks, Thins, operator, param, written
from vtensor.tensor import VTensor

One = tuple[int]
Three = tuple[int, int, int]
Six = tuple[int, int, int, int, int, int]


def _picks(op: Convolution, x: VTensor, w: VTensor) -> tuple[dict[str, int], Convolution] | None:
    """Return the strides of the convolution by dim, and the same convolution with strides of 1.

    A convolution whose kernel has one element and that does not pad reads only every stride-th
    element of ``x``. For any other convolution, the result is None.
    """
    if any(op.pads) or set(kernel_sizes(w)) != {1}:
        return None
    dims = spatial(x.dims)
    return dict(zip(dims, op.strides, strict=True)), replace(op, strides=(1,) * len(dims))


def _thins(op: Convolution, x: VTensor, steps: Mapping[str, int]) -> Convolution:
    """Return ``op`` with its stride along each dim multiplied by the dim's number in ``steps``.

    Dims that ``steps`` lacks keep their stride.
    """
    strides = zip(spatial(x.dims), op.strides, strict=True)
    return replace(op, strides=tuple(stride * steps.get(dim, 1) for dim, stride in strides))


_TRAITS = [*TRAITS, Picks(_picks), Thins(_thins)]
_EQUAL = [("w.G", "group"), ("x.C", "w.I * group"), ("y.C", "w.O * group")]
#: The operators that ONNX Runtime writes with weights in blocks, as one processor needs them.
_BLOCKED = (
    *("Conv", "MaxPool", "AveragePool", "GlobalMaxPool", "GlobalAveragePool", "Upsample"),
    *("ReorderInput", "ReorderOutput"),
)
_WRITTEN = written("Conv", 1, write_convolution("Conv", "O I"))


def _dims(image: str, kernel: str) -> dict[str, str]:
    return {"x": image, "w": kernel, "y": image}


@dataclass(frozen=True)
class Convolution:
    """The shared parameters and ``compute`` of convolutions over any number of spatial dims."""

    strides: tuple[int, ...] = param(minimum=1)
    pads: tuple[int, ...] = param(minimum=0)
    dilations: tuple[int, ...] = param(minimum=1)

    def compute(self, ctx: Context, x: VTensor, w: VTensor) -> VTensor:
        """Dispatch on the image ``x`` and the kernel ``w``, and return the output.

        It has one element for each position of the window and each output channel.
        """
        channels = w.dims.get("G", 1) * w.size("O")
        sizes = counts(x, kernel_sizes(w), self)
        return one_output(ctx, self, [x, w], {**x.dims, "C": channels, **sizes})

    def slide(self, w: VTensor) -> eigen.Slide:
        """Return the kernel's sizes, strides, pads and dilations, as Eigen's routines take them."""
        return eigen.Slide(kernel_sizes(w), self.strides, self.pads, self.dilations)


@operator("Conv1D", dims=_dims("N C W", "G? O I w"), equal=_EQUAL, onnx=_WRITTEN, traits=_TRAITS)
class Conv1D(Convolution):
    """Slide the kernel ``w`` along the series ``x`` and sum over its window.

    y[N, O, W'] = sum over I, w of x[N, I, W'*stride + w*dilation - pad] * w[O, I, w]

    Outside of its elements, x counts as 0. With groups, group G of the kernels reads only the G-th
    part of the channels.

    Dims:
        x: N C W    w: O I w, or G O I w with G = group    y: N C W with C = O * group
        W' = (W + pads - dilation*(w - 1) - 1) // stride + 1
    Args:
        strides: distance of neighbouring windows, in elements, at least 1.
        pads: zeros added at begin W, end W, in elements.
        dilations: distance of neighbours in the window, in elements, at least 1.
        group: number of equal parts of the channels.
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

    Source: ONNX operator Conv, opset 11, over one spatial dim; the reader is Conv2D's.
    """

    strides: One = param(default=(1,), minimum=1)
    pads: Pair = param(default=(0, 0), minimum=0)
    dilations: One = param(default=(1,), minimum=1)
    group: int = param(default=1, minimum=1)


@operator(
    "Conv2D",
    dims=_dims("N C H W", "G? O I h w"),
    equal=_EQUAL,
    onnx=[
        spelling("Conv", "O I", read_convolution),
        fused("FusedConv"),
        fused("NhwcConv", last=True),
        fused("NhwcFusedConv", last=True),
        *map(of_one_processor, _BLOCKED),
    ],
    traits=_TRAITS,
)
class Conv2D(Convolution):
    """Slide the kernel ``w`` over the image ``x`` and sum over its window.

    y[N, O, H', W'] = sum over I, h, w of x[N, I, H'*stride + h*dilation - pad, ...] * w[O, I, h, w]

    Outside of its elements, x counts as 0. With groups, group G of the kernels reads only the G-th
    part of the channels.

    Dims:
        x: N C H W    w: O I h w, or G O I h w with G = group    y: N C H W with C = O * group
        H' = (H + pads - dilation*(h - 1) - 1) // stride + 1, and likewise W'.
    Args:
        strides: distance of neighbouring windows along H and W, in elements, at least 1.
        pads: zeros added at begin H, begin W, end H, end W, in elements.
        dilations: distance of neighbours in the window, in elements, at least 1.
        group: number of equal parts of the channels.
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

    Source: ONNX operator Conv, opset 11; the paper, section 4. ONNX Runtime operators FusedConv,
    NhwcConv and NhwcFusedConv.
    """

    strides: Pair = param(default=(1, 1), minimum=1)
    pads: Pads = param(default=(0, 0, 0, 0), minimum=0)
    dilations: Pair = param(default=(1, 1), minimum=1)
    group: int = param(default=1, minimum=1)


@operator(
    "Conv3D", dims=_dims("N C D H W", "G? O I d h w"), equal=_EQUAL, onnx=_WRITTEN, traits=_TRAITS
)
class Conv3D(Convolution):
    """Slide the kernel ``w`` through the volume ``x`` and sum over its window.

    y[N, O, D', H', W'] = sum over I, d, h, w of
    x[N, I, D'*stride + d*dilation - pad, ...] * w[O, I, d, h, w]

    Outside of its elements, x counts as 0. With groups, group G of the kernels reads only the G-th
    part of the channels.

    Dims:
        x: N C D H W    w: O I d h w, or G O I d h w with G = group
        y: N C D H W with C = O * group
        D' = (D + pads - dilation*(d - 1) - 1) // stride + 1, and likewise H' and W'.
    Args:
        strides: distance of neighbouring windows along D, H and W, in elements, at least 1.
        pads: zeros added at begin D, H and W, then at end D, H and W, in elements.
        dilations: distance of neighbours in the window, in elements, at least 1.
        group: number of equal parts of the channels.
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

    Source: ONNX operator Conv, opset 11, over three spatial dims; the reader is Conv2D's.
    """

    strides: Three = param(default=(1, 1, 1), minimum=1)
    pads: Six = param(default=(0, 0, 0, 0, 0, 0), minimum=0)
    dilations: Three = param(default=(1, 1, 1), minimum=1)
    group: int = param(default=1, minimum=1)


@operator(
    "DepthwiseConv2D",
    dims=_dims("N C H W", "G O I h w"),
    equal=[("x.C", "w.G"), ("w.I", "1"), ("y.C", "w.G * w.O")],
    onnx=_WRITTEN,
    traits=_TRAITS,
)
class DepthwiseConv2D(Convolution):
    """Slide over each channel of ``x`` the kernels of its group, and sum over each window.

    y[N, G*O, H', W'] = sum over h, w of x[N, G, H'*stride + h*dilation - pad, ...] * w[G, O, h, w]

    Outside of its elements, x counts as 0.

    Dims:
        x: N C H W    w: G O I h w with G = C and I = 1    y: N C H W with C = G * O
        H' = (H + pads - dilation*(h - 1) - 1) // stride + 1, and likewise W'.
    Args:
        strides: distance of neighbouring windows along H and W, in elements, at least 1.
        pads: zeros added at begin H, begin W, end H, end W, in elements.
        dilations: distance of neighbours in the window, in elements, at least 1.
    Raises:
        DimError: w does not have one group for each channel, the window does not fit, or a dim is
            missing.
        NoInvokerError: no library takes this call on this device.
    Cost:
        2 * N*C*H'*W' * h*w floating-point operations (C of y).

    >>> from vtensor.operators import Context
    >>> x = VTensor("f32", {"N": 1, "C": 32, "H": 112, "W": 112})
    >>> w = VTensor("f32", {"G": 32, "O": 1, "I": 1, "h": 3, "w": 3})
    >>> DepthwiseConv2D(pads=(1, 1, 1, 1)).compute(Context(), x, w).summary()
    'f32 N=1 C=32 H=112 W=112'

    Source: ONNX operator Conv with group = C, opset 11; the reader is Conv2D's.
    """

    strides: Pair = param(default=(1, 1), minimum=1)
    pads: Pads = param(default=(0, 0, 0, 0), minimum=0)
    dilations: Pair = param(default=(1, 1), minimum=1)


def onednn_conv(ctx: Context, op: Convolution, x: VTensor, w: VTensor, y: VTensor) -> Routine:
    return onednn.Convolution(x, w, y, op.strides, op.pads, op.dilations, follow=ctx.followers)


@invoker("Conv2D", library="eigen", dtypes=eigen.MULTIPLIED)
def eigen_conv2d(ctx: Context, op: Conv2D, x: VTensor, w: VTensor, y: VTensor) -> Routine:
    return eigen.convolution(x, w, y, op.slide(w), op.group)


@invoker(
    "Conv2D",
    library="winograd",
    dtypes=["f32"],
    first=lambda op, x, w: winograd.is_faster(op.strides, x, w),
    before=["onednn", "eigen"],
)
def winograd_conv2d(ctx: Context, op: Conv2D, x: VTensor, w: VTensor, y: VTensor) -> Routine:
    return winograd.convolution(x, w, y, op.strides, op.pads, op.dilations, follow=ctx.followers)


@invoker("DepthwiseConv2D", library="winograd", dtypes=["f32"])
def winograd_depthwise(
    ctx: Context, op: Convolution, x: VTensor, w: VTensor, y: VTensor
) -> Routine:
    return winograd.Depthwise(x, w, y, op.strides, op.pads, op.dilations, follow=ctx.followers)


@invoker("DepthwiseConv2D", library="eigen", dtypes=eigen.MULTIPLIED)
def eigen_depthwise(ctx: Context, op: Convolution, x: VTensor, w: VTensor, y: VTensor) -> Routine:
    return eigen.depthwise(x, w, y, op.slide(w))


def numpy_convolution(ctx: Context, op: Convolution, x: VTensor, w: VTensor, y: VTensor) -> None:
    src, dst = PTensor(x).require(image_order(x)), PTensor(y).require(image_order(y))
    weights = PTensor(w).require(in_order("G O I d h w")(w))
    if lib_tagger("numpy", [src, weights], [dst]):
        return
    dst.data()[...] = convolution(src.data(), weights.data(), op.strides, op.pads, op.dilations)


for _name in ("Conv1D", "Conv2D", "Conv3D", "DepthwiseConv2D"):
    invoker(_name, library="onednn", dtypes=["f32", "bf16", "f16"])(onednn_conv)
    invoker(_name, library="numpy", dtypes=NUMBERS, python=True)(numpy_convolution)


_WINDOW = "strides=strides, dilations=dilations"
for _name, _image, _kernel in (
    ("Conv1D", "N C W", "O I=C w=2"),
    ("Conv2D", "N C H W", "O I=C h=2 w=2"),
    ("Conv3D", "N C D H W", "O I=C d=2 h=1 w=2"),
    ("DepthwiseConv2D", "N C H W", "G=C O I=1 h=2 w=2"),
):
    takes_pads(
        _name,
        ", w",
        _WINDOW if _name.startswith("Depthwise") else f"{_WINDOW}, group=group",
        _image,
        w=_kernel,
    )
