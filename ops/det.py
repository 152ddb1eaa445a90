"""Determinants."""

from __future__ import annotations

import numpy as np

from libdesc import Routine, eigen, invoker
from libdesc.numpy import definition
from libdesc.numpy.arrays import FLOATS, wide
from ops._names import same_names
from ops._normalizations import without
from ops._places import one_output
from ptensor import Layout, PTensor
from vtensor.operators import Context, NodeReader, Spelling, operator, param
from vtensor.tensor import VTensor


def _read(node: NodeReader) -> VTensor:
    x = node.input(0)
    return node.add(Det(node.axis(-2, x), node.axis(-1, x)), x)


def _is_square(op: Det, x: VTensor) -> bool:
    return op.rows != op.columns and x.size(op.rows) == x.size(op.columns)


@operator(
    "Det",
    dims={"x": "*", "y": "*"},
    holds=[(_is_square, "a matrix that has a determinant is square")],
    onnx=Spelling("Det", 11, _read, same_names),
)
class Det:
    """Compute the determinant of each square matrix.

    Dims:
        x: rows columns, of one size, and any others    y: the others
    Args:
        rows, columns: the dims of a matrix.
    Raises:
        DimError: x lacks one of these dims, or they differ in size.

    >>> from vtensor.operators import Context
    >>> Det("A", "B").compute(Context(), VTensor("f32", {"N": 2, "A": 3, "B": 3})).summary()
    'f32 N=2'

    Source: ONNX operator Det, opset 22.
    """

    rows: str = param(dims_of="x")
    columns: str = param(dims_of="x")

    def compute(self, ctx: Context, x: VTensor) -> VTensor:
        sizes = without(x, (self.rows, self.columns), keepdims=False)
        return one_output(ctx, self, [x], sizes)


@invoker("Det", library="eigen", dtypes=FLOATS)
def eigen_det(ctx: Context, op: Det, x: VTensor, y: VTensor) -> Routine:
    return eigen.determinant(x, y, op.rows, op.columns)


@definition(
    "Det", dtypes=FLOATS, orders=lambda op, _, y: [Layout.plain((*y.dims, op.rows, op.columns))]
)
def det(ctx: Context, op: Det, x: PTensor, y: PTensor) -> None:
    y.data()[...] = np.linalg.det(wide(x.data()))
