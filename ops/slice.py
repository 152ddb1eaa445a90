"""A box of a tensor: every so manieth element from here to there."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from libdesc import invoker, onednn
from libdesc.routine import Routine
from ops._names import axes_of, same_names
from ops._normalizations import positions
from ptensor import Layout, PTensor, lib_tagger
from vtensor.errors import DimError
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


def _read(node: NodeReader) -> VTensor:
    x = node.input(0)
    if node.opset < 10:
        starts, ends = node.attribute("starts"), node.attribute("ends")
        axes, steps = node.attribute("axes"), None
    else:
        starts, ends = node.constant(1).tolist(), node.constant(2).tolist()
        axes = node.constant(3).tolist() if node.has(3) else None
        steps = node.constant(4).tolist() if node.has(4) else None
    axes = axes_of(node, x, list(range(len(starts))) if axes is None else axes)
    return node.add(Slice(axes, tuple(starts), tuple(ends), tuple(steps or (1,) * len(starts))), x)


def _read_split(node: NodeReader) -> Sequence[VTensor]:
    x = node.input(0)
    axis = node.axis(int(node.attribute("axis", 0)), x)
    cuts = [0]
    for size in _parts(node, x.size(axis)):
        cuts.append(cuts[-1] + int(size))
    if cuts[-1] != x.size(axis) or sorted(cuts) != cuts:
        raise node.refuse(f"its parts end at {cuts[1:]}, the input has {axis}={x.size(axis)}")
    return [node.add(Slice((axis,), (start,), (end,), (1,)), x) for start, end in pairwise(cuts)]


def _split_names(node: Naming) -> None:
    output = 0
    while node.rank(f"y{output}"):
        for position in range(node.rank("x0")):
            node.same("x0", position, f"y{output}", position)
        output += 1


def _parts(node: NodeReader, size: int) -> Sequence[int]:
    """The sizes of a split's outputs: given, or as even as they can be, the last the smallest."""
    given = node.attribute("split") if node.opset < 13 else None
    if node.opset >= 13 and node.has(1):
        given = node.constant(1).tolist()
    if given:
        return list(given)
    count = int(node.attribute("num_outputs", 0)) or node.output_count
    if node.opset < 18 and size % count:
        raise node.refuse(f"{size} elements cannot be split evenly in {count}")
    part = -(-size // count)
    return [max(min(part, size - i * part), 0) for i in range(count)]


def _write(node: NodeWriter, op: Slice) -> None:
    [x] = node.inputs
    rows = (op.starts, op.ends, positions(x, op.axes), op.steps)
    node.emit("Slice", node.operand(x), *map(node.constant, rows))


@operator(
    "Slice",
    dims={"x": "*", "y": "*"},
    onnx=[
        Spelling("Slice", 1, _read, same_names, write=_write),
        Spelling("Split", 2, _read_split, _split_names),
    ],
    traits=[Structural("slice")],
)
class Slice:
    """Every ``step``-th element from ``start`` up to, and without, ``end``, along some dims.

    A start or end below 0 counts from the behind; what lies outside is brought to the border.

    Dims:
        x, y: any, the same
    Args:
        axes: the dims that are cut; the others stay whole.
        starts, ends: of each of them, in elements.
        steps: of each; below 0 runs backwards, from ``start`` down to, and without, ``end``.
    Raises:
        DimError: x has no such dim, one is named twice, a step is 0, or rows differ in length.

    >>> from vtensor.operators import Context
    >>> x = VTensor("f32", {"N": 1, "C": 64, "H": 7, "W": 7})
    >>> Slice(("C", "W"), (32, -1), (64, -99), (1, -2)).compute(Context(), x).summary()
    'f32 N=1 C=32 H=7 W=4'

    Source: ONNX operators Slice, opset 13, and Split, opset 18, whose outputs are slices.
    """

    axes: tuple[str, ...] = param()
    starts: tuple[int, ...] = param()
    ends: tuple[int, ...] = param()
    steps: tuple[int, ...] = param()

    def compute(self, ctx: Context, x: VTensor) -> VTensor:
        sizes = {dim: len(places) for dim, places in _places(self, x).items()}
        y = VTensor(x.dtype, {**x.dims, **sizes}, ctx.output(0))
        ctx.dispatch(self, [x], [y])
        return y


def _places(op: Slice, x: VTensor) -> dict[str, range]:
    """Which elements are taken, by dim."""
    rows = (op.starts, op.ends, op.steps)
    if any(len(row) != len(op.axes) for row in rows) or len(set(op.axes)) < len(op.axes):
        raise DimError("a start, an end and a step must be given for each axis, each axis once")
    if 0 in op.steps:
        raise DimError(f"steps {op.steps}: a step of 0 goes nowhere")
    places = {}
    for dim, start, end, step in zip(op.axes, *rows, strict=True):
        size = x.size(dim)
        start, end = (place + size if place < 0 else place for place in (start, end))
        low, high = (0, size) if step > 0 else (-1, size - 1)
        first = min(max(start, 0), high)
        places[dim] = range(first, min(max(end, low), high), step)
    return places


def _forward(op: Slice, x: VTensor, y: VTensor) -> bool | str:
    return min(op.steps, default=1) > 0 or "runs forward"


@invoker("Slice", library="onednn", dtypes=["f32", "bf16", "f16"], when=_forward)
def onednn_slice(ctx: Context, op: Slice, x: VTensor, y: VTensor) -> Routine:
    return onednn.Slice(x, y, _places(op, x))


@invoker("Slice", library="numpy", python=True)
def numpy_slice(ctx: Context, op: Slice, x: VTensor, y: VTensor) -> None:
    order = Layout.plain(x.dims)
    src, dst = PTensor(x).require(order), PTensor(y).require(order)
    if lib_tagger("numpy", [src], [dst]):
        return
    places = _places(op, x)
    index = tuple(
        slice(p.start, p.stop if p.stop >= 0 else None, p.step)
        for p in (places.get(dim, range(x.size(dim))) for dim in order.dims)
    )
    dst.data()[...] = src.data()[index]
