"""Patterns of expressions. A pattern is an expression with placeholders, each of which stands for
any number.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from vtensor.language.expression import Expression

#: The parts of which patterns are made: X is the first operand, OTHER another operand; the others
#: are placeholders, each for any number.
X, OTHER = Expression(0), Expression(1)
ALPHA, BETA, LOW, HIGH = (Expression(function="number", operand=index) for index in range(4))

#: Functions whose two arguments may be exchanged.
COMMUTATIVE = frozenset(("add", "mul", "max", "min"))

#: The number that each placeholder stands for, by its index: 0 is ALPHA.
Numbers = dict[int, float]


class Bounds(NamedTuple):
    """The bounds of ``min(max(x, low), high)``."""

    low: float
    high: float


def matched(expression: Expression | float, pattern: Expression | float) -> Numbers | None:
    """Return the number for each placeholder of a pattern; None if the expression does not match.

    The keys are the indices of the placeholders: 0 is ``ALPHA``.

    >>> matched(X * 2 + 1, X * ALPHA + BETA)
    {0: 2.0, 1: 1.0}
    """
    numbers: Numbers = {}
    return numbers if _match_numbers(expression, pattern, numbers) else None


def _match_numbers(
    expression: Expression | float, pattern: Expression | float, numbers: Numbers
) -> bool:
    if not isinstance(pattern, Expression):
        return not isinstance(expression, Expression) and float(expression) == float(pattern)
    if pattern.function == "number":
        if isinstance(expression, Expression):
            return False
        return numbers.setdefault(pattern.operand, float(expression)) == float(expression)
    if not isinstance(expression, Expression) or expression.function != pattern.function:
        return False
    if not expression.function:
        return expression.operand == pattern.operand
    orders = [expression.arguments]
    if expression.function in COMMUTATIVE:
        orders.append(expression.arguments[::-1])
    for arguments in orders:
        trial = dict(numbers)
        pairs = zip(arguments, pattern.arguments, strict=True)
        if all(_match_numbers(argument, part, trial) for argument, part in pairs):
            numbers.update(trial)
            return True
    return False


def split_bounds(expression: Expression) -> tuple[Expression, Expression]:
    """Split an expression into two expressions, of which the second one is applied to the result of
    the first.

    For ``min(max(alpha * x + beta, low), high)`` they are the linear part and the bounds. For any
    other expression they are ``x`` and the expression itself.

    >>> linear, limits = split_bounds((X * 2 + 1).max(0).min(1))
    >>> matched(linear, X * ALPHA + BETA), bounds(limits)
    ({0: 2.0, 1: 1.0}, Bounds(low=0.0, high=1.0))
    """
    linear = X * ALPHA + BETA
    numbers = matched(expression, linear.max(LOW).min(HIGH))
    if numbers is None:
        return X, expression
    alpha, beta, low, high = (numbers[part.operand] for part in (ALPHA, BETA, LOW, HIGH))
    return X * alpha + beta, X.max(low).min(high)


def bounds(expression: Expression) -> Bounds | None:
    """Return the bounds if an expression is max(x, low) or min(max(x, low), high), else None.

    The upper bound of max(x, low) is infinity.
    """
    if (numbers := matched(expression, X.max(ALPHA))) is not None:
        return Bounds(numbers[0], float("inf"))
    if (numbers := matched(expression, X.max(ALPHA).min(BETA))) is not None:
        return Bounds(numbers[0], numbers[1])
    return None


#: Functions of the value and another operand. max and min are absent, since oneDNN's do not always
#: return NaN for a NaN.
BINARY: Mapping[str, Expression] = {
    "add": X + OTHER,
    "mul": X * OTHER,
    "sub": X - OTHER,
    "div": X / OTHER,
}


def binary(expression: Expression) -> str | None:
    """Return the key of ``BINARY`` for the function of two operands that an expression computes;
    None if there is none.
    """
    return next(
        (alg for alg, pattern in BINARY.items() if matched(expression, pattern) is not None), None
    )
