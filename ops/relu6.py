"""Rectified linear units that end at 6, and clipping to any range."""

from __future__ import annotations

import math

import numpy as np

from libdesc import eigen, invoker, onednn
from libdesc.numpy.arrays import NUMBERS
from libdesc.routine import Routine
from ops._elementwise import NATIVE, Array, Unary, numpy_unary
from ops._names import same_names
from ops.binary import Max, Min
from ptensor import Layout, PTensor, lib_tagger
from vtensor.errors import VTensorError
from vtensor.operators import (
    Clamp,
    Context,
    Elementwise,
    NodeReader,
    NodeWriter,
    Post,
    Spelling,
    operator,
    param,
)
from vtensor.tensor import VTensor


def _bound(node: NodeReader, index: int, name: str) -> float | None:
    """A bound of Clip: an attribute up to opset 10, a constant input since."""
    if node.opset < 11:
        value = node.attribute(name)
        return None if value is None else float(value)
    return float(_number(node, index)) if node.has(index) else None


def _number(node: NodeReader, index: int) -> float:
    """A bound that is known: a scalar, or a row of one, which ONNX Runtime takes too."""
    bound = node.constant(index)
    if bound.shape not in ((), (1,)):
        raise node.refuse(f"a bound of shape {bound.shape}, which is to be one number")
    number: float = bound.item()
    return number


def _read(node: NodeReader) -> VTensor:
    low, high = _bound(node, 1, "min"), _bound(node, 2, "max")
    if (low, high) != (0, 6):
        raise node.refuse(f"it clips to [{low}, {high}], not [0, 6]")
    return node.add(Relu6(), node.input(0))


def _read_clip(node: NodeReader) -> VTensor:
    """Bounds that are computed from data are operands of Max and Min."""
    x = node.input(0)
    if node.opset < 11:
        low, high = node.attribute("min", -math.inf), node.attribute("max", math.inf)
        return node.add(Clip(float(low), float(high)), x)
    try:
        known = [_number(node, i) if node.has(i) else None for i in (1, 2)]
    except VTensorError:
        x = node.add(Max(), x, node.reshape(node.input(1), {})) if node.has(1) else x
        return node.add(Min(), x, node.reshape(node.input(2), {})) if node.has(2) else x
    low, high = known
    return node.add(Clip(-math.inf if low is None else low, math.inf if high is None else high), x)


def _write(node: NodeWriter, op: Clip) -> None:
    _emit(node, op.low, op.high)


def _write_relu6(node: NodeWriter, op: Relu6) -> None:
    _emit(node, 0, 6)


def _emit(node: NodeWriter, *bounds: float) -> None:
    [x] = node.inputs
    given = ("" if math.isinf(bound) else node.constant(bound, x.dtype) for bound in bounds)
    node.emit("Clip", node.operand(x), *given)


@operator(
    "Relu6",
    dims={"x": "*", "y": "*"},
    onnx=Spelling("Clip", 6, _read, same_names, write=_write_relu6),
    traits=[Elementwise(), Post(lambda _: Clamp(0, 6))],
)
class Relu6:
    """Clip to the range from 0 to 6: y = min(max(x, 0), 6); NaN stays NaN.

    Dims:
        x, y: any, the same

    >>> from vtensor.operators import Context
    >>> Relu6().compute(Context(), VTensor("f32", {"N": 2, "C": 3})).summary()
    'f32 N=2 C=3'

    Source: ONNX operator Clip with the bounds 0 and 6, opset 13.
    """

    def compute(self, ctx: Context, x: VTensor) -> VTensor:
        y = VTensor(x.dtype, x.dims, ctx.output(0))
        ctx.dispatch(self, [x], [y])
        return y


@invoker("Relu6", library="onednn", dtypes=["f32", "bf16", "f16"], inplace=["x"])
def onednn_relu6(ctx: Context, op: Relu6, x: VTensor, y: VTensor) -> Routine:
    return onednn.Clip(x, y, 0.0, 6.0)


@invoker("Relu6", library="eigen", dtypes=eigen.DTYPES, inplace=["x"])
def eigen_relu6(ctx: Context, op: Relu6, x: VTensor, y: VTensor) -> Routine:
    return eigen.pointwise(lambda value: value.max(0).min(6), [x], y)


@invoker("Relu6", library="numpy", dtypes=NUMBERS, python=True)
def numpy_relu6(ctx: Context, op: Relu6, x: VTensor, y: VTensor) -> None:
    src, dst = PTensor(x).require(Layout.ANY), PTensor(y).require(Layout.ANY)
    if lib_tagger("numpy", [src], [dst]):
        return
    np.clip(src.data(), 0, 6, out=dst.data())


@operator(
    "Clip",
    dims={"x": "*", "y": "*"},
    onnx=Spelling("Clip", 6, _read_clip, same_names, write=_write),
    traits=[Elementwise(), Post(lambda op: Clamp(op.low, op.high))],
)
class Clip(Unary):
    """Clip to a range: y = min(max(x, low), high); NaN stays NaN.

    Dims:
        x, y: any, the same
    Args:
        low, high: the bounds, both included; ``high`` wins where it is the smaller.

    >>> Clip(-1.0, 1.0).compute(Context(), VTensor("f32", {"N": 2, "C": 3})).summary()
    'f32 N=2 C=3'

    Source: ONNX operator Clip, opset 13.
    """

    low: float = param(default=-math.inf)
    high: float = param(default=math.inf)


def _clip(op: Clip, x: Array) -> Array:
    """Infinite bounds are left out: integers have none."""
    if op.low > -math.inf:
        x = np.maximum(x, np.asarray(op.low).astype(x.dtype))
    if op.high < math.inf:
        x = np.minimum(x, np.asarray(op.high).astype(x.dtype))
    return x


numpy_unary("Clip", _clip)


@invoker("Clip", library="onednn", dtypes=NATIVE, inplace=["x"])
def onednn_clip(ctx: Context, op: Clip, x: VTensor, y: VTensor) -> Routine:
    return onednn.Clip(x, y, op.low, op.high)
