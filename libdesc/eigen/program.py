"""Programs: lists of instructions, compiled from an expression, that the native kernel computes for
each element in one pass.

A value of a program is an f32 or an s64. Operands of floating-point types up to f32, and truth
values, become f32. Integers become s64; an integer result is stored by its lower bits. An integer
of 8 or 16 bits that is only used as a number becomes f32 at once, and a number that becomes such an
integer at the end is stored as one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import NamedTuple

from ptensor.encoding import integer_range
from ptensor.evaluation import Decline
from vtensor.language.dtype import NARROW_FLOATS, NARROW_INTEGERS
from vtensor.language.expression import Expression
from vtensor.language.records import dataclass

#: The two kinds of values that a program computes with.
FLOAT, INTEGER = "f32", "s64"

#: The element types of operands and results.
TYPES = (
    *("f32", "f16", "bf16", "s64", "s32", "s16", "s8", "u32", "u16", "u8", "bool"),
    *(name for name in NARROW_FLOATS if name != "f8e8m0"),
    *NARROW_INTEGERS,
)

#: Integers that f32 holds exactly.
SHORT = ("s16", "s8", "u16", "u8")

#: The most operands and constants of a program, together: the native kernel takes no more.
MAX_INPUTS = 32

#: The functions that a program can compute on integers. For any other function, integers are
#: converted to floats first.
INTEGERS = frozenset(
    (
        *("add", "sub", "mul", "div", "mod", "fmod", "neg", "abs", "sign", "max", "min"),
        *("and", "or", "xor", "not", "shl", "shr", "eq", "lt", "le", "select"),
    )
)
#: The functions whose result is a truth value.
TRUTHS = frozenset(("eq", "lt", "le"))

#: The functions that make integers of 8 or 16 bits of f32.
_ROUNDINGS = frozenset(f"to_{dtype} {FLOAT}" for dtype in SHORT)

#: (function, arguments): a function such as ``"add f32"``, and for each argument the number of a
#: value of the program.
Instruction = tuple[str, list[int]]


@dataclass
class Program:
    """An expression as a list of instructions.

    Its values are numbered: first the operands, then the constants, then the result of each
    instruction.

    Attributes:
        types: the element types of the operands, then that of the result.
        constants: kind and number of each constant; an integer is an ``int``, since a float may not
            represent it.
        instructions: the instructions in order.
    """

    types: list[str]
    constants: list[tuple[str, float]] = field(default_factory=list)
    instructions: list[Instruction] = field(default_factory=list)


def compiled(function: Callable[..., Expression], types: Sequence[str]) -> Program:
    """Compile a function of operands and return the program.

    Args:
        function: takes an expression per operand and returns the expression of the result.
        types: the element types of the operands, then that of the result.

    Raises:
        Decline: an element type is not among ``TYPES``, an integer is combined with a fraction or
            raised to a power, or there are more than ``MAX_INPUTS`` operands and constants.

    >>> compiled(lambda x: (x * 2).max(0), ["f32", "f32"]).instructions
    [('mul f32', [0, 1]), ('max f32', [3, 2])]
    >>> compiled(lambda x: x.to("u8").to("f32") + x, ["f32", "f32"]).instructions
    [('to_u8_f32 f32', [0]), ('add f32', [1, 0])]
    """
    if missing := [dtype for dtype in types if dtype not in TYPES]:
        raise Decline(f"computes element by element, but not in {', '.join(missing)}")
    operands = [Expression(index, dtype=dtype) for index, dtype in enumerate(types[:-1])]
    whole = function(*operands)
    used = {id(operand): set[str]() for operand in operands}
    _note_uses(whole, used, set())
    numbers = [
        dtype in SHORT and used[id(operand)] == {f"to_{FLOAT}"}
        for operand, dtype in zip(operands, types, strict=False)
    ]
    stored = types[-1] in SHORT and whole.function == f"to_{types[-1]}"
    names = [
        f"{dtype} as {FLOAT}" if number else dtype
        for dtype, number in zip(types, [*numbers, stored], strict=True)
    ]
    return _Compiler(names, operands).program(whole)


def _note_uses(whole: Expression, used: Mapping[int, set[str]], seen: set[int]) -> None:
    """Note for each operand in an expression the functions that it is an argument of.

    Args:
        whole: the expression.
        used: the functions by the id of the operand; they are added.
        seen: the ids of the expressions whose arguments are noted already; they are added.
    """
    if id(whole) in used or id(whole) in seen:
        return
    seen.add(id(whole))
    for argument in whole.arguments:
        if id(argument) in used:
            used[id(argument)].add(whole.function)
        elif isinstance(argument, Expression):
            _note_uses(argument, used, seen)


def kind_of(dtype: str) -> str:
    """Return the kind of value, FLOAT or INTEGER, that an element of the type ``dtype`` becomes in
    a program.
    """
    return INTEGER if dtype[0] in "su" and not dtype.endswith(FLOAT) else FLOAT


class _Value(NamedTuple):
    """A value of a program that is being compiled.

    Attributes:
        kind: FLOAT or INTEGER.
        where: ``operand``, ``constant``, or ``code`` for the result of an instruction.
        number: its index among the operands, among the constants or among the instructions.
    """

    kind: str
    where: str
    number: int


class _Compiler:
    """A compiler of one expression. Values get their final numbers at the end, when all constants
    are known.
    """

    def __init__(self, types: Sequence[str], operands: Sequence[Expression]) -> None:
        self._types = list(types)
        self._constants: dict[tuple[str, float], int] = {}
        self._code: list[tuple[str, list[_Value]]] = []
        pairs = zip(operands, types[:-1], strict=True)
        self._values = {
            id(operand): _Value(kind_of(dtype), "operand", index)
            for index, (operand, dtype) in enumerate(pairs)
        }
        self._alive: list[Expression] = []

    def program(self, whole: Expression) -> Program:
        """Return the program that computes an expression.

        Args:
            whole: the expression of the result.

        Raises:
            Decline: see ``compiled``.
        """
        dst = self._types[-1]
        if dst in NARROW_FLOATS and whole.function == f"to_{dst}":
            [argument] = whole.arguments  # what stores the result rounds it
            whole = argument if isinstance(argument, Expression) else whole
        if whole.arguments and kind_of(dst) == FLOAT and dst.endswith(f" as {FLOAT}"):
            [argument] = whole.arguments  # what stores the result cuts off its fraction
            whole = argument if isinstance(argument, Expression) else whole
            if self._value(whole).kind == INTEGER:
                self._types[-1] = dst = dst.partition(" ")[0]
        value = self._value(whole)
        whole_part = value.kind == FLOAT and kind_of(dst) == INTEGER
        value = self._converted(dst, value) if whole_part else self._as(kind_of(dst), value)
        if value.where != "code":
            self._add(f"copy {value.kind}", value.kind, [value])
        first = {"operand": 0, "constant": len(self._types) - 1}
        first["code"] = first["constant"] + len(self._constants)
        if first["code"] > MAX_INPUTS:
            raise Decline(f"computes with {MAX_INPUTS} operands and numbers at most")
        places = {old: new for new, old in enumerate(self._used())}

        def place(value: _Value) -> int:
            return places[value.number] if value.where == "code" else value.number

        code = [
            (name, [first[v.where] + place(v) for v in values])
            for name, values in map(self._code.__getitem__, places)
        ]
        return Program(self._types, list(self._constants), code)

    def _used(self) -> list[int]:
        """Return the indices of the instructions on which the last one depends, and its own."""
        used = {len(self._code) - 1}
        for index in reversed(range(len(self._code))):
            if index in used:
                used |= {v.number for v in self._code[index][1] if v.where == "code"}
        return sorted(used)

    def _value(self, expression: Expression) -> _Value:
        if id(expression) not in self._values:
            self._values[id(expression)] = self._computed(expression)
            self._alive.append(expression)  # keeps its id from being reused
        return self._values[id(expression)]

    def _computed(self, expression: Expression) -> _Value:
        name, arguments = expression.function, expression.arguments
        operands = [self._value(a) if isinstance(a, Expression) else None for a in arguments]
        if name.startswith("to_") and operands[0] is not None:
            return self._converted(name.removeprefix("to_"), operands[0])
        if name == "pow" and operands[0] is not None and operands[0].kind == INTEGER:
            raise Decline("raises no integers to powers")
        deciding = operands[1:] if name == "select" else operands
        kinds = {value.kind for value in deciding if value is not None}
        kind = INTEGER if kinds == {INTEGER} and name in INTEGERS else FLOAT
        wanted = [FLOAT, kind, kind] if name == "select" else [kind] * len(operands)
        values = [
            self._constant(want, argument)
            if not isinstance(argument, Expression)
            else self._as(want, self._value(argument))
            for want, argument in zip(wanted, arguments, strict=True)
        ]
        return self._add(f"{name} {kind}", FLOAT if name in TRUTHS else kind, values)

    def _converted(self, dtype: str, value: _Value) -> _Value:
        """Return a value converted to an element type."""
        if dtype == "bool":
            return self._add(f"to_bool {value.kind}", FLOAT, [value])
        kind = kind_of(dtype)
        if kind == FLOAT:
            value = self._as(kind, value)
        if dtype == value.kind:
            return value
        return self._add(f"to_{dtype} {value.kind}", kind, [value])

    def _as(self, kind: str, value: _Value) -> _Value:
        """Return a value as another kind. A number that was rounded to an integer of 8 or 16 bits
        never becomes an s64 on its way back to f32.
        """
        if value.kind == kind:
            return value
        name, arguments = self._code[value.number] if value.where == "code" else ("", [])
        if kind == FLOAT and name in _ROUNDINGS:
            dtype = name.partition(" ")[0]
            return self._add(f"{dtype}_{FLOAT} {FLOAT}", FLOAT, arguments)
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
