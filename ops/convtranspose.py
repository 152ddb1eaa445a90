"""Transposed convolution over one to three spatial dims."""

from __future__ import annotations

from math import prod
from typing import Any

from libdesc import invoker, onednn
from libdesc.numpy.arrays import NUMBERS, transposed_convolution
from libdesc.routine import Routine
from ops._windows import Sizes, image_names, image_order, read_image, spatial
from ops._writing import parameters
from ops.biasadd import BiasAdd
from ptensor import Layout, PTensor, lib_tagger
from vtensor.errors import DimError
from vtensor.operators import (
    Context,
    Cost,
    Linear,
    Naming,
    NodeReader,
    NodeWriter,
    Spelling,
    operator,
    param,
)
from vtensor.tensor import VTensor

#: How ONNX's positions of the weights are called, by rank.
KERNELS = {3: "I O w", 4: "I O h w", 5: "I O d h w"}


def _names(node: Naming) -> None:
    image_names(node)
    if (kernel := KERNELS.get(node.rank("x1"))) is not None:
        node.name("x1", kernel)
    node.name("x2", "C")
    node.same("x0", 0, "y0", 0)


def _read(node: NodeReader) -> VTensor:
    x = read_image(node)
    w = node.input(1, KERNELS[len(x.dims)])
    kernel = tuple(w.dims.values())[2:]
    if tuple(node.attribute("kernel_shape") or kernel) != kernel:
        raise node.refuse(f"kernel_shape {node.attribute('kernel_shape')}, the kernel is {kernel}")
    group = int(node.attribute("group", 1))
    if group < 1 or x.size("C") % group or w.size("I") != x.size("C"):
        raise node.refuse(f"group {group} with {x.size('C')} channels, kernels for {w.size('I')}")
    op = ConvTranspose(**_read_window(node, x, kernel), group=group)
    if group > 1:
        w = node.reshape(w, {"G": group, **w.dims, "I": w.size("I") // group})
    y = node.add(op, x, w)
    return node.add(BiasAdd(), y, node.input(2, "C")) if node.has(2) else y


def _write(node: NodeWriter, op: ConvTranspose) -> None:
    x, w = node.inputs
    order = image_order(x).dims
    kernel = ["G*I", "O", *(dim for dim in "dhw" if dim in w.dims)]
    bias = node.follower(BiasAdd, lambda b: tuple(b.dims) == ("C",))
    operands = [node.operand(x, order), node.operand(w, kernel)]
    operands += [] if bias is None else [node.operand(bias)]
    node.emit("ConvTranspose", *operands, order=order, **parameters(op))


def _read_window(node: NodeReader, x: VTensor, kernel: Sizes) -> dict[str, Any]:
    """The attributes; ``output_shape`` and ``auto_pad`` are other ways of writing pads."""
    sizes = [x.size(dim) for dim in spatial(x.dims)]
    rank = len(sizes)
    strides = tuple(node.attribute("strides") or (1,) * rank)
    dilations = tuple(node.attribute("dilations") or (1,) * rank)
    extra = tuple(node.attribute("output_padding") or (0,) * rank)
    pads = tuple(node.attribute("pads") or (0, 0) * rank)
    shape = tuple(node.attribute("output_shape") or ())[-rank:]
    auto = node.attribute("auto_pad") or "NOTSET"
    if auto not in ("NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER"):
        raise node.refuse(f"auto_pad {auto!r}")
    if not len(strides) == len(dilations) == len(extra) == len(pads) / 2 == rank:
        raise node.refuse(f"strides {strides}, dilations {dilations}, pads {pads} over {rank} dims")
    if auto.startswith("SAME") and not shape:
        shape = tuple(size * stride for size, stride in zip(sizes, strides, strict=True))
    if len(shape) == rank:
        rows = zip(sizes, kernel, strides, dilations, extra, strict=True)
        full = [s * (size - 1) + d * (k - 1) + 1 + e for size, k, s, d, e in rows]
        gone = [max(have - want, 0) for have, want in zip(full, shape, strict=True)]
        less = [total // 2 for total in gone]
        more = [total - half for total, half in zip(gone, less, strict=True)]
        pads = (*less, *more) if auto == "SAME_UPPER" else (*more, *less)
        missing = (max(want - have, 0) for have, want in zip(full, shape, strict=True))
        extra = tuple(e + m for e, m in zip(extra, missing, strict=True))
    elif auto == "VALID":
        pads = (0, 0) * rank
    if min(pads) < 0 or min(extra) < 0:
        raise node.refuse(f"negative pads {pads} or output_padding {extra}")
    return {"strides": strides, "pads": pads, "dilations": dilations, "output_padding": extra}


def _cost(_op: object, x: VTensor, w: VTensor, _y: VTensor) -> int:
    return 2 * x.num_elements * prod(size for dim, size in w.dims.items() if dim not in "GI")


@operator(
    "ConvTranspose",
    dims={"x": "N C D? H? W", "w": "G? I O d? h? w", "y": "N C D? H? W"},
    equal=[("w.G", "group"), ("x.C", "w.I * group"), ("y.C", "w.O * group"), ("x.N", "y.N")],
    onnx=Spelling("ConvTranspose", 1, _read, _names, write=_write),
    traits=[Cost(_cost), Linear({"w": {"C": "G O"}})],
)
class ConvTranspose:
    """Lay the kernel ``w``, times each element of the image ``x``, onto an image, and add up.

    y[N, O, H', ...] = sum over I, H, h, ... of x[N, I, H, ...] * w[I, O, h, ...],

    over all H, h with H*stride + h*dilation - pad = H'. It is the gradient of a convolution.

    Dims:
        x: N C W, N C H W or N C D H W    w: I O, then w, h w or d h w; G first with groups
        y: x's, with C = O * group
        H' = (H - 1)*stride + dilation*(h - 1) + 1 + output_padding - pads, likewise D' and W'.
    Args:
        strides: distance of two kernels over D, H and W, in elements; none given: 1.
        pads: elements cut off at begin D, H, W, then at end D, H, W; none given: 0.
        dilations: distance of neighbours in the kernel, in elements; none given: 1.
        output_padding: elements added at end D, H, W before the cut; none given: 0.
        group: number of parts that the channels fall into.
    Raises:
        DimError: x and w disagree on the number of channels or of spatial dims, or nothing is left.
        NoInvokerError: no library takes this call on this device.
    Cost:
        2 * N*C*H*W * O*h*w floating-point operations.

    >>> from vtensor.operators import Context
    >>> x = VTensor("f32", {"N": 1, "C": 8, "H": 7, "W": 7})
    >>> w = VTensor("f32", {"I": 8, "O": 4, "h": 2, "w": 2})
    >>> ConvTranspose(strides=(2, 2)).compute(Context(), x, w).summary()
    'f32 N=1 C=4 H=14 W=14'

    Source: ONNX operator ConvTranspose, opset 11.
    """

    strides: Sizes = param(default=(), minimum=1)
    pads: Sizes = param(default=(), minimum=0)
    dilations: Sizes = param(default=(), minimum=1)
    output_padding: Sizes = param(default=(), minimum=0)
    group: int = param(default=1, minimum=1)

    def compute(self, ctx: Context, x: VTensor, w: VTensor) -> VTensor:
        sizes = self.sizes(x, w)
        y = VTensor(x.dtype, {**x.dims, "C": w.size("O") * self.group, **sizes}, ctx.output(0))
        ctx.dispatch(self, [x, w], [y])
        return y

    def whole(self, x: VTensor) -> tuple[Sizes, Sizes, Sizes, Sizes]:
        """Strides, pads, dilations and output_padding with what was not given."""
        rank = len(spatial(x.dims))
        one, none = (1,) * rank, (0,) * rank
        return (
            self.strides or one,
            self.pads or none + none,
            self.dilations or one,
            self.output_padding or none,
        )

    def sizes(self, x: VTensor, w: VTensor) -> dict[str, int]:
        """The spatial sizes of the result."""
        dims = spatial(x.dims)
        strides, pads, dilations, extra = self.whole(x)
        lengths = {
            len(strides),
            len(dilations),
            len(extra),
            len(pads) / 2,
            len(w.dims.keys() & set("dhw")),
        }
        if lengths != {len(dims)}:
            raise DimError(f"kernel and parameters are not over the dims {' '.join(dims)}")
        result = {}
        for i, dim in enumerate(dims):
            reach = dilations[i] * (w.size(dim.lower()) - 1) + 1
            cut = pads[i] + pads[i + len(dims)]
            result[dim] = (x.size(dim) - 1) * strides[i] + reach + extra[i] - cut
            if x.size(dim) < 1 or reach < 1 or result[dim] < 1:
                raise DimError(f"nothing is left along {dim}")
        return result


@invoker("ConvTranspose", library="onednn", dtypes=["f32", "bf16", "f16"])
def onednn_convtranspose(
    ctx: Context, op: ConvTranspose, x: VTensor, w: VTensor, y: VTensor
) -> Routine:
    strides, pads, dilations, extra = op.whole(x)
    ends = [end - more for end, more in zip(pads[len(extra) :], extra, strict=True)]
    cut = (*pads[: len(extra)], *ends)
    return onednn.Deconvolution(x, w, y, strides, cut, dilations, follow=ctx.followers)


@invoker("ConvTranspose", library="numpy", dtypes=NUMBERS, python=True)
def numpy_convtranspose(
    ctx: Context,
    op: ConvTranspose,
    x: VTensor,
    w: VTensor,
    y: VTensor,
) -> None:
    src, dst = (PTensor(t).require(image_order(t)) for t in (x, y))
    weights = PTensor(w).require(Layout.plain(dim for dim in "GIOdhw" if dim in w.dims))
    if lib_tagger("numpy", [src, weights], [dst]):
        return
    dst.data()[...] = transposed_convolution(src.data(), weights.data(), *op.whole(x))
