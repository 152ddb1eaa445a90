"""Gather and scatter: elements read from, or written to, places given by indices in data."""

from __future__ import annotations

from typing import Any

import numpy as np

from libdesc import Routine, eigen, invoker
from libdesc.numpy import declared, definition
from libdesc.numpy.arrays import Array, wide
from ops._elements import AHEAD
from ops._learned import EXTRACTOR
from ops._names import all_alike, axis_of, fresh, no_names, same_names
from ops._places import (
    INDICES,
    as_output,
    by_batch,
    checked_indices,
    one_output,
    order_starting_with,
)
from ptensor import Layout, PTensor
from vtensor.language.traits import Moves, Structural
from vtensor.operators import (
    Context,
    Naming,
    NodeReader,
    NodeWriter,
    Opaque,
    Spelling,
    operator,
    param,
)
from vtensor.tensor import VTensor

#: By ``reduction``, the function that combines an element with its update; None replaces the
#: element. Several updates of one element are applied in any order.
_MERGES = {"none": None, "add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}


def _with_updates(
    op: ScatterElements | ScatterND, x: PTensor, index: Any, updates: PTensor
) -> Array:
    """Return a copy of x's elements, changed at ``index`` by ``updates``.

    ``op.reduction`` says whether an update replaces an element or is combined with it.
    """
    result, merge = wide(x.data()).copy(), _MERGES[op.reduction]
    if merge is None:
        result[index] = wide(updates.data())
    else:
        merge.at(result, index, wide(updates.data()))
    return result


def _checked(op: object, x: PTensor, axis: str, indices: Array) -> Array:
    """Return ``indices`` into x along the dim ``axis``, with negative ones counted from 0 instead.

    Raises:
        InputError: an index is outside x.
    """
    return checked_indices(indices, x.size(axis), type(op).__name__, axis)


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
    names, more = list(x.dims), node.input(1).ndimensions()
    axis = names.index(axis_of(node, x))
    others = [*out[:axis], *out[axis + more :]]
    x = node.input(0, " ".join([*others[:axis], fresh(names[axis], out), *others[axis:]]))
    return node.add(Gather(list(x.dims)[axis]), x, node.input(1, " ".join(out[axis:][:more])))


def _write(node: NodeWriter, op: Gather) -> None:
    x, i = node.inputs
    node.emit("Gather", node.operand(x), node.operand(i), axis=list(x.dims).index(op.axis))


def _shares_only_axis(op: Gather, x: VTensor, i: VTensor) -> bool:
    return x.dims.keys() & i.dims.keys() <= {op.axis}


@operator(
    "Gather",
    dims={"x": "*", "i": "*", "y": "*"},
    holds=[(_shares_only_axis, "x and i may share no dim but {op.axis}")],
    onnx=[
        Spelling("Gather", 1, _read, _names, write=_write, ahead=AHEAD["Gather"]),
        EXTRACTOR,
    ],
    traits=[Structural("gather"), Moves(), Opaque()],
)
class Gather:
    """Gather slices of a tensor by their indices along a dim.

    y[A, I, B] = x[A, i[I], B], where ``axis`` is in x between the dims A and B.

    Dims:
        x: axis and any others    i: any dims but these others; negative indices count from the end
        y: x's, with those of i in place of ``axis``
    Args:
        axis: the dim.
    Raises:
        DimError: x has no such dim, or i has another dim of x.
        InputError: in a run, an index is outside x.

    >>> from vtensor.operators import Context
    >>> x, i = VTensor("f32", {"word": 30000, "feat": 768}), VTensor("s64", {"N": 1, "seq": 8})
    >>> Gather("word").compute(Context(), x, i).summary()
    'f32 N=1 seq=8 feat=768'

    Source: ONNX operator Gather, opset 13.
    """

    axis: str = param(dims_of="x")

    def compute(self, ctx: Context, x: VTensor, i: VTensor) -> VTensor:
        at, sizes = list(x.dims).index(self.axis), list(x.dims.items())
        return one_output(ctx, self, [x, i], dict([*sizes[:at], *i.dims.items(), *sizes[at + 1 :]]))


#: The element types of Eigen's kernels, which move elements of any type.
_MOVED = {"": eigen.MOVED, "i": INDICES}


@invoker("Gather", library="eigen", dtypes=_MOVED)
def eigen_gather(ctx: Context, op: Gather, x: VTensor, i: VTensor, y: VTensor) -> Routine:
    return eigen.gather(x, i, y, [*map(declared, (x, i, y))], (op.axis,))


@definition("Gather", dtypes={"i": INDICES})
def gather(ctx: Context, op: Gather, x: PTensor, i: PTensor, y: PTensor) -> None:
    index = _checked(op, x, op.axis, i.data())
    y.data()[...] = np.take(x.data(), index, list(x.dims).index(op.axis))


def _read_elements(node: NodeReader) -> VTensor:
    names = " ".join(node.output_names())
    x, *more = (node.input(index, names) for index in range(len(node.inputs)))
    axis, reduction = axis_of(node, x), node.attribute("reduction", "none")
    op = ScatterElements(axis, reduction) if len(more) == 2 else GatherElements(axis)
    return node.add(op, x, *more)


def _write_elements(node: NodeWriter, op: GatherElements | ScatterElements) -> None:
    order, reduction = list(node.inputs[0].dims), getattr(op, "reduction", None)
    if reduction in ("max", "min") and node.opset < 18:
        raise node.refuse(f"ONNX has reduction {reduction} from opset 18 on")
    operands, axis = (node.operand(x, order) for x in node.inputs), order.index(op.axis)
    node.emit(type(op).__name__, *operands, order=order, axis=axis, reduction=reduction)


def _fit(op: Any, x: VTensor, i: VTensor, *updates: VTensor) -> bool:
    alike = x.dims.keys() == i.dims.keys() and all(update.dims == i.dims for update in updates)
    return alike and all(size <= x.size(dim) for dim, size in i.dims.items() if dim != op.axis)


@operator(
    "GatherElements",
    dims={"x": "*", "i": "*", "y": "*"},
    holds=[(_fit, "i must have the dims of x, and along {op.axis} alone may it be larger than x")],
    onnx=Spelling(
        "GatherElements",
        11,
        _read_elements,
        all_alike,
        write=_write_elements,
        ahead=AHEAD["GatherElements"],
    ),
    traits=[Opaque()],
)
class GatherElements:
    """Gather elements, each by its own index along a dim.

    y[A, j, B] = x[A, i[A, j, B], B]

    Dims:
        x: any    i, y: the same; no size but that of ``axis`` is larger than x's
    Args:
        axis: the dim.
    Raises:
        DimError: x has no such dim, i has other dims, or is larger than x.
        InputError: in a run, an index is outside x.

    >>> from vtensor.operators import Context
    >>> x, i = VTensor("f32", {"N": 4, "C": 3}), VTensor("s64", {"N": 2, "C": 9})
    >>> GatherElements("C").compute(Context(), x, i).summary()
    'f32 N=2 C=9'

    Source: ONNX operator GatherElements, opset 13.
    """

    axis: str = param(dims_of="x")

    def compute(self, ctx: Context, x: VTensor, i: VTensor) -> VTensor:
        return one_output(ctx, self, [x, i], i.dims)


@operator(
    "ScatterElements",
    dims={"x": "*", "i": "*", "updates": "*", "y": "*"},
    holds=[(_fit, "i and updates must have the dims of x, and sizes that fit beside {op.axis}")],
    onnx=[
        Spelling("ScatterElements", 11, _read_elements, all_alike, write=_write_elements),
        Spelling("Scatter", 9, _read_elements, all_alike, until=10),
    ],
)
class ScatterElements:
    """Replace elements of a tensor, each at its own index along a dim.

    y is x, except y[A, i[A, j, B], B] = updates[A, j, B].

    Dims:
        x, y: any, the same    i, updates: the same; no size but that of ``axis`` exceeds x's
    Args:
        axis: the dim.
        reduction: ``none`` replaces the old element by the update; ``add``, ``mul``, ``max`` or
            ``min`` combine both.
    Raises:
        DimError: x has no such dim, i or updates have other dims, or are larger than x.
        InputError: in a run, an index is outside x.

    >>> from vtensor.operators import Context
    >>> x, i = VTensor("f32", {"N": 4, "C": 3}), VTensor("s64", {"N": 2, "C": 1})
    >>> updates = VTensor("f32", {"N": 2, "C": 1})
    >>> ScatterElements("C").compute(Context(), x, i, updates).summary()
    'f32 N=4 C=3'

    Source: ONNX operators ScatterElements, opset 18, and Scatter, opset 9.
    """

    axis: str = param(dims_of="x")
    reduction: str = param(default="none", choices=tuple(_MERGES))

    def compute(self, ctx: Context, x: VTensor, i: VTensor, updates: VTensor) -> VTensor:
        return one_output(ctx, self, [x, i, updates], x.dims)


@invoker("GatherElements", library="eigen", dtypes=_MOVED)
def eigen_elements(ctx: Context, op: GatherElements, x: VTensor, i: VTensor, y: VTensor) -> Routine:
    return eigen.gather(x, i, y, as_output(op, x, i, y), (op.axis,))


def _has_reduction(op: Any, x: VTensor, *_: VTensor) -> bool | str:
    """Return True if Eigen has ``op.reduction`` for x's element type, else the reason why not."""
    known = op.reduction == "none" or x.dtype in eigen.COMPARED
    return known or f"has no {op.reduction} of {x.dtype}"


@invoker("ScatterElements", library="eigen", dtypes=_MOVED, when=_has_reduction)
def eigen_scatter(ctx: Context, op: ScatterElements, *operands: VTensor) -> Routine:
    return eigen.scatter(operands, as_output(op, *operands), (op.axis,), op.reduction)


@definition("GatherElements", "ScatterElements", dtypes={"i": INDICES}, orders=as_output)
def elements(ctx: Context, op: Any, x: PTensor, i: PTensor, *operands: PTensor) -> None:
    *updates, y = operands
    axis, index = list(y.dims).index(op.axis), list(np.indices(i.data().shape, sparse=True))
    index[axis] = _checked(op, x, op.axis, i.data())
    places = tuple(index)
    y.data()[...] = _with_updates(op, x, places, *updates) if updates else x.data()[places]


def _rows(node: NodeReader, batch: int = 0) -> tuple[VTensor, VTensor, tuple[str, ...]]:
    """Return the inputs of GatherND or ScatterND: x, the indices i, and the dims of x indexed by i.

    The last dim of i has a row of indices, one for each indexed dim of x. The first ``batch`` dims
    of i get the names of x's first dims; its other dims get names that x lacks.
    """
    x, i = node.input(0), node.input(1)
    names, (*_, length) = list(x.dims), (0, *i.dims.values())
    if not 0 <= batch < len(i.dims) or batch + length > len(names):
        raise node.refuse(f"{length} indices a row, {batch} batch dims: the input has {names}")
    rows = names[:batch]
    for name in list(i.dims)[batch:]:
        rows.append(fresh(name, (*names, *rows)))
    return x, node.input(1, " ".join(rows)), tuple(names[batch : batch + length])


def _read_gather(node: NodeReader) -> VTensor:
    x, i, axes = _rows(node, int(node.attribute("batch_dims", 0)))
    return node.add(GatherND(axes, list(i.dims)[-1]), x, i)


def _read_scatter(node: NodeReader) -> VTensor:
    x, i, axes = _rows(node)
    *index_dims, row = i.dims
    names = [*index_dims, *list(x.dims)[len(axes) :]]
    if node.input(2).ndimensions() != len(names):
        raise node.refuse(f"updates need {len(names)} dims")
    op = ScatterND(axes, row, node.attribute("reduction", "none"))
    return node.add(op, x, i, node.input(2, " ".join(names)))


def _parts(op: Any, x: VTensor, i: VTensor) -> tuple[dict[str, int], dict[str, int]]:
    """Return the sizes by dim of i without ``op.row``, and those of x without ``op.axes``.

    In the first result, dims that x has as well come first.
    """
    others = {dim: size for dim, size in x.dims.items() if dim not in op.axes}
    indexed = sorted((dim for dim in i.dims if dim != op.row), key=lambda dim: dim not in others)
    return {dim: i.size(dim) for dim in indexed}, others


def _one_size(op: GatherND, x: VTensor, i: VTensor) -> bool:
    indexed, others = _parts(op, x, i)
    return all(others.get(dim, size) == size for dim, size in indexed.items())


def _updates_fit(op: ScatterND, x: VTensor, i: VTensor, updates: VTensor) -> bool:
    indexed, others = _parts(op, x, i)
    return not indexed.keys() & x.dims.keys() and updates.dims == {**indexed, **others}


def _orders(op: Any, x: VTensor, i: VTensor, values: VTensor, *y: VTensor) -> list[Layout]:
    """Return the layout in which NumPy and Eigen take each operand of GatherND or ScatterND.

    - x, and y of ScatterND: the dims shared with i, then ``axes``, then the others.
    - i: ``row`` last.
    - ``values``, GatherND's output or ScatterND's updates: i's dims but ``row``, then the dims of x
      that are not in ``axes``.
    """
    indexed, others = _parts(op, x, i)
    order = order_starting_with(x, *(dim for dim in indexed if dim in others), *op.axes)
    return [
        order,
        Layout.plain([*indexed, op.row]),
        Layout.plain({**indexed, **others}),
        *[order] * len(y),
    ]


#: A condition on the indices of GatherND and ScatterND, for ``holds``: a function and its message.
_ADDRESSES = (
    lambda op, x, i, *_: op.row not in x.dims and i.size(op.row) == len(op.axes),
    "{op.row} must hold one index for each of {op.axes}, dims of x",
)


@operator(
    "GatherND",
    dims={"x": "*", "i": "*", "y": "*"},
    holds=[_ADDRESSES, (_one_size, "a dim of both must have one size")],
    onnx=Spelling("GatherND", 11, _read_gather, no_names, ahead=AHEAD["GatherND"]),
    traits=[Opaque()],
)
class GatherND:
    """Gather slices of a tensor, each by a row of indices.

    y[B, I, R] = x[B, i[B, I, 0], i[B, I, 1], ..., R]: a row has an index for each of ``axes``.
    B are the dims of both, I those of i alone, R the others of x.

    Dims:
        x: axes and any others    y: B, I, R
        i: row and any others; negative indices count from the end
    Args:
        axes: the dims of x that a row of indices points into.
        row: the dim of i along a row; its size is the number of axes.
    Raises:
        DimError: x lacks an axis, the size of ``row`` is not the number of axes, or a dim of both
            has two sizes.
        InputError: in a run, an index is outside x.

    >>> from vtensor.operators import Context
    >>> x, i = VTensor("f32", {"H": 9, "W": 9, "C": 3}), VTensor("s64", {"points": 5, "K": 2})
    >>> GatherND(("H", "W"), "K").compute(Context(), x, i).summary()
    'f32 points=5 C=3'

    Source: ONNX operator GatherND, opset 13.
    """

    axes: tuple[str, ...] = param(dims_of="x")
    row: str = param(dims_of="i")

    def compute(self, ctx: Context, x: VTensor, i: VTensor) -> VTensor:
        indexed, others = _parts(self, x, i)
        return one_output(ctx, self, [x, i], {**indexed, **others})


@operator(
    "ScatterND",
    dims={"x": "*", "i": "*", "updates": "*", "y": "*"},
    holds=[
        _ADDRESSES,
        (_updates_fit, "updates must have the dims of i but row, and of x but axes"),
    ],
    onnx=Spelling("ScatterND", 11, _read_scatter, same_names),
)
class ScatterND:
    """Replace slices of a tensor, each at a row of indices.

    y is x, except y[i[I, 0], i[I, 1], ..., R] = updates[I, R]: a row has one index for each of
    ``axes``; I are the other dims of i, R the others of x.

    Dims:
        x, y: axes and any others
        i: row and dims that x lacks; negative indices count from the end
        updates: i's without row, and x's without axes
    Args:
        axes: the dims of x that a row of indices points into.
        row: the dim of i along a row; its size is the number of axes.
        reduction: ``none`` replaces the old element by the update; ``add``, ``mul``, ``max`` or
            ``min`` combine both.
    Raises:
        DimError: x lacks an axis, the size of ``row`` is not the number of axes, or updates have
            other dims.
        InputError: in a run, an index is outside x.

    >>> from vtensor.operators import Context
    >>> x, i = VTensor("f32", {"H": 9, "W": 9, "C": 3}), VTensor("s64", {"points": 5, "K": 2})
    >>> updates = VTensor("f32", {"points": 5, "C": 3})
    >>> ScatterND(("H", "W"), "K").compute(Context(), x, i, updates).summary()
    'f32 H=9 W=9 C=3'

    Source: ONNX operator ScatterND, opset 18.
    """

    axes: tuple[str, ...] = param(dims_of="x")
    row: str = param(dims_of="i")
    reduction: str = param(default="none", choices=tuple(_MERGES))

    def compute(self, ctx: Context, x: VTensor, i: VTensor, updates: VTensor) -> VTensor:
        return one_output(ctx, self, [x, i, updates], x.dims)


@invoker("GatherND", library="eigen", dtypes=_MOVED)
def eigen_rows(ctx: Context, op: GatherND, x: VTensor, i: VTensor, y: VTensor) -> Routine:
    return eigen.gather(x, i, y, _orders(op, x, i, y), op.axes, op.row)


@invoker("ScatterND", library="eigen", dtypes=_MOVED, when=_has_reduction)
def eigen_put(ctx: Context, op: ScatterND, *operands: VTensor) -> Routine:
    orders = _orders(op, *operands)
    return eigen.scatter(operands, orders, op.axes, op.reduction, op.row)


@definition("GatherND", "ScatterND", dtypes={"i": INDICES}, orders=_orders)
def rows(ctx: Context, op: Any, x: PTensor, i: PTensor, *others: PTensor) -> None:
    *updates, y = others
    shape = i.data().shape[:-1]
    shared = len(i.dims.keys() & x.dims.keys() - {*op.axes})
    columns = [_checked(op, x, dim, i.data()[..., place]) for place, dim in enumerate(op.axes)]
    grid = (*np.indices(shape, sparse=True)[:shared], *columns)
    places = tuple(np.broadcast_to(column, shape) for column in grid)
    y.data()[...] = _with_updates(op, x, places, *updates) if updates else x.data()[places]


def _read_cache(node: NodeReader) -> VTensor:
    past = node.input(0)
    axis, batch = axis_of(node, past, default=-2), node.axis(0, past)
    op = TensorScatter(axis, batch, node.attribute("mode", "linear") == "circular")
    start = [node.input(2, batch)] if node.has(2) else []
    return node.add(op, past, node.input(1, " ".join(past.dims)), *start)


def _shorter(op: TensorScatter, past: VTensor, update: VTensor, *_: VTensor) -> bool:
    size = past.size(op.axis)
    return {**update.dims, op.axis: size} == past.dims and update.size(op.axis) <= size


def _one_start(op: TensorScatter, past: VTensor, _: VTensor, *start: VTensor) -> bool:
    expected = [{op.batch: past.size(op.batch)}][: len(start)]
    return op.axis != op.batch and [t.dims for t in start] == expected


@operator(
    "TensorScatter",
    dims={"past": "*", "update": "*", "start": "*", "y": "*"},
    holds=[
        (_shorter, "update must have past's sizes, but for fewer along {op.axis}"),
        (_one_start, "there may be one start, of the dim {op.batch}, which is not {op.axis}"),
    ],
    onnx=Spelling("TensorScatter", 24, _read_cache, same_names),
)
class TensorScatter:
    """Write elements into each of several caches, from a start of its own on.

    y is past, except y[N, start[N] + t] = update[N, t].

    Dims:
        past, y: axis batch and any others, the same    update: the same, not longer along ``axis``
        start: batch; if absent, 0
    Args:
        axis: the dim along which elements follow one another.
        batch: the dim of the caches, each with a start of its own.
        circular: True continues at the first element after the last.
    Raises:
        DimError: past lacks one of the dims, or update or start have other dims.
        InputError: in a run, an update would be written outside past, and ``circular`` is False.

    >>> from vtensor.operators import Context
    >>> past, new = (VTensor("f32", {"N": 2, "T": size, "F": 8}) for size in (9, 1))
    >>> TensorScatter("T", "N").compute(Context(), past, new, VTensor("s64", {"N": 2})).summary()
    'f32 N=2 T=9 F=8'

    Source: ONNX operator TensorScatter, opset 24.
    """

    axis: str = param(dims_of="past")
    batch: str = param(dims_of="past")
    circular: bool = param(default=False)

    def compute(self, ctx: Context, past: VTensor, update: VTensor, *start: VTensor) -> VTensor:
        return one_output(ctx, self, [past, update, *start], past.dims)


def _one_type(op: TensorScatter, past: VTensor, update: VTensor, *_: VTensor) -> bool | str:
    return update.dtype == past.dtype or "update is of another element type"


@invoker(
    "TensorScatter", library="eigen", dtypes={"": eigen.MOVED, "start": ["s64"]}, when=_one_type
)
def eigen_cache(ctx: Context, op: TensorScatter, *operands: VTensor) -> Routine:
    return eigen.overwritten(operands, op.axis, op.batch, op.circular)


@definition(
    "TensorScatter",
    dtypes={"start": ["s64"]},
    orders=lambda op, *operands: by_batch(op.batch, op.axis, *operands),
)
def cache(ctx: Context, op: TensorScatter, past: PTensor, update: PTensor, *more: PTensor) -> None:
    *starts, y = (operand.data() for operand in more)
    size, batch = past.size(op.axis), np.arange(len(y))[:, np.newaxis]
    places = np.arange(update.size(op.axis)) + sum(start[:, np.newaxis] for start in starts)
    y[...] = past.data()
    y[batch, places % size if op.circular else _checked(op, past, op.axis, places)] = update.data()
