"""Multiplication, dims meeting by name."""

from __future__ import annotations

import numpy as np

from libdesc import eigen, invoker, onednn
from libdesc.numpy.arrays import NUMBERS, aligned, finish
from libdesc.routine import Routine
from ops._names import (
    broadcast_input,
    broadcast_names,
    old_broadcast_input,
    old_broadcast_names,
)
from ops._writing import write_aligned
from ptensor import Layout, PTensor, lib_tagger
from vtensor.language.dims import broadcast
from vtensor.operators import Affine, Context, Elementwise, NodeReader, Spelling, operator
from vtensor.tensor import VTensor


def _read(node: NodeReader) -> VTensor:
    return node.add(Mul(), broadcast_input(node, 0), broadcast_input(node, 1))


def _read_old(node: NodeReader) -> VTensor:
    return node.add(Mul(), broadcast_input(node, 0), old_broadcast_input(node))


@operator(
    "Mul",
    dims={"a": "*", "b": "*", "y": "*"},
    onnx=[
        Spelling("Mul", 1, _read_old, old_broadcast_names, until=6),
        Spelling("Mul", 7, _read, broadcast_names, write=write_aligned("Mul")),
    ],
    traits=[Elementwise(), Affine(lambda _, a, b: (b if a is None else a, 0))],
)
class Mul:
    """Multiply two tensors, dims meeting by name: y = a * b.

    A dim that one operand lacks, or has with size 1, is repeated along the other's.

    Dims:
        a, b: any    y: those of both
    Raises:
        DimError: a dim that both have has two sizes, and neither is 1.

    >>> from vtensor.operators import Context
    >>> a = VTensor("f32", {"N": 2, "C": 3, "H": 7, "W": 7})
    >>> Mul().compute(Context(), a, VTensor("f32", {"C": 3, "H": 1})).summary()
    'f32 N=2 C=3 H=7 W=7'

    Source: ONNX operator Mul, opset 14.
    """

    def compute(self, ctx: Context, a: VTensor, b: VTensor) -> VTensor:
        y = VTensor(a.dtype, broadcast(a.dims, b.dims), ctx.output(0))
        ctx.dispatch(self, [a, b], [y])
        return y


@invoker("Mul", library="onednn", dtypes=["f32", "bf16", "f16"], inplace=["a"])
def onednn_mul(ctx: Context, op: Mul, a: VTensor, b: VTensor, y: VTensor) -> Routine:
    return onednn.Binary("mul", a, b, y)


@invoker("Mul", library="eigen", dtypes=eigen.DTYPES, inplace=["a", "b"])
def eigen_mul(ctx: Context, op: Mul, a: VTensor, b: VTensor, y: VTensor) -> Routine:
    return eigen.pointwise(lambda a, b: a * b, [a, b], y)


@invoker("Mul", library="numpy", dtypes=NUMBERS, python=True)
def numpy_mul(ctx: Context, op: Mul, a: VTensor, b: VTensor, y: VTensor) -> None:
    left, right, dst = (PTensor(t).require(Layout.ANY) for t in (a, b, y))
    if lib_tagger("numpy", [left, right], [dst]):
        return
    np.multiply(aligned(left, dst), aligned(right, dst), out=dst.data())
    finish(dst)
