"""Functions of one element: sign, powers, exponentials, integers nearby."""

from __future__ import annotations

import math

import numpy as np

from libdesc.numpy.arrays import FLOATS
from ops._elementwise import Unary, numpy_unary, onednn_unary, unary
from vtensor.operators import Elementwise, operator


@operator(
    "Abs", dims={"x": "*", "y": "*"}, onnx=unary("Abs", 6, lambda _: Abs()), traits=[Elementwise()]
)
class Abs(Unary):
    """The absolute value: y = |x|.

    Dims:
        x, y: any, the same

    >>> from vtensor import VTensor
    >>> from vtensor.operators import Context
    >>> Abs().compute(Context(), VTensor("f32", {"N": 2, "C": 3})).summary()
    'f32 N=2 C=3'

    Source: ONNX operator Abs, opset 13.
    """


@operator(
    "Neg", dims={"x": "*", "y": "*"}, onnx=unary("Neg", 6, lambda _: Neg()), traits=[Elementwise()]
)
class Neg(Unary):
    """The negative: y = -x.

    Dims:
        x, y: any, the same

    >>> from vtensor import VTensor
    >>> from vtensor.operators import Context
    >>> Neg().compute(Context(), VTensor("f32", {"N": 2, "C": 3})).summary()
    'f32 N=2 C=3'

    Source: ONNX operator Neg, opset 13.
    """


@operator(
    "Sign",
    dims={"x": "*", "y": "*"},
    onnx=unary("Sign", 9, lambda _: Sign()),
    traits=[Elementwise()],
)
class Sign(Unary):
    """-1 for what is negative, 1 for what is positive, 0 for 0: y = sign(x).

    Dims:
        x, y: any, the same

    >>> from vtensor import VTensor
    >>> from vtensor.operators import Context
    >>> Sign().compute(Context(), VTensor("f32", {"N": 2, "C": 3})).summary()
    'f32 N=2 C=3'

    Source: ONNX operator Sign, opset 13.
    """


@operator(
    "Reciprocal",
    dims={"x": "*", "y": "*"},
    onnx=unary("Reciprocal", 6, lambda _: Reciprocal()),
    traits=[Elementwise()],
)
class Reciprocal(Unary):
    """The reciprocal: y = 1 / x.

    Dims:
        x, y: any, the same

    >>> from vtensor import VTensor
    >>> from vtensor.operators import Context
    >>> Reciprocal().compute(Context(), VTensor("f32", {"N": 2, "C": 3})).summary()
    'f32 N=2 C=3'

    Source: ONNX operator Reciprocal, opset 13.
    """


@operator(
    "Sqrt",
    dims={"x": "*", "y": "*"},
    onnx=unary("Sqrt", 6, lambda _: Sqrt()),
    traits=[Elementwise()],
)
class Sqrt(Unary):
    """The square root: y = sqrt(x); NaN for what is negative.

    Dims:
        x, y: any, the same

    >>> from vtensor import VTensor
    >>> from vtensor.operators import Context
    >>> Sqrt().compute(Context(), VTensor("f32", {"N": 2, "C": 3})).summary()
    'f32 N=2 C=3'

    Source: ONNX operator Sqrt, opset 13.
    """


@operator(
    "Exp", dims={"x": "*", "y": "*"}, onnx=unary("Exp", 6, lambda _: Exp()), traits=[Elementwise()]
)
class Exp(Unary):
    """The exponential: y = e**x.

    Dims:
        x, y: any, the same

    >>> from vtensor import VTensor
    >>> from vtensor.operators import Context
    >>> Exp().compute(Context(), VTensor("f32", {"N": 2, "C": 3})).summary()
    'f32 N=2 C=3'

    Source: ONNX operator Exp, opset 13.
    """


@operator(
    "Log", dims={"x": "*", "y": "*"}, onnx=unary("Log", 6, lambda _: Log()), traits=[Elementwise()]
)
class Log(Unary):
    """The natural logarithm: y = ln(x); NaN for what is negative.

    Dims:
        x, y: any, the same

    >>> from vtensor import VTensor
    >>> from vtensor.operators import Context
    >>> Log().compute(Context(), VTensor("f32", {"N": 2, "C": 3})).summary()
    'f32 N=2 C=3'

    Source: ONNX operator Log, opset 13.
    """


@operator(
    "Erf", dims={"x": "*", "y": "*"}, onnx=unary("Erf", 9, lambda _: Erf()), traits=[Elementwise()]
)
class Erf(Unary):
    """The error function: y = 2 / sqrt(pi) * (the integral from 0 to x of exp(-t**2)).

    Dims:
        x, y: any, the same

    >>> from vtensor import VTensor
    >>> from vtensor.operators import Context
    >>> Erf().compute(Context(), VTensor("f32", {"N": 2, "C": 3})).summary()
    'f32 N=2 C=3'

    Source: ONNX operator Erf, opset 13.
    """


@operator(
    "Floor",
    dims={"x": "*", "y": "*"},
    onnx=unary("Floor", 6, lambda _: Floor()),
    traits=[Elementwise()],
)
class Floor(Unary):
    """The largest integer that is not above: y = floor(x).

    Dims:
        x, y: any, the same

    >>> from vtensor import VTensor
    >>> from vtensor.operators import Context
    >>> Floor().compute(Context(), VTensor("f32", {"N": 2, "C": 3})).summary()
    'f32 N=2 C=3'

    Source: ONNX operator Floor, opset 13.
    """


@operator(
    "Ceil",
    dims={"x": "*", "y": "*"},
    onnx=unary("Ceil", 6, lambda _: Ceil()),
    traits=[Elementwise()],
)
class Ceil(Unary):
    """The smallest integer that is not below: y = ceil(x).

    Dims:
        x, y: any, the same

    >>> from vtensor import VTensor
    >>> from vtensor.operators import Context
    >>> Ceil().compute(Context(), VTensor("f32", {"N": 2, "C": 3})).summary()
    'f32 N=2 C=3'

    Source: ONNX operator Ceil, opset 13.
    """


@operator(
    "Round",
    dims={"x": "*", "y": "*"},
    onnx=unary("Round", 11, lambda _: Round()),
    traits=[Elementwise()],
)
class Round(Unary):
    """The nearest integer, the even one of two: y = round(x).

    Dims:
        x, y: any, the same

    >>> from vtensor import VTensor
    >>> from vtensor.operators import Context
    >>> Round().compute(Context(), VTensor("f32", {"N": 2, "C": 3})).summary()
    'f32 N=2 C=3'

    Source: ONNX operator Round, opset 22.
    """


_erf = np.vectorize(math.erf, otypes=[np.float64])

numpy_unary("Abs", lambda _, x: np.abs(x))
numpy_unary("Neg", lambda _, x: np.negative(x))
numpy_unary("Sign", lambda _, x: np.sign(x))
numpy_unary("Reciprocal", lambda _, x: np.reciprocal(x), FLOATS)
numpy_unary("Sqrt", lambda _, x: np.sqrt(x), FLOATS)
numpy_unary("Exp", lambda _, x: np.exp(x), FLOATS)
numpy_unary("Log", lambda _, x: np.log(x), FLOATS)
# Of an integer, f32 is cut off: ONNX says nothing of it, and its reference does so.
numpy_unary("Erf", lambda _, x: _erf(x).astype("f4") if x.dtype.kind in "iu" else _erf(x))
numpy_unary("Floor", lambda _, x: np.floor(x), FLOATS)
numpy_unary("Ceil", lambda _, x: np.ceil(x), FLOATS)
numpy_unary("Round", lambda _, x: np.rint(x), FLOATS)

onednn_unary("Abs", lambda _: "abs")
onednn_unary("Exp", lambda _: "exp", keep="max")
onednn_unary("Neg", lambda _: "linear", lambda _: (-1.0, 0.0))
onednn_unary("Reciprocal", lambda _: "pow", lambda _: (1.0, -1.0))
onednn_unary("Sqrt", lambda _: "sqrt")
onednn_unary(
    "Round",
    lambda _: "round",
    when=lambda _, x, *__: x.dtype == "f32" or f"its round has no kernel for {x.dtype}",
)
