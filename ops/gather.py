"""Elements picked by indices that are data."""

from __future__ import annotations

from typing import Any

import numpy as np

from libdesc import invoker
from ptensor import Layout, PTensor, lib_tagger
from vtensor.errors import DimError, InputError
from vtensor.operators import (
    Context,
    Naming,
    NodeReader,
    NodeWriter,
    Spelling,
    Structural,
    operator,
    param,
)
from vtensor.tensor import VTensor

Array = np.ndarray[Any, Any]

#: The element types of indices.
_INDICES = {"i": ("s64", "s32")}


def _names(node: Naming) -> None:
    axis, rank, more = int(node.attribute("axis", 0)), node.rank("x0"), node.rank("x1")
    axis += rank if axis < 0 else 0
    for position in range(rank):
        if position != axis:
            node.same("x0", position, "y0", position + (more - 1) * (position > axis))
    for position in range(more):
        node.same("x1", position, "y0", axis + position)


def _read(node: NodeReader) -> VTensor:
    x, out = node.input(0), node.output_names()
    axis, more = int(node.attribute("axis", 0)), node.input(1).ndimensions()
    node.axis(axis, x)
    axis += len(x.dims) if axis < 0 else 0
    rest = [*out[:axis], *out[axis + more :]]
    x = node.input(0, " ".join([*rest[:axis], fresh(list(x.dims)[axis], out), *rest[axis:]]))
    return node.add(Gather(list(x.dims)[axis]), x, node.input(1, " ".join(out[axis:][:more])))


def fresh(name: str, taken: tuple[str, ...]) -> str:
    """A name beside those that are taken."""
    while name in taken:
        name += "_"
    return name


def _element_names(node: Naming) -> None:
    for role in node.roles:
        for position in range(node.rank(role)):
            node.same(role, position, "y0", position)


def _read_elements(node: NodeReader) -> VTensor:
    names = " ".join(node.output_names())
    x, i = node.input(0, names), node.input(1, names)
    return node.add(GatherElements(node.axis(int(node.attribute("axis", 0)), x)), x, i)


def checked(indices: Array, size: int, op: str, axis: str) -> Array:
    """Indices from 0 on; those below 0 count from the end.

    Raises:
        InputError: one lies outside.
    """
    if indices.size and not (-size <= indices.min() and indices.max() < size):
        worst = indices.min() if indices.min() < -size else indices.max()
        raise InputError(f"{op}: index {worst} along {axis}, which has {size} elements")
    return np.asarray(np.where(indices < 0, indices + size, indices))


def _write(node: NodeWriter, op: Gather) -> None:
    x, i = node.inputs
    node.emit("Gather", node.operand(x), node.operand(i), axis=list(x.dims).index(op.axis))


def _write_elements(node: NodeWriter, op: GatherElements) -> None:
    x, i = node.inputs
    order = list(x.dims)
    operands = node.operand(x), node.operand(i, order)
    node.emit("GatherElements", *operands, order=order, axis=order.index(op.axis))


@operator(
    "Gather",
    dims={"x": "*", "i": "*", "y": "*"},
    onnx=Spelling("Gather", 1, _read, _names, write=_write),
    traits=[Structural("gather")],
)
class Gather:
    """Pick slices of a tensor by their places along a dim.

    y[A, I, B] = x[A, i[I], B], where ``axis`` stands in x between the dims A and B.

    Dims:
        x: axis and any others    i: any, none of them x's others; places, below 0 from the end
        y: x's, those of i in the place of ``axis``
    Args:
        axis: the dim.
    Raises:
        DimError: x has no such dim, or shares another with i.
        InputError: in a run: a place lies outside.

    >>> from vtensor.operators import Context
    >>> x, i = VTensor("f32", {"word": 30000, "feat": 768}), VTensor("s64", {"N": 1, "seq": 8})
    >>> Gather("word").compute(Context(), x, i).summary()
    'f32 N=1 seq=8 feat=768'

    Source: ONNX operator Gather, opset 13.
    """

    axis: str = param()

    def compute(self, ctx: Context, x: VTensor, i: VTensor) -> VTensor:
        x.size(self.axis)
        rest = {dim: size for dim, size in x.dims.items() if dim != self.axis}
        if rest.keys() & i.dims.keys():
            raise DimError(f"x and i may share no dim but {self.axis}")
        dims: dict[str, int] = {}
        for dim, size in x.dims.items():
            dims.update(i.dims if dim == self.axis else {dim: size})
        y = VTensor(x.dtype, dims, ctx.output(0))
        ctx.dispatch(self, [x, i], [y])
        return y


@invoker("Gather", library="numpy", dtypes=_INDICES, python=True)
def numpy_gather(ctx: Context, op: Gather, x: VTensor, i: VTensor, y: VTensor) -> None:
    src, places, dst = (PTensor(t).require(Layout.plain(t.dims)) for t in (x, i, y))
    if lib_tagger("numpy", [src, places], [dst]):
        return
    index = checked(places.data(), x.size(op.axis), "Gather", op.axis)
    dst.data()[...] = np.take(src.data(), index, axis=list(x.dims).index(op.axis))


@operator(
    "GatherElements",
    dims={"x": "*", "i": "*", "y": "*"},
    onnx=Spelling("GatherElements", 11, _read_elements, _element_names, write=_write_elements),
)
class GatherElements:
    """Pick elements, each by its own place along a dim.

    y[A, j, B] = x[A, i[A, j, B], B]

    Dims:
        x: any    i, y: the same; no other size than ``axis`` is larger than x's
    Args:
        axis: the dim.
    Raises:
        DimError: x has no such dim, i has others, or is larger than x.
        InputError: in a run: a place lies outside.

    >>> from vtensor.operators import Context
    >>> x, i = VTensor("f32", {"N": 4, "C": 3}), VTensor("s64", {"N": 2, "C": 9})
    >>> GatherElements("C").compute(Context(), x, i).summary()
    'f32 N=2 C=9'

    Source: ONNX operator GatherElements, opset 13.
    """

    axis: str = param()

    def compute(self, ctx: Context, x: VTensor, i: VTensor) -> VTensor:
        within(self.axis, x, i)
        y = VTensor(x.dtype, i.dims, ctx.output(0))
        ctx.dispatch(self, [x, i], [y])
        return y


def within(axis: str, x: VTensor, i: VTensor) -> None:
    """An index of one place an element fits its tensor.

    Raises:
        DimError: it does not.
    """
    x.size(axis)
    if x.dims.keys() != i.dims.keys():
        raise DimError("x and i must have the same dims")
    if any(size > x.size(dim) for dim, size in i.dims.items() if dim != axis):
        raise DimError(f"i is larger than x in another dim than {axis}")


@invoker("GatherElements", library="numpy", dtypes=_INDICES, python=True)
def numpy_gather_elements(
    ctx: Context,
    op: GatherElements,
    x: VTensor,
    i: VTensor,
    y: VTensor,
) -> None:
    order = Layout.plain(y.dims)
    src, places, dst = (PTensor(t).require(order) for t in (x, i, y))
    if lib_tagger("numpy", [src, places], [dst]):
        return
    axis, index = order.dims.index(op.axis), places.data()
    box = tuple(slice(None) if dim == op.axis else slice(size) for dim, size in i.dims.items())
    index = checked(index, x.size(op.axis), "GatherElements", op.axis)
    dst.data()[...] = np.take_along_axis(src.data()[box], index, axis)
