"""Squares of pixels as channels, and back."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from libdesc.numpy import definition
from ops._names import same_names
from ops._places import one_output
from ops._windows import write_image
from ptensor import PTensor
from vtensor.language.operators import named
from vtensor.operators import (
    Context,
    Naming,
    NodeReader,
    NodeWriter,
    Spelling,
    Write,
    operator,
    param,
)
from vtensor.tensor import VTensor

Array = np.ndarray[Any, Any]

_ROW = "N C H W"


def _names(node: Naming) -> None:
    node.name("x0", _ROW)
    node.name("y0", _ROW)
    same_names(node)


def _spelling(name: str, write: Write) -> Spelling:
    def read(node: NodeReader) -> VTensor:
        if node.input(0).ndimensions() != 4:
            raise node.refuse(f"{node.input(0).ndimensions()} dims; an image has four")
        op = named(name)(int(node.attribute("blocksize")), node.attribute("mode", "DCR"))
        return node.add(op, node.input(0, _ROW))

    return Spelling(name, 1, read, _names, write=write)


def _write_space(node: NodeWriter, op: SpaceToDepth) -> None:
    if op.mode != "DCR":
        raise node.refuse(f"mode {op.mode}: ONNX has DCR alone here")
    order = _ROW.split()
    operand = node.operand(node.inputs[0], order)
    node.emit("SpaceToDepth", operand, order=order, blocksize=op.blocksize)


@dataclass(frozen=True)
class _Blocks:
    """The parameters of both."""

    blocksize: int = param(minimum=1)
    mode: str = param(default="DCR", choices=("DCR", "CRD"))

    def squares(self, deep: Array, wide: Array) -> Iterator[tuple[Array, Array]]:
        """For each pixel of a square, its channels in the deep image and its place in the wide."""
        b, channels = self.blocksize, wide.shape[1]
        for k, (i, j) in enumerate(product(range(b), repeat=2)):
            together = slice(k * channels, (k + 1) * channels)
            chosen = slice(k, None, b * b) if self.mode == "CRD" else together
            yield deep[:, chosen], wide[:, :, i::b, j::b]


@operator(
    "DepthToSpace",
    dims={"x": _ROW, "y": _ROW},
    equal=[("x.N", "y.N"), ("x.C", "y.C * blocksize * blocksize")],
    onnx=_spelling("DepthToSpace", write_image("DepthToSpace")),
)
class DepthToSpace(_Blocks):
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

    def compute(self, ctx: Context, x: VTensor) -> VTensor:
        b = self.blocksize
        sizes = {"C": x.size("C") // (b * b), "H": x.size("H") * b, "W": x.size("W") * b}
        return one_output(ctx, self, [x], {**x.dims, **sizes})


@definition("DepthToSpace", order=lambda _: "NCHW")
def depth_to_space(ctx: Context, op: DepthToSpace, x: PTensor, y: PTensor) -> None:
    for deep, wide in op.squares(x.data(), y.data()):
        wide[...] = deep


def _whole(op: SpaceToDepth, x: VTensor) -> bool:
    return not (x.size("H") % op.blocksize or x.size("W") % op.blocksize)


@operator(
    "SpaceToDepth",
    dims={"x": _ROW, "y": _ROW},
    equal=[("x.N", "y.N"), ("x.C * blocksize * blocksize", "y.C")],
    holds=[(_whole, "H and W must be multiples of {op.blocksize}")],
    onnx=_spelling("SpaceToDepth", _write_space),
)
class SpaceToDepth(_Blocks):
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

    def compute(self, ctx: Context, x: VTensor) -> VTensor:
        b = self.blocksize
        sizes = {"C": x.size("C") * b * b, "H": x.size("H") // b, "W": x.size("W") // b}
        return one_output(ctx, self, [x], {**x.dims, **sizes})


@definition("SpaceToDepth", order=lambda _: "NCHW")
def space_to_depth(ctx: Context, op: SpaceToDepth, x: PTensor, y: PTensor) -> None:
    for deep, wide in op.squares(y.data(), x.data()):
        deep[...] = wide
