"""Squares of pixels as channels, and back."""

from __future__ import annotations

from itertools import product

from libdesc import invoker
from ops._windows import write_image
from ptensor import PTensor, lib_tagger
from vtensor.errors import DimError
from vtensor.operators import (
    Context,
    Naming,
    NodeReader,
    NodeWriter,
    Spelling,
    operator,
    param,
)
from vtensor.tensor import VTensor


def _names(node: Naming) -> None:
    node.name("x0", "N C H W")
    node.name("y0", "N C H W")
    for position in range(node.rank("x0")):
        node.same("x0", position, "y0", position)


def _read_depth(node: NodeReader) -> VTensor:
    mode = node.attribute("mode", "DCR")
    return node.add(DepthToSpace(int(node.attribute("blocksize")), mode), _image(node))


def _read_space(node: NodeReader) -> VTensor:
    mode = node.attribute("mode", "DCR")
    return node.add(SpaceToDepth(int(node.attribute("blocksize")), mode), _image(node))


def _write_space(node: NodeWriter, op: SpaceToDepth) -> None:
    if op.mode != "DCR":
        raise node.refuse(f"mode {op.mode}: ONNX has DCR alone here")
    order = ("N", "C", "H", "W")
    operand = node.operand(node.inputs[0], order)
    node.emit("SpaceToDepth", operand, order=order, blocksize=op.blocksize)


def _image(node: NodeReader) -> VTensor:
    if node.input(0).ndimensions() != 4:
        raise node.refuse(f"{node.input(0).ndimensions()} dims; an image has four")
    return node.input(0, "N C H W")


@operator(
    "DepthToSpace",
    dims={"x": "N C H W", "y": "N C H W"},
    equal=[("x.N", "y.N"), ("x.C", "y.C * blocksize * blocksize")],
    onnx=Spelling("DepthToSpace", 1, _read_depth, _names, write=write_image("DepthToSpace")),
)
class DepthToSpace:
    """Spread channels over squares of pixels.

    y[N, c, H*b + i, W*b + j] = x[N, d, H, W] with b = ``blocksize``; d = (i*b + j)*C' + c in mode
    DCR and d = c*b*b + i*b + j in mode CRD, where C' = C // (b*b).

    Dims:
        x: N C H W    y: N C//(b*b) H*b W*b
    Args:
        blocksize: pixels of a square's side, at least 1.
        mode: the order in which channels hold a square: ``DCR`` or ``CRD``.
    Raises:
        DimError: C is no multiple of b*b.

    >>> from vtensor.operators import Context
    >>> x = VTensor("f32", {"N": 1, "C": 12, "H": 2, "W": 3})
    >>> DepthToSpace(2).compute(Context(), x).summary()
    'f32 N=1 C=3 H=4 W=6'

    Source: ONNX operator DepthToSpace, opset 13.
    """

    blocksize: int = param(minimum=1)
    mode: str = param(default="DCR", choices=("DCR", "CRD"))

    def compute(self, ctx: Context, x: VTensor) -> VTensor:
        b = self.blocksize
        sizes = {"C": x.size("C") // (b * b), "H": x.size("H") * b, "W": x.size("W") * b}
        y = VTensor(x.dtype, {**x.dims, **sizes}, ctx.output(0))
        ctx.dispatch(self, [x], [y])
        return y


@invoker("DepthToSpace", library="numpy", python=True)
def numpy_depth_to_space(ctx: Context, op: DepthToSpace, x: VTensor, y: VTensor) -> None:
    src, dst = PTensor(x).require("NCHW"), PTensor(y).require("NCHW")
    if lib_tagger("numpy", [src], [dst]):
        return
    b, channels = op.blocksize, y.size("C")
    for i, j in product(range(b), repeat=2):
        first = i * b + j
        chosen = slice(first * channels, (first + 1) * channels)
        if op.mode == "CRD":
            chosen = slice(first, None, b * b)
        dst.data()[:, :, i::b, j::b] = src.data()[:, chosen]


@operator(
    "SpaceToDepth",
    dims={"x": "N C H W", "y": "N C H W"},
    equal=[("x.N", "y.N"), ("x.C * blocksize * blocksize", "y.C")],
    onnx=Spelling("SpaceToDepth", 1, _read_space, _names, write=_write_space),
)
class SpaceToDepth:
    """Gather squares of pixels into channels.

    y[N, d, H', W'] = x[N, c, H'*b + i, W'*b + j] with b = ``blocksize``; d = (i*b + j)*C + c in
    mode DCR and d = c*b*b + i*b + j in mode CRD.

    Dims:
        x: N C H W    y: N C*b*b H//b W//b
    Args:
        blocksize: pixels of a square's side, at least 1.
        mode: the order in which channels hold a square: ``DCR`` or ``CRD``.
    Raises:
        DimError: H or W is no multiple of b.

    >>> from vtensor.operators import Context
    >>> x = VTensor("f32", {"N": 1, "C": 3, "H": 4, "W": 6})
    >>> SpaceToDepth(2).compute(Context(), x).summary()
    'f32 N=1 C=12 H=2 W=3'

    Source: ONNX operator SpaceToDepth, opset 28.
    """

    blocksize: int = param(minimum=1)
    mode: str = param(default="DCR", choices=("DCR", "CRD"))

    def compute(self, ctx: Context, x: VTensor) -> VTensor:
        b = self.blocksize
        if x.size("H") % b or x.size("W") % b:
            raise DimError(f"H and W must be multiples of {b}")
        sizes = {"C": x.size("C") * b * b, "H": x.size("H") // b, "W": x.size("W") // b}
        y = VTensor(x.dtype, {**x.dims, **sizes}, ctx.output(0))
        ctx.dispatch(self, [x], [y])
        return y


@invoker("SpaceToDepth", library="numpy", python=True)
def numpy_space_to_depth(ctx: Context, op: SpaceToDepth, x: VTensor, y: VTensor) -> None:
    src, dst = PTensor(x).require("NCHW"), PTensor(y).require("NCHW")
    if lib_tagger("numpy", [src], [dst]):
        return
    b, channels = op.blocksize, x.size("C")
    for i, j in product(range(b), repeat=2):
        first = i * b + j
        chosen = slice(first * channels, (first + 1) * channels)
        if op.mode == "CRD":
            chosen = slice(first, None, b * b)
        dst.data()[:, chosen] = src.data()[:, :, i::b, j::b]
