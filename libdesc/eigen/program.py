"""Programs: expressions as the native kernel takes them, computed in one pass over memory.

A value of a program is a float or an integer: f32 and what is narrower, and truth values, are f32;
integers are s64, of which the result has the lower bits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field
from typing import NamedTuple

from ptensor.encoding import integer_range
from ptensor.evaluation import Decline
from vtensor.language.expression import Expression
from vtensor.language.records import dataclass

FLOAT, INTEGER = "f32", "s64"

#: The element types of operands and results.
TYPES = ("f32", "f16", "bf16", "s64", "s32", "s16", "s8", "u32", "u16", "u8", "bool")

#: How many operands and constants a program may have: the kernel takes no more.
MOST = 32

#: The functions of integers; of all others, integers are floats first.
INTEGERS = frozenset(
    (
        *("add", "sub", "mul", "div", "mod", "fmod", "neg", "abs", "sign", "max", "min"),
        *("and", "or", "xor", "not", "shl", "shr", "eq", "lt", "le", "select"),
    )
)
#: Those whose result is a truth value.
TRUTHS = frozenset(("eq", "lt", "le"))

Instruction = tuple[str, list[int]]


@dataclass
class Program:
    """An expression in the order in which it is computed; values are numbered, operands first.

    Attributes:
        types: the element types of the operands, then the result's.
        constants: the numbers in it, each with the kind of its value; an integer stays one, which a
            float of as many bits may lack.
        instructions: functions, such as ``"add f32"``, and the values that they are of.
    """

    types: list[str]
    constants: list[tuple[str, float]] = field(default_factory=list)
    instructions: list[Instruction] = field(default_factory=list)


def compiled(function: Callable[..., Expression], types: Sequence[str]) -> Program:
    """The program of a function of operands.

    Args:
        function: called with an expression an operand.
        types: the element types of the operands, then the result's.

    Raises:
        Decline: an element type is not among ``TYPES``, or an integer meets a fraction or a power.

    >>> compiled(lambda x: (x * 2).max(0), ["f32", "f32"]).instructions
    [('mul f32', [0, 1]), ('max f32', [3, 2])]
    """
    if missing := [dtype for dtype in types if dtype not in TYPES]:
        raise Decline(f"computes element by element, but not in {', '.join(missing)}")
    operands = [Expression(index, dtype=dtype) for index, dtype in enumerate(types[:-1])]
    return _Compiler(types, operands).program(function(*operands))


def kind_of(dtype: str) -> str:
    """What an element is while it is computed with."""
    return INTEGER if dtype[0] in "su" else FLOAT


class _Value(NamedTuple):
    """A value of a program: its kind, and which operand, constant or instruction it is."""

    kind: str
    where: str
    number: int


class _Compiler:
    """Numbers what is below an expression; a value has its number once all constants are found."""

    def __init__(self, types: Sequence[str], operands: Sequence[Expression]) -> None:
        self._types = list(types)
        self._constants: dict[tuple[str, float], int] = {}
        self._code: list[tuple[str, list[_Value]]] = []
        pairs = zip(operands, types[:-1], strict=True)
        self._known = {
            id(one): _Value(kind_of(dtype), "operand", index)
            for index, (one, dtype) in enumerate(pairs)
        }
        self._kept: list[Expression] = []

    def program(self, whole: Expression) -> Program:
        """The program whose result is the expression's."""
        value, dst = self._value(whole), self._types[-1]
        whole_part = value.kind == FLOAT and kind_of(dst) == INTEGER
        value = self._converted(dst, value) if whole_part else self._as(kind_of(dst), value)
        if value.where != "code":
            self._add(f"copy {value.kind}", value.kind, [value])
        first = {"operand": 0, "constant": len(self._types) - 1}
        first["code"] = first["constant"] + len(self._constants)
        if first["code"] > MOST:
            raise Decline(f"computes with {MOST} operands and numbers at most")
        code = [(name, [first[v.where] + v.number for v in values]) for name, values in self._code]
        return Program(self._types, list(self._constants), code)

    def _value(self, one: Expression) -> _Value:
        if id(one) not in self._known:
            self._known[id(one)] = self._computed(one)
            self._kept.append(one)  # so that no other gets its id
        return self._known[id(one)]

    def _computed(self, one: Expression) -> _Value:
        name, arguments = one.function, one.arguments
        found = [self._value(a) if isinstance(a, Expression) else None for a in arguments]
        if name.startswith("to_") and found[0] is not None:
            return self._converted(name.removeprefix("to_"), found[0])
        if name == "pow" and found[0] is not None and found[0].kind == INTEGER:
            raise Decline("raises no integers to powers")
        deciding = found[1:] if name == "select" else found
        kinds = {value.kind for value in deciding if value is not None}
        kind = INTEGER if kinds == {INTEGER} and name in INTEGERS else FLOAT
        wanted = [FLOAT, kind, kind] if name == "select" else [kind] * len(found)
        values = [
            self._constant(want, argument)
            if not isinstance(argument, Expression)
            else self._as(want, self._value(argument))
            for want, argument in zip(wanted, arguments, strict=True)
        ]
        return self._add(f"{name} {kind}", FLOAT if name in TRUTHS else kind, values)

    def _converted(self, dtype: str, value: _Value) -> _Value:
        """A value in another element type."""
        if dtype == "bool":
            return self._add(f"to_bool {value.kind}", FLOAT, [value])
        kind = kind_of(dtype)
        if kind == FLOAT:
            value = self._as(kind, value)
        if dtype == value.kind:
            return value
        return self._add(f"to_{dtype} {value.kind}", kind, [value])

    def _as(self, kind: str, value: _Value) -> _Value:
        if value.kind == kind:
            return value
        return self._add(f"to_{kind} {value.kind}", kind, [value])

    def _constant(self, kind: str, number: float) -> _Value:
        low, high = integer_range(INTEGER)
        if kind == INTEGER and not (low <= number <= high and number == number // 1):
            raise Decline(f"computes with 64-bit integers, of which {number} is none")
        value = int(number) if kind == INTEGER else float(number)
        index = self._constants.setdefault((kind, value), len(self._constants))
        return _Value(kind, "constant", index)

    def _add(self, name: str, kind: str, values: Sequence[_Value]) -> _Value:
        self._code.append((name, list(values)))
        return _Value(kind, "code", len(self._code) - 1)
