"""Activation functions: smooth ones, and piecewise ones that depend on sign or size."""

from __future__ import annotations

from collections.abc import Callable
from math import erf, log, pi, sqrt

import numpy as np

from libdesc import onednn, rewrite
from libdesc.routine import Routine
from ops._codes import MICROSOFT
from ops._elementwise import (
    NUMBERS,
    Array,
    Binary,
    Unary,
    elementwise,
    parameter_of,
    spelled,
    unary,
)
from ops._microsoft import biased, like_x, rank_of_x
from ops._names import broadcast_input, broadcast_names, same_names
from ops._writing import write_aligned
from vtensor.errors import VTensorError
from vtensor.operators import (
    Expression,
    Match,
    Naming,
    NodeReader,
    NodeWriter,
    Spelling,
    Stretches,
    named,
    param,
    select,
)
from vtensor.tensor import VTensor

_erf = np.vectorize(erf, otypes=[np.float64])


def _expit(x: Array) -> Array:
    """Return 1 / (1 + exp(-x)), computed from exp(-|x|), which does not overflow."""
    power = np.exp(-np.abs(x))
    return np.asarray(np.where(x >= 0, 1, power) / (1 + power))


def _softplus(x: Array) -> Array:
    return np.asarray(np.logaddexp(x, 0))


def _mish(x: Array) -> Array:
    return np.asarray(x * np.tanh(_softplus(x)))


Sigmoid = unary(
    "Sigmoid",
    "The logistic curve: y = 1 / (1 + exp(-x))",
    (6, 13),
    _expit,
    zero=0.5,
    onednn="logistic",
    expression=Expression.logistic,
    traits=[Stretches()],
)
Tanh = unary(
    "Tanh",
    "The hyperbolic tangent: y = tanh(x)",
    (6, 13),
    np.tanh,
    onednn="tanh",
    expression=Expression.tanh,
)
Softplus = unary(
    "Softplus",
    "A smooth Relu: y = ln(1 + exp(x))",
    (1, 22),
    _softplus,
    zero=log(2),
    expression=Expression.softplus,
)
Softsign = unary(
    "Softsign",
    "A sigmoid without exp: y = x / (1 + |x|)",
    (1, 22),
    lambda x: x / (1 + np.abs(x)),
    expression=lambda x: x / (1 + x.abs()),
)
Mish = unary(
    "Mish",
    "A smooth Relu, slightly below 0 for negative x: y = x * tanh(ln(1 + exp(x)))",
    (18, 22),
    _mish,
    onednn="mish",
    expression=lambda x: x * x.softplus().tanh(),
)

rewrite("softplus", "ln(1 + e^x)", "Log(Add(Exp(x), 1))", "Softplus(x)")
rewrite("mish", "x tanh(softplus(x))", "Mul(x, Tanh(Softplus(x)))", "Mish(x)")


def _gelu(op: Gelu, x: Array) -> Array:
    cubic = sqrt(2 / pi) * (x + 0.044715 * x**3)
    inner = np.tanh(cubic) if op.approximate == "tanh" else _erf(x / sqrt(2))
    return np.asarray(x * ((1 + inner) / 2))  # not 2 * x first, which may be infinite


def _gelu_of(op: Gelu, x: Expression) -> Expression:
    if op.approximate == "tanh":
        return x * ((1 + (sqrt(2 / pi) * (x + 0.044715 * (x * x * x))).tanh()) / 2)
    return x * ((1 + (x * sqrt(1 / 2)).erf()) / 2)


def _on_onednn(op: Gelu, x: VTensor, y: VTensor) -> Routine:
    """Return oneDNN's routine of a Gelu.

    oneDNN's kernel for the formula with erf returns NaN for infinity. The argument ``keep="end"``
    of the routine makes these results exact.
    """
    if op.approximate == "tanh":
        return onednn.Eltwise("gelu_tanh", x, y)
    return onednn.Eltwise("gelu", x, y, keep="end")


def _read_gelu(approximate: str) -> Callable[[NodeReader], VTensor]:
    """Return the reader of a Gelu of the first input, plus the second if there is one."""
    return lambda node: node.add(Gelu(approximate), biased(node, node.input(0), 1))


def _split_names(node: Naming) -> None:
    for place in range(node.rank("x0") - 1):
        node.same("x0", place, "y0", place)
    node.same("x0", -1, "x1", 0)


def _read_split(node: NodeReader) -> VTensor:
    last = list(node.input(0).dims)[-1]
    *same, half = node.output_names()
    x = node.add(named("BiasAdd")(), node.input(0, " ".join([*same, last])), node.input(1, last))
    if x.size(last) % 2:
        raise node.refuse(f"{x.summary()} has no two halves along the last dim")
    middle = x.size(last) // 2
    cuts = [(0, middle), (middle, 2 * middle)]
    left, gate = (
        node.reshape(
            node.add(named("Slice")((last,), (start,), (end,), (1,)), x),
            {**{dim: x.size(dim) for dim in same}, half: middle},
        )
        for start, end in cuts
    )
    return node.add(named("Mul")(), left, node.add(Gelu(), gate))


@elementwise(
    "Gelu",
    lambda cls: [
        *spelled("Gelu", 20, cls),
        like_x("Gelu", _read_gelu("none")),
        like_x("BiasGelu", _read_gelu("none")),
        like_x("FastGelu", _read_gelu("tanh")),
        Spelling(f"{MICROSOFT}BiasSplitGelu", 1, _read_split, _split_names, rank=rank_of_x),
    ],
    _gelu,
    onednn=_on_onednn,
    expression=_gelu_of,
    inplace=(),
)
class Gelu(Unary):
    """Scale by the normal distribution function: y = x * (1 + erf(x / sqrt(2))) / 2.

    Dims:
        x, y: any, the same
    Args:
        approximate: "none" is the formula above, "tanh"
            x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x**3))) / 2.

    >>> from vtensor import VTensor
    >>> from vtensor.operators import Context
    >>> Gelu().compute(Context(), VTensor("f32", {"N": 2, "C": 3})).summary()
    'f32 N=2 C=3'

    Source: ONNX operator Gelu, opset 20; ONNX Runtime operators Gelu, BiasGelu, FastGelu and
    BiasSplitGelu, which multiplies one half of its input by the Gelu of the other.
    """

    approximate: str = param(default="none", choices=("none", "tanh"))


rewrite(
    "gelu",
    "x (1 + erf(x / sqrt(2))) / 2",
    f"""
    gate = Add(Erf(Div(x, {sqrt(2)}) | Mul(x, {sqrt(1 / 2)})), 1)
    Mul(x, gate, 0.5) | Div(Mul(x, gate), 2) | Mul(x, Div(gate, 2)) | Mul(Div(x, 2), gate)
    """,
    "Gelu(x)",
)
rewrite(
    "gelu_tanh",
    "x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2",
    f"""
    cubic = Add(x, Mul(Pow(x, 3), 0.044715) | Mul(x, x, x, 0.044715) | Mul(x, Pow(x, 2), 0.044715))
    square = Mul(x, x, 0.044715) | Mul(Pow(x, 2), 0.044715)
    inner = Mul(cubic, {sqrt(2 / pi)}) | Mul(x, Add(square, 1), {sqrt(2 / pi)})
    Mul(x, Add(Tanh(inner), 1), 0.5)
    """,
    'Gelu(x, approximate="tanh")',
)


def _read_quick(node: NodeReader) -> VTensor:
    return node.add(Swish(float(node.attribute("alpha", 1.702))), node.input(0))


@elementwise(
    "Swish",
    lambda cls: [*spelled("Swish", 24, cls), like_x("QuickGelu", _read_quick)],
    lambda op, x: x * _expit(op.alpha * x),
    onednn=("swish", "alpha"),
    expression=lambda op, x: x * (op.alpha * x).logistic(),
)
class Swish(Unary):
    """Scale by the logistic function: y = x / (1 + exp(-alpha * x)).

    Dims:
        x, y: any, the same
    Args:
        alpha: the steepness of the logistic function.

    >>> from vtensor import VTensor
    >>> from vtensor.operators import Context
    >>> Swish().compute(Context(), VTensor("f32", {"N": 2, "C": 3})).summary()
    'f32 N=2 C=3'

    Source: ONNX operator Swish, opset 24; ONNX Runtime operator QuickGelu.
    """

    alpha: float = param(default=1.0)


rewrite("swish", "x / (1 + e^-x)", "Mul(x, Sigmoid(x)) | Div(x, Add(Exp(Neg(x)), 1))", "Swish(x)")
rewrite(
    "swish_scaled",
    "x / (1 + e^(-alpha x))",
    "Mul(x, Sigmoid(Mul(x, scalar(alpha)) | Times(x, factor=alpha)))",
    "Swish(x, alpha=alpha)",
    example={"alpha": 1.702},
)


@elementwise(
    "LeakyRelu",
    6,
    lambda op, x: np.where(x >= 0, x, op.alpha * x),
    onednn=("relu", "alpha"),
    expression=lambda op, x: select(x >= 0, x, op.alpha * x),
)
class LeakyRelu(Unary):
    """Scale negative elements: y = x if x >= 0 else alpha * x.

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


@elementwise(
    "Elu",
    6,
    lambda op, x: np.where(x >= 0, x, op.alpha * np.expm1(x)),
    onednn=("elu", "alpha"),
    expression=lambda op, x: select(x >= 0, x, op.alpha * x.expm1()),
)
class Elu(Unary):
    """Replace negative elements by exponentials: y = x if x >= 0 else alpha * (exp(x) - 1).

    Dims:
        x, y: any, the same
    Args:
        alpha: y approaches -alpha far below 0.

    >>> from vtensor import VTensor
    >>> from vtensor.operators import Context
    >>> Elu().compute(Context(), VTensor("f32", {"N": 2, "C": 3})).summary()
    'f32 N=2 C=3'

    Source: ONNX operator Elu, opset 22.
    """

    alpha: float = param(default=1.0)


@elementwise(
    "Selu",
    6,
    lambda op, x: op.gamma * np.where(x > 0, x, op.alpha * np.expm1(x)),
    expression=lambda op, x: op.gamma * select(x > 0, x, op.alpha * x.expm1()),
)
class Selu(Unary):
    """Apply a scaled Elu: y = gamma * (x if x > 0 else alpha * (exp(x) - 1)).

    Dims:
        x, y: any, the same
    Args:
        alpha: y / gamma approaches -alpha far below 0.
        gamma: the scale.

    >>> from vtensor import VTensor
    >>> from vtensor.operators import Context
    >>> Selu().compute(Context(), VTensor("f32", {"N": 2, "C": 3})).summary()
    'f32 N=2 C=3'

    Source: ONNX operator Selu, opset 22.
    """

    alpha: float = param(default=1.6732632)
    gamma: float = param(default=1.0507010)


@elementwise(
    "Celu",
    12,
    lambda op, x: np.where(x >= 0, x, op.alpha * np.expm1(x / op.alpha)),
    onednn=("elu", 1.0),
    when=lambda op, *_: op.alpha == 1 or "its elu does not scale the operand",
    expression=lambda op, x: select(x >= 0, x, op.alpha * (x / op.alpha).expm1()),
)
class Celu(Unary):
    """Apply an Elu whose slope at 0 is 1: y = max(x, 0) + min(alpha * (exp(x / alpha) - 1), 0).

    Dims:
        x, y: any, the same
    Args:
        alpha: y approaches -alpha far below 0.

    >>> from vtensor import VTensor
    >>> from vtensor.operators import Context
    >>> Celu().compute(Context(), VTensor("f32", {"N": 2, "C": 3})).summary()
    'f32 N=2 C=3'

    Source: ONNX operator Celu, opset 12.
    """

    alpha: float = param(default=1.0)


@elementwise(
    "HardSigmoid",
    6,
    lambda op, x: np.clip(op.alpha * x + op.beta, 0, 1),
    zero=lambda op: min(max(op.beta, 0), 1),
    onednn=lambda op, x, y: onednn.Clip(x, y, 0.0, 1.0, op.alpha, op.beta),
    expression=lambda op, x: (op.alpha * x + op.beta).max(0).min(1),
)
class HardSigmoid(Unary):
    """Apply a sigmoid of straight lines: y = max(0, min(1, alpha * x + beta)).

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


rewrite(
    "hardsigmoid",
    "max(0, min(6, x + 3)) / 6",
    f"""
    six = Relu6(Add(x, 3)) | Clip(Add(x, 3), low=0, high=6)
    Div(six, 6) | Mul(six, {1 / 6})
    """,
    f"HardSigmoid(x, alpha={1 / 6})",
)
rewrite(
    "hardsigmoid_clip",
    "max(0, min(1, alpha x + beta))",
    """
    scaled = Mul(x, scalar(alpha)) | Times(x, factor=alpha)
    Clip(Add(scaled, scalar(beta)), low=0, high=1)
    """,
    "HardSigmoid(x, alpha=alpha, beta=beta)",
    example={"alpha": 0.2, "beta": 0.5},
)


@elementwise(
    "ThresholdedRelu",
    10,
    lambda op, x: np.where(x > op.alpha, x, 0),
    expression=lambda op, x: select(x > op.alpha, x, 0),
)
class ThresholdedRelu(Unary):
    """Replace NaN and elements that are not above a threshold by 0: y = x if x > alpha else 0.

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


def _shrunk(op: Shrink, x: Array) -> Array:
    bias = parameter_of(x, op.bias)
    return np.where(x < -op.lambd, x + bias, np.where(x > op.lambd, x - bias, 0))


def _shrink(op: Shrink, x: Expression) -> Expression:
    above = select(x > op.lambd, x - op.bias, 0)
    return select(x < -op.lambd, x + op.bias, above)


@elementwise(
    "Shrink",
    9,
    _shrunk,
    NUMBERS,
    zero=lambda op: 0 if op.lambd >= 0 else op.bias,
    expression=_shrink,
)
class Shrink(Unary):
    """Move elements towards 0 by ``bias``; those within ``lambd`` of 0, and NaN, become 0.

    y = x + bias if x < -lambd, x - bias if x > lambd, else 0

    Dims:
        x, y: any, the same
    Args:
        lambd: the distance from 0 up to which elements become 0.
        bias: the amount by which other elements move.

    >>> from vtensor import VTensor
    >>> from vtensor.operators import Context
    >>> Shrink().compute(Context(), VTensor("f32", {"N": 2, "C": 3})).summary()
    'f32 N=2 C=3'

    Source: ONNX operator Shrink, opset 9.
    """

    lambd: float = param(default=0.5)
    bias: float = param(default=0.0)


def _read_prelu(node: NodeReader) -> VTensor:
    """Add the operator that an ONNX node PRelu means to the graph, and return its output.

    It is a LeakyRelu if there is one slope, a float that is known before a run; otherwise a PRelu.
    """
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
        raise node.refuse("slopes with dims that the other operand lacks")
    write_aligned("PRelu")(node, op)


def _old_prelu_names(node: Naming) -> None:
    same_names(node)
    if node.rank("x0") > 1 and node.rank("x1") == 1:
        node.same("x1", 0, "y0", 1)


def _read_old_prelu(node: NodeReader) -> VTensor:
    """Add to the graph a PRelu, read from an ONNX node of opset 6 or lower; return its output.

    The node has a slope for each channel, or one for all channels.
    """
    names = node.output_names()
    if len(names) < 2 or len(node.input(1).dims) != 1:
        raise node.refuse("slopes of other dims than the channels")
    return node.add(PRelu(), node.input(0), node.input(1, names[1]))


@elementwise(
    "PRelu",
    [
        Spelling("PRelu", 1, _read_old_prelu, _old_prelu_names, until=6),
        Spelling("PRelu", 7, _read_prelu, broadcast_names, write=_write_prelu),
    ],
    lambda a, b: np.where(a >= 0, a, b * a),
    onednn=onednn.Prelu,
    expression=lambda a, b: select(a >= 0, a, b * a),
    inplace=(),
)
class PRelu(Binary):
    """Scale the negative elements of a by the slopes b: y = a if a >= 0 else b * a.

    An operand is repeated along a dim that it lacks, or has with size 1, to the other's size.

    Dims:
        a, b: any    y: the dims of both
    Raises:
        DimError: a dim that both have has two sizes, and neither is 1.

    >>> from vtensor import VTensor
    >>> from vtensor.operators import Context
    >>> a = VTensor("f32", {"N": 2, "C": 3})
    >>> PRelu().compute(Context(), a, VTensor("f32", {"C": 3})).summary()
    'f32 N=2 C=3'

    Source: ONNX operator PRelu, opset 16.
    """


def _slopes(match: Match) -> dict[str, object] | None:
    """Return the slopes of the PRelu that replaces a match, under the key ``slope``.

    The match has either ``slope``, and the result is an empty dict, or ``below``, the negative
    slopes. None (the rule does not apply) if the slopes have a dim that x lacks, or has with
    another size.
    """
    below = match.values.get("below") or match["slope"]
    if not below.dims.items() <= match["x"].dims.items():
        return None
    if "slope" in match.values:
        return {}
    return {"slope": (np.reshape(-match.numbers["below"], [*below.dims.values()]), [*below.dims])}


rewrite(
    "prelu",
    "max(x, 0) + slope (x - |x|) / 2",
    """
    half = Mul(constant(slope), Sub(x, Abs(x)), 0.5) | Mul(constant(below), Relu(Neg(x)))
    Add(Relu(x), half) | Sub(Relu(x), Mul(constant(slope), Relu(Neg(x))))
    """,
    "PRelu(x, slope)",
    given=_slopes,
    example={"slope": "C", "below": "C"},
)
