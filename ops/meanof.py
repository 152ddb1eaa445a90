"""The mean of several tensors."""

from __future__ import annotations

import numpy as np

from libdesc import invoker
from libdesc.numpy.arrays import FLOATS, aligned, finish, wide
from ops._names import broadcast_input, broadcast_names
from ops._writing import write_aligned
from ptensor import Layout, PTensor, lib_tagger
from vtensor.language.dims import broadcast
from vtensor.operators import Context, Elementwise, NodeReader, Spelling, operator
from vtensor.tensor import VTensor


def _read(node: NodeReader) -> VTensor:
    return node.add(MeanOf(), *(broadcast_input(node, i) for i in range(len(node.inputs))))


@operator(
    "MeanOf",
    dims={"x": "*", "y": "*"},
    onnx=Spelling("Mean", 6, _read, broadcast_names, write=write_aligned("Mean")),
    traits=[Elementwise()],
)
class MeanOf:
    """The mean of several tensors, dims meeting by name: y = (x0 + x1 + ...) / number of them.

    A dim that an operand lacks, or has with size 1, is repeated along the others'.

    Dims:
        x: any    y: those of all
    Raises:
        DimError: a dim has two sizes, and neither is 1.

    >>> from vtensor.operators import Context
    >>> x = VTensor("f32", {"N": 2, "C": 3})
    >>> MeanOf().compute(Context(), x, x, VTensor("f32", {"C": 1})).summary()
    'f32 N=2 C=3'

    Source: ONNX operator Mean, opset 13.
    """

    def compute(self, ctx: Context, *x: VTensor) -> VTensor:
        y = VTensor(x[0].dtype, broadcast(*(each.dims for each in x)), ctx.output(0))
        ctx.dispatch(self, x, [y])
        return y


@invoker("MeanOf", library="numpy", dtypes=FLOATS, python=True)
def numpy_meanof(ctx: Context, op: MeanOf, *operands: VTensor) -> None:
    *sources, dst = (PTensor(t).require(Layout.ANY) for t in operands)
    if lib_tagger("numpy", sources, [dst]):
        return
    total = np.zeros_like(wide(dst.data()))
    for source in sources:
        total += wide(aligned(source, dst))
    dst.data()[...] = total / len(sources)
    finish(dst)
