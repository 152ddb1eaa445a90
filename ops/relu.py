"""Rectified linear units."""

from __future__ import annotations

import numpy as np

from libdesc import invoker
from ptensor import Layout, PTensor, lib_tagger
from vtensor.operators import Context, Naming, NodeReader, Spelling, operator
from vtensor.tensor import VTensor


def _names(node: Naming) -> None:
    for position in range(node.rank("x0")):
        node.same("x0", position, "y0", position)


def _read(node: NodeReader) -> VTensor:
    return node.add(Relu(), node.input(0))


@operator(
    "Relu", dims={"x": "*", "y": "*"}, elementwise=True, onnx=Spelling("Relu", 1, _read, _names)
)
class Relu:
    """Replace what is negative by 0: y = max(x, 0); NaN stays NaN.

    Dims:
        x, y: any, the same

    >>> Relu()
    Relu()

    Source: ONNX operator Relu, opset 14.
    """

    def compute(self, ctx: Context, x: VTensor) -> VTensor:
        y = VTensor(x.dtype, x.dims, ctx.output(0))
        ctx.dispatch(self, [x], [y])
        return y


@invoker("Relu", library="numpy", python=True)
def numpy_relu(ctx: Context, op: Relu, x: VTensor, y: VTensor) -> None:  # noqa: ARG001
    src, dst = PTensor(x).require(Layout.ANY), PTensor(y).require(Layout.ANY)
    if lib_tagger("numpy", [src], [dst]):
        return
    np.maximum(src.data(), 0, out=dst.data())
