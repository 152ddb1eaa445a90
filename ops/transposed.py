"""ConvTranspose and Col2Im: windows put onto an image and added up."""

from __future__ import annotations

from math import prod

import numpy as np

from libdesc import eigen, invoker, onednn
from libdesc.numpy import definition
from libdesc.numpy.arrays import NUMBERS, transposed_convolution, wide
from libdesc.routine import Routine
from ops._convolution import kernel_sizes, read_kernel, spelling
from ops._elementwise import ALL
from ops._places import one_output
from ops._sliding import Sizes, Tensor, along, counts, spatial
from ops._windows import IMAGES, halved, in_order, read_window, window_attributes
from ptensor import PTensor
from vtensor.errors import DimError
from vtensor.operators import Context, Cost, Linear, Naming, NodeReader, Spelling, operator, param
from vtensor.tensor import VTensor


def _read(node: NodeReader, x: VTensor, w: VTensor) -> VTensor:
    kernel, group = read_kernel(node, w), int(node.attribute("group", 1))
    if group < 1 or x.size("C") % group or w.size("I") != x.size("C"):
        raise node.refuse(f"group {group} with {x.size('C')} channels, kernels for {w.size('I')}")
    op = ConvTranspose(**_read_window(node, x, kernel), group=group)
    if group > 1:
        w = node.reshape(w, {"G": group, **w.dims, "I": w.size("I") // group})
    return node.add(op, x, w)


def _read_window(node: NodeReader, x: VTensor, kernel: Sizes) -> dict[str, Sizes]:
    """Return ``strides``, ``pads``, ``dilations`` and ``output_padding`` of an ONNX node, by name.

    With ``output_shape``, pads and output_padding are those that give an output of these sizes.
    With auto_pad SAME_UPPER or SAME_LOWER they give x's sizes times the strides; with VALID the
    pads are 0.
    """
    sizes = [x.size(dim) for dim in spatial(x.dims)]
    rank = len(sizes)
    window, auto = window_attributes(node, kernel, rank, output_padding=0)
    strides, dilations, extra = (window[k] for k in ("strides", "dilations", "output_padding"))
    shape = tuple(node.attribute("output_shape") or ())[-rank:]
    if auto.startswith("SAME") and not shape:
        shape = tuple(size * stride for size, stride in zip(sizes, strides, strict=True))
    if len(shape) == rank:
        rows = zip(shape, sizes, kernel, strides, dilations, extra, strict=True)
        more = [s * (size - 1) + d * (k - 1) + 1 + e - n for n, size, k, s, d, e in rows]
        window["pads"] = halved([max(total, 0) for total in more], auto)
        added = (e + max(-total, 0) for total, e in zip(more, extra, strict=True))
        window["output_padding"] = tuple(added)
    if min(window["pads"]) < 0 or min(window["output_padding"]) < 0:
        what = f"pads {window['pads']} or output_padding {window['output_padding']}"
        raise node.refuse(f"negative {what}")
    return window


def _cost(_op: object, x: VTensor, w: VTensor, _y: VTensor) -> int:
    return 2 * x.num_elements * prod(size for dim, size in w.dims.items() if dim not in "GI")


def _padding_fits(op: ConvTranspose, x: VTensor, w: VTensor) -> bool:
    return len(op.output_padding) in (0, len(spatial(x.dims)))


@operator(
    "ConvTranspose",
    dims={"x": "N C D? H? W", "w": "G? I O d? h? w", "y": "N C D? H? W"},
    equal=[("w.G", "group"), ("x.C", "w.I * group"), ("y.C", "w.O * group"), ("x.N", "y.N")],
    holds=[(_padding_fits, "output_padding {op.output_padding} is not over the spatial dims of x")],
    onnx=spelling("ConvTranspose", "I O", _read),
    traits=[Cost(_cost), Linear({"w": {"C": "G O"}})],
)
class ConvTranspose:
    """Put the kernel ``w``, times each element of the image ``x``, onto an image, and add up.

    y[N, O, H', ...] = sum over I, H, h, ... of x[N, I, H, ...] * w[I, O, h, ...],

    over all H, h with H*stride + h*dilation - pad = H'. It is the gradient of a convolution.

    Dims:
        x: N C W, N C H W or N C D H W    w: I O, then w, h w or d h w; G first with groups
        y: x's, with C = O * group
        H' = (H - 1)*stride + dilation*(h - 1) + 1 + output_padding - pads, likewise D' and W'.
    Args:
        strides: distance of neighbouring kernels over D, H and W, in elements; empty means 1.
        pads: elements cut off at begin D, H, W, then at end D, H, W; empty means 0.
        dilations: distance of neighbours in the kernel, in elements; empty means 1.
        output_padding: elements added at end D, H, W before the cut; empty means 0.
        group: number of equal parts of the channels.
    Raises:
        DimError: x and w disagree on the number of channels or of spatial dims, or y has no
            elements.
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
        rows, extra = along(x, kernel_sizes(w), self), self.whole(x)[-1]
        sizes = {row.dim: row.spread + more for row, more in zip(rows, extra, strict=True)}
        if any(min(row.size, row.reach, sizes[row.dim]) < 1 for row in rows):
            raise DimError(f"the output is empty: {' '.join(sizes)} is {tuple(sizes.values())}")
        return one_output(ctx, self, [x, w], {**x.dims, "C": w.size("O") * self.group, **sizes})

    def whole(self, x: Tensor) -> tuple[Sizes, Sizes, Sizes, Sizes]:
        """Return strides, pads, dilations and output_padding for the spatial dims of ``x``.

        An empty parameter is replaced by its default: 1 for each dim, or 0.
        """
        ones, zeros = (1,) * len(spatial(x.dims)), (0,) * len(spatial(x.dims))
        pads, extra = self.pads or zeros + zeros, self.output_padding or zeros
        return self.strides or ones, pads, self.dilations or ones, extra


@invoker("ConvTranspose", library="onednn", dtypes=["f32", "bf16", "f16"])
def onednn_deconv(ctx: Context, op: ConvTranspose, x: VTensor, w: VTensor, y: VTensor) -> Routine:
    strides, pads, dilations, extra = op.whole(x)
    ends = (end - more for end, more in zip(pads[len(extra) :], extra, strict=True))
    cut = (*pads[: len(extra)], *ends)
    return onednn.Deconvolution(x, w, y, strides, cut, dilations, follow=ctx.followers)


@definition("ConvTranspose", dtypes=NUMBERS, order=in_order("N C G I O D H W d h w"))
def convtranspose(ctx: Context, op: ConvTranspose, x: PTensor, w: PTensor, y: PTensor) -> None:
    y.data()[...] = transposed_convolution(x.data(), w.data(), *op.whole(x))


def _col2im_names(node: Naming) -> None:
    node.name("x0", "N K L")
    if names := IMAGES.get(node.rank("y0")):
        node.name("y0", names)
    node.same("x0", 0, "y0", 0)


def _read_col2im(node: NodeReader) -> VTensor:
    shape, block = (tuple(int(size) for size in node.constant(index)) for index in (1, 2))
    if len(shape) + 2 not in IMAGES:
        raise node.refuse(f"{len(shape)} spatial dims; one to three are taken")
    image = VTensor("f32", dict(zip(IMAGES[len(shape) + 2].split(), (1, 1, *shape), strict=True)))
    return node.add(Col2Im(shape, block, **read_window(node, image, block)), node.input(0, "N K L"))


@operator(
    "Col2Im",
    dims={"x": "N K L", "y": "N C D? H? W"},
    holds=[
        (lambda op, _: len(op.image_shape) + 2 in IMAGES, "an image has one to three spatial dims")
    ],
    onnx=Spelling("Col2Im", 18, _read_col2im, _col2im_names),
)
class Col2Im:
    """Add up the windows of an image, each at its own place.

    Sums of integers wrap around; a sum of truth values is true if one of them is.

    Dims:
        x: N, K of size C * the block's elements, L the windows    y: N C and the spatial dims
    Args:
        image_shape: sizes of y along its spatial dims.
        block_shape: sizes of a window.
        strides, pads, dilations: the windows', in elements; empty means 1, 0 and 1.
    Raises:
        DimError: x does not have the image's number of windows, or K is no multiple of a window.

    >>> from vtensor.operators import Context
    >>> x = VTensor("f32", {"N": 1, "K": 5, "L": 5})
    >>> Col2Im((5, 5), (1, 5)).compute(Context(), x).summary()
    'f32 N=1 C=1 H=5 W=5'

    Source: ONNX operator Col2Im, opset 18.
    """

    image_shape: Sizes = param(minimum=1)
    block_shape: Sizes = param(minimum=1)
    strides: Sizes = param(default=(), minimum=1)
    pads: Sizes = param(default=(), minimum=0)
    dilations: Sizes = param(default=(), minimum=1)

    def compute(self, ctx: Context, x: VTensor) -> VTensor:
        names, elements = IMAGES[len(self.image_shape) + 2].split(), prod(self.block_shape)
        sizes = (x.size("N"), x.size("K") // elements, *self.image_shape)
        y = VTensor(x.dtype, dict(zip(names, sizes, strict=True)), ctx.output(0))
        windows = prod(counts(y, self.block_shape, self).values())
        if x.size("K") % elements or x.size("L") != windows:
            raise DimError(f"x must have {windows} windows of {self.block_shape} for each channel")
        ctx.dispatch(self, [x], [y])
        return y


@invoker("Col2Im", library="eigen", dtypes=eigen.COMPARED)
def eigen_col2im(ctx: Context, op: Col2Im, x: VTensor, y: VTensor) -> Routine:
    columns = zip(*along(y, op.block_shape, op), strict=True)
    _, _, kernel, strides, begins, ends, dilations = columns
    windows = tuple(counts(y, op.block_shape, op).values())
    slide = eigen.Slide(kernel, strides, (*begins, *ends), dilations)
    return eigen.col2im(x, y, windows, slide)


@definition("Col2Im", dtypes=ALL, order=in_order("N K L C D H W"))
def col2im(ctx: Context, op: Col2Im, x: PTensor, y: PTensor) -> None:
    rows, places = along(y, op.block_shape, op), counts(y, op.block_shape, op).values()
    windows = wide(x.data()).reshape(-1, prod(op.block_shape), *places)
    padded = (row.begin + row.size + row.end for row in rows)
    whole = np.zeros((len(windows), *padded), windows.dtype)
    for index, element in enumerate(np.ndindex(*op.block_shape)):
        begins = [at * row.dilation for at, row in zip(element, rows, strict=True)]
        spans = zip(begins, rows, places, strict=True)
        at = [slice(b, b + (count - 1) * row.stride + 1, row.stride) for b, row, count in spans]
        whole[(slice(None), *at)] += windows[:, index]
    inside = [slice(row.begin, row.begin + row.size) for row in rows]
    y.data()[...] = whole[(slice(None), *inside)].reshape(y.data().shape)
