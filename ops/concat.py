"""Tensors one behind another along a dim."""

from __future__ import annotations

import numpy as np

from libdesc import eigen, invoker, onednn
from libdesc.routine import Routine
from ptensor import Layout, PTensor, lib_tagger
from vtensor.errors import DimError
from vtensor.operators import (
    Context,
    Naming,
    NodeReader,
    NodeWriter,
    Spelling,
    Structural,
    operator,
    param,
)
from vtensor.tensor import VTensor


def _names(node: Naming) -> None:
    for role in node.roles:
        for position in range(node.rank(role)):
            node.same(role, position, "y0", position)


def _read(node: NodeReader) -> VTensor:
    names = " ".join(node.output_names())
    inputs = [node.input(index, names) for index in range(len(node.inputs))]
    axis = node.axis(int(node.attribute("axis", 1)), inputs[0])
    return node.add(Concat(axis), *inputs)


def _write(node: NodeWriter, op: Concat) -> None:
    order = list(node.outputs[0].dims)
    node.emit("Concat", *(node.operand(x, order) for x in node.inputs), axis=order.index(op.axis))


@operator(
    "Concat",
    dims={"x": "*", "y": "*"},
    onnx=Spelling("Concat", 1, _read, _names, write=_write),
    traits=[Structural("concat")],
)
class Concat:
    """Put tensors one behind another along a dim.

    Dims:
        x, y: any, the same; of y the size along ``axis`` is the sum of x's
    Args:
        axis: the dim.
    Raises:
        DimError: the inputs differ in a dim other than ``axis``, or have no such dim.

    >>> from vtensor.operators import Context
    >>> a, b = VTensor("f32", {"N": 1, "C": 64}), VTensor("f32", {"N": 1, "C": 8})
    >>> Concat("C").compute(Context(), a, b).summary()
    'f32 N=1 C=72'

    Source: ONNX operator Concat, opset 13.
    """

    axis: str = param()

    def compute(self, ctx: Context, *x: VTensor) -> VTensor:
        total = sum(one.size(self.axis) for one in x)
        for one in x[1:]:
            if {**one.dims, self.axis: 0} != {**x[0].dims, self.axis: 0}:
                raise DimError(f"the inputs must agree in every dim but {self.axis}")
        y = VTensor(x[0].dtype, {**x[0].dims, self.axis: total}, ctx.output(0))
        ctx.dispatch(self, x, [y])
        return y


@invoker("Concat", library="onednn", dtypes=["f32", "bf16", "f16", "s32", "s8", "u8"])
def onednn_concat(ctx: Context, op: Concat, *operands: VTensor) -> Routine:
    return onednn.Concat(operands[:-1], operands[-1], op.axis)


@invoker("Concat", library="eigen", dtypes=eigen.DTYPES)
def eigen_concat(ctx: Context, op: Concat, *operands: VTensor) -> Routine:
    return eigen.concat(operands[:-1], operands[-1], op.axis)


@invoker("Concat", library="numpy", python=True)
def numpy_concat(ctx: Context, op: Concat, *operands: VTensor) -> None:
    order = Layout.plain(operands[-1].dims)
    *sources, dst = (PTensor(t).require(order) for t in operands)
    if lib_tagger("numpy", sources, [dst]):
        return
    axis = order.dims.index(op.axis)
    np.concatenate([src.data() for src in sources], axis=axis, out=dst.data())
