"""Softmax, LogSoftmax and Hardmax along some dims."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import TypeVar

import numpy as np

from libdesc import eigen, invoker, onednn
from libdesc.numpy import definition
from libdesc.numpy.arrays import FLOATS, Array, wide
from libdesc.routine import Routine
from ops._elementwise import Unary
from ops._layers_ahead import LAYERS
from ops._names import same_names
from ops._normalizations import dims_from, moved_last, positions
from ops._writing import write_along
from ptensor import Layout, PTensor
from vtensor.language.records import dataclass
from vtensor.language.traits import Trait
from vtensor.operators import (
    Context,
    Cost,
    Jumps,
    NodeReader,
    Spelling,
    Stretches,
    operator,
    param,
)
from vtensor.tensor import VTensor


@dataclass(frozen=True)
class Along(Unary):
    """An operator that computes along the dims ``axis``; the output has the dims of x."""

    axis: tuple[str, ...] = param(dims_of="x")


A = TypeVar("A", bound=Along)


def _along(cost: int, *more: Trait) -> Callable[[type[A]], type[A]]:
    """Return a decorator that registers an operator that computes along some dims.

    ONNX has one attribute ``axis``. Up to opset 12 it means all dims from that one to the last.

    Args:
        cost: the number of operations for each element.
        more: the operator's traits besides ``Cost``.
    """

    def register(cls: type[A]) -> type[A]:
        name = cls.__name__

        def read(node: NodeReader) -> VTensor:
            x = node.input(0)
            return node.add(cls((node.axis(int(node.attribute("axis", -1)), x),)), x)

        def read_flattening(node: NodeReader) -> VTensor:
            x = node.input(0)
            return node.add(cls(dims_from(node, x, 1)), x)

        old = Spelling(name, 1, read_flattening, same_names, until=12)
        ahead = LAYERS.get(name)
        new = Spelling(name, 13, read, same_names, write=write_along(name), ahead=ahead)
        holds = [(lambda op, _: bool(op.axis), "axis () must name dims of x")]
        dims, traits = {"x": "*", "y": "*"}, [Cost(cost), *more]
        return operator(name, dims=dims, holds=holds, onnx=[old, new], traits=traits)(cls)

    return register


@_along(5, Stretches())
class Softmax(Along):
    """Divide exponentials by their sum along some dims.

    y = exp(x - m) / (sum over axis of exp(x - m)), m the largest x along axis.

    Dims:
        x, y: any, the same
    Args:
        axis: the dims over which the results add up to 1.
    Raises:
        DimError: x has no such dim, or ``axis`` names none.
    Cost:
        5 operations for each element: largest, difference, exp, sum, quotient.

    >>> from vtensor.operators import Context
    >>> Softmax(("C",)).compute(Context(), VTensor("f32", {"N": 1, "C": 1000})).summary()
    'f32 N=1 C=1000'

    Source: ONNX operator Softmax, opset 13; up to opset 12 ``axis`` is the first of the dims.
    """


@_along(cost=5)
class LogSoftmax(Along):
    """Compute the logarithm of Softmax.

    y = x - m - ln(sum over axis of exp(x - m)), m the largest x along axis.

    Dims:
        x, y: any, the same
    Args:
        axis: the dims over which the exponentials of the results add up to 1.
    Raises:
        DimError: x has no such dim, or ``axis`` names none.
    Cost:
        5 operations for each element: largest, difference, exp, sum, difference.

    >>> from vtensor.operators import Context
    >>> LogSoftmax(("C",)).compute(Context(), VTensor("f32", {"N": 1, "C": 1000})).summary()
    'f32 N=1 C=1000'

    Source: ONNX operator LogSoftmax, opset 13; up to opset 12 ``axis`` is the first of the dims.
    """


@_along(1, Jumps())
class Hardmax(Along):
    """Put 1 for the first of the largest elements along some dims, and 0 for all others.

    Dims:
        x, y: any, the same
    Args:
        axis: the dims, slowest first; their order decides which of equal elements is the first.
    Raises:
        DimError: x has no such dim, or ``axis`` names none.

    >>> from vtensor.operators import Context
    >>> Hardmax(("C",)).compute(Context(), VTensor("f32", {"N": 1, "C": 1000})).summary()
    'f32 N=1 C=1000'

    Source: ONNX operator Hardmax, opset 13; up to opset 12 ``axis`` is the first of the dims.
    """


def _one_axis(op: Along, x: VTensor, y: VTensor) -> bool | str:
    several = sum(x.size(dim) > 1 for dim in op.axis) > 1
    return not several or f"sums over several dims, {' '.join(op.axis)}"


@invoker("Softmax", library="onednn", dtypes=["f32", "bf16", "f16"], when=_one_axis, inplace=["x"])
def onednn_softmax(ctx: Context, op: Softmax, x: VTensor, y: VTensor) -> Routine:
    return onednn.Softmax(x, y, max(op.axis, key=x.size))


@invoker("LogSoftmax", library="onednn", dtypes=["f32", "bf16", "f16"], when=_one_axis)
def onednn_logsoftmax(ctx: Context, op: LogSoftmax, x: VTensor, y: VTensor) -> Routine:
    return onednn.Softmax(x, y, max(op.axis, key=x.size), logarithm=True)


@invoker("Softmax", library="eigen", dtypes=eigen.DTYPES)
def eigen_softmax(ctx: Context, op: Softmax, x: VTensor, y: VTensor) -> Routine:
    return eigen.softmax(x, y, op.axis)


@invoker("Hardmax", library="eigen", dtypes=("f64", *eigen.FRACTIONS))
def eigen_hardmax(ctx: Context, op: Hardmax, x: VTensor, y: VTensor) -> Routine:
    return eigen.hardmax(x, y, op.axis)


def _below(values: Array, axes: tuple[int, ...]) -> Array:
    """Return ``values``, from each of which the largest one along ``axes`` is subtracted."""
    return np.asarray(values - values.max(axes, keepdims=True, initial=-np.inf))


@definition("Softmax", dtypes=FLOATS)
def softmax(ctx: Context, op: Softmax, x: PTensor, y: PTensor) -> None:
    axes = positions(x, op.axis)
    power = np.exp(_below(x.data(), axes))
    # In a narrow type the sum of many numbers stops growing: a sum of ones at 256 in bf16, and at
    # 2**24 in f32.
    total = power.sum(axes, keepdims=True, dtype=np.float64)
    y.data()[...] = power / total.astype(power.dtype)


@definition("LogSoftmax", dtypes=FLOATS)
def logsoftmax(ctx: Context, op: LogSoftmax, x: PTensor, y: PTensor) -> None:
    axes = positions(x, op.axis)
    below = _below(wide(x.data()), axes)
    y.data()[...] = below - np.log(np.exp(below).sum(axes, keepdims=True, dtype=np.float64))


def _axes_last(op: Hardmax, *tensors: VTensor) -> list[Layout]:
    return [Layout.plain(moved_last(list(t.dims), op.axis)) for t in tensors]


@definition("Hardmax", dtypes=FLOATS, orders=_axes_last)
def hardmax(ctx: Context, op: Hardmax, x: PTensor, y: PTensor) -> None:
    if length := prod(map(x.size, op.axis)):
        rows, result = (t.data().reshape(-1, length) for t in (x, y))
        result[...] = np.arange(length) == rows.argmax(axis=1)[:, None]
