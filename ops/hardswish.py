"""A rectifier of mobile networks, smooth enough and cheap."""

from __future__ import annotations

import numpy as np

from libdesc import eigen, invoker, onednn
from libdesc.numpy.arrays import FLOATS, wide
from libdesc.routine import Routine
from ops._elementwise import unary
from ptensor import Layout, PTensor, lib_tagger
from vtensor.operators import Context, Elementwise, operator
from vtensor.tensor import VTensor


@operator(
    "HardSwish",
    dims={"x": "*", "y": "*"},
    onnx=unary("HardSwish", 14, lambda _: HardSwish()),
    traits=[Elementwise()],
)
class HardSwish:
    """Scale by a sigmoid of straight lines: y = x * max(0, min(1, x / 6 + 1 / 2)).

    Dims:
        x, y: any, the same

    >>> from vtensor.operators import Context
    >>> HardSwish().compute(Context(), VTensor("f32", {"N": 2, "C": 3})).summary()
    'f32 N=2 C=3'

    Source: ONNX operator HardSwish, opset 22.
    """

    def compute(self, ctx: Context, x: VTensor) -> VTensor:
        y = VTensor(x.dtype, x.dims, ctx.output(0))
        ctx.dispatch(self, [x], [y])
        return y


@invoker("HardSwish", library="onednn", dtypes=["f32", "bf16", "f16"], inplace=["x"])
def onednn_hardswish(ctx: Context, op: HardSwish, x: VTensor, y: VTensor) -> Routine:
    return onednn.Eltwise("hardswish", x, y, 1 / 6, 1 / 2)


@invoker("HardSwish", library="eigen", dtypes=eigen.DTYPES, inplace=["x"])
def eigen_hardswish(ctx: Context, op: HardSwish, x: VTensor, y: VTensor) -> Routine:
    return eigen.pointwise(lambda value: value * (value / 6 + 1 / 2).min(1).max(0), [x], y)


@invoker("HardSwish", library="numpy", dtypes=FLOATS, python=True)
def numpy_hardswish(ctx: Context, op: HardSwish, x: VTensor, y: VTensor) -> None:
    src, dst = PTensor(x).require(Layout.ANY), PTensor(y).require(Layout.ANY)
    if lib_tagger("numpy", [src], [dst]):
        return
    values = wide(src.data())
    with np.errstate(invalid="ignore"):  # the formula's 0 * -inf is NaN
        dst.data()[...] = values * np.clip(values / 6 + 1 / 2, 0, 1)
