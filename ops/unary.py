"""Functions of one element: sign, powers, exponentials, rounding, circular functions.

Angles are in radians.
"""

from __future__ import annotations

from collections.abc import Callable
from math import erf, inf, nan, pi
from operator import methodcaller

import numpy as np

from libdesc import onednn
from ops._elementwise import NUMBERS, Array, unary
from vtensor.operators import Expression, Jumps

_erf = np.vectorize(erf, otypes=[np.float64])


def _error_function(x: Array) -> Array:
    """Return the error function of ``x``.

    For integers the result is f32, as in ONNX's reference implementation.
    """
    return np.asarray(_erf(x).astype("f4") if x.dtype.kind in "iu" else _erf(x))


def _function(name: str) -> Callable[[Expression], Expression]:
    return methodcaller("apply", name)


Abs = unary(
    "Abs",
    "The absolute value: y = |x|",
    (6, 13),
    np.abs,
    NUMBERS,
    onednn="abs",
    expression=Expression.abs,
)
Neg = unary(
    "Neg",
    "The negative: y = -x",
    (6, 13),
    np.negative,
    NUMBERS,
    onednn=("linear", -1.0, -0.0),  # adding 0.0 would turn -0.0 into 0.0
    expression=lambda x: -x,
)
Sign = unary(
    "Sign",
    "-1 below 0, 1 above 0, 0 for 0: y = sign(x)",
    (9, 13),
    np.sign,
    NUMBERS,
    expression=_function("sign"),
    traits=[Jumps()],
)
Reciprocal = unary(
    "Reciprocal",
    "The reciprocal: y = 1 / x",
    (6, 13),
    np.reciprocal,
    zero=inf,
    onednn=("pow", 1.0, -1.0),
    expression=lambda x: 1 / x,
)
Sqrt = unary(
    "Sqrt",
    "The square root: y = sqrt(x); NaN for negative x",
    (6, 13),
    np.sqrt,
    onednn="sqrt",
    expression=Expression.sqrt,
)
Exp = unary(
    "Exp",
    "The exponential: y = e**x",
    (6, 13),
    np.exp,
    zero=1,
    onednn=lambda x, y: onednn.Eltwise("exp", x, y, keep="max"),
    expression=Expression.exp,
)
Log = unary(
    "Log",
    "The natural logarithm: y = ln(x); NaN for negative x",
    (6, 13),
    np.log,
    zero=-inf,
    expression=_function("log"),
)
_INTEGRAL = "The error function: y = 2 / sqrt(pi) * (the integral from 0 to x of exp(-t**2))"
Erf = unary("Erf", _INTEGRAL, (9, 13), _error_function, NUMBERS, expression=Expression.erf)
Floor = unary(
    "Floor",
    "The largest integer not above x: y = floor(x)",
    (6, 13),
    np.floor,
    expression=_function("floor"),
    traits=[Jumps()],
)
Ceil = unary(
    "Ceil",
    "The smallest integer not below x: y = ceil(x)",
    (6, 13),
    np.ceil,
    expression=_function("ceil"),
    traits=[Jumps()],
)
Round = unary(
    "Round",
    "The nearest integer, ties to even: y = round(x)",
    (11, 22),
    np.rint,
    onednn="round",
    expression=_function("round"),
    when=lambda _, x, *__: x.dtype == "f32" or f"its round has no kernel for {x.dtype}",
    traits=[Jumps()],
)

Sin = unary("Sin", "The sine: y = sin(x)", (7, 22), np.sin, expression=_function("sin"))
Cos = unary("Cos", "The cosine: y = cos(x)", (7, 22), np.cos, zero=1, expression=_function("cos"))
Tan = unary("Tan", "The tangent: y = tan(x)", (7, 22), np.tan, expression=_function("tan"))
Asin = unary(
    "Asin",
    "The inverse of the sine: y = arcsin(x)",
    (7, 22),
    np.arcsin,
    expression=_function("asin"),
)
Acos = unary(
    "Acos",
    "The inverse of the cosine: y = arccos(x)",
    (7, 22),
    np.arccos,
    zero=pi / 2,
    expression=_function("acos"),
)
Atan = unary(
    "Atan",
    "The inverse of the tangent: y = arctan(x)",
    (7, 22),
    np.arctan,
    expression=_function("atan"),
)
Sinh = unary(
    "Sinh", "The hyperbolic sine: y = sinh(x)", (9, 22), np.sinh, expression=_function("sinh")
)
Cosh = unary(
    "Cosh",
    "The hyperbolic cosine: y = cosh(x)",
    (9, 22),
    np.cosh,
    zero=1,
    expression=_function("cosh"),
)
Asinh = unary(
    "Asinh",
    "The inverse of the hyperbolic sine: y = arcsinh(x)",
    (9, 22),
    np.arcsinh,
    expression=_function("asinh"),
)
Acosh = unary(
    "Acosh",
    "The inverse of the hyperbolic cosine: y = arccosh(x)",
    (9, 22),
    np.arccosh,
    zero=nan,
    expression=_function("acosh"),
)
Atanh = unary(
    "Atanh",
    "The inverse of the hyperbolic tangent: y = arctanh(x)",
    (9, 22),
    np.arctanh,
    expression=_function("atanh"),
)
