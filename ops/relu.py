"""Rectified linear units."""

from __future__ import annotations

import math

import numpy as np

from libdesc import eigen, invoker, onednn
from libdesc.numpy.arrays import NUMBERS
from libdesc.routine import Routine
from ops._names import same_names
from ops._writing import write_aligned
from ptensor import Layout, PTensor, lib_tagger
from vtensor.operators import Clamp, Context, Elementwise, NodeReader, Post, Spelling, operator
from vtensor.tensor import VTensor


def _read(node: NodeReader) -> VTensor:
    return node.add(Relu(), node.input(0))


@operator(
    "Relu",
    dims={"x": "*", "y": "*"},
    onnx=Spelling("Relu", 1, _read, same_names, write=write_aligned("Relu")),
    traits=[Elementwise(), Post(lambda _: Clamp(0, math.inf))],
)
class Relu:
    """Replace what is negative by 0: y = max(x, 0); NaN stays NaN.

    Dims:
        x, y: any, the same

    >>> from vtensor.operators import Context
    >>> Relu().compute(Context(), VTensor("f32", {"N": 2, "C": 3})).summary()
    'f32 N=2 C=3'

    Source: ONNX operator Relu, opset 14.
    """

    def compute(self, ctx: Context, x: VTensor) -> VTensor:
        y = VTensor(x.dtype, x.dims, ctx.output(0))
        ctx.dispatch(self, [x], [y])
        return y


@invoker("Relu", library="onednn", dtypes=["f32", "bf16", "f16"], inplace=["x"])
def onednn_relu(ctx: Context, op: Relu, x: VTensor, y: VTensor) -> Routine:
    return onednn.Clip(x, y, low=0.0)


@invoker("Relu", library="eigen", dtypes=eigen.DTYPES, inplace=["x"])
def eigen_relu(ctx: Context, op: Relu, x: VTensor, y: VTensor) -> Routine:
    return eigen.pointwise(lambda value: value.max(0), [x], y)


@invoker("Relu", library="numpy", dtypes=NUMBERS, python=True)
def numpy_relu(ctx: Context, op: Relu, x: VTensor, y: VTensor) -> None:
    src, dst = PTensor(x).require(Layout.ANY), PTensor(y).require(Layout.ANY)
    if lib_tagger("numpy", [src], [dst]):
        return
    np.maximum(src.data(), 0, out=dst.data())
