"""Addition, dims meeting by name."""

from __future__ import annotations

import numpy as np

from libdesc import eigen, invoker, onednn
from libdesc.numpy.arrays import NUMBERS, aligned, finish
from libdesc.routine import Routine
from ops._names import (
    broadcast_input,
    broadcast_names,
    chained,
    old_broadcast_input,
    old_broadcast_names,
)
from ops._writing import write_aligned
from ops.identity import Identity
from ptensor import Layout, PTensor, lib_tagger
from vtensor.language.dims import broadcast
from vtensor.operators import (
    Affine,
    Context,
    Elementwise,
    NodeReader,
    Plus,
    Post,
    Spelling,
    operator,
)
from vtensor.tensor import VTensor


def _read(node: NodeReader) -> VTensor:
    return node.add(Add(), broadcast_input(node, 0), broadcast_input(node, 1))


def _read_old(node: NodeReader) -> VTensor:
    return node.add(Add(), broadcast_input(node, 0), old_broadcast_input(node))


def _read_sum(node: NodeReader) -> VTensor:
    if len(node.inputs) == 1:
        return node.add(Identity(), node.input(0))
    return chained(node, Add())


@operator(
    "Add",
    dims={"a": "*", "b": "*", "y": "*"},
    onnx=[
        Spelling("Add", 1, _read_old, old_broadcast_names, until=6),
        Spelling("Add", 7, _read, broadcast_names, write=write_aligned("Add")),
        Spelling("Sum", 6, _read_sum, broadcast_names),
    ],
    traits=[
        Elementwise(),
        Affine(lambda _, a, b: (1, b if a is None else a)),
        Post(lambda _: Plus()),
    ],
)
class Add:
    """Add two tensors, dims meeting by name: y = a + b.

    A dim that one operand lacks, or has with size 1, is repeated along the other's.

    Dims:
        a, b: any    y: those of both
    Raises:
        DimError: a dim that both have has two sizes, and neither is 1.

    >>> from vtensor.operators import Context
    >>> a = VTensor("f32", {"N": 2, "C": 3, "H": 7, "W": 7})
    >>> Add().compute(Context(), a, VTensor("f32", {"C": 3, "H": 1})).summary()
    'f32 N=2 C=3 H=7 W=7'

    Source: ONNX operators Add, opset 14, and Sum, opset 13.
    """

    def compute(self, ctx: Context, a: VTensor, b: VTensor) -> VTensor:
        y = VTensor(a.dtype, broadcast(a.dims, b.dims), ctx.output(0))
        ctx.dispatch(self, [a, b], [y])
        return y


@invoker("Add", library="onednn", dtypes=["f32", "bf16", "f16"], inplace=["a"])
def onednn_add(ctx: Context, op: Add, a: VTensor, b: VTensor, y: VTensor) -> Routine:
    return onednn.Binary("add", a, b, y)


@invoker("Add", library="eigen", dtypes=eigen.DTYPES, inplace=["a", "b"])
def eigen_add(ctx: Context, op: Add, a: VTensor, b: VTensor, y: VTensor) -> Routine:
    return eigen.pointwise(lambda a, b: a + b, [a, b], y)


@invoker("Add", library="numpy", dtypes=NUMBERS, python=True)
def numpy_add(ctx: Context, op: Add, a: VTensor, b: VTensor, y: VTensor) -> None:
    left, right, dst = (PTensor(t).require(Layout.ANY) for t in (a, b, y))
    if lib_tagger("numpy", [left, right], [dst]):
        return
    np.add(aligned(left, dst), aligned(right, dst), out=dst.data())
    finish(dst)
