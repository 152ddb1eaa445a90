"""Multiplication, dims meeting by name."""

from __future__ import annotations

import numpy as np

from ops._elementwise import Binary, elementwise
from vtensor.operators import Affine


@elementwise(
    "Mul",
    1,
    np.multiply,
    onednn="mul",
    eigen=lambda a, b: a * b,
    traits=[Affine(lambda _, a, b: (b if a is None else a, 0))],
)
class Mul(Binary):
    """Multiply two tensors, dims meeting by name: y = a * b.

    A dim that one operand lacks, or has with size 1, is repeated along the other's.

    Dims:
        a, b: any    y: those of both
    Raises:
        DimError: a dim that both have has two sizes, and neither is 1.

    >>> from vtensor import VTensor
    >>> from vtensor.operators import Context
    >>> a = VTensor("f32", {"N": 2, "C": 3, "H": 7, "W": 7})
    >>> Mul().compute(Context(), a, VTensor("f32", {"C": 3, "H": 1})).summary()
    'f32 N=2 C=3 H=7 W=7'

    Source: ONNX operator Mul, opset 14.
    """
