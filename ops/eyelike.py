"""Ones on a diagonal."""

from __future__ import annotations

import numpy as np

from libdesc import invoker
from ops._names import same_names
from ptensor import Layout, PTensor, lib_tagger
from vtensor.errors import DimError
from vtensor.operators import Context, NodeReader, Spelling, operator, param
from vtensor.tensor import VTensor


def _read(node: NodeReader) -> VTensor:
    x = node.input(0)
    dtype = node.element_type("dtype") or x.dtype
    k = int(node.attribute("k", 0))
    return node.add(EyeLike(node.axis(0, x), node.axis(1, x), dtype, k), x)


@operator("EyeLike", dims={"x": "*", "y": "*"}, onnx=Spelling("EyeLike", 9, _read, same_names))
class EyeLike:
    """A matrix of the sizes of another, with ones on a diagonal and zeros elsewhere.

    Dims:
        x, y: rows and columns
    Args:
        rows, columns: the dims.
        dtype: the element type.
        k: how far above the main diagonal.
    Raises:
        DimError: x has other dims.

    >>> from vtensor.operators import Context
    >>> EyeLike("A", "B", "u8").compute(Context(), VTensor("f32", {"A": 2, "B": 3})).summary()
    'u8 A=2 B=3'

    Source: ONNX operator EyeLike, opset 9.
    """

    rows: str = param()
    columns: str = param()
    dtype: str = param(default="f32")
    k: int = param(default=0)

    def compute(self, ctx: Context, x: VTensor) -> VTensor:
        if x.dims.keys() != {self.rows, self.columns} or len(x.dims) != 2:
            raise DimError(f"the dims must be {self.rows} and {self.columns}")
        y = VTensor(self.dtype, x.dims, ctx.output(0))
        ctx.dispatch(self, [x], [y])
        return y


@invoker("EyeLike", library="numpy", python=True)
def numpy_eye_like(ctx: Context, op: EyeLike, x: VTensor, y: VTensor) -> None:
    order = Layout.plain([op.rows, op.columns])
    src, dst = PTensor(x).require(Layout.ANY), PTensor(y).require(order)
    if lib_tagger("numpy", [src], [dst]):
        return
    dst.data()[...] = np.eye(x.size(op.rows), x.size(op.columns), op.k)
