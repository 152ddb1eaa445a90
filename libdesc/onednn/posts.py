"""Which of oneDNN's functions an expression is: what it can compute behind another primitive."""

from __future__ import annotations

from math import pi, sqrt
from typing import NamedTuple

from libdesc.patterns import ALPHA, BETA, X, matched
from vtensor.language.expression import Expression, select

#: What only an attribute's end computes exactly.
GELU = X * ((1 + (X * sqrt(1 / 2)).erf()) / 2)


class Eltwise(NamedTuple):
    """A function of one element by oneDNN's name, and its constants."""

    alg: str
    alpha: float
    beta: float


#: oneDNN's functions of one element, and what each computes; they keep NaN, infinities and zeros.
#: Its exp makes infinity of NaN, its relu a bound, and its gelu_erf NaN of infinity.
ELTWISE: tuple[tuple[str, Expression], ...] = (
    ("linear", X * ALPHA),
    ("linear", X * ALPHA + BETA),
    ("abs", X.abs()),
    ("square", X * X),
    ("sqrt", X.sqrt()),
    ("tanh", X.tanh()),
    ("logistic", X.logistic()),
    ("swish", X * (ALPHA * X).logistic()),
    ("hardswish", X * (X * ALPHA + BETA).max(0).min(1)),
    ("elu", select(X >= 0, X, ALPHA * X.expm1())),
    ("gelu_tanh", X * ((1 + (sqrt(2 / pi) * (X + 0.044715 * (X * X * X))).tanh()) / 2)),
    ("mish", X * X.softplus().tanh()),
)


def eltwise(one: Expression) -> Eltwise | None:
    """oneDNN's function of one element that an expression is."""
    for alg, pattern in ELTWISE:
        if (found := matched(one, pattern)) is not None:
            return Eltwise(alg, found.get(0, 0.0), found.get(1, 0.0))
    return None
