"""Sequences backwards, each as far as it goes."""

from __future__ import annotations

import numpy as np

from libdesc import invoker
from ops._names import same_names
from ptensor import Layout, PTensor, lib_tagger
from vtensor.errors import DimError, InputError
from vtensor.operators import Context, NodeReader, Spelling, operator, param
from vtensor.tensor import VTensor


def _read(node: NodeReader) -> VTensor:
    x = node.input(0)
    time, batch = (
        node.axis(int(node.attribute(name, default)), x)
        for name, default in (("time_axis", 0), ("batch_axis", 1))
    )
    return node.add(ReverseSequence(time, batch), x, node.input(1, batch))


@operator(
    "ReverseSequence",
    dims={"x": "*", "lengths": "*", "y": "*"},
    onnx=Spelling("ReverseSequence", 10, _read, same_names),
)
class ReverseSequence:
    """The first elements of each sequence in reverse, the others as they are.

    y[time] = x[length - 1 - time] where time < length, and x[time] elsewhere.

    Dims:
        x, y: time batch and any others, the same    lengths: batch
    Args:
        time: the dim along which elements follow one another.
        batch: the dim whose places have lengths of their own.
    Raises:
        DimError: x lacks one of them, or lengths has other dims.
        InputError: in a run: a sequence is longer than x.

    >>> from vtensor.operators import Context
    >>> x, lengths = VTensor("f32", {"T": 9, "N": 2, "F": 3}), VTensor("s64", {"N": 2})
    >>> ReverseSequence("T", "N").compute(Context(), x, lengths).summary()
    'f32 T=9 N=2 F=3'

    Source: ONNX operator ReverseSequence, opset 10.
    """

    time: str = param()
    batch: str = param()

    def compute(self, ctx: Context, x: VTensor, lengths: VTensor) -> VTensor:
        if self.time == self.batch or dict(lengths.dims) != {self.batch: x.size(self.batch)}:
            raise DimError(f"lengths must have the dim {self.batch} of x, which is not {self.time}")
        x.size(self.time)
        y = VTensor(x.dtype, x.dims, ctx.output(0))
        ctx.dispatch(self, [x, lengths], [y])
        return y


@invoker("ReverseSequence", library="numpy", dtypes={"lengths": ("s64", "s32")}, python=True)
def numpy_reversesequence(
    ctx: Context, op: ReverseSequence, x: VTensor, lengths: VTensor, y: VTensor
) -> None:
    order = Layout.plain((op.batch, op.time, *(d for d in x.dims if d not in (op.batch, op.time))))
    src, dst = PTensor(x).require(order), PTensor(y).require(order)
    rows = PTensor(lengths).require(Layout.plain((op.batch,)))
    if lib_tagger("numpy", [src, rows], [dst]):
        return
    many, time = rows.data()[:, np.newaxis], np.arange(x.size(op.time))
    if many.size and not 0 <= many.min() <= many.max() <= len(time):
        raise InputError(f"ReverseSequence: lengths {many.ravel()} along {op.time}={len(time)}")
    places = np.where(time < many, many - 1 - time, time)
    dst.data()[...] = src.data()[np.arange(len(places))[:, np.newaxis], places]
