"""Reductions over dims: the mean, sums, products, extremes and norms."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any, TypeVar

import numpy as np

from libdesc import eigen, invoker, onednn
from libdesc.numpy import definition
from libdesc.numpy.arrays import FLOATS, NUMBERS, Array, highest, lowest, wide
from libdesc.numpy.casts import stored
from libdesc.routine import Routine
from ops._layers_ahead import LAYERS
from ops._names import axes_of
from ops._normalizations import positions, without
from ops._places import one_output
from ops._writing import write_reduction
from ptensor import PTensor
from vtensor.language.records import dataclass
from vtensor.operators import Context, Cost, Moves, Naming, NodeReader, Spelling, operator, param
from vtensor.tensor import VTensor

R = TypeVar("R", bound="Reduction")

#: The element types of ReduceMax and ReduceMin.
ORDERED = (*NUMBERS, "bool")


@dataclass(frozen=True)
class Reduction:
    """The shared parameters and ``compute`` of reductions.

    Dims:
        x: any    y: x's, without those in ``axes`` or with size 1 there
    Args:
        axes: the dims to reduce; if empty, each element is reduced by itself.
        keepdims: True keeps the reduced dims, with size 1; False drops them.
    Raises:
        DimError: x has no such dim, or one is named twice.

    >>> from vtensor.operators import Context
    >>> x = VTensor("f32", {"N": 1, "C": 64, "H": 7, "W": 7})
    >>> ReduceSum(("H", "W"), keepdims=False).compute(Context(), x).summary()
    'f32 N=1 C=64'
    """

    axes: tuple[str, ...] = param(dims_of="x")
    keepdims: bool = param(default=True)

    def compute(self, ctx: Context, x: VTensor) -> VTensor:
        """Dispatch on x, and return the output, whose reduced dims are dropped or have size 1."""
        return one_output(ctx, self, [x], without(x, self.axes, self.keepdims))


def _names(since: int) -> Callable[[Naming], None]:
    """Return a function that names the axes of a reduction's input and output.

    ``since`` is the first opset in which the reduced axes are an input of the ONNX node.
    """

    def names(node: Naming) -> None:
        rank = node.rank("x0")
        if node.rank("y0") == rank:
            kept = list(range(rank))
        elif node.opset >= since:
            return  # the axes are an input's value: reading the node names the remaining dims
        else:
            reduced = {axis % rank for axis in node.attribute("axes") or range(rank)}
            kept = [position for position in range(rank) if position not in reduced]
        for place, position in enumerate(kept):
            node.same("x0", position, "y0", place)

    return names


def _reduced(node: NodeReader, x: VTensor, since: int) -> tuple[str, ...]:
    """Return the dims of ``x`` over which an ONNX node reduces.

    The node names their indices: in an attribute, or from opset ``since`` on in an input. If it
    names none, all dims are reduced, or no dim if its attribute ``noop_with_empty_axes`` is set.
    """
    axes = node.attribute("axes")
    if node.opset >= since and node.has(1):
        axes = [int(axis) for axis in node.constant(1)]
    if not axes:
        axes = [] if node.attribute("noop_with_empty_axes", 0) else list(range(len(x.dims)))
    return axes_of(node, x, axes)


def reduction(
    numpy: Callable[[Array, tuple[int, ...]], Any],
    *,
    eigen_kind: str,
    onednn_alg: str = "",
    dtypes: Sequence[str] = NUMBERS,
    cost: int = 1,
    op_type: str = "",
    opset: int = 18,
    since: int = 18,
    holds: Sequence[tuple[Callable[..., bool], str]] = (),
) -> Callable[[type[R]], type[R]]:
    """Return a decorator that registers a class as a reduction, with its invokers.

    The docstring of ``Reduction`` without its first line is appended to the class's.

    Args:
        numpy: the definition, a function of an array and the indices of the axes to reduce. Its
            result may keep these axes with size 1 or drop them.
        eigen_kind: the name of Eigen's kernel.
        onednn_alg: oneDNN's algorithm; empty if it has no correct kernel.
        dtypes: the element types that ``numpy`` takes.
        cost: operations for each element.
        op_type: the operator's name in ONNX; empty means the class's name.
        opset: the opset in which ONNX last changed the operator.
        since: the first opset in which the reduced axes are an input of the ONNX node.
        holds: conditions on the operands, as for ``operator``.
    """

    def register(cls: type[R]) -> type[R]:
        name, onnx_name = cls.__name__, op_type or cls.__name__

        def read(node: NodeReader) -> VTensor:
            x, keepdims = node.input(0), bool(node.attribute("keepdims", 1))
            return node.add(cls(_reduced(node, x, since), keepdims), x)

        @definition(name, dtypes=dtypes)
        def compute(ctx: Context, op: R, x: PTensor, y: PTensor) -> None:
            result = np.asarray(numpy(wide(x.data()), positions(x, op.axes)))
            # Integers wrap around; NumPy would raise for a scalar that is out of y's range.
            result = stored(result, y.dtype).astype(y.data().dtype)
            y.data()[...] = result.reshape(y.data().shape)

        @invoker(name, library="eigen", dtypes=_eigen_types(eigen_kind))
        def portable(ctx: Context, op: R, x: VTensor, y: VTensor) -> Routine:
            return eigen.reduction(eigen_kind, x, y, op.axes)

        if onednn_alg:

            @invoker(name, library="onednn", dtypes=["f32", "bf16", "f16"])
            def native(ctx: Context, op: R, x: VTensor, y: VTensor) -> Routine:
                return onednn.Reduction(onednn_alg, x, y)

        shared = (Reduction.__doc__ or "").partition("\n\n")[2].replace("ReduceSum(", f"{name}(")
        source = f"Source: ONNX operator {onnx_name}, opset {opset}.\n    "
        cls.__doc__ = f"{cls.__doc__}\n\n{shared.rstrip()}\n\n    {source}"
        write = write_reduction(onnx_name, since)
        ahead = LAYERS.get(onnx_name)
        onnx = Spelling(onnx_name, 1, read, _names(since), write=write, ahead=ahead)
        dims, traits = {"x": "*", "y": "*"}, [Cost(cost), *([Moves()] * (dtypes is ORDERED))]
        return operator(name, dims=dims, holds=holds, onnx=onnx, traits=traits)(cls)

    return register


def _sum(x: Array, axes: tuple[int, ...]) -> Array:
    """Return the sum of ``x`` over ``axes``.

    f32 is added up in f64: NumPy adds rows one by one, which would be inexact in f32.
    """
    return np.asarray(x.sum(axes, dtype=np.float64 if x.dtype == np.float32 else None))


def _eigen_types(kind: str) -> Sequence[str]:
    """Return the element types that Eigen's reduction ``kind`` takes.

    Roots and logarithms take floats only.
    """
    if kind in ("max", "min"):
        return eigen.ORDERED
    rational = kind not in ("l2", "log_sum", "log_sum_exp")
    return [dtype for dtype in eigen.NUMBERS if rational or dtype in FLOATS]


def _mean(x: Array, axes: tuple[int, ...]) -> Array:
    """Return the mean of ``x`` over ``axes``.

    The mean of integers is rounded towards 0, and the mean of no integers is 0.
    """
    count = prod(x.shape[axis] for axis in axes)
    if x.dtype.kind not in "iu":
        return np.asarray(x.sum(axes, dtype=np.float64) / np.float64(count))
    total = np.asarray(x.sum(axes))
    divisor = total.dtype.type(max(count, 1))
    return np.asarray(total // divisor + ((total % divisor != 0) & (total < 0)))


def _log_sum_exp(x: Array, axes: tuple[int, ...]) -> Array:
    largest = np.asarray(x.max(axes, keepdims=True, initial=lowest(x.dtype)))
    shift = np.where(np.isfinite(largest) & (x.size > 0), largest, 0)
    powers = np.exp(np.subtract(x, shift, dtype=np.result_type(x, np.float32)))
    return np.asarray(np.log(_sum(powers, axes).reshape(shift.shape)) + shift)


# oneDNN's norms have reference code only, and its maximum and minimum lose NaN, which must reach
# the result: all these run on Eigen.


@reduction(_mean, eigen_kind="mean", onednn_alg="mean", op_type="ReduceMean")
class Mean(Reduction):
    """Average over some dims; the mean of integers is rounded towards 0.

    The mean of no elements is NaN, of integers 0.
    """


@reduction(_sum, eigen_kind="sum", onednn_alg="sum", opset=13, since=13)
class ReduceSum(Reduction):
    """Add up over some dims; the sum of no elements is 0."""


@reduction(lambda x, axes: x.prod(axes), eigen_kind="prod", onednn_alg="mul")
class ReduceProd(Reduction):
    """Multiply over some dims; the product of no elements is 1."""


@reduction(
    lambda x, axes: x.max(axes, initial=lowest(x.dtype)), eigen_kind="max", dtypes=ORDERED, opset=20
)
class ReduceMax(Reduction):
    """Take the largest element over some dims; of no elements, the smallest of the type."""


@reduction(
    lambda x, axes: x.min(axes, initial=highest(x.dtype)),
    eigen_kind="min",
    dtypes=ORDERED,
    opset=20,
)
class ReduceMin(Reduction):
    """Take the smallest element over some dims; of no elements, the largest of the type."""


@reduction(lambda x, axes: _sum(np.abs(x), axes), eigen_kind="l1", cost=2)
class ReduceL1(Reduction):
    """Add up magnitudes over some dims."""


@reduction(lambda x, axes: np.sqrt(_sum(np.square(x), axes)), eigen_kind="l2", cost=2)
class ReduceL2(Reduction):
    """Take the Euclidean norm over some dims: the root of the sum of squares."""


@reduction(lambda x, axes: _sum(np.square(x), axes), eigen_kind="sum_square", cost=2)
class ReduceSumSquare(Reduction):
    """Add up squares over some dims."""


@reduction(lambda x, axes: np.log(_sum(x, axes)), eigen_kind="log_sum")
class ReduceLogSum(Reduction):
    """Take the logarithm of the sum over some dims."""


@reduction(_log_sum_exp, eigen_kind="log_sum_exp", cost=4)
class ReduceLogSumExp(Reduction):
    """Take the logarithm of the sum of exponentials over some dims, without overflow."""
