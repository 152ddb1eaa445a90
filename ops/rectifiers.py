"""Activation functions in pieces, an operand's sign or size deciding between them."""

from __future__ import annotations

import numpy as np

from libdesc import invoker, onednn
from libdesc.numpy.arrays import FLOATS
from libdesc.routine import Routine
from ops._elementwise import (
    NATIVE,
    Array,
    Binary,
    Unary,
    numpy_binary,
    numpy_unary,
    onednn_unary,
    unary,
)
from ops._names import broadcast_input, broadcast_names, same_names
from ops._writing import write_aligned
from vtensor.errors import VTensorError
from vtensor.operators import (
    Context,
    Elementwise,
    Naming,
    NodeReader,
    NodeWriter,
    Spelling,
    operator,
    param,
)
from vtensor.tensor import VTensor


def _selu(node: NodeReader) -> object:
    alpha, gamma = node.attribute("alpha", 1.6732632), node.attribute("gamma", 1.0507010)
    return Selu(float(alpha), float(gamma))


def _hardsigmoid(node: NodeReader) -> object:
    return HardSigmoid(float(node.attribute("alpha", 0.2)), float(node.attribute("beta", 0.5)))


def _thresholded(node: NodeReader) -> object:
    return ThresholdedRelu(float(node.attribute("alpha", 1.0)))


def _shrink(node: NodeReader) -> object:
    return Shrink(float(node.attribute("lambd", 0.5)), float(node.attribute("bias", 0.0)))


def _read_prelu(node: NodeReader) -> VTensor:
    """One slope for all, known before the run, is LeakyRelu's."""
    x = broadcast_input(node, 0)
    try:
        slope = node.constant(1)
    except VTensorError:
        slope = None
    if slope is not None and slope.size == 1 and slope.dtype.kind not in "iu":
        return node.add(LeakyRelu(float(slope.reshape(()))), x)
    return node.add(PRelu(), x, broadcast_input(node, 1))


def _write_prelu(node: NodeWriter, op: PRelu) -> None:
    if node.inputs[0].dims != node.outputs[0].dims:
        raise node.refuse("slopes that have dims which the other operand has not")
    write_aligned("PRelu")(node, op)


def _old_prelu_names(node: Naming) -> None:
    same_names(node)
    if node.rank("x0") > 1 and node.rank("x1") == 1:
        node.same("x1", 0, "y0", 1)


def _read_old_prelu(node: NodeReader) -> VTensor:
    """Up to opset 6 there was a slope for each channel, or one for all."""
    x, slope = node.input(0), node.input(1)
    names = node.output_names()
    if len(names) < 2 or len(slope.dims) != 1:
        raise node.refuse("slopes of other dims than the channels")
    return node.add(PRelu(), x, node.input(1, names[1]))


@operator(
    "LeakyRelu",
    dims={"x": "*", "y": "*"},
    onnx=unary("LeakyRelu", 6, lambda node: LeakyRelu(float(node.attribute("alpha", 0.01)))),
    traits=[Elementwise()],
)
class LeakyRelu(Unary):
    """Scale what is negative: y = x if x >= 0 else alpha * x.

    Dims:
        x, y: any, the same
    Args:
        alpha: the slope below 0.

    >>> from vtensor import VTensor
    >>> from vtensor.operators import Context
    >>> LeakyRelu().compute(Context(), VTensor("f32", {"N": 2, "C": 3})).summary()
    'f32 N=2 C=3'

    Source: ONNX operator LeakyRelu, opset 16.
    """

    alpha: float = param(default=0.01)


@operator(
    "Elu",
    dims={"x": "*", "y": "*"},
    onnx=unary("Elu", 6, lambda node: Elu(float(node.attribute("alpha", 1.0)))),
    traits=[Elementwise()],
)
class Elu(Unary):
    """Exponentials below 0: y = x if x >= 0 else alpha * (exp(x) - 1).

    Dims:
        x, y: any, the same
    Args:
        alpha: how far below 0 it goes.

    >>> from vtensor import VTensor
    >>> from vtensor.operators import Context
    >>> Elu().compute(Context(), VTensor("f32", {"N": 2, "C": 3})).summary()
    'f32 N=2 C=3'

    Source: ONNX operator Elu, opset 22.
    """

    alpha: float = param(default=1.0)


@operator("Selu", dims={"x": "*", "y": "*"}, onnx=unary("Selu", 6, _selu), traits=[Elementwise()])
class Selu(Unary):
    """A scaled Elu: y = gamma * (x if x > 0 else alpha * (exp(x) - 1)).

    Dims:
        x, y: any, the same
    Args:
        alpha: how far below 0 it goes, before scaling.
        gamma: the scale.

    >>> from vtensor import VTensor
    >>> from vtensor.operators import Context
    >>> Selu().compute(Context(), VTensor("f32", {"N": 2, "C": 3})).summary()
    'f32 N=2 C=3'

    Source: ONNX operator Selu, opset 22.
    """

    alpha: float = param(default=1.6732632)
    gamma: float = param(default=1.0507010)


@operator(
    "Celu",
    dims={"x": "*", "y": "*"},
    onnx=unary("Celu", 12, lambda node: Celu(float(node.attribute("alpha", 1.0)))),
    traits=[Elementwise()],
)
class Celu(Unary):
    """An Elu whose slope at 0 is 1: y = max(x, 0) + min(alpha * (exp(x / alpha) - 1), 0).

    Dims:
        x, y: any, the same
    Args:
        alpha: how far below 0 it goes.

    >>> from vtensor import VTensor
    >>> from vtensor.operators import Context
    >>> Celu().compute(Context(), VTensor("f32", {"N": 2, "C": 3})).summary()
    'f32 N=2 C=3'

    Source: ONNX operator Celu, opset 12.
    """

    alpha: float = param(default=1.0)


@operator(
    "HardSigmoid",
    dims={"x": "*", "y": "*"},
    onnx=unary("HardSigmoid", 6, _hardsigmoid),
    traits=[Elementwise()],
)
class HardSigmoid(Unary):
    """A sigmoid of straight lines: y = max(0, min(1, alpha * x + beta)).

    Dims:
        x, y: any, the same
    Args:
        alpha: the slope.
        beta: the value at 0.

    >>> from vtensor import VTensor
    >>> from vtensor.operators import Context
    >>> HardSigmoid().compute(Context(), VTensor("f32", {"N": 2, "C": 3})).summary()
    'f32 N=2 C=3'

    Source: ONNX operator HardSigmoid, opset 22.
    """

    alpha: float = param(default=0.2)
    beta: float = param(default=0.5)


@operator(
    "ThresholdedRelu",
    dims={"x": "*", "y": "*"},
    onnx=unary("ThresholdedRelu", 10, _thresholded),
    traits=[Elementwise()],
)
class ThresholdedRelu(Unary):
    """Replace what is not above a threshold by 0: y = x if x > alpha else 0.

    Dims:
        x, y: any, the same
    Args:
        alpha: the threshold.

    >>> from vtensor import VTensor
    >>> from vtensor.operators import Context
    >>> ThresholdedRelu().compute(Context(), VTensor("f32", {"N": 2, "C": 3})).summary()
    'f32 N=2 C=3'

    Source: ONNX operator ThresholdedRelu, opset 22.
    """

    alpha: float = param(default=1.0)


@operator(
    "Shrink", dims={"x": "*", "y": "*"}, onnx=unary("Shrink", 9, _shrink), traits=[Elementwise()]
)
class Shrink(Unary):
    """Move towards 0 by ``bias``; what is within ``lambd`` of 0 becomes 0.

    y = x - bias if x > lambd, x + bias if x < -lambd, else 0

    Dims:
        x, y: any, the same
    Args:
        lambd: how far from 0 becomes 0.
        bias: what is taken off.

    >>> from vtensor import VTensor
    >>> from vtensor.operators import Context
    >>> Shrink().compute(Context(), VTensor("f32", {"N": 2, "C": 3})).summary()
    'f32 N=2 C=3'

    Source: ONNX operator Shrink, opset 9.
    """

    lambd: float = param(default=0.5)
    bias: float = param(default=0.0)


@operator(
    "PRelu",
    dims={"a": "*", "b": "*", "y": "*"},
    onnx=[
        Spelling("PRelu", 1, _read_old_prelu, _old_prelu_names, until=6),
        Spelling("PRelu", 7, _read_prelu, broadcast_names, write=_write_prelu),
    ],
    traits=[Elementwise()],
)
class PRelu(Binary):
    """Scale what is negative by slopes of its place: y = a if a >= 0 else b * a.

    A dim that one operand lacks, or has with size 1, is repeated along the other's.

    Dims:
        a, b: any    y: those of both
    Raises:
        DimError: a dim that both have has two sizes, and neither is 1.

    >>> from vtensor import VTensor
    >>> from vtensor.operators import Context
    >>> a = VTensor("f32", {"N": 2, "C": 3})
    >>> PRelu().compute(Context(), a, VTensor("f32", {"C": 3})).summary()
    'f32 N=2 C=3'

    Source: ONNX operator PRelu, opset 16.
    """


def _shrunk(op: Shrink, x: Array) -> Array:
    moved = np.where(x < -op.lambd, x + op.bias, x - op.bias)
    result: Array = np.where(np.abs(x) <= op.lambd, 0, moved)
    return result


numpy_unary("LeakyRelu", lambda op, x: np.where(x >= 0, x, op.alpha * x), FLOATS)
numpy_unary("Elu", lambda op, x: np.where(x >= 0, x, op.alpha * np.expm1(x)), FLOATS)
numpy_unary("Selu", lambda op, x: op.gamma * np.where(x > 0, x, op.alpha * np.expm1(x)), FLOATS)
numpy_unary("Celu", lambda op, x: np.where(x >= 0, x, op.alpha * np.expm1(x / op.alpha)), FLOATS)
numpy_unary("HardSigmoid", lambda op, x: np.clip(op.alpha * x + op.beta, 0, 1), FLOATS)
numpy_unary("ThresholdedRelu", lambda op, x: np.where(x <= op.alpha, 0, x), FLOATS)
numpy_unary("Shrink", _shrunk)
numpy_binary("PRelu", lambda _, a, b: np.where(a >= 0, a, b * a))

onednn_unary("LeakyRelu", lambda _: "relu", lambda op: (op.alpha, 0.0))
onednn_unary("Elu", lambda _: "elu", lambda op: (op.alpha, 0.0))
onednn_unary(
    "Celu",
    lambda _: "elu",
    lambda _: (1.0, 0.0),
    when=lambda op, *_: op.alpha == 1 or "its elu does not scale the operand",
)


@invoker("HardSigmoid", library="onednn", dtypes=NATIVE, inplace=["x"])
def onednn_hardsigmoid(ctx: Context, op: HardSigmoid, x: VTensor, y: VTensor) -> Routine:
    return onednn.Clip(x, y, 0.0, 1.0, op.alpha, op.beta)


@invoker("PRelu", library="onednn", dtypes=NATIVE)
def onednn_prelu(ctx: Context, op: PRelu, a: VTensor, b: VTensor, y: VTensor) -> Routine:
    return onednn.Prelu(a, b, y)
