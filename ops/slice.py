"""Slice, Split and Compress: parts of a tensor that are known before a run."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, count, pairwise, takewhile

import numpy as np

from libdesc import Routine, eigen, invoker, onednn, rewrite
from libdesc.numpy import definition
from ops._elements import AHEAD
from ops._names import axes_of, axis_of, same_names
from ops._normalizations import positions
from ops._places import one_output
from ptensor import PTensor
from vtensor.language.traits import Moves, Structural
from vtensor.operators import (
    Context,
    Match,
    Naming,
    NodeReader,
    NodeWriter,
    Opaque,
    Spelling,
    operator,
    param,
)
from vtensor.tensor import VTensor


def _read(node: NodeReader) -> VTensor:
    x = node.input(0)
    if node.opset < 10:
        rows = [node.attribute(name) for name in ("starts", "ends", "axes")]
    else:
        rows = [node.constant(i).tolist() if node.has(i) else None for i in range(1, 5)]
    starts, ends, axes, steps = [*rows, None][:4]
    axes = axes_of(node, x, list(range(len(starts))) if axes is None else axes)
    return node.add(Slice(axes, tuple(starts), tuple(ends), tuple(steps or (1,) * len(starts))), x)


def _read_split(node: NodeReader) -> Sequence[VTensor]:
    x = node.input(0)
    axis = axis_of(node, x)
    cuts = list(accumulate(_parts(node, x.size(axis)), initial=0))
    if cuts[-1] != x.size(axis) or sorted(cuts) != cuts:
        raise node.refuse(f"its parts end at {cuts[1:]}, the input has {axis}={x.size(axis)}")
    return [node.add(Slice((axis,), (start,), (end,), (1,)), x) for start, end in pairwise(cuts)]


def _split_names(node: Naming) -> None:
    for role in takewhile(node.rank, map("y{}".format, count())):
        same_names(node, "x0", role)


def _parts(node: NodeReader, size: int) -> Sequence[int]:
    """Return the sizes of the outputs of an ONNX node Split along the split axis.

    If the node does not give them, ``size``, that of the input, is divided into equal parts. If
    ``size`` is no multiple of their number, the last parts are smaller or empty; up to opset 17 the
    node is then refused.
    """
    if sizes := node.constant(1).tolist() if node.has(1) else node.attribute("split"):
        return [int(part_size) for part_size in sizes]
    parts = int(node.attribute("num_outputs", 0)) or node.output_count
    if node.opset < 18 and size % parts:
        raise node.refuse(f"{size} elements cannot be split evenly in {parts}")
    part = -(-size // parts)
    return [max(min(part, size - i * part), 0) for i in range(parts)]


def _write(node: NodeWriter, op: Slice) -> None:
    [x] = node.inputs
    rows = (op.starts, op.ends, positions(x, op.axes), op.steps)
    node.emit("Slice", node.operand(x), *map(node.constant, rows))


def _complete(op: Slice, _: VTensor) -> bool:
    return {len(op.axes)} == {*map(len, (op.starts, op.ends, op.steps))}


@operator(
    "Slice",
    dims={"x": "*", "y": "*"},
    holds=[
        (_complete, "a start, an end and a step must be given for each axis"),
        (lambda op, _: 0 not in op.steps, "steps {op.steps}: no step may be 0"),
    ],
    onnx=[
        Spelling("Slice", 1, _read, same_names, write=_write, ahead=AHEAD["Slice"]),
        Spelling("Split", 2, _read_split, _split_names),
    ],
    traits=[Structural("slice"), Moves(), Opaque()],
)
class Slice:
    """Take every ``step``-th element from ``start`` up to, and without, ``end``, along some dims.

    A negative start or end counts from the end; one outside of x is moved to the border.

    Dims:
        x, y: any, the same
    Args:
        axes: the dims that are sliced; the others stay whole.
        starts, ends: index along each of ``axes`` at which the slice begins, and before which it
            ends.
        steps: step along each; a negative one runs backwards, from ``start`` down to, and without,
            ``end``.
    Raises:
        DimError: x has no such dim, one is named twice, a step is 0, or the arguments differ in
            length.

    >>> from vtensor.operators import Context
    >>> x = VTensor("f32", {"N": 1, "C": 64, "H": 7, "W": 7})
    >>> Slice(("C", "W"), (32, -1), (64, -99), (1, -2)).compute(Context(), x).summary()
    'f32 N=1 C=32 H=7 W=4'

    Source: ONNX operators Slice, opset 13, and Split, opset 18, whose outputs are slices.
    """

    axes: tuple[str, ...] = param(dims_of="x")
    starts: tuple[int, ...] = param()
    ends: tuple[int, ...] = param()
    steps: tuple[int, ...] = param()

    def compute(self, ctx: Context, x: VTensor) -> VTensor:
        sizes = {dim: count for dim, (count, _, _) in _slice_runs(self, x).items()}
        return one_output(ctx, self, [x], {**x.dims, **sizes})


def _slices(op: Slice, x: VTensor | PTensor) -> dict[str, slice]:
    """Return, for each of ``op.axes``, a Python slice with its start, end and step.

    A start before the first element of ``x`` is moved to it.
    """
    rows = zip(op.axes, op.starts, op.ends, op.steps, strict=True)
    return {dim: slice(max(start, -x.size(dim)), end, step) for dim, start, end, step in rows}


def _slice_run(cut: slice, size: int) -> tuple[int, int, int]:
    """Return what a slice takes of ``size`` elements: (count, index of the first, increment).

    ``size`` may be symbolic. If the slice takes nothing, count and index are 0.

    >>> _slice_run(slice(1, -1, 2), 6), _slice_run(slice(9, -9, -3), 6)
    ((2, 1, 2), (2, 5, -3))
    """
    step: int = cut.step
    least, most = 0, size
    if step < 0:
        least, most = -1, size - 1
    start, end = (
        min(max(at + size if at < 0 else at, least), most) for at in (cut.start, cut.stop)
    )
    taken: int = end - start + step - 1 if step > 0 else start - end - step - 1
    count: int = taken // abs(step)
    return (count, start, step) if count > 0 else (0, 0, step)


def _slice_runs(op: Slice, x: VTensor) -> dict[str, tuple[int, int, int]]:
    """Return, by dim of ``op.axes``, the slice's count, first index in x, and increment."""
    return {dim: _slice_run(cut, x.size(dim)) for dim, cut in _slices(op, x).items()}


def _indices(op: Slice, x: VTensor) -> dict[str, range]:
    """Return the indices of the elements taken along each of ``op.axes``, by dim."""
    return {dim: range(*cut.indices(x.size(dim))) for dim, cut in _slices(op, x).items()}


def _forward(op: Slice, x: VTensor, y: VTensor) -> bool | str:
    return min(op.steps, default=1) > 0 or "runs forward"


@invoker("Slice", library="onednn", dtypes=["f32", "bf16", "f16"], when=_forward)
def onednn_slice(ctx: Context, op: Slice, x: VTensor, y: VTensor) -> Routine:
    return onednn.Slice(x, y, _slice_runs(op, x))


@invoker("Slice", library="eigen", dtypes=eigen.MOVED)
def eigen_slice(ctx: Context, op: Slice, x: VTensor, y: VTensor) -> Routine:
    rows = _slice_runs(op, x).items()
    return eigen.picked(x, y, {dim: [(n, at, step if n > 1 else 0)] for dim, (n, at, step) in rows})


@definition("Slice")
def part(ctx: Context, op: Slice, x: PTensor, y: PTensor) -> None:
    cuts = _slices(op, x)
    y.data()[...] = x.data()[tuple(cuts.get(dim, slice(None)) for dim in x.dims)]


def _compress_names(node: Naming) -> None:
    if node.attribute("axis") is not None:
        same_names(node)


def _read_compress(node: NodeReader) -> VTensor:
    x, axis = node.input(0), node.attribute("axis")
    if axis is None:
        [flat] = node.output_names()
        x, axis = node.reshape(x, {flat: x.num_elements}), 0
    kept = np.flatnonzero(node.constant(1)).tolist()
    return node.add(Compress(node.axis(int(axis), x), tuple(kept)), x)


def _inside(op: Compress, x: VTensor) -> bool:
    return max(op.kept, default=-1) < x.size(op.axis)


@operator(
    "Compress",
    dims={"x": "*", "y": "*"},
    holds=[(_inside, "places {op.kept} must all be of {op.axis}")],
    onnx=Spelling("Compress", 9, _read_compress, _compress_names),
    traits=[Moves(), Opaque()],
)
class Compress:
    """Keep the slices of a tensor at given indices.

    y[axis] = x[kept[axis]]. The indices are known before a run, since they decide y's size.

    Dims:
        x, y: any, the same; of y the size along ``axis`` is the number of ``kept``
    Args:
        axis: the dim.
        kept: the indices of the slices, from 0 on.
    Raises:
        DimError: x has no such dim, or an index is outside x.

    >>> from vtensor.operators import Context
    >>> Compress("C", (0, 2)).compute(Context(), VTensor("f32", {"N": 2, "C": 3})).summary()
    'f32 N=2 C=2'

    Source: ONNX operator Compress, opset 11.
    """

    axis: str = param(dims_of="x")
    kept: tuple[int, ...] = param(minimum=0)

    def compute(self, ctx: Context, x: VTensor) -> VTensor:
        return one_output(ctx, self, [x], {**x.dims, self.axis: len(self.kept)})


@invoker("Compress", library="eigen", dtypes=eigen.MOVED)
def eigen_compress(ctx: Context, op: Compress, x: VTensor, y: VTensor) -> Routine:
    return eigen.picked(x, y, {op.axis: eigen.runs_of(op.kept)})


@definition("Compress")
def compress(ctx: Context, op: Compress, x: PTensor, y: PTensor) -> None:
    y.data()[...] = x.data().take(np.array(op.kept, np.int64), list(x.dims).index(op.axis))


#: The most indices in the parameter ``kept`` of a Compress that the rule ``roll`` makes.
MOST_PLACES = 4096


def _two_slices(match: Match) -> dict[str, object] | None:
    """Return, under the key ``kept``, the indices in x of the elements of two concatenated slices.

    They are the indices of the first slice, then those of the second. None (the rule does not
    apply) if there are more than ``MOST_PLACES``, or the slices are not along the dim of the
    Concat.
    """
    known, axis = match.parameters, match.parameters["axis"]
    if known["axes"] != (axis,) or match.output.size(axis) > MOST_PLACES:
        return None
    cuts = [Slice((axis,), *(known[f"{name}{end}"] for name in _ROWS)) for end in ("", "_then")]
    return {"kept": tuple(i for cut in cuts for i in _indices(cut, match["x"])[axis])}


_ROWS = ("starts", "ends", "steps")
rewrite(
    "roll",
    "two slices of a tensor one behind the other are some of its places: x[a], x[b] is x[a, b]",
    """Concat(
        Slice(x, axes=axes, starts=starts, ends=ends, steps=steps),
        Slice(x, axes=axes, starts=starts_then, ends=ends_then, steps=steps_then), axis=axis
    )""",
    "Compress(x, axis=axis, kept=kept)",
    given=_two_slices,
    example={
        "x": "N C",
        "axis": "C",
        "axes": ("C",),
        "starts": (1,),
        "ends": (1 << 40,),
        "steps": (1,),
        "starts_then": (0,),
        "ends_then": (1,),
        "steps_then": (1,),
    },
)
