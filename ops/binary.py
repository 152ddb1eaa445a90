"""Functions of two elements, dims meeting by name."""

from __future__ import annotations

import numpy as np

from ops._elementwise import Array, Binary, binary, binary_from_1, numpy_binary, onednn_binary
from ops._names import broadcast_names, chained
from ops._writing import write_aligned
from ops.identity import Identity
from vtensor.operators import Affine, Elementwise, NodeReader, Spelling, operator, param
from vtensor.tensor import VTensor


def _read_max(node: NodeReader) -> VTensor:
    return _read_any_number(node, Max())


def _read_min(node: NodeReader) -> VTensor:
    return _read_any_number(node, Min())


def _read_any_number(node: NodeReader, op: object) -> VTensor:
    if len(node.inputs) == 1:
        return node.add(Identity(), node.input(0))
    return chained(node, op)


@operator(
    "Sub",
    dims={"a": "*", "b": "*", "y": "*"},
    onnx=binary_from_1("Sub", lambda _: Sub()),
    traits=[Elementwise(), Affine(lambda _, a, b: (1, -b) if a is None else (-1, a))],
)
class Sub(Binary):
    """Subtract: y = a - b.

    A dim that one operand lacks, or has with size 1, is repeated along the other's.

    Dims:
        a, b: any    y: those of both
    Raises:
        DimError: a dim that both have has two sizes, and neither is 1.

    >>> from vtensor import VTensor
    >>> from vtensor.operators import Context
    >>> a = VTensor("f32", {"N": 2, "C": 3})
    >>> Sub().compute(Context(), a, VTensor("f32", {"C": 3})).summary()
    'f32 N=2 C=3'

    Source: ONNX operator Sub, opset 14.
    """


@operator(
    "Div",
    dims={"a": "*", "b": "*", "y": "*"},
    onnx=binary_from_1("Div", lambda _: Div()),
    traits=[Elementwise()],
)
class Div(Binary):
    """Divide; integers towards 0: y = a / b.

    A dim that one operand lacks, or has with size 1, is repeated along the other's.

    Dims:
        a, b: any    y: those of both
    Raises:
        DimError: a dim that both have has two sizes, and neither is 1.

    >>> from vtensor import VTensor
    >>> from vtensor.operators import Context
    >>> a = VTensor("f32", {"N": 2, "C": 3})
    >>> Div().compute(Context(), a, VTensor("f32", {"C": 3})).summary()
    'f32 N=2 C=3'

    Source: ONNX operator Div, opset 14.
    """


@operator(
    "Pow",
    dims={"a": "*", "b": "*", "y": "*"},
    onnx=binary_from_1("Pow", lambda _: Pow()),
    traits=[Elementwise()],
)
class Pow(Binary):
    """Raise to a power, in a's element type: y = a**b.

    A dim that one operand lacks, or has with size 1, is repeated along the other's.

    Dims:
        a, b: any    y: those of both
    Raises:
        DimError: a dim that both have has two sizes, and neither is 1.

    >>> from vtensor import VTensor
    >>> from vtensor.operators import Context
    >>> a = VTensor("f32", {"N": 2, "C": 3})
    >>> Pow().compute(Context(), a, VTensor("f32", {"C": 3})).summary()
    'f32 N=2 C=3'

    Source: ONNX operator Pow, opset 15.
    """


@operator(
    "Mod",
    dims={"a": "*", "b": "*", "y": "*"},
    onnx=binary("Mod", 10, lambda node: Mod(bool(node.attribute("fmod", 0)))),
    traits=[Elementwise()],
)
class Mod(Binary):
    """The remainder of a division: y = a - b * floor(a / b).

    A dim that one operand lacks, or has with size 1, is repeated along the other's.

    Dims:
        a, b: any    y: those of both
    Args:
        fmod: round towards 0, so that the result has the sign of ``a``.
    Raises:
        DimError: a dim that both have has two sizes, and neither is 1.

    >>> from vtensor import VTensor
    >>> from vtensor.operators import Context
    >>> a = VTensor("f32", {"N": 2, "C": 3})
    >>> Mod().compute(Context(), a, VTensor("f32", {"C": 3})).summary()
    'f32 N=2 C=3'

    Source: ONNX operator Mod, opset 13.
    """

    fmod: bool = param(default=False)


@operator(
    "Max",
    dims={"a": "*", "b": "*", "y": "*"},
    onnx=Spelling("Max", 6, _read_max, broadcast_names, write=write_aligned("Max")),
    traits=[Elementwise()],
)
class Max(Binary):
    """The larger of two elements: y = max(a, b); NaN if one is NaN.

    A dim that one operand lacks, or has with size 1, is repeated along the other's.

    Dims:
        a, b: any    y: those of both
    Raises:
        DimError: a dim that both have has two sizes, and neither is 1.

    >>> from vtensor import VTensor
    >>> from vtensor.operators import Context
    >>> a = VTensor("f32", {"N": 2, "C": 3})
    >>> Max().compute(Context(), a, VTensor("f32", {"C": 3})).summary()
    'f32 N=2 C=3'

    Source: ONNX operator Max, opset 13.
    """


@operator(
    "Min",
    dims={"a": "*", "b": "*", "y": "*"},
    onnx=Spelling("Min", 6, _read_min, broadcast_names, write=write_aligned("Min")),
    traits=[Elementwise()],
)
class Min(Binary):
    """The smaller of two elements: y = min(a, b); NaN if one is NaN.

    A dim that one operand lacks, or has with size 1, is repeated along the other's.

    Dims:
        a, b: any    y: those of both
    Raises:
        DimError: a dim that both have has two sizes, and neither is 1.

    >>> from vtensor import VTensor
    >>> from vtensor.operators import Context
    >>> a = VTensor("f32", {"N": 2, "C": 3})
    >>> Min().compute(Context(), a, VTensor("f32", {"C": 3})).summary()
    'f32 N=2 C=3'

    Source: ONNX operator Min, opset 13.
    """


def _quotient(a: Array, b: Array) -> Array:
    result: Array
    if a.dtype.kind not in "iu":
        result = a / b
        return result
    floor = a // b
    result = floor + ((a % b != 0) & ((a < 0) != (b < 0)))
    return result


def _power(a: Array, b: Array) -> Array:
    """Integers to powers below 0 are fractions first."""
    if a.dtype.kind in "iu" and b.dtype.kind in "iu" and (b < 0).any():
        a = a.astype(np.float64)
    result: Array = np.power(a, b)
    return result


numpy_binary("Sub", lambda _, a, b: np.subtract(a, b))
numpy_binary("Div", lambda _, a, b: _quotient(a, b))
numpy_binary("Pow", lambda _, a, b: _power(a, b))
numpy_binary("Mod", lambda op, a, b: np.fmod(a, b) if op.fmod else np.mod(a, b))
numpy_binary("Max", lambda _, a, b: np.maximum(a, b))
numpy_binary("Min", lambda _, a, b: np.minimum(a, b))

onednn_binary("Sub", "sub")
onednn_binary("Div", "div")
