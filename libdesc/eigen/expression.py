"""Element-wise expressions: what an invoker writes down is computed in one pass over memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

Operation = tuple[str, "Expression | float", "Expression | float"]


@dataclass(frozen=True, eq=False)
class Expression:
    """A value for each element: an operand, or a function of other values.

    Arithmetic with expressions and numbers makes larger ones; NaN propagates through all of it.

    >>> program = compiled(lambda x: (x * 2).max(0), 1)
    >>> program.constants, program.instructions
    ([2.0, 0.0], [('mul', 0, 1), ('max', 3, 2)])
    """

    operand: int = -1
    operation: Operation | None = None

    def __add__(self, other: Expression | float) -> Expression:
        return _of("add", self, other)

    def __sub__(self, other: Expression | float) -> Expression:
        return _of("sub", self, other)

    def __mul__(self, other: Expression | float) -> Expression:
        return _of("mul", self, other)

    def __truediv__(self, other: Expression | float) -> Expression:
        return _of("div", self, other)

    def __neg__(self) -> Expression:
        return _of("neg", self, self)

    def max(self, other: Expression | float) -> Expression:
        """The larger of the two; NaN if one is."""
        return _of("max", self, other)

    def min(self, other: Expression | float) -> Expression:
        """The smaller of the two; NaN if one is."""
        return _of("min", self, other)

    def sqrt(self) -> Expression:
        """The square root."""
        return _of("sqrt", self, self)

    def exp(self) -> Expression:
        """The exponential."""
        return _of("exp", self, self)

    def abs(self) -> Expression:
        """The absolute value."""
        return _of("abs", self, self)


def _of(function: str, left: Expression, right: Expression | float) -> Expression:
    return Expression(operation=(function, left, right))


@dataclass(frozen=True)
class Program:
    """An expression as the native kernel takes it: values are numbered, operands first."""

    constants: list[float]
    instructions: list[tuple[str, int, int]]


def compiled(function: Callable[..., Expression], operands: int) -> Program:
    """The program of a function of that many operands."""
    whole = function(*(Expression(index) for index in range(operands)))
    order: list[Expression] = []
    constants: dict[float, int] = {}
    _collect(whole, order, constants)
    numbers = {id(part): operands + len(constants) + i for i, part in enumerate(order)}

    def number(value: Expression | float) -> int:
        if not isinstance(value, Expression):
            return operands + constants[float(value)]
        return value.operand if value.operation is None else numbers[id(value)]

    instructions = [
        (part.operation[0], number(part.operation[1]), number(part.operation[2]))
        for part in order
        if part.operation is not None
    ]
    return Program(list(constants), instructions)


def _collect(
    value: Expression | float, order: list[Expression], constants: dict[float, int]
) -> None:
    """Every operation below a value once, in the order of computation; and every number."""
    if not isinstance(value, Expression):
        constants.setdefault(float(value), len(constants))
    elif value.operation is not None and not any(value is known for known in order):
        for part in value.operation[1:]:
            _collect(part, order, constants)
        order.append(value)
