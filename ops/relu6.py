"""Rectified linear units that end at 6."""

from __future__ import annotations

import numpy as np

from libdesc import invoker, onednn
from libdesc.numpy.arrays import NUMBERS
from ops._names import same_names
from ptensor import Layout, PTensor, lib_tagger
from vtensor.operators import Context, NodeReader, Spelling, operator
from vtensor.tensor import VTensor


def _bound(node: NodeReader, index: int, name: str) -> float | None:
    """A bound of Clip: an attribute up to opset 10, a constant input since."""
    if node.opset < 11:
        value = node.attribute(name)
        return None if value is None else float(value)
    return float(node.constant(index)) if node.has(index) else None


def _read(node: NodeReader) -> VTensor:
    low, high = _bound(node, 1, "min"), _bound(node, 2, "max")
    if (low, high) != (0, 6):
        raise node.refuse(f"it clips to [{low}, {high}]; only [0, 6] is taken")
    return node.add(Relu6(), node.input(0))


@operator(
    "Relu6",
    dims={"x": "*", "y": "*"},
    elementwise=True,
    onnx=Spelling("Clip", 6, _read, same_names),
)
class Relu6:
    """Clip to the range from 0 to 6: y = min(max(x, 0), 6); NaN stays NaN.

    Dims:
        x, y: any, the same

    >>> from vtensor.operators import Context
    >>> Relu6().compute(Context(), VTensor("f32", {"N": 2, "C": 3})).summary()
    'f32 N=2 C=3'

    Source: ONNX operator Clip with the bounds 0 and 6, opset 13.
    """

    def compute(self, ctx: Context, x: VTensor) -> VTensor:
        y = VTensor(x.dtype, x.dims, ctx.output(0))
        ctx.dispatch(self, [x], [y])
        return y


@invoker("Relu6", library="onednn", dtypes=["f32", "bf16", "f16"])
def onednn_relu6(ctx: Context, op: Relu6, x: VTensor, y: VTensor) -> None:  # noqa: ARG001
    src, dst = PTensor(x).require(Layout.ANY), PTensor(y).require(Layout.ANY)
    clip = onednn.Eltwise("clip", src, dst, alpha=0.0, beta=6.0, post=ctx.post)
    if lib_tagger("onednn", [src], [dst]):
        return
    clip()


@invoker("Relu6", library="numpy", dtypes=NUMBERS, python=True)
def numpy_relu6(ctx: Context, op: Relu6, x: VTensor, y: VTensor) -> None:  # noqa: ARG001
    src, dst = PTensor(x).require(Layout.ANY), PTensor(y).require(Layout.ANY)
    if lib_tagger("numpy", [src], [dst]):
        return
    np.clip(src.data(), 0, 6, out=dst.data())
