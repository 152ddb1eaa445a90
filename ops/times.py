"""Multiplication by a number."""

from __future__ import annotations

from libdesc import invoker, onednn
from libdesc.numpy.arrays import NUMBERS
from libdesc.routine import Routine
from ptensor import Layout, PTensor, lib_tagger
from vtensor.operators import Affine, Context, Elementwise, NodeWriter, operator, param, written
from vtensor.tensor import VTensor


def _write(node: NodeWriter, op: Times) -> None:
    [x] = node.inputs
    if x.dtype[0] in "su" and op.factor != int(op.factor):
        raise node.refuse(f"{x.dtype} times {op.factor}, which is no integer")
    node.emit("Mul", node.operand(x), node.constant(op.factor, x.dtype))


@operator(
    "Times",
    dims={"x": "*", "y": "*"},
    onnx=written("Mul", 7, _write),
    traits=[Elementwise(), Affine(lambda op, _: (op.factor, 0))],
)
class Times:
    """Multiply each element by a number: y = factor * x; integers are rounded towards zero.

    Dims:
        x, y: any, the same
    Args:
        factor: the number.

    >>> from vtensor.operators import Context
    >>> Times(0.5).compute(Context(), VTensor("f32", {"N": 2, "C": 3})).summary()
    'f32 N=2 C=3'

    Source: ONNX operator Gemm, whose alpha and beta it is.
    """

    factor: float = param()

    def compute(self, ctx: Context, x: VTensor) -> VTensor:
        y = VTensor(x.dtype, x.dims, ctx.output(0))
        ctx.dispatch(self, [x], [y])
        return y


@invoker("Times", library="onednn", dtypes=["f32", "bf16", "f16"], inplace=["x"])
def onednn_times(ctx: Context, op: Times, x: VTensor, y: VTensor) -> Routine:
    return onednn.Eltwise("linear", x, y, alpha=float(op.factor))


@invoker("Times", library="numpy", dtypes=NUMBERS, python=True)
def numpy_times(ctx: Context, op: Times, x: VTensor, y: VTensor) -> None:
    src, dst = PTensor(x).require(Layout.ANY), PTensor(y).require(Layout.ANY)
    if lib_tagger("numpy", [src], [dst]):
        return
    dst.data()[...] = src.data() * op.factor
