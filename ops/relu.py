"""Relu, Relu6, and clipping to any range."""

from __future__ import annotations

import math

import numpy as np

from libdesc import onednn
from ops._elementwise import NUMBERS, Array, Unary, elementwise
from ops._names import same_names
from ptensor.encoding import integer_range
from vtensor.errors import VTensorError
from vtensor.language.dtype import from_numpy
from vtensor.operators import (
    Expression,
    NodeReader,
    NodeWriter,
    Spelling,
    named,
    param,
)
from vtensor.tensor import VTensor


@elementwise(
    "Relu",
    1,
    lambda x: np.maximum(x, 0),
    NUMBERS,
    onednn=lambda x, y: onednn.Clip(x, y, low=0.0),
    expression=lambda x: x.max(0),
)
class Relu(Unary):
    """Replace negative elements by 0: y = max(x, 0); NaN stays NaN.

    Dims:
        x, y: any, the same

    >>> from vtensor.operators import Context
    >>> Relu().compute(Context(), VTensor("f32", {"N": 2, "C": 3})).summary()
    'f32 N=2 C=3'

    Source: ONNX operator Relu, opset 14.
    """


def _number(node: NodeReader, index: int) -> float:
    """Return the number in a node's input ``index``, a constant bound.

    The input is a scalar or, as in ONNX Runtime, a vector of one element. An integer is returned as
    an integer, since a float cannot hold all integers of 64 bits.
    """
    bound = node.constant(index)
    if bound.shape not in ((), (1,)):
        raise node.refuse(f"a bound of shape {bound.shape}, which must be one number")
    number: float = bound.item() if bound.dtype.kind in "iu" else float(bound.item())
    return number


def _bounds(node: NodeReader) -> tuple[float, float]:
    """Return the low and the high bound of an ONNX node Clip; a bound that is absent is infinite.

    Bounds are attributes of the node up to opset 10, and inputs from opset 11 on.

    Raises:
        VTensorError: a bound is not known before a run.
    """
    none = -math.inf, math.inf
    if node.opset < 11:
        low, high = map(node.attribute, ("min", "max"), none)
        return float(low), float(high)
    low, high = (_number(node, i) if node.has(i) else none[i - 1] for i in (1, 2))
    return low, high


def _read_relu6(node: NodeReader) -> VTensor:
    if (bounds := _bounds(node)) != (0.0, 6.0):
        raise node.refuse(f"it clips to {list(bounds)}, not [0, 6]")
    return node.add(Relu6(), node.input(0))


def _read_clip(node: NodeReader) -> VTensor:
    """Add the operators that an ONNX node Clip means to the graph, and return the output.

    They are a Clip, or a Max and a Min if a bound is not known before a run.
    """
    x = node.input(0)
    try:
        bounds = _bounds(node)
    except VTensorError:
        for index, limit in ((1, "Max"), (2, "Min")):
            if node.has(index):
                x = node.add(named(limit)(), x, node.reshape(node.input(index), {}))
        return x
    return node.add(Clip(*bounds), x)


def _emit(node: NodeWriter, low: float, high: float) -> None:
    [x] = node.inputs
    bounds = _within(low, high, x.dtype)
    inputs = ("" if math.isinf(bound) else node.constant(bound, x.dtype) for bound in bounds)
    node.emit("Clip", node.operand(x), *inputs)


@elementwise(
    "Relu6",
    Spelling("Clip", 6, _read_relu6, same_names, write=lambda node, _: _emit(node, 0, 6)),
    lambda x: np.clip(x, 0, 6),
    NUMBERS,
    onednn=lambda x, y: onednn.Clip(x, y, 0.0, 6.0),
    expression=lambda x: x.max(0).min(6),
)
class Relu6(Unary):
    """Clip to the range from 0 to 6: y = min(max(x, 0), 6); NaN stays NaN.

    Dims:
        x, y: any, the same

    >>> from vtensor.operators import Context
    >>> Relu6().compute(Context(), VTensor("f32", {"N": 2, "C": 3})).summary()
    'f32 N=2 C=3'

    Source: ONNX operator Clip with the bounds 0 and 6, opset 13.
    """


def _within(low: float, high: float, dtype: str) -> tuple[float, float]:
    """Return the bounds ``low`` and ``high`` for elements of the type ``dtype``.

    For an integer type, a finite bound loses its fraction, and is moved into the type's range if it
    is outside. Other bounds are returned unchanged.
    """
    if dtype[:1] not in ("s", "u"):
        return low, high
    least, most = integer_range(dtype)

    def within_type(bound: float) -> float:
        return min(max(int(bound), least), most) if math.isfinite(bound) else bound

    return within_type(low), within_type(high)


def _clip(op: Clip, x: Array) -> Array:
    """Return ``x`` clipped to the bounds of ``op``.

    An infinite bound is skipped: an integer type has no such number.
    """
    low, high = _within(op.low, op.high, from_numpy(x.dtype))
    if low > -math.inf:
        x = np.maximum(x, np.asarray(low).astype(x.dtype))
    if high < math.inf:
        x = np.minimum(x, np.asarray(high).astype(x.dtype))
    return x


def _bounded(op: Clip, x: Expression) -> Expression:
    low, high = _within(op.low, op.high, x.dtype)
    if low > -math.inf:
        x = x.max(low)
    return x.min(high) if high < math.inf else x


@elementwise(
    "Clip",
    Spelling(
        "Clip", 6, _read_clip, same_names, write=lambda node, op: _emit(node, op.low, op.high)
    ),
    _clip,
    NUMBERS,
    zero=lambda op: min(max(op.low, 0), op.high),
    onednn=lambda op, x, y: onednn.Clip(x, y, op.low, op.high),
    expression=_bounded,
)
class Clip(Unary):
    """Clip to a range: y = min(max(x, low), high); NaN stays NaN.

    Dims:
        x, y: any, the same
    Args:
        low, high: the bounds, both included; if ``high`` is smaller, it wins. For an integer type,
            a bound outside of its range is the nearest integer in it.

    >>> from vtensor.operators import Context
    >>> Clip(-1.0, 1.0).compute(Context(), VTensor("f32", {"N": 2, "C": 3})).summary()
    'f32 N=2 C=3'

    Source: ONNX operator Clip, opset 13.
    """

    low: float = param(default=-math.inf)
    high: float = param(default=math.inf)
