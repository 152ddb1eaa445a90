"""Comparisons, tests for NaN and infinity, operations on truth values and on bits."""

from __future__ import annotations

from math import inf
from operator import and_, ge, gt, inv, le, lt, or_, xor

import numpy as np

from ops._elementwise import ALL, FLOATS, INTEGERS, Array, Binary, Unary, binary, elementwise, unary
from vtensor.language.dtype import NARROW_FLOATS
from vtensor.operators import Expression, Opaque, param

_DTYPES = (*FLOATS, *NARROW_FLOATS)

Equal = binary(
    "Equal",
    "Compare for equality: y = a == b",
    (1, 19),
    np.equal,
    ALL,
    "bool",
    expression=Expression.equals,
    traits=[Opaque()],
)
Greater = binary("Greater", "Compare: y = a > b", (1, 13), np.greater, to="bool", expression=gt)
Less = binary("Less", "Compare: y = a < b", (1, 13), np.less, to="bool", expression=lt)
GreaterOrEqual = binary(
    "GreaterOrEqual",
    "Compare: y = a >= b",
    (12, 16),
    np.greater_equal,
    to="bool",
    expression=ge,
)
LessOrEqual = binary(
    "LessOrEqual",
    "Compare: y = a <= b",
    (12, 16),
    np.less_equal,
    to="bool",
    expression=le,
)
IsNaN = unary(
    "IsNaN",
    "Test for NaN: y = true where x is NaN",
    (9, 20),
    np.isnan,
    _DTYPES,
    "bool",
    expression=lambda x: x.apply("isnan"),
)


def _infinite(op: IsInf, x: Array) -> Array:
    signs = (x > 0) & op.detect_positive | (x < 0) & op.detect_negative
    return np.asarray(np.isinf(x) & signs)


def _is_infinite(op: IsInf, x: Expression) -> Expression:
    above, below = x.equals(inf), x.equals(-inf)
    if op.detect_positive and op.detect_negative:
        return above | below
    return above if op.detect_positive else below & below.equals(float(op.detect_negative))


@elementwise("IsInf", 10, _infinite, _DTYPES, expression=_is_infinite)
class IsInf(Unary):
    """Test for infinity: y = true where x is infinite.

    Dims:
        x, y: any, the same
    Args:
        detect_positive: False makes y false for positive infinity.
        detect_negative: False makes y false for negative infinity.

    >>> from vtensor import VTensor
    >>> from vtensor.operators import Context
    >>> IsInf().compute(Context(), VTensor("f32", {"N": 2, "C": 3})).summary()
    'bool N=2 C=3'

    Source: ONNX operator IsInf, opset 20.
    """

    detect_positive: bool = param(default=True)
    detect_negative: bool = param(default=True)
    to = "bool"


And = binary("And", "Apply the logical and: y = a and b", (1, 7), and_, ("bool",), expression=and_)
Or = binary("Or", "Apply the logical or: y = a or b", (1, 7), or_, ("bool",), expression=or_)
Xor = binary("Xor", "Apply the exclusive or: y = a != b", (1, 7), xor, ("bool",), expression=xor)
Not = unary(
    "Not", "Negate a truth value: y = not x", (1, 1), inv, ("bool",), zero=1, expression=inv
)

BitwiseAnd = binary(
    "BitwiseAnd", "Apply the and of bits: y = a & b", (18, 18), and_, INTEGERS, expression=and_
)
BitwiseOr = binary(
    "BitwiseOr", "Apply the or of bits: y = a | b", (18, 18), or_, INTEGERS, expression=or_
)
BitwiseXor = binary(
    "BitwiseXor",
    "Apply the exclusive or of bits: y = a ^ b",
    (18, 18),
    xor,
    INTEGERS,
    expression=xor,
)
BitwiseNot = unary(
    "BitwiseNot", "Invert all bits: y = ~x", (18, 18), inv, INTEGERS, zero=-1, expression=inv
)


def _shift(op: BitShift, a: Array, b: Array) -> Array:
    return np.asarray(np.left_shift(a, b) if op.direction == "LEFT" else np.right_shift(a, b))


def _shifted(op: BitShift, a: Expression, b: Expression) -> Expression:
    return a << b if op.direction == "LEFT" else a >> b


@elementwise("BitShift", 11, _shift, INTEGERS, expression=_shifted)
class BitShift(Binary):
    """Shift bits: y = a << b, or a >> b.

    An operand is repeated along a dim that it lacks, or has with size 1, to the other's size.

    Dims:
        a, b: any    y: the dims of both
    Args:
        direction: "LEFT" (<<) or "RIGHT" (>>).
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
