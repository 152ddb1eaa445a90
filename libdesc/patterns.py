"""Whether an expression has a form that a library computes: patterns with numbers left open."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from vtensor.language.expression import Expression

#: The value that a pattern is of, the other operand, and numbers that a pattern leaves open.
X, OTHER = Expression(0), Expression(1)
ALPHA, BETA, LOW, HIGH = (Expression(function="number", operand=index) for index in range(4))

#: Functions of which the operands may change places.
COMMUTATIVE = frozenset(("add", "mul", "max", "min"))

Numbers = dict[int, float]


class Bounds(NamedTuple):
    """min(max(x, low), high)."""

    low: float
    high: float


def matched(one: Expression | float, pattern: Expression | float) -> Numbers | None:
    """The numbers that a pattern leaves open, where an expression is of its form; else None.

    >>> matched(X * 2 + 1, X * ALPHA + BETA)
    {0: 2.0, 1: 1.0}
    """
    found: Numbers = {}
    return found if _fits(one, pattern, found) else None


def _fits(one: Expression | float, pattern: Expression | float, found: Numbers) -> bool:
    if not isinstance(pattern, Expression):
        return not isinstance(one, Expression) and float(one) == float(pattern)
    if pattern.function == "number":
        if isinstance(one, Expression):
            return False
        return found.setdefault(pattern.operand, float(one)) == float(one)
    if not isinstance(one, Expression) or one.function != pattern.function:
        return False
    if not one.function:
        return one.operand == pattern.operand
    orders = [one.arguments]
    if one.function in COMMUTATIVE:
        orders.append(one.arguments[::-1])
    for arguments in orders:
        trial = dict(found)
        pairs = zip(arguments, pattern.arguments, strict=True)
        if all(_fits(argument, part, trial) for argument, part in pairs):
            found.update(trial)
            return True
    return False


def split_bounds(one: Expression) -> tuple[Expression, Expression]:
    """An expression without the bounds that it ends in, if it is a sum or a product before that;
    and those bounds.

    >>> before, behind = split_bounds((X * 2 + 1).max(0).min(1))
    >>> matched(before, X * ALPHA + BETA), bounds(behind)
    ({0: 2.0, 1: 1.0}, Bounds(low=0.0, high=1.0))
    """
    linear = X * ALPHA + BETA
    numbers = matched(one, linear.max(LOW).min(HIGH))
    if numbers is None:
        return X, one
    alpha, beta, low, high = (numbers[part.operand] for part in (ALPHA, BETA, LOW, HIGH))
    return X * alpha + beta, X.max(low).min(high)


def bounds(one: Expression) -> Bounds | None:
    """The bounds that an expression is, if the lower one is a number."""
    if (numbers := matched(one, X.max(ALPHA))) is not None:
        return Bounds(numbers[0], float("inf"))
    if (numbers := matched(one, X.max(ALPHA).min(BETA))) is not None:
        return Bounds(numbers[0], numbers[1])
    return None


#: Functions of the value and another operand. oneDNN's max and min lose a NaN.
BINARY: Mapping[str, Expression] = {
    "add": X + OTHER,
    "mul": X * OTHER,
    "sub": X - OTHER,
    "div": X / OTHER,
}


def binary(one: Expression) -> str | None:
    """The name of the function of the value and another operand that an expression is."""
    return next((alg for alg, pattern in BINARY.items() if matched(one, pattern) is not None), None)
