"""Elements put at places that are data, and picked by rows of indices."""

from __future__ import annotations

from typing import Any

import numpy as np

from libdesc import invoker
from libdesc.numpy.arrays import wide
from ops.gather import checked, fresh, within
from ptensor import Layout, PTensor, lib_tagger
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

Array = np.ndarray[Any, Any]

REDUCTIONS = ("none", "add", "mul", "max", "min")

_COMBINE = {"add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}


def _put(op: ScatterElements | ScatterND, into: Array, index: Any, updates: Array) -> Array:
    """What comes of putting updates at places; those that meet are combined in any order."""
    result = wide(into).copy()
    if op.reduction == "none":
        result[index] = wide(updates)
    else:
        _COMBINE[op.reduction].at(result, index, wide(updates))
    return result


def _element_names(node: Naming) -> None:
    for role in node.roles:
        for position in range(node.rank(role)):
            node.same(role, position, "y0", position)


def _read_elements(node: NodeReader) -> VTensor:
    names = " ".join(node.output_names())
    x, i, updates = (node.input(index, names) for index in range(3))
    axis = node.axis(int(node.attribute("axis", 0)), x)
    return node.add(ScatterElements(axis, node.attribute("reduction", "none")), x, i, updates)


def _write_elements(node: NodeWriter, op: ScatterElements) -> None:
    if op.reduction in ("max", "min") and node.opset < 18:
        raise node.refuse(f"ONNX has reduction {op.reduction} from opset 18 on")
    order = list(node.outputs[0].dims)
    operands = (node.operand(x, order) for x in node.inputs)
    node.emit("ScatterElements", *operands, axis=order.index(op.axis), reduction=op.reduction)


@operator(
    "ScatterElements",
    dims={"x": "*", "i": "*", "updates": "*", "y": "*"},
    onnx=[
        Spelling("ScatterElements", 11, _read_elements, _element_names, write=_write_elements),
        Spelling("Scatter", 9, _read_elements, _element_names, until=10),
    ],
)
class ScatterElements:
    """A tensor with some elements replaced, each at its own place along a dim.

    y is x, but for y[A, i[A, j, B], B] = updates[A, j, B].

    Dims:
        x, y: any, the same    i, updates: the same; no other size than ``axis`` exceeds x's
    Args:
        axis: the dim.
        reduction: what becomes of what was there: ``none`` of it, or ``add``, ``mul``, ``max`` or
            ``min`` of both.
    Raises:
        DimError: x has no such dim, i or updates have others, or are larger than x.
        InputError: in a run: a place lies outside.

    >>> from vtensor.operators import Context
    >>> x, i = VTensor("f32", {"N": 4, "C": 3}), VTensor("s64", {"N": 2, "C": 1})
    >>> updates = VTensor("f32", {"N": 2, "C": 1})
    >>> ScatterElements("C").compute(Context(), x, i, updates).summary()
    'f32 N=4 C=3'

    Source: ONNX operators ScatterElements, opset 18, and Scatter, opset 9.
    """

    axis: str = param()
    reduction: str = param(default="none", choices=REDUCTIONS)

    def compute(self, ctx: Context, x: VTensor, i: VTensor, updates: VTensor) -> VTensor:
        within(self.axis, x, i)
        if dict(updates.dims) != dict(i.dims):
            raise DimError("i and updates must have the same dims")
        y = VTensor(x.dtype, x.dims, ctx.output(0))
        ctx.dispatch(self, [x, i, updates], [y])
        return y


@invoker("ScatterElements", library="numpy", dtypes={"i": ("s64", "s32")}, python=True)
def numpy_scatter_elements(
    ctx: Context,
    op: ScatterElements,
    x: VTensor,
    i: VTensor,
    updates: VTensor,
    y: VTensor,
) -> None:
    order = Layout.plain(x.dims)
    src, places, values, dst = (PTensor(t).require(order) for t in (x, i, updates, y))
    if lib_tagger("numpy", [src, places, values], [dst]):
        return
    index = list(np.indices(places.data().shape, sparse=True))
    chosen = checked(places.data(), x.size(op.axis), "ScatterElements", op.axis)
    index[order.dims.index(op.axis)] = chosen
    dst.data()[...] = _put(op, src.data(), tuple(index), values.data())


def _rows_of(node: NodeReader, batch: int) -> tuple[VTensor, VTensor, tuple[str, ...]]:
    """x, the rows of indices, and the dims of x that a row addresses.

    The first ``batch`` dims are those of both.
    """
    x, i = node.input(0), node.input(1)
    if not len(i.dims):
        raise node.refuse("indices without dims")
    length, names = list(i.dims.values())[-1], list(x.dims)
    if not 0 <= batch < len(i.dims) or batch + length > len(names):
        raise node.refuse(f"{length} indices a row, {batch} batch dims: the input has {names}")
    axes = names[batch : batch + length]
    taken = tuple(names)
    rows: list[str] = []
    for place, name in enumerate(list(i.dims)):
        rows.append(names[place] if place < batch else fresh(name, (*taken, *rows)))
    return x, node.input(1, " ".join(rows)), tuple(axes)


def _read_rows(node: NodeReader) -> VTensor:
    x, i, axes = _rows_of(node, int(node.attribute("batch_dims", 0)))
    return node.add(GatherND(axes, list(i.dims)[-1]), x, i)


def _no_names(node: Naming) -> None:
    """Which dims are which is told by the last size of an input."""


def _places(axes: tuple[str, ...], x: VTensor, rows: Array, op: str) -> tuple[Array, ...]:
    """An array of indices for each of these dims."""
    return tuple(checked(rows[..., place], x.size(dim), op, dim) for place, dim in enumerate(axes))


@operator(
    "GatherND",
    dims={"x": "*", "i": "*", "y": "*"},
    onnx=Spelling("GatherND", 11, _read_rows, _no_names),
)
class GatherND:
    """Pick slices of a tensor, each by a row of indices.

    y[B, I, R] = x[B, i[B, I, 0], i[B, I, 1], ..., R]: one index a row for each of ``axes``; B are
    the dims that both have, I those of i alone, R the others of x.

    Dims:
        x: axes and any others    i: row and any others; below 0 from the end    y: B, I, R
    Args:
        axes: the dims that a row addresses.
        row: the dim of i along which a row lies; its size is the number of axes.
    Raises:
        DimError: x lacks an axis, rows have another length, or a dim of both has two sizes.
        InputError: in a run: a place lies outside.

    >>> from vtensor.operators import Context
    >>> x, i = VTensor("f32", {"H": 9, "W": 9, "C": 3}), VTensor("s64", {"points": 5, "K": 2})
    >>> GatherND(("H", "W"), "K").compute(Context(), x, i).summary()
    'f32 points=5 C=3'

    Source: ONNX operator GatherND, opset 13.
    """

    axes: tuple[str, ...] = param()
    row: str = param()

    def compute(self, ctx: Context, x: VTensor, i: VTensor) -> VTensor:
        rest = _rest(self.axes, self.row, x, i)
        own = {dim: size for dim, size in i.dims.items() if dim != self.row}
        batch = {dim: size for dim, size in own.items() if dim in rest}
        if any(rest[dim] != size for dim, size in batch.items()):
            raise DimError("a dim of both must have one size")
        y = VTensor(x.dtype, {**batch, **own, **rest}, ctx.output(0))
        ctx.dispatch(self, [x, i], [y])
        return y


def _rest(axes: tuple[str, ...], row: str, x: VTensor, i: VTensor) -> dict[str, int]:
    """The sizes of x that no row addresses."""
    known = len(set(axes)) == len(axes) and x.dims.keys() >= set(axes)
    if not known or i.size(row) != len(axes) or row in x.dims:
        raise DimError(f"{row} must hold one index for each of {axes}, dims of x")
    return {dim: size for dim, size in x.dims.items() if dim not in axes}


@invoker("GatherND", library="numpy", dtypes={"i": ("s64", "s32")}, python=True)
def numpy_gather_nd(ctx: Context, op: GatherND, x: VTensor, i: VTensor, y: VTensor) -> None:
    batch = [dim for dim in y.dims if dim in x.dims and dim in i.dims]
    own = [dim for dim in i.dims if dim not in (*batch, op.row)]
    rest = [dim for dim in x.dims if dim not in (*batch, *op.axes)]
    src = PTensor(x).require(Layout.plain([*batch, *op.axes, *rest]))
    rows = PTensor(i).require(Layout.plain([*batch, *own, op.row]))
    dst = PTensor(y).require(Layout.plain([*batch, *own, *rest]))
    if lib_tagger("numpy", [src, rows], [dst]):
        return
    places = _places(op.axes, x, rows.data(), "GatherND")
    shape = rows.data().shape[:-1]
    here = np.indices(shape, sparse=True)[: len(batch)]
    index = tuple(np.broadcast_to(one, shape) for one in (*here, *places))
    dst.data()[...] = src.data()[index] if index else src.data()


def _names_of_x(node: Naming) -> None:
    for position in range(node.rank("x0")):
        node.same("x0", position, "y0", position)


def _read_scatter(node: NodeReader) -> VTensor:
    x, i, axes = _rows_of(node, 0)
    own, rest = list(i.dims)[:-1], list(x.dims)[len(axes) :]
    if node.input(2).ndimensions() != len(own) + len(rest):
        raise node.refuse(f"updates need {len(own) + len(rest)} dims")
    updates = node.input(2, " ".join([*own, *rest]))
    reduction = node.attribute("reduction", "none")
    return node.add(ScatterND(axes, list(i.dims)[-1], reduction), x, i, updates)


@operator(
    "ScatterND",
    dims={"x": "*", "i": "*", "updates": "*", "y": "*"},
    onnx=Spelling("ScatterND", 11, _read_scatter, _names_of_x),
)
class ScatterND:
    """A tensor with some slices replaced, each at a row of indices.

    y is x, but for y[i[I, 0], i[I, 1], ..., R] = updates[I, R]: one index a row for each of
    ``axes``; I are the other dims of i, R the others of x.

    Dims:
        x, y: axes and any others    i: row and dims of its own; below 0 from the end
        updates: those of i without row, and those of x without axes
    Args:
        axes: the dims that a row addresses.
        row: the dim of i along which a row lies; its size is the number of axes.
        reduction: what becomes of what was there: ``none`` of it, or ``add``, ``mul``, ``max`` or
            ``min`` of both.
    Raises:
        DimError: x lacks an axis, rows have another length, or updates other dims.
        InputError: in a run: a place lies outside.

    >>> from vtensor.operators import Context
    >>> x, i = VTensor("f32", {"H": 9, "W": 9, "C": 3}), VTensor("s64", {"points": 5, "K": 2})
    >>> updates = VTensor("f32", {"points": 5, "C": 3})
    >>> ScatterND(("H", "W"), "K").compute(Context(), x, i, updates).summary()
    'f32 H=9 W=9 C=3'

    Source: ONNX operator ScatterND, opset 18.
    """

    axes: tuple[str, ...] = param()
    row: str = param()
    reduction: str = param(default="none", choices=REDUCTIONS)

    def compute(self, ctx: Context, x: VTensor, i: VTensor, updates: VTensor) -> VTensor:
        rest = _rest(self.axes, self.row, x, i)
        own = {dim: size for dim, size in i.dims.items() if dim != self.row}
        if own.keys() & x.dims.keys() or dict(updates.dims) != {**own, **rest}:
            raise DimError("updates must have i's dims without the row, and x's without the axes")
        y = VTensor(x.dtype, x.dims, ctx.output(0))
        ctx.dispatch(self, [x, i, updates], [y])
        return y


@invoker("ScatterND", library="numpy", dtypes={"i": ("s64", "s32")}, python=True)
def numpy_scatter_nd(
    ctx: Context,
    op: ScatterND,
    x: VTensor,
    i: VTensor,
    updates: VTensor,
    y: VTensor,
) -> None:
    own = [dim for dim in i.dims if dim != op.row]
    rest = [dim for dim in x.dims if dim not in op.axes]
    order = Layout.plain([*op.axes, *rest])
    src, dst = PTensor(x).require(order), PTensor(y).require(order)
    rows = PTensor(i).require(Layout.plain([*own, op.row]))
    values = PTensor(updates).require(Layout.plain([*own, *rest]))
    if lib_tagger("numpy", [src, rows, values], [dst]):
        return
    places = _places(op.axes, x, rows.data(), "ScatterND")
    dst.data()[...] = _put(op, src.data(), places, values.data())
