"""oneDNN's functions of one element, which can be fused with another primitive."""

from __future__ import annotations

from math import pi, sqrt
from typing import NamedTuple

from libdesc.patterns import ALPHA, BETA, X, matched
from vtensor.language.expression import Expression, select

#: GELU by erf. Only ``Attr.gelu`` computes it exactly, and only as the last fused function.
GELU = X * ((1 + (X * sqrt(1 / 2)).erf()) / 2)


class PostEltwise(NamedTuple):
    """A function of one element: oneDNN's name of it, and its constants."""

    alg: str
    alpha: float
    beta: float


#: (name, expression): oneDNN's functions of one element, and what each computes, as far as NaN,
#: infinities and zeros come out right. Three functions are absent since they do not: ``exp``
#: returns infinity for NaN, ``relu`` a bound for NaN, ``gelu_erf`` NaN for infinity.
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


def eltwise(expression: Expression) -> PostEltwise | None:
    """Return oneDNN's function for an expression of one element; None if it has none."""
    for alg, pattern in ELTWISE:
        if (numbers := matched(expression, pattern)) is not None:
            return PostEltwise(alg, numbers.get(0, 0.0), numbers.get(1, 0.0))
    return None
