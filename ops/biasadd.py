"""Addition of a bias along some dims."""

from __future__ import annotations

import numpy as np

from libdesc import eigen, invoker, onednn
from libdesc.numpy.arrays import NUMBERS, aligned, finish
from libdesc.routine import Routine
from ops._writing import write_aligned
from ptensor import Layout, PTensor, lib_tagger
from vtensor.errors import DimError
from vtensor.operators import (
    Affine,
    Context,
    Elementwise,
    Plus,
    Post,
    Structural,
    operator,
    written,
)
from vtensor.tensor import VTensor


@operator(
    "BiasAdd",
    dims={"x": "*", "b": "*", "y": "*"},
    onnx=written("Add", 7, write_aligned("Add")),
    traits=[
        Elementwise(),
        Affine(lambda _, x, b: (1, b) if x is None else (1, x)),
        Structural("bias"),
        Post(lambda _: Plus()),
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
        for dim, size in b.dims.items():
            if x.dims.get(dim) != size:
                raise DimError(f"b must have dims of x, and in their sizes; {dim}={size} is not")
        y = VTensor(x.dtype, x.dims, ctx.output(0))
        ctx.dispatch(self, [x, b], [y])
        return y


@invoker("BiasAdd", library="onednn", dtypes=["f32", "bf16", "f16"], inplace=["x"])
def onednn_biasadd(ctx: Context, op: BiasAdd, x: VTensor, b: VTensor, y: VTensor) -> Routine:
    return onednn.Binary("add", x, b, y)


@invoker("BiasAdd", library="eigen", dtypes=eigen.DTYPES, inplace=["x"])
def eigen_biasadd(ctx: Context, op: BiasAdd, x: VTensor, b: VTensor, y: VTensor) -> Routine:
    return eigen.pointwise(lambda x, b: x + b, [x, b], y)


@invoker("BiasAdd", library="numpy", dtypes=NUMBERS, python=True)
def numpy_biasadd(ctx: Context, op: BiasAdd, x: VTensor, b: VTensor, y: VTensor) -> None:
    src, bias, dst = (PTensor(t).require(Layout.ANY) for t in (x, b, y))
    if lib_tagger("numpy", [src, bias], [dst]):
        return
    np.add(aligned(src, dst), aligned(bias, dst), out=dst.data())
    finish(dst)
