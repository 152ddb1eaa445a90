"""HardSwish, an activation function."""

from __future__ import annotations

import numpy as np

from libdesc import eigen, invoker, onednn, rewrite
from libdesc.numpy import elementwise
from libdesc.numpy.arrays import FLOATS, Array
from libdesc.routine import Routine
from ops._names import same_names
from ops._writing import write_aligned
from vtensor.operators import Context, Elementwise, NodeReader, Pointwise, Spelling, operator
from vtensor.tensor import VTensor


def _read(node: NodeReader) -> VTensor:
    return node.add(HardSwish(), node.input(0))


@operator(
    "HardSwish",
    dims={"x": "*", "y": "*"},
    onnx=Spelling("HardSwish", 14, _read, same_names, write=write_aligned("HardSwish")),
    traits=[Elementwise(), Pointwise(lambda _, x: x * (x * (1 / 6) + 0.5).max(0).min(1))],
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


@invoker("HardSwish", library="eigen", dtypes=eigen.TYPES, inplace=["x"])
def eigen_hardswish(ctx: Context, op: HardSwish, x: VTensor, y: VTensor) -> Routine:
    return eigen.pointwise(op, [x], y, ctx.followers)


@elementwise("HardSwish", dtypes=FLOATS)
def numpy_hardswish(op: HardSwish, x: Array) -> Array:
    return x * np.clip(x / 6 + 1 / 2, 0, 1)


rewrite(
    "hardswish",
    "x max(0, min(6, x + 3)) / 6",
    f"""
    six = Relu6(Add(x, 3)) | Clip(Add(x, 3), low=0, high=6)
    Div(Mul(x, six), 6) | Mul(x, six, {1 / 6}) | Mul(x, HardSigmoid(x, alpha={1 / 6}))
    """,
    "HardSwish(x)",
)
