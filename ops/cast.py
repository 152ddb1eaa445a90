"""Another element type."""

from __future__ import annotations

from ops._elementwise import ALL, numpy_unary
from ops._names import same_names
from ops.identity import Identity
from vtensor.operators import Context, NodeReader, Spelling, operator, param
from vtensor.tensor import VTensor

#: Element types by ONNX's numbers (TensorProto.DataType).
_TYPES = {
    1: "f32",
    2: "u8",
    3: "s8",
    4: "u16",
    5: "s16",
    6: "s32",
    7: "s64",
    9: "bool",
    10: "f16",
    11: "f64",
    12: "u32",
    13: "u64",
    16: "bf16",
}


def _read(node: NodeReader) -> VTensor:
    number = int(node.attribute("to", 0))
    if number not in _TYPES:
        raise node.refuse(f"it casts to ONNX's element type {number}, which VTensor does not have")
    return _cast(node, _TYPES[number])


def _read_like(node: NodeReader) -> VTensor:
    return _cast(node, node.input(1).dtype)


def _cast(node: NodeReader, to: str) -> VTensor:
    x = node.input(0)
    return node.add(Identity() if x.dtype == to else Cast(to), x)


@operator(
    "Cast",
    dims={"x": "*", "y": "*"},
    elementwise=True,
    onnx=[
        Spelling("Cast", 6, _read, same_names),
        Spelling("CastLike", 15, _read_like, same_names),
    ],
)
class Cast:
    """The same values in another element type.

    Fractions are cut off on the way to integers and rounded to the nearest on the way to narrower
    floats; a truth value is 1 or 0, and what is not 0 is true.

    Dims:
        x, y: any, the same
    Args:
        to: the element type.

    >>> from vtensor.operators import Context
    >>> Cast("s32").compute(Context(), VTensor("f32", {"N": 2, "C": 3})).summary()
    's32 N=2 C=3'

    Source: ONNX operators Cast, opset 13, and CastLike, opset 15.
    """

    to: str = param(choices=tuple(_TYPES.values()))

    def compute(self, ctx: Context, x: VTensor) -> VTensor:
        y = VTensor(self.to, x.dims, ctx.output(0))
        ctx.dispatch(self, [x], [y])
        return y


numpy_unary("Cast", lambda _, x: x, ALL)
