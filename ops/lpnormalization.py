"""Division by a norm along a dim."""

from __future__ import annotations

import numpy as np

from libdesc import invoker
from libdesc.numpy.arrays import FLOATS, wide
from ops._names import same_names
from ops._normalizations import positions, within
from ptensor import Layout, PTensor, lib_tagger
from vtensor.operators import Context, Cost, NodeReader, NodeWriter, Spelling, operator, param
from vtensor.tensor import VTensor


def _read(node: NodeReader) -> VTensor:
    x = node.input(0)
    axis = node.axis(int(node.attribute("axis", -1)), x)
    return node.add(LpNormalization(axis, int(node.attribute("p", 2))), x)


def _write(node: NodeWriter, op: LpNormalization) -> None:
    [x] = node.inputs
    node.emit("LpNormalization", node.operand(x), axis=list(x.dims).index(op.axis), p=op.p)


@operator(
    "LpNormalization",
    dims={"x": "*", "y": "*"},
    onnx=Spelling("LpNormalization", 1, _read, same_names, write=_write),
    traits=[Cost(3)],
)
class LpNormalization:
    """Divide by the sum of absolute values, or by the root of the sum of squares, along a dim.

    y = x / (sum over axis of |x|^p)^(1/p); where that is 0, so is y.

    Dims:
        x, y: any, the same
    Args:
        axis: the dim.
        p: 1 or 2.
    Raises:
        DimError: x has no such dim.
    Cost:
        3 operations an element: power, sum, quotient.

    >>> from vtensor.operators import Context
    >>> LpNormalization("C").compute(Context(), VTensor("f32", {"N": 2, "C": 64})).summary()
    'f32 N=2 C=64'

    Source: ONNX operator LpNormalization, opset 22.
    """

    axis: str = param()
    p: int = param(default=2, choices=(1, 2))

    def compute(self, ctx: Context, x: VTensor) -> VTensor:
        within(x, (self.axis,))
        y = VTensor(x.dtype, x.dims, ctx.output(0))
        ctx.dispatch(self, [x], [y])
        return y


@invoker("LpNormalization", library="numpy", dtypes=FLOATS, python=True)
def numpy_lpnormalization(ctx: Context, op: LpNormalization, x: VTensor, y: VTensor) -> None:
    src, dst = (PTensor(t).require(Layout.plain(x.dims)) for t in (x, y))
    if lib_tagger("numpy", [src], [dst]):
        return
    values = wide(src.data())
    norm = np.linalg.norm(values, op.p, axis=positions(x, (op.axis,))[0], keepdims=True)
    dst.data()[...] = values / np.where(norm == 0, 1, norm)
