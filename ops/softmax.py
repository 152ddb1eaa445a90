"""Normalized exponentials."""

from __future__ import annotations

import numpy as np

from libdesc import eigen, invoker, onednn
from libdesc.numpy.arrays import FLOATS, lowest, wide
from libdesc.routine import Routine
from ops._names import same_names
from ops._writing import write_along
from ptensor import Layout, PTensor, lib_tagger
from vtensor.errors import DimError
from vtensor.operators import Context, Cost, NodeReader, Spelling, operator, param
from vtensor.tensor import VTensor


def _read(node: NodeReader) -> VTensor:
    x = node.input(0)
    return node.add(Softmax((node.axis(int(node.attribute("axis", -1)), x),)), x)


def _read_flattening(node: NodeReader) -> VTensor:
    """Up to opset 12 the dims from ``axis`` on were one."""
    x = node.input(0)
    axis = int(node.attribute("axis", 1))
    names = list(x.dims)
    if not -len(names) <= axis < len(names):
        raise node.refuse(f"axis {axis} of {len(names)} dims")
    return node.add(Softmax(tuple(names[axis:])), x)


@operator(
    "Softmax",
    dims={"x": "*", "y": "*"},
    onnx=[
        Spelling("Softmax", 1, _read_flattening, same_names, until=12),
        Spelling("Softmax", 13, _read, same_names, write=write_along("Softmax")),
    ],
    traits=[Cost(5)],
)
class Softmax:
    """Exponentials, divided by their sum along some dims.

    y = exp(x - m) / (sum over axis of exp(x - m)), m the largest x along axis.

    Dims:
        x, y: any, the same
    Args:
        axis: the dims over which the results add up to 1.
    Raises:
        DimError: x has no such dim, or ``axis`` names none.
    Cost:
        5 operations an element: largest, difference, exp, sum, quotient.

    >>> from vtensor.operators import Context
    >>> Softmax(("C",)).compute(Context(), VTensor("f32", {"N": 1, "C": 1000})).summary()
    'f32 N=1 C=1000'

    Source: ONNX operator Softmax, opset 13; up to opset 12 ``axis`` began a row of dims.
    """

    axis: tuple[str, ...] = param()

    def compute(self, ctx: Context, x: VTensor) -> VTensor:
        if not self.axis or not x.dims.keys() >= set(self.axis):
            raise DimError(f"axis {self.axis} must name dims of x")
        y = VTensor(x.dtype, x.dims, ctx.output(0))
        ctx.dispatch(self, [x], [y])
        return y


def _one_axis(op: Softmax, x: VTensor, y: VTensor) -> bool | str:
    if sum(x.size(dim) > 1 for dim in op.axis) > 1:
        return f"sums over several dims, {' '.join(op.axis)}"
    return True


@invoker("Softmax", library="onednn", dtypes=["f32", "bf16", "f16"], when=_one_axis, inplace=["x"])
def onednn_softmax(ctx: Context, op: Softmax, x: VTensor, y: VTensor) -> Routine:
    return onednn.Softmax(x, y, max(op.axis, key=x.size))


@invoker("Softmax", library="eigen", dtypes=eigen.DTYPES)
def eigen_softmax(ctx: Context, op: Softmax, x: VTensor, y: VTensor) -> Routine:
    return eigen.softmax(x, y, op.axis)


@invoker("Softmax", library="numpy", dtypes=FLOATS, python=True)
def numpy_softmax(ctx: Context, op: Softmax, x: VTensor, y: VTensor) -> None:
    order = Layout.plain(x.dims)
    src, dst = PTensor(x).require(order), PTensor(y).require(order)
    if lib_tagger("numpy", [src], [dst]):
        return
    axis = tuple(order.dims.index(dim) for dim in op.axis)
    largest = src.data().max(axis=axis, keepdims=True, initial=lowest(src.data().dtype))
    with np.errstate(invalid="ignore"):  # of infinite ones it is not a number
        power = np.exp(src.data() - largest)
        total = wide(power).sum(axis=axis, keepdims=True)  # in bf16 it would end at 256 ones
        dst.data()[...] = power / total.astype(power.dtype)
