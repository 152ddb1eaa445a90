"""Expressions: what a point-wise operator computes of each element, as a value.

An operator declares one (the trait ``Pointwise``); libraries make of it a program, a chain of their
own functions, or part of another operator's call. Values are numbers, or truth values, which are
0 and 1.
"""

from __future__ import annotations

from vtensor.language.records import dataclass


@dataclass(frozen=True, eq=False)
class Expression:
    """A value for each element: an operand, or a function of other values.

    Arithmetic with expressions and numbers makes larger ones; a NaN operand makes a NaN. Integers
    divide towards zero and wrap around.

    >>> x = Expression(0)
    >>> print((x * 2).max(0))
    max(mul(x0, 2), 0)

    Attributes:
        operand: which operand it is; -1 where it is a function.
        function: the function's name; empty where it is an operand.
        arguments: those of the function.
        dtype: the element type that it has in memory; empty where that is not known, as in the
            midst of a computation.
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
        """What is left of a division that is rounded down: it has the divisor's sign."""
        return _of("mod", self, other)

    def fmod(self, other: Expression | float) -> Expression:
        """What is left of a division that is rounded towards zero: it has the dividend's sign."""
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
        """Whether two values are equal."""
        return _of("eq", self, other)

    def __and__(self, other: Expression) -> Expression:
        """Of truth values whether both hold; of integers the bits that both have."""
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
        """The larger of the two; NaN if one is."""
        return _of("max", self, other)

    def min(self, other: Expression | float) -> Expression:
        """The smaller of the two; NaN if one is."""
        return _of("min", self, other)

    def abs(self) -> Expression:
        """The absolute value."""
        return _of("abs", self)

    def apply(self, function: str) -> Expression:
        """A function of one value by its name, one of ``FUNCTIONS``."""
        return _of(function, self)

    def exp(self) -> Expression:
        """e to this power."""
        return _of("exp", self)

    def expm1(self) -> Expression:
        """e to this power, less 1, exact near 0."""
        return _of("expm1", self)

    def log1p(self) -> Expression:
        """The natural logarithm of 1 more, exact near 0."""
        return _of("log1p", self)

    def sqrt(self) -> Expression:
        """The square root."""
        return _of("sqrt", self)

    def erf(self) -> Expression:
        """The error function."""
        return _of("erf", self)

    def tanh(self) -> Expression:
        """The hyperbolic tangent."""
        return _of("tanh", self)

    def logistic(self) -> Expression:
        """1 / (1 + exp(-x))."""
        return _of("logistic", self)

    def softplus(self) -> Expression:
        """ln(1 + exp(x)), which does not overflow."""
        return self.max(0) + (-self.abs()).exp().log1p()

    def to(self, dtype: str) -> Expression:
        """The value in an element type: cut off, wrapped around or rounded as that one needs."""
        return Expression(function=f"to_{dtype}", arguments=(self,), dtype=dtype)


#: The functions of one value that ``apply`` takes.
FUNCTIONS = (
    *("abs", "neg", "sign", "sqrt", "exp", "expm1", "log", "log1p", "erf", "tanh", "logistic"),
    *("floor", "ceil", "round", "trunc", "isnan", "isinf", "not"),
    *("sin", "cos", "tan", "asin", "acos", "atan"),
    *("sinh", "cosh", "asinh", "acosh", "atanh"),
)


def select(
    condition: Expression, holds: Expression | float, fails: Expression | float
) -> Expression:
    """The first value where the condition holds, else the second."""
    return _of("select", condition, holds, fails)


def _of(function: str, *arguments: Expression | float) -> Expression:
    return Expression(function=function, arguments=arguments)
