"""A cache with new elements written into it."""

from __future__ import annotations

import numpy as np

from libdesc import invoker
from ops._names import same_names
from ops.gather import checked
from ptensor import Layout, PTensor, lib_tagger
from vtensor.errors import DimError
from vtensor.operators import Context, NodeReader, Spelling, operator, param
from vtensor.tensor import VTensor


def _read(node: NodeReader) -> VTensor:
    past = node.input(0)
    axis, batch = node.axis(int(node.attribute("axis", -2)), past), node.axis(0, past)
    op = TensorScatter(axis, batch, node.attribute("mode", "linear") == "circular")
    start = [node.input(2, batch)] if node.has(2) else []
    return node.add(op, past, node.input(1, " ".join(past.dims)), *start)


@operator(
    "TensorScatter",
    dims={"past": "*", "update": "*", "start": "*", "y": "*"},
    onnx=Spelling("TensorScatter", 24, _read, same_names),
)
class TensorScatter:
    """Write a row of elements into each of a batch of caches, from a place of its own on.

    y is past, but for y[N, start[N] + t] = update[N, t].

    Dims:
        past, y: axis batch and any others, the same    update: the same, no longer along ``axis``
        start (or none, for 0): batch
    Args:
        axis: the dim along which elements follow one another.
        batch: the dim whose places start at places of their own.
        circular: beyond the last element comes the first.
    Raises:
        DimError: past lacks one of the dims, or update or start have others.
        InputError: in a run: a place lies outside.

    >>> from vtensor.operators import Context
    >>> past, new = (VTensor("f32", {"N": 2, "T": size, "F": 8}) for size in (9, 1))
    >>> TensorScatter("T", "N").compute(Context(), past, new, VTensor("s64", {"N": 2})).summary()
    'f32 N=2 T=9 F=8'

    Source: ONNX operator TensorScatter, opset 24.
    """

    axis: str = param()
    batch: str = param()
    circular: bool = param(default=False)

    def compute(self, ctx: Context, past: VTensor, update: VTensor, *start: VTensor) -> VTensor:
        long = past.size(self.axis)
        if {**update.dims, self.axis: long} != past.dims or update.size(self.axis) > long:
            raise DimError(f"update must have past's sizes, but for fewer along {self.axis}")
        own = [{self.batch: past.size(self.batch)}][: len(start)]
        if self.axis == self.batch or [dict(one.dims) for one in start] != own:
            raise DimError(f"there may be one start, of the dim {self.batch}")
        y = VTensor(past.dtype, past.dims, ctx.output(0))
        ctx.dispatch(self, [past, update, *start], [y])
        return y


@invoker("TensorScatter", library="numpy", dtypes={"start": ["s64"]}, python=True)
def numpy_tensorscatter(
    ctx: Context, op: TensorScatter, past: VTensor, update: VTensor, *rest: VTensor
) -> None:
    others = [dim for dim in past.dims if dim not in (op.batch, op.axis)]
    order = Layout.plain((op.batch, op.axis, *others))
    src, new, dst = (PTensor(t).require(order) for t in (past, update, rest[-1]))
    starts = [PTensor(t).require(Layout.plain((op.batch,))) for t in rest[:-1]]
    if lib_tagger("numpy", [src, new, *starts], [dst]):
        return
    size, batch = past.size(op.axis), np.arange(past.size(op.batch))[:, np.newaxis]
    places = np.arange(update.size(op.axis)) + sum(t.data()[:, np.newaxis] for t in starts)
    places = places % size if op.circular else checked(places, size, "TensorScatter", op.axis)
    dst.data()[...] = src.data()
    dst.data()[batch, places] = new.data()
