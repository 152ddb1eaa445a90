"""Addition of a bias along some dims."""

from __future__ import annotations

import numpy as np

from ops._elementwise import elementwise, pointwise
from ops._writing import write_aligned
from vtensor.operators import Affine, Context, Plus, Post, Structural, written
from vtensor.tensor import VTensor


@elementwise(
    "BiasAdd",
    written("Add", 7, write_aligned("Add")),
    np.add,
    onednn="add",
    eigen=lambda x, b: x + b,
    inplace=["x"],
    traits=[
        Affine(lambda _, x, b: (1, b) if x is None else (1, x)),
        Structural("bias"),
        Post(lambda _: Plus()),
    ],
    holds=[
        (
            lambda _, x, b: b.dims.items() <= x.dims.items(),
            "b must have dims of x, and in their sizes",
        )
    ],
)
class BiasAdd:
    """Add to each element of ``x`` that of ``b`` in the same place along b's dims.

    y[..., C, ...] = x[..., C, ...] + b[C]

    Dims:
        x, y: any, the same    b: some of x's, of the same sizes; mostly C alone
    Raises:
        DimError: b has a dim that x has not, or of another size.

    >>> from vtensor.operators import Context
    >>> x, b = VTensor("f32", {"N": 1, "C": 64, "H": 7, "W": 7}), VTensor("f32", {"C": 64})
    >>> BiasAdd().compute(Context(), x, b).summary()
    'f32 N=1 C=64 H=7 W=7'

    Source: ONNX operators Conv and Gemm, whose third input it is; the paper, section 6.
    """

    def compute(self, ctx: Context, x: VTensor, b: VTensor) -> VTensor:
        return pointwise(self, ctx, x, b)
