"""What is like Softmax: its logarithm, and the place of the largest."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from libdesc import invoker, onednn
from libdesc.numpy.arrays import FLOATS, wide
from libdesc.routine import Routine
from ops._names import same_names
from ops._writing import write_along
from ptensor import Layout, PTensor, lib_tagger
from vtensor.errors import DimError
from vtensor.operators import Context, Cost, NodeReader, Spelling, operator, param
from vtensor.tensor import VTensor


def _spellings(op_type: str, make: Callable[[tuple[str, ...]], object]) -> list[Spelling]:
    """Up to opset 12 the dims from ``axis`` on were one."""

    def read(node: NodeReader) -> VTensor:
        x = node.input(0)
        return node.add(make((node.axis(int(node.attribute("axis", -1)), x),)), x)

    def read_flattening(node: NodeReader) -> VTensor:
        x = node.input(0)
        axis, names = int(node.attribute("axis", 1)), list(x.dims)
        if not -len(names) <= axis < len(names):
            raise node.refuse(f"axis {axis} of {len(names)} dims")
        return node.add(make(tuple(names[axis:])), x)

    return [
        Spelling(op_type, 1, read_flattening, same_names, until=12),
        Spelling(op_type, 13, read, same_names, write=write_along(op_type)),
    ]


class _Along:
    """An operator along some dims that leaves all dims as they are."""

    axis: tuple[str, ...]

    def compute(self, ctx: Context, x: VTensor) -> VTensor:
        if not self.axis or not x.dims.keys() >= set(self.axis):
            raise DimError(f"axis {self.axis} must name dims of x")
        y = VTensor(x.dtype, x.dims, ctx.output(0))
        ctx.dispatch(self, [x], [y])
        return y


@operator(
    "LogSoftmax",
    dims={"x": "*", "y": "*"},
    onnx=_spellings("LogSoftmax", lambda axis: LogSoftmax(axis)),
    traits=[Cost(5)],
)
class LogSoftmax(_Along):
    """The logarithm of Softmax.

    y = x - m - ln(sum over axis of exp(x - m)), m the largest x along axis.

    Dims:
        x, y: any, the same
    Args:
        axis: the dims over which the exponentials of the results add up to 1.
    Raises:
        DimError: x has no such dim, or ``axis`` names none.
    Cost:
        5 operations an element: largest, difference, exp, sum, difference.

    >>> from vtensor.operators import Context
    >>> LogSoftmax(("C",)).compute(Context(), VTensor("f32", {"N": 1, "C": 1000})).summary()
    'f32 N=1 C=1000'

    Source: ONNX operator LogSoftmax, opset 13; up to opset 12 ``axis`` began a row of dims.
    """

    axis: tuple[str, ...] = param()


@operator(
    "Hardmax",
    dims={"x": "*", "y": "*"},
    onnx=_spellings("Hardmax", lambda axis: Hardmax(axis)),
    traits=[Cost(1)],
)
class Hardmax(_Along):
    """1 for the first of the largest elements along some dims, 0 for all others.

    Dims:
        x, y: any, the same
    Args:
        axis: the dims; the first is the slowest where it is to be said which element comes first.
    Raises:
        DimError: x has no such dim, or ``axis`` names none.

    >>> from vtensor.operators import Context
    >>> Hardmax(("C",)).compute(Context(), VTensor("f32", {"N": 1, "C": 1000})).summary()
    'f32 N=1 C=1000'

    Source: ONNX operator Hardmax, opset 13; up to opset 12 ``axis`` began a row of dims.
    """

    axis: tuple[str, ...] = param()


def _one_axis(op: LogSoftmax, x: VTensor, y: VTensor) -> bool | str:
    if sum(x.size(dim) > 1 for dim in op.axis) > 1:
        return f"sums over several dims, {' '.join(op.axis)}"
    return True


@invoker("LogSoftmax", library="onednn", dtypes=["f32", "bf16", "f16"], when=_one_axis)
def onednn_logsoftmax(ctx: Context, op: LogSoftmax, x: VTensor, y: VTensor) -> Routine:
    axis = max(op.axis, key=x.size)
    return onednn.Softmax(x, y, axis, logarithm=True)


@invoker("LogSoftmax", library="numpy", dtypes=FLOATS, python=True)
def numpy_logsoftmax(ctx: Context, op: LogSoftmax, x: VTensor, y: VTensor) -> None:
    order = Layout.plain(x.dims)
    src, dst = PTensor(x).require(order), PTensor(y).require(order)
    if lib_tagger("numpy", [src], [dst]):
        return
    if x.num_elements == 0:
        return
    axis = tuple(order.dims.index(dim) for dim in op.axis)
    values = wide(src.data())
    with np.errstate(invalid="ignore"):  # of infinite ones it is not a number
        below = values - values.max(axis=axis, keepdims=True)
        dst.data()[...] = below - np.log(np.exp(below).sum(axis=axis, keepdims=True))


@invoker("Hardmax", library="numpy", dtypes=FLOATS, python=True)
def numpy_hardmax(ctx: Context, op: Hardmax, x: VTensor, y: VTensor) -> None:
    order = Layout.plain([*(dim for dim in x.dims if dim not in op.axis), *op.axis])
    src, dst = PTensor(x).require(order), PTensor(y).require(order)
    if lib_tagger("numpy", [src], [dst]):
        return
    if x.num_elements == 0:
        return
    length = int(np.prod([x.size(dim) for dim in op.axis]))
    rows, result = src.data().reshape(-1, length), dst.data().reshape(-1, length)
    result[...] = np.arange(length) == rows.argmax(axis=1)[:, None]
