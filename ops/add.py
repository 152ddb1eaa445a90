"""Addition, dims meeting by name."""

from __future__ import annotations

import numpy as np

from ops._elementwise import Binary, elementwise, spelled
from vtensor.operators import Affine, Plus, Post


@elementwise(
    "Add",
    lambda add: [*spelled("Add", 1, add), *spelled("Sum", 6, add, many=True)],
    np.add,
    onednn="add",
    eigen=lambda a, b: a + b,
    traits=[Affine(lambda _, a, b: (1, b if a is None else a)), Post(lambda _: Plus())],
)
class Add(Binary):
    """Add two tensors, dims meeting by name: y = a + b.

    A dim that one operand lacks, or has with size 1, is repeated along the other's.

    Dims:
        a, b: any    y: those of both
    Raises:
        DimError: a dim that both have has two sizes, and neither is 1.

    >>> from vtensor import VTensor
    >>> from vtensor.operators import Context
    >>> a = VTensor("f32", {"N": 2, "C": 3, "H": 7, "W": 7})
    >>> Add().compute(Context(), a, VTensor("f32", {"C": 3, "H": 1})).summary()
    'f32 N=2 C=3 H=7 W=7'

    Source: ONNX operators Add, opset 14, and Sum, opset 13.
    """
