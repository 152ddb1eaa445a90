"""Expressions: the computation of a point-wise operator for one element, as data.

A point-wise operator declares its expression by the trait ``Pointwise``. A library translates the
expression into code, into a chain of its own functions, or into a part of another operator's call.
Values are numbers; truth values are 0 and 1.
"""

from __future__ import annotations

from vtensor.language.records import dataclass


@dataclass(frozen=True, eq=False)
class Expression:
    """A value for each element: an operand, or a function of other values.

    Arithmetic with expressions and numbers returns larger expressions. An operation on a NaN gives
    NaN. Integer division rounds towards zero; integers wrap around.

    >>> x = Expression(0)
    >>> print((x * 2).max(0))
    max(mul(x0, 2), 0)

    Attributes:
        operand: the operand's index; -1 for a function.
        function: the function's name; empty for an operand.
        arguments: the function's arguments.
        dtype: the element type of the value in memory; empty if it is not known, as for an
            intermediate result.
    """

    operand: int = -1
    function: str = ""
    arguments: tuple[Expression | float, ...] = ()
    dtype: str = ""

    def __str__(self) -> str:
        if not self.function:
            return f"x{self.operand}"
        return f"{self.function}({', '.join(map(str, self.arguments))})"

    def __add__(self, other: Expression | float) -> Expression:
        return _of("add", self, other)

    def __radd__(self, other: float) -> Expression:
        return _of("add", other, self)

    def __sub__(self, other: Expression | float) -> Expression:
        return _of("sub", self, other)

    def __rsub__(self, other: float) -> Expression:
        return _of("sub", other, self)

    def __mul__(self, other: Expression | float) -> Expression:
        return _of("mul", self, other)

    def __rmul__(self, other: float) -> Expression:
        return _of("mul", other, self)

    def __truediv__(self, other: Expression | float) -> Expression:
        return _of("div", self, other)

    def __rtruediv__(self, other: float) -> Expression:
        return _of("div", other, self)

    def __pow__(self, other: Expression | float) -> Expression:
        return _of("pow", self, other)

    def __mod__(self, other: Expression | float) -> Expression:
        """Return the remainder of division rounded down, which has the divisor's sign."""
        return _of("mod", self, other)

    def fmod(self, other: Expression | float) -> Expression:
        """Return the remainder of division rounded towards zero, with the dividend's sign."""
        return _of("fmod", self, other)

    def __neg__(self) -> Expression:
        return _of("neg", self)

    def __lt__(self, other: Expression | float) -> Expression:
        return _of("lt", self, other)

    def __le__(self, other: Expression | float) -> Expression:
        return _of("le", self, other)

    def __gt__(self, other: Expression | float) -> Expression:
        return _of("lt", other, self)

    def __ge__(self, other: Expression | float) -> Expression:
        return _of("le", other, self)

    def equals(self, other: Expression | float) -> Expression:
        """Return 1 if the two values are equal, else 0."""
        return _of("eq", self, other)

    def __and__(self, other: Expression) -> Expression:
        """Return the logical AND of truth values, the bitwise AND of integers."""
        return _of("and", self, other)

    def __or__(self, other: Expression) -> Expression:
        return _of("or", self, other)

    def __xor__(self, other: Expression) -> Expression:
        return _of("xor", self, other)

    def __invert__(self) -> Expression:
        return _of("not", self)

    def __lshift__(self, other: Expression) -> Expression:
        return _of("shl", self, other)

    def __rshift__(self, other: Expression) -> Expression:
        return _of("shr", self, other)

    def max(self, other: Expression | float) -> Expression:
        """Return the larger of two values; NaN if either is NaN."""
        return _of("max", self, other)

    def min(self, other: Expression | float) -> Expression:
        """Return the smaller of two values; NaN if either is NaN."""
        return _of("min", self, other)

    def abs(self) -> Expression:
        """Return the absolute value."""
        return _of("abs", self)

    def apply(self, function: str) -> Expression:
        """Return the result of a function of this value, given its name in ``FUNCTIONS``."""
        return _of(function, self)

    def exp(self) -> Expression:
        """Return exp of this value."""
        return _of("exp", self)

    def expm1(self) -> Expression:
        """Return exp of this value, minus 1; exact near 0."""
        return _of("expm1", self)

    def log1p(self) -> Expression:
        """Return the natural logarithm of 1 plus this value; exact near 0."""
        return _of("log1p", self)

    def sqrt(self) -> Expression:
        """Return the square root."""
        return _of("sqrt", self)

    def erf(self) -> Expression:
        """Return the error function."""
        return _of("erf", self)

    def tanh(self) -> Expression:
        """Return the hyperbolic tangent."""
        return _of("tanh", self)

    def logistic(self) -> Expression:
        """Return 1 / (1 + exp(-x)), where x is this value."""
        return _of("logistic", self)

    def softplus(self) -> Expression:
        """Return ln(1 + exp(x)), where x is this value, without overflow."""
        return self.max(0) + (-self.abs()).exp().log1p()

    def to(self, dtype: str) -> Expression:
        """Return the value converted to an element type.

        A float that becomes an integer loses its fraction. An integer that becomes a narrower
        integer loses its upper bits. A float that becomes a narrower float is rounded.
        """
        return Expression(function=f"to_{dtype}", arguments=(self,), dtype=dtype)


#: The names of the functions of one value, for ``Expression.apply``.
FUNCTIONS = (
    *("abs", "neg", "sign", "sqrt", "exp", "expm1", "log", "log1p", "erf", "tanh", "logistic"),
    *("floor", "ceil", "round", "trunc", "isnan", "isinf", "not"),
    *("sin", "cos", "tan", "asin", "acos", "atan"),
    *("sinh", "cosh", "asinh", "acosh", "atanh"),
)


def select(
    condition: Expression, holds: Expression | float, fails: Expression | float
) -> Expression:
    """Return the value ``holds`` where ``condition`` is true (1), else the value ``fails``."""
    return _of("select", condition, holds, fails)


def _of(function: str, *arguments: Expression | float) -> Expression:
    return Expression(function=function, arguments=arguments)
