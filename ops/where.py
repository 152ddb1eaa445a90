"""A choice between two tensors, element by element."""

from __future__ import annotations

import numpy as np

from ops._elementwise import elementwise, pointwise
from vtensor.operators import Context
from vtensor.tensor import VTensor


@elementwise("Where", 9, np.where, {"c": ["bool"]}, widen=False)
class Where:
    """Take one of two tensors' elements: y = a if c else b.

    A dim that an operand lacks, or has with size 1, is repeated along the others'.

    Dims:
        c, a, b: any    y: those of all three
    Raises:
        DimError: a dim has two sizes, and neither is 1.

    >>> from vtensor.operators import Context
    >>> c, a = VTensor("bool", {"N": 2, "C": 1}), VTensor("f32", {"C": 3})
    >>> Where().compute(Context(), c, a, VTensor("f32", {})).summary()
    'f32 N=2 C=3'

    Source: ONNX operator Where, opset 16.
    """

    def compute(self, ctx: Context, c: VTensor, a: VTensor, b: VTensor) -> VTensor:
        return pointwise(self, ctx, c, a, b, dtype=a.dtype)
