"""Sums, products, extremes and norms over some dims."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from libdesc import invoker, onednn
from libdesc.numpy.arrays import NUMBERS, highest, lowest, wide
from libdesc.routine import Routine
from ops._reduce import AXES_ARE_AN_INPUT, Reduction, reduced_dims, reduction_names
from ops._writing import write_reduction
from ptensor import Layout, PTensor, lib_tagger
from vtensor.operators import Context, Cost, NodeReader, Spelling, operator
from vtensor.tensor import VTensor

Array = np.ndarray[Any, Any]


def _spelling(
    op_type: str, make: Callable[..., Reduction], since: int = AXES_ARE_AN_INPUT
) -> Spelling:
    """How ONNX writes a reduction; its axes are an input from opset ``since`` on."""

    def read(node: NodeReader) -> VTensor:
        x = node.input(0)
        return node.add(make(reduced_dims(node, x, since), bool(node.attribute("keepdims", 1))), x)

    return Spelling(op_type, 1, read, reduction_names(since), write=write_reduction(op_type, since))


@operator(
    "ReduceSum",
    dims={"x": "*", "y": "*"},
    onnx=_spelling("ReduceSum", lambda *given: ReduceSum(*given), 13),
    traits=[Cost(1)],
)
class ReduceSum(Reduction):
    """The sum over some dims; of no elements, 0.

    y = sum of x, over ``axes``.

    Dims:
        x: any    y: x's, without those in ``axes`` or with size 1 there
    Args:
        axes: the dims; none of them means that each element stands alone.
        keepdims: keep the dims, with size 1.
    Raises:
        DimError: x has no such dim, or one is named twice.

    >>> from vtensor.operators import Context
    >>> x = VTensor("f32", {"N": 1, "C": 64, "H": 7, "W": 7})
    >>> ReduceSum(("H", "W"), keepdims=False).compute(Context(), x).summary()
    'f32 N=1 C=64'

    Source: ONNX operator ReduceSum, opset 13.
    """


@operator(
    "ReduceMax",
    dims={"x": "*", "y": "*"},
    onnx=_spelling("ReduceMax", lambda *given: ReduceMax(*given)),
    traits=[Cost(1)],
)
class ReduceMax(Reduction):
    """The largest element over some dims; of none, what no element is below.

    y = max of x, over ``axes``.

    Dims:
        x: any    y: x's, without those in ``axes`` or with size 1 there
    Args:
        axes: the dims; none of them means that each element stands alone.
        keepdims: keep the dims, with size 1.
    Raises:
        DimError: x has no such dim, or one is named twice.

    >>> from vtensor.operators import Context
    >>> x = VTensor("f32", {"N": 1, "C": 64, "H": 7, "W": 7})
    >>> ReduceMax(("H", "W"), keepdims=False).compute(Context(), x).summary()
    'f32 N=1 C=64'

    Source: ONNX operator ReduceMax, opset 20.
    """


@operator(
    "ReduceMin",
    dims={"x": "*", "y": "*"},
    onnx=_spelling("ReduceMin", lambda *given: ReduceMin(*given)),
    traits=[Cost(1)],
)
class ReduceMin(Reduction):
    """The smallest element over some dims; of none, what no element is above.

    y = min of x, over ``axes``.

    Dims:
        x: any    y: x's, without those in ``axes`` or with size 1 there
    Args:
        axes: the dims; none of them means that each element stands alone.
        keepdims: keep the dims, with size 1.
    Raises:
        DimError: x has no such dim, or one is named twice.

    >>> from vtensor.operators import Context
    >>> x = VTensor("f32", {"N": 1, "C": 64, "H": 7, "W": 7})
    >>> ReduceMin(("H", "W"), keepdims=False).compute(Context(), x).summary()
    'f32 N=1 C=64'

    Source: ONNX operator ReduceMin, opset 20.
    """


@operator(
    "ReduceProd",
    dims={"x": "*", "y": "*"},
    onnx=_spelling("ReduceProd", lambda *given: ReduceProd(*given)),
    traits=[Cost(1)],
)
class ReduceProd(Reduction):
    """The product over some dims; of no elements, 1.

    y = product of x, over ``axes``.

    Dims:
        x: any    y: x's, without those in ``axes`` or with size 1 there
    Args:
        axes: the dims; none of them means that each element stands alone.
        keepdims: keep the dims, with size 1.
    Raises:
        DimError: x has no such dim, or one is named twice.

    >>> from vtensor.operators import Context
    >>> x = VTensor("f32", {"N": 1, "C": 64, "H": 7, "W": 7})
    >>> ReduceProd(("H", "W"), keepdims=False).compute(Context(), x).summary()
    'f32 N=1 C=64'

    Source: ONNX operator ReduceProd, opset 18.
    """


@operator(
    "ReduceL1",
    dims={"x": "*", "y": "*"},
    onnx=_spelling("ReduceL1", lambda *given: ReduceL1(*given)),
    traits=[Cost(2)],
)
class ReduceL1(Reduction):
    """The sum of magnitudes over some dims.

    y = sum of |x|, over ``axes``.

    Dims:
        x: any    y: x's, without those in ``axes`` or with size 1 there
    Args:
        axes: the dims; none of them means that each element stands alone.
        keepdims: keep the dims, with size 1.
    Raises:
        DimError: x has no such dim, or one is named twice.

    >>> from vtensor.operators import Context
    >>> x = VTensor("f32", {"N": 1, "C": 64, "H": 7, "W": 7})
    >>> ReduceL1(("H", "W"), keepdims=False).compute(Context(), x).summary()
    'f32 N=1 C=64'

    Source: ONNX operator ReduceL1, opset 18.
    """


@operator(
    "ReduceL2",
    dims={"x": "*", "y": "*"},
    onnx=_spelling("ReduceL2", lambda *given: ReduceL2(*given)),
    traits=[Cost(2)],
)
class ReduceL2(Reduction):
    """The Euclidean length over some dims.

    y = sqrt(sum of x^2), over ``axes``.

    Dims:
        x: any    y: x's, without those in ``axes`` or with size 1 there
    Args:
        axes: the dims; none of them means that each element stands alone.
        keepdims: keep the dims, with size 1.
    Raises:
        DimError: x has no such dim, or one is named twice.

    >>> from vtensor.operators import Context
    >>> x = VTensor("f32", {"N": 1, "C": 64, "H": 7, "W": 7})
    >>> ReduceL2(("H", "W"), keepdims=False).compute(Context(), x).summary()
    'f32 N=1 C=64'

    Source: ONNX operator ReduceL2, opset 18.
    """


@operator(
    "ReduceSumSquare",
    dims={"x": "*", "y": "*"},
    onnx=_spelling("ReduceSumSquare", lambda *given: ReduceSumSquare(*given)),
    traits=[Cost(2)],
)
class ReduceSumSquare(Reduction):
    """The sum of squares over some dims.

    y = sum of x^2, over ``axes``.

    Dims:
        x: any    y: x's, without those in ``axes`` or with size 1 there
    Args:
        axes: the dims; none of them means that each element stands alone.
        keepdims: keep the dims, with size 1.
    Raises:
        DimError: x has no such dim, or one is named twice.

    >>> from vtensor.operators import Context
    >>> x = VTensor("f32", {"N": 1, "C": 64, "H": 7, "W": 7})
    >>> ReduceSumSquare(("H", "W"), keepdims=False).compute(Context(), x).summary()
    'f32 N=1 C=64'

    Source: ONNX operator ReduceSumSquare, opset 18.
    """


@operator(
    "ReduceLogSum",
    dims={"x": "*", "y": "*"},
    onnx=_spelling("ReduceLogSum", lambda *given: ReduceLogSum(*given)),
    traits=[Cost(1)],
)
class ReduceLogSum(Reduction):
    """The logarithm of the sum over some dims.

    y = log(sum of x), over ``axes``.

    Dims:
        x: any    y: x's, without those in ``axes`` or with size 1 there
    Args:
        axes: the dims; none of them means that each element stands alone.
        keepdims: keep the dims, with size 1.
    Raises:
        DimError: x has no such dim, or one is named twice.

    >>> from vtensor.operators import Context
    >>> x = VTensor("f32", {"N": 1, "C": 64, "H": 7, "W": 7})
    >>> ReduceLogSum(("H", "W"), keepdims=False).compute(Context(), x).summary()
    'f32 N=1 C=64'

    Source: ONNX operator ReduceLogSum, opset 18.
    """


@operator(
    "ReduceLogSumExp",
    dims={"x": "*", "y": "*"},
    onnx=_spelling("ReduceLogSumExp", lambda *given: ReduceLogSumExp(*given)),
    traits=[Cost(4)],
)
class ReduceLogSumExp(Reduction):
    """The logarithm of the sum of exponentials over some dims.

    y = log(sum of exp(x)), without overflow, over ``axes``.

    Dims:
        x: any    y: x's, without those in ``axes`` or with size 1 there
    Args:
        axes: the dims; none of them means that each element stands alone.
        keepdims: keep the dims, with size 1.
    Raises:
        DimError: x has no such dim, or one is named twice.

    >>> from vtensor.operators import Context
    >>> x = VTensor("f32", {"N": 1, "C": 64, "H": 7, "W": 7})
    >>> ReduceLogSumExp(("H", "W"), keepdims=False).compute(Context(), x).summary()
    'f32 N=1 C=64'

    Source: ONNX operator ReduceLogSumExp, opset 18.
    """


#: oneDNN's algorithm of each operator that it has a real kernel for. Its norms have none, and its
#: maximum and minimum lose NaN, which must reach the result: all these are left to NumPy.
_ALGORITHMS: dict[type[Reduction], str] = {ReduceSum: "sum", ReduceProd: "mul"}


@invoker("ReduceSum", library="onednn", dtypes=["f32", "bf16", "f16"])
@invoker("ReduceProd", library="onednn", dtypes=["f32", "bf16", "f16"])
def onednn_reduce(ctx: Context, op: Reduction, x: VTensor, y: VTensor) -> Routine:
    return onednn.Reduction(_ALGORITHMS[type(op)], x, y)


def _log_sum(x: Array, axis: tuple[int, ...]) -> Array:
    return np.asarray(np.log(x.sum(axis, keepdims=True)))


def _log_sum_exp(x: Array, axis: tuple[int, ...]) -> Array:
    largest = np.asarray(x.max(axis, keepdims=True, initial=lowest(x.dtype)))
    shift = np.where(np.isfinite(largest) & (x.size > 0), largest, 0)
    powers = np.exp(np.subtract(x, shift, dtype=np.result_type(x, np.float32)))
    return np.asarray(np.log(powers.sum(axis, keepdims=True)) + shift)


#: What each operator computes, the dims kept.
_FORMULAS: dict[type[Reduction], Callable[[Array, tuple[int, ...]], Array]] = {
    ReduceSum: lambda x, axis: x.sum(axis, keepdims=True),
    ReduceMax: lambda x, axis: x.max(axis, keepdims=True, initial=lowest(x.dtype)),
    ReduceMin: lambda x, axis: x.min(axis, keepdims=True, initial=highest(x.dtype)),
    ReduceProd: lambda x, axis: x.prod(axis, keepdims=True),
    ReduceL1: lambda x, axis: np.abs(x).sum(axis, keepdims=True),
    ReduceL2: lambda x, axis: np.sqrt(np.square(x).sum(axis, keepdims=True)),
    ReduceSumSquare: lambda x, axis: np.square(x).sum(axis, keepdims=True),
    ReduceLogSum: _log_sum,
    ReduceLogSumExp: _log_sum_exp,
}


@invoker("ReduceSum", library="numpy", dtypes=NUMBERS, python=True)
@invoker("ReduceMax", library="numpy", dtypes=(*NUMBERS, "bool"), python=True)
@invoker("ReduceMin", library="numpy", dtypes=(*NUMBERS, "bool"), python=True)
@invoker("ReduceProd", library="numpy", dtypes=NUMBERS, python=True)
@invoker("ReduceL1", library="numpy", dtypes=NUMBERS, python=True)
@invoker("ReduceL2", library="numpy", dtypes=NUMBERS, python=True)
@invoker("ReduceSumSquare", library="numpy", dtypes=NUMBERS, python=True)
@invoker("ReduceLogSum", library="numpy", dtypes=NUMBERS, python=True)
@invoker("ReduceLogSumExp", library="numpy", dtypes=NUMBERS, python=True)
def numpy_reduce(ctx: Context, op: Reduction, x: VTensor, y: VTensor) -> None:
    order = Layout.plain(x.dims)
    src, dst = PTensor(x).require(order), PTensor(y).require(Layout.plain(y.dims))
    if lib_tagger("numpy", [src], [dst]):
        return
    axis = tuple(order.dims.index(dim) for dim in op.axes)
    with np.errstate(divide="ignore"):  # the logarithm of 0 is the limit that is meant
        dst.data()[...] = _FORMULAS[type(op)](wide(src.data()), axis).reshape(dst.data().shape)
