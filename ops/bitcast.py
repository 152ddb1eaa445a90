"""The same bits read as another element type."""

from __future__ import annotations

from libdesc import invoker
from ops._names import same_names
from ptensor import Layout, PTensor, lib_tagger
from vtensor.errors import DTypeError
from vtensor.language.dtype import ITEMSIZE, bits, numpy_dtype
from vtensor.operators import Context, Elementwise, NodeReader, Spelling, operator, param
from vtensor.tensor import VTensor


def _read(node: NodeReader) -> VTensor:
    return node.add(BitCast(node.element_type("to")), node.input(0))


@operator(
    "BitCast",
    dims={"x": "*", "y": "*"},
    onnx=Spelling("BitCast", 26, _read, same_names),
    traits=[Elementwise()],
)
class BitCast:
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
        if bits(x.dtype) != bits(self.to):
            have, want = bits(x.dtype), bits(self.to)
            raise DTypeError(
                f"{ctx.op} {ctx.node!r}: {x.dtype} has {have} bits, {self.to} has {want}; to fix: "
                "name a type of as many"
            )
        y = VTensor(self.to, x.dims, ctx.output(0))
        ctx.dispatch(self, [x], [y])
        return y


@invoker("BitCast", library="numpy", python=True)
def numpy_bit_cast(ctx: Context, op: BitCast, x: VTensor, y: VTensor) -> None:
    src, dst = PTensor(x).require(Layout.ANY), PTensor(y).require(Layout.ANY)
    if lib_tagger("numpy", [src], [dst]):
        return
    dst.data()[...] = src.data().view(numpy_dtype(op.to))
