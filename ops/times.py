"""Multiplication by a number."""

from __future__ import annotations

from ops._elementwise import NUMBERS, Unary, elementwise
from vtensor.operators import Affine, NodeWriter, param, written


def _write(node: NodeWriter, op: Times) -> None:
    [x] = node.inputs
    if x.dtype[0] in "su" and op.factor != int(op.factor):
        raise node.refuse(f"{x.dtype} times {op.factor}, which is no integer")
    node.emit("Mul", node.operand(x), node.constant(op.factor, x.dtype))


@elementwise(
    "Times",
    written("Mul", 7, _write),
    lambda op, x: x * op.factor,
    NUMBERS,
    widen=False,
    onednn=("linear", "factor"),
    traits=[Affine(lambda op, _: (op.factor, 0))],
)
class Times(Unary):
    """Multiply each element by a number: y = factor * x; integers are rounded towards zero.

    Dims:
        x, y: any, the same
    Args:
        factor: the number.

    >>> from vtensor import VTensor
    >>> from vtensor.operators import Context
    >>> Times(0.5).compute(Context(), VTensor("f32", {"N": 2, "C": 3})).summary()
    'f32 N=2 C=3'

    Source: ONNX operator Gemm, whose alpha and beta it is.
    """

    factor: float = param()
