"""Smooth activation functions."""

from __future__ import annotations

import math

import numpy as np

from libdesc.numpy.arrays import FLOATS
from ops._elementwise import Array, Unary, numpy_unary, onednn_unary, unary
from vtensor.operators import Elementwise, operator, param


@operator(
    "Sigmoid",
    dims={"x": "*", "y": "*"},
    onnx=unary("Sigmoid", 6, lambda _: Sigmoid()),
    traits=[Elementwise()],
)
class Sigmoid(Unary):
    """The logistic function: y = 1 / (1 + exp(-x)).

    Dims:
        x, y: any, the same

    >>> from vtensor import VTensor
    >>> from vtensor.operators import Context
    >>> Sigmoid().compute(Context(), VTensor("f32", {"N": 2, "C": 3})).summary()
    'f32 N=2 C=3'

    Source: ONNX operator Sigmoid, opset 13.
    """


@operator(
    "Tanh",
    dims={"x": "*", "y": "*"},
    onnx=unary("Tanh", 6, lambda _: Tanh()),
    traits=[Elementwise()],
)
class Tanh(Unary):
    """The hyperbolic tangent: y = tanh(x).

    Dims:
        x, y: any, the same

    >>> from vtensor import VTensor
    >>> from vtensor.operators import Context
    >>> Tanh().compute(Context(), VTensor("f32", {"N": 2, "C": 3})).summary()
    'f32 N=2 C=3'

    Source: ONNX operator Tanh, opset 13.
    """


@operator(
    "Softplus",
    dims={"x": "*", "y": "*"},
    onnx=unary("Softplus", 1, lambda _: Softplus()),
    traits=[Elementwise()],
)
class Softplus(Unary):
    """A smooth Relu: y = ln(1 + exp(x)).

    Dims:
        x, y: any, the same

    >>> from vtensor import VTensor
    >>> from vtensor.operators import Context
    >>> Softplus().compute(Context(), VTensor("f32", {"N": 2, "C": 3})).summary()
    'f32 N=2 C=3'

    Source: ONNX operator Softplus, opset 22.
    """


@operator(
    "Softsign",
    dims={"x": "*", "y": "*"},
    onnx=unary("Softsign", 1, lambda _: Softsign()),
    traits=[Elementwise()],
)
class Softsign(Unary):
    """A sigmoid without exponentials: y = x / (1 + |x|).

    Dims:
        x, y: any, the same

    >>> from vtensor import VTensor
    >>> from vtensor.operators import Context
    >>> Softsign().compute(Context(), VTensor("f32", {"N": 2, "C": 3})).summary()
    'f32 N=2 C=3'

    Source: ONNX operator Softsign, opset 22.
    """


@operator(
    "Gelu",
    dims={"x": "*", "y": "*"},
    onnx=unary("Gelu", 20, lambda node: Gelu(node.attribute("approximate", "none"))),
    traits=[Elementwise()],
)
class Gelu(Unary):
    """Scale by the chance that a normal variable is smaller: y = x * (1 + erf(x / sqrt(2))) / 2.

    Dims:
        x, y: any, the same
    Args:
        approximate: "tanh" means x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x**3))) / 2.

    >>> from vtensor import VTensor
    >>> from vtensor.operators import Context
    >>> Gelu().compute(Context(), VTensor("f32", {"N": 2, "C": 3})).summary()
    'f32 N=2 C=3'

    Source: ONNX operator Gelu, opset 20.
    """

    approximate: str = param(default="none", choices=("none", "tanh"))


@operator(
    "Mish",
    dims={"x": "*", "y": "*"},
    onnx=unary("Mish", 18, lambda _: Mish()),
    traits=[Elementwise()],
)
class Mish(Unary):
    """A smooth Relu that is below 0 for some: y = x * tanh(ln(1 + exp(x))).

    Dims:
        x, y: any, the same

    >>> from vtensor import VTensor
    >>> from vtensor.operators import Context
    >>> Mish().compute(Context(), VTensor("f32", {"N": 2, "C": 3})).summary()
    'f32 N=2 C=3'

    Source: ONNX operator Mish, opset 22.
    """


@operator(
    "Swish",
    dims={"x": "*", "y": "*"},
    onnx=unary("Swish", 24, lambda node: Swish(float(node.attribute("alpha", 1.0)))),
    traits=[Elementwise()],
)
class Swish(Unary):
    """Scale by the logistic function: y = x / (1 + exp(-alpha * x)).

    Dims:
        x, y: any, the same
    Args:
        alpha: how steep the logistic function is.

    >>> from vtensor import VTensor
    >>> from vtensor.operators import Context
    >>> Swish().compute(Context(), VTensor("f32", {"N": 2, "C": 3})).summary()
    'f32 N=2 C=3'

    Source: ONNX operator Swish, opset 24.
    """

    alpha: float = param(default=1.0)


_erf = np.vectorize(math.erf, otypes=[np.float64])


def _logistic(x: Array) -> Array:
    """1 / (1 + exp(-x)), from the exponential that does not overflow."""
    power = np.exp(-np.abs(x))
    result: Array = np.where(x >= 0, 1, power) / (1 + power)
    return result


def _gelu(op: Gelu, x: Array) -> Array:
    if op.approximate == "tanh":
        inner = np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))
    else:
        inner = _erf(x / math.sqrt(2))
    result: Array = x * (1 + inner) / 2
    return result


numpy_unary("Sigmoid", lambda _, x: _logistic(x), FLOATS)
numpy_unary("Tanh", lambda _, x: np.tanh(x), FLOATS)
numpy_unary("Softplus", lambda _, x: np.logaddexp(x, 0), FLOATS)
numpy_unary("Softsign", lambda _, x: x / (1 + np.abs(x)), FLOATS)
numpy_unary("Gelu", _gelu, FLOATS)
numpy_unary("Mish", lambda _, x: x * np.tanh(np.logaddexp(x, 0)), FLOATS)
numpy_unary("Swish", lambda op, x: x * _logistic(op.alpha * x), FLOATS)

onednn_unary("Sigmoid", lambda _: "logistic")
onednn_unary("Tanh", lambda _: "tanh")
onednn_unary("Gelu", lambda op: "gelu_tanh" if op.approximate == "tanh" else "gelu_erf")
onednn_unary("Mish", lambda _: "mish")
onednn_unary("Swish", lambda _: "swish", lambda op: (op.alpha, 0.0))
