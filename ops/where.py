"""A choice between two tensors, element by element."""

from __future__ import annotations

import numpy as np

from libdesc import invoker
from libdesc.numpy.arrays import aligned, finish
from ops._names import broadcast_input, broadcast_names
from ops._writing import write_aligned
from ptensor import Layout, PTensor, lib_tagger
from vtensor.language.dims import broadcast
from vtensor.operators import Context, Elementwise, NodeReader, Spelling, operator
from vtensor.tensor import VTensor


def _read(node: NodeReader) -> VTensor:
    return node.add(Where(), *(broadcast_input(node, i) for i in range(3)))


@operator(
    "Where",
    dims={"c": "*", "a": "*", "b": "*", "y": "*"},
    onnx=Spelling("Where", 9, _read, broadcast_names, write=write_aligned("Where")),
    traits=[Elementwise()],
)
class Where:
    """Take one of two tensors' elements: y = a if c else b.

    A dim that an operand lacks, or has with size 1, is repeated along the others'.

    Dims:
        c, a, b: any    y: those of all three
    Raises:
        DimError: a dim has two sizes, and neither is 1.

    >>> from vtensor.operators import Context
    >>> c, a = VTensor("bool", {"N": 2, "C": 1}), VTensor("f32", {"C": 3})
    >>> Where().compute(Context(), c, a, VTensor("f32", {})).summary()
    'f32 N=2 C=3'

    Source: ONNX operator Where, opset 16.
    """

    def compute(self, ctx: Context, c: VTensor, a: VTensor, b: VTensor) -> VTensor:
        y = VTensor(a.dtype, broadcast(c.dims, a.dims, b.dims), ctx.output(0))
        ctx.dispatch(self, [c, a, b], [y])
        return y


@invoker("Where", library="numpy", dtypes={"c": ["bool"]}, python=True)
def numpy_where(ctx: Context, op: Where, c: VTensor, a: VTensor, b: VTensor, y: VTensor) -> None:
    which, yes, no, dst = (PTensor(t).require(Layout.ANY) for t in (c, a, b, y))
    if lib_tagger("numpy", [which, yes, no], [dst]):
        return
    dst.data()[...] = np.where(aligned(which, dst), aligned(yes, dst), aligned(no, dst))
    finish(dst)
