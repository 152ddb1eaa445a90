"""The same bits read as another element type."""

from __future__ import annotations

from ops._elementwise import Unary, elementwise
from ops._names import same_names
from vtensor.errors import DTypeError
from vtensor.language.dtype import ITEMSIZE, bits, numpy_dtype
from vtensor.operators import Context, NodeReader, Spelling, param
from vtensor.tensor import VTensor


def _read(node: NodeReader) -> VTensor:
    return node.add(BitCast(node.element_type("to")), node.input(0))


@elementwise(
    "BitCast",
    Spelling("BitCast", 26, _read, same_names),
    lambda op, x: x.view(numpy_dtype(op.to)),
    {},
    widen=False,
)
class BitCast(Unary):
    """The same bits in another element type of as many bits.

    Dims:
        x, y: any, the same
    Args:
        to: the element type.
    Raises:
        DTypeError: it has another number of bits than x's.

    >>> from vtensor.operators import Context
    >>> BitCast("u32").compute(Context(), VTensor("f32", {"N": 2})).summary()
    'u32 N=2'

    Source: ONNX operator BitCast, opset 26.
    """

    to: str = param(choices=tuple(ITEMSIZE))

    def compute(self, ctx: Context, x: VTensor) -> VTensor:
        if (have := bits(x.dtype)) != (want := bits(self.to)):
            text = f"{ctx.op} {ctx.node!r}: {x.dtype} has {have} bits, {self.to} has {want}"
            raise DTypeError(f"{text}; to fix: name a type of as many")
        return super().compute(ctx, x)
