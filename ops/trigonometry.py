"""Circular and hyperbolic functions; angles are in radians."""

from __future__ import annotations

import numpy as np

from libdesc.numpy.arrays import FLOATS
from ops._elementwise import Unary, numpy_unary, unary
from vtensor.operators import Elementwise, operator


@operator(
    "Sin", dims={"x": "*", "y": "*"}, onnx=unary("Sin", 7, lambda _: Sin()), traits=[Elementwise()]
)
class Sin(Unary):
    """The sine: y = sin(x).

    Dims:
        x, y: any, the same

    >>> from vtensor import VTensor
    >>> from vtensor.operators import Context
    >>> Sin().compute(Context(), VTensor("f32", {"N": 2, "C": 3})).summary()
    'f32 N=2 C=3'

    Source: ONNX operator Sin, opset 22.
    """


@operator(
    "Cos", dims={"x": "*", "y": "*"}, onnx=unary("Cos", 7, lambda _: Cos()), traits=[Elementwise()]
)
class Cos(Unary):
    """The cosine: y = cos(x).

    Dims:
        x, y: any, the same

    >>> from vtensor import VTensor
    >>> from vtensor.operators import Context
    >>> Cos().compute(Context(), VTensor("f32", {"N": 2, "C": 3})).summary()
    'f32 N=2 C=3'

    Source: ONNX operator Cos, opset 22.
    """


@operator(
    "Tan", dims={"x": "*", "y": "*"}, onnx=unary("Tan", 7, lambda _: Tan()), traits=[Elementwise()]
)
class Tan(Unary):
    """The tangent: y = tan(x).

    Dims:
        x, y: any, the same

    >>> from vtensor import VTensor
    >>> from vtensor.operators import Context
    >>> Tan().compute(Context(), VTensor("f32", {"N": 2, "C": 3})).summary()
    'f32 N=2 C=3'

    Source: ONNX operator Tan, opset 22.
    """


@operator(
    "Asin",
    dims={"x": "*", "y": "*"},
    onnx=unary("Asin", 7, lambda _: Asin()),
    traits=[Elementwise()],
)
class Asin(Unary):
    """The inverse of the sine: y = arcsin(x).

    Dims:
        x, y: any, the same

    >>> from vtensor import VTensor
    >>> from vtensor.operators import Context
    >>> Asin().compute(Context(), VTensor("f32", {"N": 2, "C": 3})).summary()
    'f32 N=2 C=3'

    Source: ONNX operator Asin, opset 22.
    """


@operator(
    "Acos",
    dims={"x": "*", "y": "*"},
    onnx=unary("Acos", 7, lambda _: Acos()),
    traits=[Elementwise()],
)
class Acos(Unary):
    """The inverse of the cosine: y = arccos(x).

    Dims:
        x, y: any, the same

    >>> from vtensor import VTensor
    >>> from vtensor.operators import Context
    >>> Acos().compute(Context(), VTensor("f32", {"N": 2, "C": 3})).summary()
    'f32 N=2 C=3'

    Source: ONNX operator Acos, opset 22.
    """


@operator(
    "Atan",
    dims={"x": "*", "y": "*"},
    onnx=unary("Atan", 7, lambda _: Atan()),
    traits=[Elementwise()],
)
class Atan(Unary):
    """The inverse of the tangent: y = arctan(x).

    Dims:
        x, y: any, the same

    >>> from vtensor import VTensor
    >>> from vtensor.operators import Context
    >>> Atan().compute(Context(), VTensor("f32", {"N": 2, "C": 3})).summary()
    'f32 N=2 C=3'

    Source: ONNX operator Atan, opset 22.
    """


@operator(
    "Sinh",
    dims={"x": "*", "y": "*"},
    onnx=unary("Sinh", 9, lambda _: Sinh()),
    traits=[Elementwise()],
)
class Sinh(Unary):
    """The hyperbolic sine: y = sinh(x).

    Dims:
        x, y: any, the same

    >>> from vtensor import VTensor
    >>> from vtensor.operators import Context
    >>> Sinh().compute(Context(), VTensor("f32", {"N": 2, "C": 3})).summary()
    'f32 N=2 C=3'

    Source: ONNX operator Sinh, opset 22.
    """


@operator(
    "Cosh",
    dims={"x": "*", "y": "*"},
    onnx=unary("Cosh", 9, lambda _: Cosh()),
    traits=[Elementwise()],
)
class Cosh(Unary):
    """The hyperbolic cosine: y = cosh(x).

    Dims:
        x, y: any, the same

    >>> from vtensor import VTensor
    >>> from vtensor.operators import Context
    >>> Cosh().compute(Context(), VTensor("f32", {"N": 2, "C": 3})).summary()
    'f32 N=2 C=3'

    Source: ONNX operator Cosh, opset 22.
    """


@operator(
    "Asinh",
    dims={"x": "*", "y": "*"},
    onnx=unary("Asinh", 9, lambda _: Asinh()),
    traits=[Elementwise()],
)
class Asinh(Unary):
    """The inverse of the hyperbolic sine: y = arcsinh(x).

    Dims:
        x, y: any, the same

    >>> from vtensor import VTensor
    >>> from vtensor.operators import Context
    >>> Asinh().compute(Context(), VTensor("f32", {"N": 2, "C": 3})).summary()
    'f32 N=2 C=3'

    Source: ONNX operator Asinh, opset 22.
    """


@operator(
    "Acosh",
    dims={"x": "*", "y": "*"},
    onnx=unary("Acosh", 9, lambda _: Acosh()),
    traits=[Elementwise()],
)
class Acosh(Unary):
    """The inverse of the hyperbolic cosine: y = arccosh(x).

    Dims:
        x, y: any, the same

    >>> from vtensor import VTensor
    >>> from vtensor.operators import Context
    >>> Acosh().compute(Context(), VTensor("f32", {"N": 2, "C": 3})).summary()
    'f32 N=2 C=3'

    Source: ONNX operator Acosh, opset 22.
    """


@operator(
    "Atanh",
    dims={"x": "*", "y": "*"},
    onnx=unary("Atanh", 9, lambda _: Atanh()),
    traits=[Elementwise()],
)
class Atanh(Unary):
    """The inverse of the hyperbolic tangent: y = arctanh(x).

    Dims:
        x, y: any, the same

    >>> from vtensor import VTensor
    >>> from vtensor.operators import Context
    >>> Atanh().compute(Context(), VTensor("f32", {"N": 2, "C": 3})).summary()
    'f32 N=2 C=3'

    Source: ONNX operator Atanh, opset 22.
    """


numpy_unary("Sin", lambda _, x: np.sin(x), FLOATS)
numpy_unary("Cos", lambda _, x: np.cos(x), FLOATS)
numpy_unary("Tan", lambda _, x: np.tan(x), FLOATS)
numpy_unary("Asin", lambda _, x: np.arcsin(x), FLOATS)
numpy_unary("Acos", lambda _, x: np.arccos(x), FLOATS)
numpy_unary("Atan", lambda _, x: np.arctan(x), FLOATS)
numpy_unary("Sinh", lambda _, x: np.sinh(x), FLOATS)
numpy_unary("Cosh", lambda _, x: np.cosh(x), FLOATS)
numpy_unary("Asinh", lambda _, x: np.arcsinh(x), FLOATS)
numpy_unary("Acosh", lambda _, x: np.arccosh(x), FLOATS)
numpy_unary("Atanh", lambda _, x: np.arctanh(x), FLOATS)
