"""Slices that a condition keeps."""

from __future__ import annotations

import numpy as np

from libdesc import invoker
from ptensor import Layout, PTensor, lib_tagger
from vtensor.errors import DimError
from vtensor.operators import Context, Naming, NodeReader, Spelling, operator, param
from vtensor.tensor import VTensor


def _names(node: Naming) -> None:
    if node.attribute("axis") is None:
        return
    for position in range(node.rank("x0")):
        node.same("x0", position, "y0", position)


def _read(node: NodeReader) -> VTensor:
    x, axis = node.input(0), node.attribute("axis")
    if axis is None:
        [flat] = node.output_names()
        x, axis = node.reshape(x, {flat: x.num_elements}), 0
    kept = np.flatnonzero(node.constant(1))
    return node.add(Compress(node.axis(int(axis), x), tuple(int(i) for i in kept)), x)


@operator("Compress", dims={"x": "*", "y": "*"}, onnx=Spelling("Compress", 9, _read, _names))
class Compress:
    """Some slices of a tensor, known before a run as they decide its size.

    y[axis] = x[kept[axis]]

    Dims:
        x, y: any, the same; of y the size along ``axis`` is the number of ``kept``
    Args:
        axis: the dim.
        kept: the places that are kept, from 0 on.
    Raises:
        DimError: x has no such dim, or a place lies outside.

    >>> from vtensor.operators import Context
    >>> Compress("C", (0, 2)).compute(Context(), VTensor("f32", {"N": 2, "C": 3})).summary()
    'f32 N=2 C=2'

    Source: ONNX operator Compress, opset 11.
    """

    axis: str = param()
    kept: tuple[int, ...] = param(minimum=0)

    def compute(self, ctx: Context, x: VTensor) -> VTensor:
        if max(self.kept, default=-1) >= x.size(self.axis):
            raise DimError(f"place {max(self.kept)} along {self.axis} does not exist")
        y = VTensor(x.dtype, {**x.dims, self.axis: len(self.kept)}, ctx.output(0))
        ctx.dispatch(self, [x], [y])
        return y


@invoker("Compress", library="numpy", python=True)
def numpy_compress(ctx: Context, op: Compress, x: VTensor, y: VTensor) -> None:
    order = Layout.plain((op.axis, *(dim for dim in x.dims if dim != op.axis)))
    src, dst = PTensor(x).require(order), PTensor(y).require(order)
    if lib_tagger("numpy", [src], [dst]):
        return
    dst.data()[...] = src.data()[list(op.kept)]
