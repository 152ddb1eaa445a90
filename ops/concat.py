"""Concatenation, repetition and padding of tensors; negative pads remove elements."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from libdesc import Routine, eigen, invoker, onednn, rewrite
from libdesc.numpy import definition, elementwise
from libdesc.numpy.arrays import Array
from libdesc.numpy.casts import stored
from ops._elements import AHEAD
from ops._learned import VECTORIZER
from ops._names import all_alike, axes_of, axis_of, broadcast_input, last_names, same_names
from ops._places import as_output, one_output, unique_names
from ptensor import PTensor
from vtensor.language.dims import broadcast
from vtensor.language.traits import Moves, Structural
from vtensor.operators import (
    Context,
    Match,
    NodeReader,
    NodeWriter,
    Opaque,
    Spelling,
    operator,
    param,
)
from vtensor.tensor import VTensor


def _read(node: NodeReader) -> VTensor:
    names = " ".join(node.output_names())
    inputs = [node.input(index, names) for index in range(len(node.inputs))]
    return node.add(Concat(axis_of(node, inputs[0], default=1)), *inputs)


def _write(node: NodeWriter, op: Concat) -> None:
    order = list(node.outputs[0].dims)
    node.emit("Concat", *(node.operand(x, order) for x in node.inputs), axis=order.index(op.axis))


def _agree(op: Concat, x: VTensor, *more: VTensor) -> bool:
    return all({**other.dims, op.axis: 0} == {**x.dims, op.axis: 0} for other in more)


@operator(
    "Concat",
    dims={"x": "*", "y": "*"},
    holds=[(_agree, "the inputs must agree in every dim but {op.axis}")],
    onnx=[
        Spelling("Concat", 1, _read, all_alike, write=_write, ahead=AHEAD["Concat"]),
        VECTORIZER,
    ],
    traits=[Structural("concat"), Moves(), Opaque()],
)
class Concat:
    """Concatenate tensors along a dim.

    Dims:
        x, y: any, the same; y's size along ``axis`` is the sum of the inputs'
    Args:
        axis: the dim.
    Raises:
        DimError: the inputs differ in a dim other than ``axis``, or lack ``axis``.

    >>> from vtensor.operators import Context
    >>> a, b = VTensor("f32", {"N": 1, "C": 64}), VTensor("f32", {"N": 1, "C": 8})
    >>> Concat("C").compute(Context(), a, b).summary()
    'f32 N=1 C=72'

    Source: ONNX operator Concat, opset 13.
    """

    axis: str = param(dims_of="x")

    def compute(self, ctx: Context, *x: VTensor) -> VTensor:
        total = sum(part.size(self.axis) for part in x)
        return one_output(ctx, self, x, {**x[0].dims, self.axis: total})


@invoker("Concat", library="onednn", dtypes=["f32", "bf16", "f16", "s32", "s8", "u8"])
def onednn_concat(ctx: Context, op: Concat, *operands: VTensor) -> Routine:
    return onednn.Concat(operands[:-1], operands[-1], op.axis)


@invoker("Concat", library="eigen", dtypes=eigen.MOVED)
def eigen_concat(ctx: Context, op: Concat, *operands: VTensor) -> Routine:
    return eigen.joined(operands[:-1], operands[-1], op.axis, ctx.followers)


@definition("Concat", orders=as_output)
def concat(ctx: Context, op: Concat, *operands: PTensor) -> None:
    *parts, whole = (operand.data() for operand in operands)
    np.concatenate(parts, axis=list(operands[-1].dims).index(op.axis), out=whole)


def _read_expand(node: NodeReader) -> VTensor:
    sizes, names = node.constant(1).tolist(), node.output_names()
    if len(names) != max(len(sizes), node.input(0).ndimensions()):
        raise node.refuse(f"shape {sizes}, the model says {len(names)} dims")
    last = names[len(names) - len(sizes) :]
    return node.add(Expand(tuple(zip(last, sizes, strict=True))), broadcast_input(node, 0))


def _read_tile(node: NodeReader) -> VTensor:
    x, repeats = node.input(0), node.constant(1).tolist()
    if len(repeats) != len(x.dims):
        raise node.refuse(f"{len(repeats)} repeats of {len(x.dims)} dims")
    return node.add(Tile(tuple(zip(x.dims, repeats, strict=True))), x)


def _write_expand(node: NodeWriter, op: Expand) -> None:
    [x], [y] = node.inputs, node.outputs
    node.emit("Expand", node.operand(x, list(y.dims)), node.constant(list(y.dims.values())))


def _write_tile(node: NodeWriter, op: Tile) -> None:
    [x], repeats = node.inputs, dict(op.repeats)
    node.emit("Tile", node.operand(x), node.constant([repeats.get(dim, 1) for dim in x.dims]))


@operator(
    "Expand",
    dims={"x": "*", "y": "*"},
    holds=[unique_names("shape")],
    onnx=Spelling(
        "Expand", 8, _read_expand, last_names, write=_write_expand, ahead=AHEAD["Expand"]
    ),
    traits=[Moves(), Opaque()],
)
class Expand:
    """Repeat a tensor along dims that it lacks, or has with size 1.

    Dims:
        x: any    y: the dims of x and of ``shape``; where one has size 1, the other's size
    Args:
        shape: pairs of a dim and a size, to which x is repeated.
    Raises:
        DimError: a name occurs twice, or a dim has two sizes in x and ``shape``, and neither is 1.

    >>> from vtensor.operators import Context
    >>> x = VTensor("f32", {"C": 3, "H": 1})
    >>> Expand((("N", 2), ("C", 1), ("H", 4))).compute(Context(), x).summary()
    'f32 N=2 C=3 H=4'

    Source: ONNX operator Expand, opset 13.
    """

    shape: tuple[tuple[str, int], ...] = param()

    def compute(self, ctx: Context, x: VTensor) -> VTensor:
        return one_output(ctx, self, [x], broadcast(dict(self.shape), x.dims))


@invoker("Expand", library="eigen", dtypes=eigen.MOVED)
def eigen_expand(ctx: Context, op: Expand, x: VTensor, y: VTensor) -> Routine:
    return eigen.expanded(x, y)


@elementwise("Expand", widen=False)
def expand(op: Expand, x: Array) -> Array:
    return x


@operator(
    "Tile",
    dims={"x": "*", "y": "*"},
    holds=[
        unique_names("repeats"),
        (lambda op, _: all(n >= 0 for _, n in op.repeats), "repeats must be a count from 0 on"),
    ],
    onnx=Spelling("Tile", 6, _read_tile, same_names, write=_write_tile, ahead=AHEAD["Tile"]),
    traits=[Moves(), Opaque()],
)
class Tile:
    """Repeat a tensor as a whole along some dims.

    Dims:
        x, y: any, the same; y's sizes are x's times ``repeats``
    Args:
        repeats: pairs of a dim and the number of times; other dims are not repeated.
    Raises:
        DimError: x has no such dim, a dim is named twice, or a number is below 0.

    >>> from vtensor.operators import Context
    >>> Tile((("C", 2),)).compute(Context(), VTensor("f32", {"N": 1, "C": 3})).summary()
    'f32 N=1 C=6'

    Source: ONNX operator Tile, opset 13.
    """

    repeats: tuple[tuple[str, int], ...] = param()

    def compute(self, ctx: Context, x: VTensor) -> VTensor:
        sizes = {dim: x.size(dim) * count for dim, count in self.repeats}
        return one_output(ctx, self, [x], {**x.dims, **sizes})


@invoker("Tile", library="eigen", dtypes=eigen.MOVED)
def eigen_tile(ctx: Context, op: Tile, x: VTensor, y: VTensor) -> Routine:
    return eigen.picked(x, y, {dim: _repeated(x.size(dim), n) for dim, n in op.repeats})


def _repeated(size: int, times: int) -> list[tuple[int, int, int]]:
    return [(size, 0, 1)] * times if size > 1 else [(size * times, 0, 0)]


@definition("Tile")
def tile(ctx: Context, op: Tile, x: PTensor, y: PTensor) -> None:
    repeats = dict(op.repeats)
    y.data()[...] = np.tile(x.data(), [repeats.get(dim, 1) for dim in x.dims])


def _read_pad(node: NodeReader) -> VTensor:
    x, value = node.input(0), node.attribute("value", 0.0)
    if node.opset >= 11:
        value = node.constant(2).item() if node.has(2) else 0.0
    pads = node.attribute("pads") if node.opset < 11 else node.constant(1).tolist()
    axes = node.constant(3).tolist() if node.opset >= 18 and node.has(3) else [*range(len(x.dims))]
    number = int(value) if isinstance(value, bool) else value
    mode = node.attribute("mode", "constant")
    return node.add(Pad(axes_of(node, x, axes), tuple(pads), mode, number), x)


def _write_pad(node: NodeWriter, op: Pad) -> None:
    [x] = node.inputs
    if op.mode == "wrap" and node.opset < 19:
        raise node.refuse("ONNX has mode wrap from opset 19 on")
    rows = np.array([_pads(op).get(dim, (0, 0)) for dim in x.dims], np.int64).reshape(-1, 2)
    value = [] if _is_zero(op) else [node.constant(op.value, x.dtype)]
    node.emit("Pad", node.operand(x), node.constant(rows.T.reshape(-1)), *value, mode=op.mode)


def _pads(op: Pad) -> dict[str, tuple[int, int]]:
    """Return, for each of ``op.axes``, its pads: elements added before the tensor, and after it."""
    half = len(op.axes)
    return dict(zip(op.axes, zip(op.pads[:half], op.pads[half:], strict=True), strict=True))


def _kept(op: Pad, x: VTensor) -> list[tuple[int, int]]:
    """Return for each of ``op.axes`` how many elements of x remain, and the larger of its two pads.

    A negative pad removes elements of x.
    """
    pads = _pads(op).items()
    return [(x.size(dim) + min(a, 0) + min(b, 0), max(a, b)) for dim, (a, b) in pads]


def _is_zero(op: Pad) -> bool:
    """Return whether the parameter ``value`` is +0.0, a number with no bit set."""
    return bool(op.value == 0 and not np.signbit(op.value))


def _leaves_some(op: Pad, x: VTensor) -> bool:
    return all(kept >= 0 for kept, _ in _kept(op, x))


def _has_border_elements(op: Pad, x: VTensor) -> bool:
    """Return whether ``x`` has enough elements along each padded dim to fill the border.

    Mode ``reflect`` needs two, ``edge`` and ``wrap`` one, ``constant`` none.
    """
    least = {"constant": 0, "reflect": 2}.get(op.mode, 1)
    return all(kept >= least or more <= 0 for kept, more in _kept(op, x))


def _of_results(op: Pad, function: Callable[[float], float | None]) -> Pad | None:
    """Return the Pad of results of a function, whose constant is the function's result, too."""
    if op.mode != "constant":
        return op
    value = function(op.value)
    return None if value is None else replace(op, value=value)


@operator(
    "Pad",
    dims={"x": "*", "y": "*"},
    holds=[
        (lambda op, _: len(op.pads) == 2 * len(op.axes), "two pads must be given for each axis"),
        (_leaves_some, "pads {op.pads} take away more than there is"),
        (_has_border_elements, "mode {op.mode} has no elements to put there"),
    ],
    onnx=Spelling("Pad", 2, _read_pad, same_names, write=_write_pad),
    traits=[Moves(made=_of_results)],
)
class Pad:
    """Add a border of elements to a tensor; a negative pad removes elements.

    Dims:
        x, y: any, the same; y's size along each of ``axes`` is x's plus both pads
    Args:
        axes: the dims that get a border; the others stay as they are.
        pads: number of elements added before each of ``axes``, in that order, then after each.
        mode: the elements of the border: ``constant``, the nearest element (``edge``), elements
            mirrored at the border element (``reflect``), or elements from the other end
            (``wrap``).
        value: the constant.
    Raises:
        DimError: x has no such dim, there are not two pads for each axis, more elements are removed
            than there are, or the mode has no elements to take.

    >>> from vtensor.operators import Context
    >>> x = VTensor("f32", {"N": 1, "C": 3, "H": 7, "W": 7})
    >>> Pad(("H", "W"), (1, 2, 0, -1)).compute(Context(), x).summary()
    'f32 N=1 C=3 H=8 W=8'

    Source: ONNX operator Pad, opset 19.
    """

    axes: tuple[str, ...] = param(dims_of="x")
    pads: tuple[int, ...] = param()
    mode: str = param(default="constant", choices=("constant", "edge", "reflect", "wrap"))
    value: float = param(default=0.0)

    def compute(self, ctx: Context, x: VTensor) -> VTensor:
        sizes = {dim: x.size(dim) + sum(pads) for dim, pads in _pads(self).items()}
        return one_output(ctx, self, [x], {**x.dims, **sizes})


def _begins(op: Pad) -> dict[str, int]:
    return {dim: before for dim, (before, _) in _pads(op).items()}


def _pads_zeros(op: Pad, x: VTensor, y: VTensor) -> bool | str:
    if op.mode != "constant" or not _is_zero(op):
        return f"puts zeros around, not {op.value if op.mode == 'constant' else op.mode}"
    return min(op.pads, default=0) >= 0 or "takes no elements away"


@invoker("Pad", library="onednn", dtypes=["f32", "bf16", "f16"], when=_pads_zeros)
def onednn_pad(ctx: Context, op: Pad, x: VTensor, y: VTensor) -> Routine:
    return onednn.Pad(x, y, _begins(op))


@invoker("Pad", library="eigen", dtypes=eigen.MOVED)
def eigen_pad(ctx: Context, op: Pad, x: VTensor, y: VTensor) -> Routine:
    runs = {dim: _bordered(op.mode, x.size(dim), *pads) for dim, pads in _pads(op).items()}
    return eigen.picked(x, y, runs, op.value)


def _bordered(mode: Any, size: int, before: int, behind: int) -> list[tuple[int, int, int]]:
    """Return where a Pad's output takes its elements from, along one dim, as a list of runs.

    A run (count, first, increment) stands for ``count`` elements of the output. They are those of
    the input at the indices ``first``, ``first + increment`` and so on; if ``first`` is -1, each is
    the Pad's constant.

    Args:
        mode: the Pad's mode, such as ``reflect``.
        size: the number of the input's elements along the dim.
        before, behind: the numbers of elements added before and after the input; a negative number
            removes elements.
    """
    first, kept = max(-before, 0), size + min(before, 0) + min(behind, 0)
    if mode == "constant":
        rows = [(before, -1, 0), (kept, first, 1), (behind, -1, 0)]
        return [row for row in rows if row[0] > 0]
    places = np.pad(np.arange(first, first + kept), [max(before, 0), max(behind, 0)], mode)
    return eigen.runs_of(places.tolist())


@definition("Pad")
def pad(ctx: Context, op: Pad, x: PTensor, y: PTensor) -> None:
    pads = [_pads(op).get(dim, (0, 0)) for dim in x.dims]
    rows = zip(pads, x.dims.values(), strict=True)
    kept = tuple(slice(max(-a, 0), size - max(-b, 0)) for (a, b), size in rows)
    more: Any = [(max(a, 0), max(b, 0)) for a, b in pads] or 0  # np.pad takes 0 for a scalar
    value = stored(np.asarray(op.value), x.dtype).astype(x.data().dtype)
    how: Any = {"constant_values": value} if op.mode == "constant" else {"mode": op.mode}
    y.data()[...] = np.pad(x.data()[kept], more, **how)


def _no_pads(match: Match) -> dict[str, object] | None:
    return None if any(match.parameters["pads"]) else {}


rewrite(
    "pad_nothing",
    "a border of no elements leaves a tensor as it is",
    "Pad(x, axes=axes, pads=pads, mode=mode, value=value)",
    "Identity(x)",
    given=_no_pads,
    example={"x": "N C", "axes": ("C",), "pads": (0, 0), "mode": "constant", "value": 0.0},
)
