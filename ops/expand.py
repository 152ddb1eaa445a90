"""One tensor many times over: along dims that it lacks, or as tiles."""

from __future__ import annotations

import numpy as np

from libdesc import invoker
from libdesc.numpy.arrays import aligned, finish
from ops._names import broadcast_input, same_names
from ptensor import Layout, PTensor, lib_tagger
from vtensor.errors import DimError
from vtensor.language.dims import broadcast
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
    for back in range(1, node.rank("x0") + 1):
        node.same("x0", -back, "y0", -back)


def _read(node: NodeReader) -> VTensor:
    sizes = [int(size) for size in node.constant(1)]
    names = node.output_names()
    if len(names) != max(len(sizes), node.input(0).ndimensions()):
        raise node.refuse(f"shape {sizes}, the model says {len(names)} dims")
    last = names[len(names) - len(sizes) :]
    return node.add(Expand(tuple(zip(last, sizes, strict=True))), broadcast_input(node, 0))


def _read_tile(node: NodeReader) -> VTensor:
    x, repeats = node.input(0), [int(count) for count in node.constant(1)]
    if len(repeats) != len(x.dims):
        raise node.refuse(f"{len(repeats)} repeats of {len(x.dims)} dims")
    return node.add(Tile(tuple(zip(x.dims, repeats, strict=True))), x)


def _write(node: NodeWriter, op: Expand) -> None:
    [x], [y] = node.inputs, node.outputs
    node.emit("Expand", node.operand(x, list(y.dims)), node.constant(list(y.dims.values())))


def _write_tile(node: NodeWriter, op: Tile) -> None:
    [x], repeats = node.inputs, dict(op.repeats)
    node.emit("Tile", node.operand(x), node.constant([repeats.get(dim, 1) for dim in x.dims]))


@operator(
    "Expand", dims={"x": "*", "y": "*"}, onnx=Spelling("Expand", 8, _read, _names, write=_write)
)
class Expand:
    """Repeat a tensor along dims that it lacks, or has with size 1.

    Dims:
        x: any    y: those of x and of ``shape``; a size of 1 in one is the other's
    Args:
        shape: pairs of name and size.
    Raises:
        DimError: a name occurs twice, or x has another size there and neither is 1.

    >>> from vtensor.operators import Context
    >>> x = VTensor("f32", {"C": 3, "H": 1})
    >>> Expand((("N", 2), ("C", 1), ("H", 4))).compute(Context(), x).summary()
    'f32 N=2 C=3 H=4'

    Source: ONNX operator Expand, opset 13.
    """

    shape: tuple[tuple[str, int], ...] = param()

    def compute(self, ctx: Context, x: VTensor) -> VTensor:
        shape = dict(self.shape)
        if len(shape) < len(self.shape):
            raise DimError(f"shape {self.shape} names a dim twice")
        y = VTensor(x.dtype, broadcast(shape, x.dims), ctx.output(0))
        ctx.dispatch(self, [x], [y])
        return y


@invoker("Expand", library="numpy", python=True)
def numpy_expand(ctx: Context, op: Expand, x: VTensor, y: VTensor) -> None:
    src, dst = PTensor(x).require(Layout.ANY), PTensor(y).require(Layout.ANY)
    if lib_tagger("numpy", [src], [dst]):
        return
    dst.data()[...] = aligned(src, dst)
    finish(dst)


@operator(
    "Tile",
    dims={"x": "*", "y": "*"},
    onnx=Spelling("Tile", 6, _read_tile, same_names, write=_write_tile),
)
class Tile:
    """Put a tensor beside itself, so many times along some dims.

    Dims:
        x, y: any, the same
    Args:
        repeats: pairs of a dim and how many times; the others once.
    Raises:
        DimError: x has no such dim, it is named twice, or is to be repeated less than 0 times.

    >>> from vtensor.operators import Context
    >>> Tile((("C", 2),)).compute(Context(), VTensor("f32", {"N": 1, "C": 3})).summary()
    'f32 N=1 C=6'

    Source: ONNX operator Tile, opset 13.
    """

    repeats: tuple[tuple[str, int], ...] = param()

    def compute(self, ctx: Context, x: VTensor) -> VTensor:
        repeats = dict(self.repeats)
        if len(repeats) < len(self.repeats) or min(repeats.values(), default=0) < 0:
            raise DimError(f"repeats {self.repeats} must name each dim once, and a count from 0 on")
        sizes = {dim: x.size(dim) * count for dim, count in repeats.items()}
        y = VTensor(x.dtype, {**x.dims, **sizes}, ctx.output(0))
        ctx.dispatch(self, [x], [y])
        return y


@invoker("Tile", library="numpy", python=True)
def numpy_tile(ctx: Context, op: Tile, x: VTensor, y: VTensor) -> None:
    order = Layout.plain(x.dims)
    src, dst = PTensor(x).require(order), PTensor(y).require(order)
    if lib_tagger("numpy", [src], [dst]):
        return
    repeats = dict(op.repeats)
    dst.data()[...] = np.tile(src.data(), [repeats.get(dim, 1) for dim in order.dims])
