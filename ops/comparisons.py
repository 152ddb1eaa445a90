"""What compares elements, and what tells kinds of them."""

from __future__ import annotations

import numpy as np

from libdesc.numpy.arrays import FLOATS
from ops._elementwise import (
    ALL,
    Array,
    Comparison,
    Question,
    binary,
    binary_from_1,
    numpy_binary,
    numpy_unary,
    unary,
)
from vtensor.language.dtype import NARROW_FLOATS
from vtensor.operators import Elementwise, NodeReader, operator, param


def _isinf(node: NodeReader) -> object:
    positive, negative = node.attribute("detect_positive", 1), node.attribute("detect_negative", 1)
    return IsInf(bool(positive), bool(negative))


@operator(
    "Equal",
    dims={"a": "*", "b": "*", "y": "*"},
    onnx=binary_from_1("Equal", lambda _: Equal()),
    traits=[Elementwise()],
)
class Equal(Comparison):
    """Are two elements equal: y = a == b.

    A dim that one operand lacks, or has with size 1, is repeated along the other's.

    Dims:
        a, b: any    y: those of both
    Raises:
        DimError: a dim that both have has two sizes, and neither is 1.

    >>> from vtensor import VTensor
    >>> from vtensor.operators import Context
    >>> a = VTensor("f32", {"N": 2, "C": 3})
    >>> Equal().compute(Context(), a, VTensor("f32", {"C": 3})).summary()
    'bool N=2 C=3'

    Source: ONNX operator Equal, opset 19.
    """


@operator(
    "Greater",
    dims={"a": "*", "b": "*", "y": "*"},
    onnx=binary_from_1("Greater", lambda _: Greater()),
    traits=[Elementwise()],
)
class Greater(Comparison):
    """Is the first the larger: y = a > b.

    A dim that one operand lacks, or has with size 1, is repeated along the other's.

    Dims:
        a, b: any    y: those of both
    Raises:
        DimError: a dim that both have has two sizes, and neither is 1.

    >>> from vtensor import VTensor
    >>> from vtensor.operators import Context
    >>> a = VTensor("f32", {"N": 2, "C": 3})
    >>> Greater().compute(Context(), a, VTensor("f32", {"C": 3})).summary()
    'bool N=2 C=3'

    Source: ONNX operator Greater, opset 13.
    """


@operator(
    "Less",
    dims={"a": "*", "b": "*", "y": "*"},
    onnx=binary_from_1("Less", lambda _: Less()),
    traits=[Elementwise()],
)
class Less(Comparison):
    """Is the first the smaller: y = a < b.

    A dim that one operand lacks, or has with size 1, is repeated along the other's.

    Dims:
        a, b: any    y: those of both
    Raises:
        DimError: a dim that both have has two sizes, and neither is 1.

    >>> from vtensor import VTensor
    >>> from vtensor.operators import Context
    >>> a = VTensor("f32", {"N": 2, "C": 3})
    >>> Less().compute(Context(), a, VTensor("f32", {"C": 3})).summary()
    'bool N=2 C=3'

    Source: ONNX operator Less, opset 13.
    """


@operator(
    "GreaterOrEqual",
    dims={"a": "*", "b": "*", "y": "*"},
    onnx=binary("GreaterOrEqual", 12, lambda _: GreaterOrEqual()),
    traits=[Elementwise()],
)
class GreaterOrEqual(Comparison):
    """Is the first not the smaller: y = a >= b.

    A dim that one operand lacks, or has with size 1, is repeated along the other's.

    Dims:
        a, b: any    y: those of both
    Raises:
        DimError: a dim that both have has two sizes, and neither is 1.

    >>> from vtensor import VTensor
    >>> from vtensor.operators import Context
    >>> a = VTensor("f32", {"N": 2, "C": 3})
    >>> GreaterOrEqual().compute(Context(), a, VTensor("f32", {"C": 3})).summary()
    'bool N=2 C=3'

    Source: ONNX operator GreaterOrEqual, opset 16.
    """


@operator(
    "LessOrEqual",
    dims={"a": "*", "b": "*", "y": "*"},
    onnx=binary("LessOrEqual", 12, lambda _: LessOrEqual()),
    traits=[Elementwise()],
)
class LessOrEqual(Comparison):
    """Is the first not the larger: y = a <= b.

    A dim that one operand lacks, or has with size 1, is repeated along the other's.

    Dims:
        a, b: any    y: those of both
    Raises:
        DimError: a dim that both have has two sizes, and neither is 1.

    >>> from vtensor import VTensor
    >>> from vtensor.operators import Context
    >>> a = VTensor("f32", {"N": 2, "C": 3})
    >>> LessOrEqual().compute(Context(), a, VTensor("f32", {"C": 3})).summary()
    'bool N=2 C=3'

    Source: ONNX operator LessOrEqual, opset 16.
    """


@operator(
    "IsNaN",
    dims={"x": "*", "y": "*"},
    onnx=unary("IsNaN", 9, lambda _: IsNaN()),
    traits=[Elementwise()],
)
class IsNaN(Question):
    """Is it no number: y = true where x is NaN.

    Dims:
        x, y: any, the same

    >>> from vtensor import VTensor
    >>> from vtensor.operators import Context
    >>> IsNaN().compute(Context(), VTensor("f32", {"N": 2, "C": 3})).summary()
    'bool N=2 C=3'

    Source: ONNX operator IsNaN, opset 20.
    """


@operator(
    "IsInf", dims={"x": "*", "y": "*"}, onnx=unary("IsInf", 10, _isinf), traits=[Elementwise()]
)
class IsInf(Question):
    """Is it infinite: y = true where x is infinite.

    Dims:
        x, y: any, the same
    Args:
        detect_positive: count positive infinity.
        detect_negative: count negative infinity.

    >>> from vtensor import VTensor
    >>> from vtensor.operators import Context
    >>> IsInf().compute(Context(), VTensor("f32", {"N": 2, "C": 3})).summary()
    'bool N=2 C=3'

    Source: ONNX operator IsInf, opset 20.
    """

    detect_positive: bool = param(default=True)
    detect_negative: bool = param(default=True)


def _infinite(op: IsInf, x: Array) -> Array:
    signs = (x > 0) & op.detect_positive | (x < 0) & op.detect_negative
    result: Array = np.isinf(x) & signs
    return result


numpy_binary("Equal", lambda _, a, b: np.equal(a, b), ALL)
numpy_binary("Greater", lambda _, a, b: np.greater(a, b))
numpy_binary("Less", lambda _, a, b: np.less(a, b))
numpy_binary("GreaterOrEqual", lambda _, a, b: np.greater_equal(a, b))
numpy_binary("LessOrEqual", lambda _, a, b: np.less_equal(a, b))
numpy_unary("IsNaN", lambda _, x: np.isnan(x), (*FLOATS, *NARROW_FLOATS))
numpy_unary("IsInf", _infinite, (*FLOATS, *NARROW_FLOATS))
