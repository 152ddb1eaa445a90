"""Truth values, and the bits of integers."""

from __future__ import annotations

import numpy as np

from ops._elementwise import (
    INTEGERS,
    Array,
    Binary,
    Unary,
    binary,
    binary_from_1,
    numpy_binary,
    numpy_unary,
    unary,
)
from vtensor.operators import Elementwise, operator, param


@operator(
    "And",
    dims={"a": "*", "b": "*", "y": "*"},
    onnx=binary_from_1("And", lambda _: And()),
    traits=[Elementwise()],
)
class And(Binary):
    """Do both hold: y = a and b.

    A dim that one operand lacks, or has with size 1, is repeated along the other's.

    Dims:
        a, b: any    y: those of both
    Raises:
        DimError: a dim that both have has two sizes, and neither is 1.

    >>> from vtensor import VTensor
    >>> from vtensor.operators import Context
    >>> a = VTensor("bool", {"N": 2, "C": 3})
    >>> And().compute(Context(), a, VTensor("bool", {"C": 3})).summary()
    'bool N=2 C=3'

    Source: ONNX operator And, opset 7.
    """


@operator(
    "Or",
    dims={"a": "*", "b": "*", "y": "*"},
    onnx=binary_from_1("Or", lambda _: Or()),
    traits=[Elementwise()],
)
class Or(Binary):
    """Does one hold, or both: y = a or b.

    A dim that one operand lacks, or has with size 1, is repeated along the other's.

    Dims:
        a, b: any    y: those of both
    Raises:
        DimError: a dim that both have has two sizes, and neither is 1.

    >>> from vtensor import VTensor
    >>> from vtensor.operators import Context
    >>> a = VTensor("bool", {"N": 2, "C": 3})
    >>> Or().compute(Context(), a, VTensor("bool", {"C": 3})).summary()
    'bool N=2 C=3'

    Source: ONNX operator Or, opset 7.
    """


@operator(
    "Xor",
    dims={"a": "*", "b": "*", "y": "*"},
    onnx=binary_from_1("Xor", lambda _: Xor()),
    traits=[Elementwise()],
)
class Xor(Binary):
    """Does one hold, not both: y = a != b.

    A dim that one operand lacks, or has with size 1, is repeated along the other's.

    Dims:
        a, b: any    y: those of both
    Raises:
        DimError: a dim that both have has two sizes, and neither is 1.

    >>> from vtensor import VTensor
    >>> from vtensor.operators import Context
    >>> a = VTensor("bool", {"N": 2, "C": 3})
    >>> Xor().compute(Context(), a, VTensor("bool", {"C": 3})).summary()
    'bool N=2 C=3'

    Source: ONNX operator Xor, opset 7.
    """


@operator(
    "Not", dims={"x": "*", "y": "*"}, onnx=unary("Not", 1, lambda _: Not()), traits=[Elementwise()]
)
class Not(Unary):
    """Does it not hold: y = not x.

    Dims:
        x, y: any, the same

    >>> from vtensor import VTensor
    >>> from vtensor.operators import Context
    >>> Not().compute(Context(), VTensor("bool", {"N": 2, "C": 3})).summary()
    'bool N=2 C=3'

    Source: ONNX operator Not, opset 1.
    """


@operator(
    "BitwiseAnd",
    dims={"a": "*", "b": "*", "y": "*"},
    onnx=binary("BitwiseAnd", 18, lambda _: BitwiseAnd()),
    traits=[Elementwise()],
)
class BitwiseAnd(Binary):
    """The bits that both have: y = a & b.

    A dim that one operand lacks, or has with size 1, is repeated along the other's.

    Dims:
        a, b: any    y: those of both
    Raises:
        DimError: a dim that both have has two sizes, and neither is 1.

    >>> from vtensor import VTensor
    >>> from vtensor.operators import Context
    >>> a = VTensor("s32", {"N": 2, "C": 3})
    >>> BitwiseAnd().compute(Context(), a, VTensor("s32", {"C": 3})).summary()
    's32 N=2 C=3'

    Source: ONNX operator BitwiseAnd, opset 18.
    """


@operator(
    "BitwiseOr",
    dims={"a": "*", "b": "*", "y": "*"},
    onnx=binary("BitwiseOr", 18, lambda _: BitwiseOr()),
    traits=[Elementwise()],
)
class BitwiseOr(Binary):
    """The bits that one has, or both: y = a | b.

    A dim that one operand lacks, or has with size 1, is repeated along the other's.

    Dims:
        a, b: any    y: those of both
    Raises:
        DimError: a dim that both have has two sizes, and neither is 1.

    >>> from vtensor import VTensor
    >>> from vtensor.operators import Context
    >>> a = VTensor("s32", {"N": 2, "C": 3})
    >>> BitwiseOr().compute(Context(), a, VTensor("s32", {"C": 3})).summary()
    's32 N=2 C=3'

    Source: ONNX operator BitwiseOr, opset 18.
    """


@operator(
    "BitwiseXor",
    dims={"a": "*", "b": "*", "y": "*"},
    onnx=binary("BitwiseXor", 18, lambda _: BitwiseXor()),
    traits=[Elementwise()],
)
class BitwiseXor(Binary):
    """The bits that one has, not both: y = a ^ b.

    A dim that one operand lacks, or has with size 1, is repeated along the other's.

    Dims:
        a, b: any    y: those of both
    Raises:
        DimError: a dim that both have has two sizes, and neither is 1.

    >>> from vtensor import VTensor
    >>> from vtensor.operators import Context
    >>> a = VTensor("s32", {"N": 2, "C": 3})
    >>> BitwiseXor().compute(Context(), a, VTensor("s32", {"C": 3})).summary()
    's32 N=2 C=3'

    Source: ONNX operator BitwiseXor, opset 18.
    """


@operator(
    "BitwiseNot",
    dims={"x": "*", "y": "*"},
    onnx=unary("BitwiseNot", 18, lambda _: BitwiseNot()),
    traits=[Elementwise()],
)
class BitwiseNot(Unary):
    """The bits that it has not: y = ~x.

    Dims:
        x, y: any, the same

    >>> from vtensor import VTensor
    >>> from vtensor.operators import Context
    >>> BitwiseNot().compute(Context(), VTensor("s32", {"N": 2, "C": 3})).summary()
    's32 N=2 C=3'

    Source: ONNX operator BitwiseNot, opset 18.
    """


@operator(
    "BitShift",
    dims={"a": "*", "b": "*", "y": "*"},
    onnx=binary("BitShift", 11, lambda node: BitShift(node.attribute("direction", ""))),
    traits=[Elementwise()],
)
class BitShift(Binary):
    """Shift bits: y = a << b, or a >> b.

    A dim that one operand lacks, or has with size 1, is repeated along the other's.

    Dims:
        a, b: any    y: those of both
    Args:
        direction: "LEFT" is towards the larger.
    Raises:
        DimError: a dim that both have has two sizes, and neither is 1.

    >>> from vtensor import VTensor
    >>> from vtensor.operators import Context
    >>> a = VTensor("u8", {"N": 2, "C": 3})
    >>> BitShift("LEFT").compute(Context(), a, VTensor("u8", {"C": 3})).summary()
    'u8 N=2 C=3'

    Source: ONNX operator BitShift, opset 11.
    """

    direction: str = param(choices=("LEFT", "RIGHT"))


def _shift(op: BitShift, a: Array, b: Array) -> Array:
    result: Array = np.left_shift(a, b) if op.direction == "LEFT" else np.right_shift(a, b)
    return result


numpy_binary("And", lambda _, a, b: a & b, ("bool",))
numpy_binary("Or", lambda _, a, b: a | b, ("bool",))
numpy_binary("Xor", lambda _, a, b: a ^ b, ("bool",))
numpy_unary("Not", lambda _, x: ~x, ("bool",))
numpy_binary("BitwiseAnd", lambda _, a, b: a & b, INTEGERS)
numpy_binary("BitwiseOr", lambda _, a, b: a | b, INTEGERS)
numpy_binary("BitwiseXor", lambda _, a, b: a ^ b, INTEGERS)
numpy_unary("BitwiseNot", lambda _, x: ~x, INTEGERS)
numpy_binary("BitShift", _shift, INTEGERS)
