"""Tapes as data: what was computed of sizes and asked of libraries, row by row.

A tape writes Python down and compiles it. What goes to other processes is no code but rows: an
operation, and where its operands are among constants, given sizes and earlier results. Whoever
reads them carries them out one by one.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from libdesc.noted import TAPED
from vtensor.language.tape import Tape

Row = list[Any]

#: Where a value is while rows are written: of which kind (a constant, a given size, or what a row
#: makes), and its number among those.
Place = tuple[str, int]

#: What rows do with two things, by number: arithmetic first.
_ON_TWO: tuple[Callable[[Any, Any], Any], ...] = (
    *(operator.add, operator.sub, operator.mul, operator.floordiv, operator.mod),
    *(operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge),
)
#: What they make of several things, and of one.
_OF_MANY: tuple[Callable[[Any], Any], ...] = (tuple, list)
_OF_ONE: tuple[Callable[[Any], Any], ...] = (len, tuple)

#: The numbers of signs in ``_ON_TWO``.
_SIGNS: dict[type[ast.AST], int] = {
    kind: number
    for number, kind in enumerate(
        (
            *(ast.Add, ast.Sub, ast.Mult, ast.FloorDiv, ast.Mod),
            *(ast.Eq, ast.NotEq, ast.Lt, ast.LtE, ast.Gt, ast.GtE),
        )
    )
}

#: Where the types of native functions and of native classes are.
_NATIVE = "nanobind"

#: How many of them are arithmetic: a result that nobody needs is left out.
_ARITHMETIC = 5

#: The kinds of rows: what is computed of two, questions with the answer yes or no, a call, what is
#: read of one thing by a name or a key, and what is made of several, or of one. Behind it each row
#: has what does it (a number, a name, or where that is), and what is taken.
_TWO, _YES, _NO, _CALL, _GET, _ITEM, _MANY, _ONE = range(8)


class NotInRows(Exception):  # it is no error: a tape is only compiled then
    """A tape has something that no row says."""


def rows_of(tape: Tape, wanted: Sequence[int], constant: Callable[[Any], Any]) -> dict[str, Any]:
    """A tape as data.

    Args:
        tape: of sizes, or of calls.
        wanted: places on it: what ``TapeRows.run`` gives, in order.
        constant: what is no size, as data; raises where it is none.

    Raises:
        NotInRows: rows do not say all of it.

    >>> tape = Tape()
    >>> n = tape.size(6)
    >>> (n * 2 + 1).value, n > 4
    (13, True)
    >>> rows_of(tape, [2], lambda value: value)
    {'given': 1, 'constants': [2, 1, 4], 'rows': [[0, 2, 3, 0], [0, 0, 4, 1], [1, 9, 3, 2]], \
'wanted': [5]}
    """
    return _Writer(tape, constant).data(wanted)


class _Writer:
    def __init__(self, tape: Tape, constant: Callable[[Any], Any]) -> None:
        self._tape, self._constant = tape, constant
        self._constants: dict[tuple[str, Any], int] = {}
        self._values: list[Any] = []
        self._rows: list[Row] = []
        #: What the lines' names stand for.
        self._names: dict[str, Place] = {
            f"v{place}": ("given", number) for number, place in enumerate(tape.given)
        }
        self._made = 0

    def data(self, wanted: Sequence[int]) -> dict[str, Any]:
        for line in self._tape.lines:
            self._line(ast.parse(line).body[0])
        count, given = len(self._values), len(self._tape.given)
        try:
            ends = [self._names[f"v{place}"] for place in wanted]
        except KeyError as missing:
            raise NotInRows(f"nothing makes {missing}") from None
        rows, places = self._needed(ends)
        begins = {"constant": 0, "given": count}

        def at(one: Place) -> int:
            kind, number = one
            return count + given + places[number] if kind == "made" else begins[kind] + number

        return {
            "given": given,
            "constants": self._values,
            "rows": [_moved(row, at) for row in rows],
            "wanted": [at(one) for one in ends],
        }

    def _needed(self, ends: Sequence[Place]) -> tuple[list[Row], dict[int, int]]:
        """The rows that matter, and the numbers of those that make something."""
        used = {number for kind, number in ends if kind == "made"}
        kept = list[tuple[int, Row]]()
        for number, row in reversed(self._rows_by_number()):
            if row[0] == _TWO and row[1] < _ARITHMETIC and number not in used:
                continue
            kept.append((number, row))
            used.update(number for kind, number in _operands(row) if kind == "made")
        kept.reverse()
        making = [number for number, _ in kept if number >= 0]
        return [row for _, row in kept], {number: at for at, number in enumerate(making)}

    def _rows_by_number(self) -> list[tuple[int, Row]]:
        """Each row with the number of what it makes; -1 of a question."""
        found, number = list[tuple[int, Row]](), 0
        for row in self._rows:
            asks = row[0] in (_YES, _NO)
            found.append((-1 if asks else number, row))
            number += not asks
        return found

    def _line(self, line: ast.stmt) -> None:
        match line:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                self._names[name] = self._value(value)
            case ast.If(test=ast.UnaryOp(op=ast.Not(), operand=ast.Compare() as asked)):
                self._question(asked, True)
            case ast.If(test=ast.Compare() as asked):
                self._question(asked, False)
            case _:
                raise NotInRows(ast.unparse(line))

    def _question(self, asked: ast.Compare, answer: bool) -> None:
        [sign], [other] = asked.ops, asked.comparators
        kind = _YES if answer else _NO
        self._rows.append([kind, _SIGNS[type(sign)], self._value(asked.left), self._value(other)])

    def _value(self, value: ast.expr) -> Place:
        """Where the value of an expression is."""
        match value:
            case ast.Name(id=name):
                if name in self._names:
                    return self._names[name]
                return self._kept(self._tape.scope[name])
            case ast.Constant(value=fixed):
                return self._kept(fixed)
            case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int(fixed))):
                return self._kept(-fixed)
            case ast.BinOp(left=left, op=sign, right=right):
                return self._row(_TWO, _SIGNS[type(sign)], self._value(left), self._value(right))
            case ast.Compare(left=left, ops=[sign], comparators=[right]):
                return self._row(_TWO, _SIGNS[type(sign)], self._value(left), self._value(right))
            case ast.Call(func=ast.Name(id="len"), args=[of]):
                return self._row(_ONE, _OF_ONE.index(len), self._value(of), None)
            case ast.Call(func=function, args=given, keywords=named):
                called, args = self._value(function), [*map(self._value, given)]
                by_name = {str(one.arg): self._value(one.value) for one in named}
                return self._row(_CALL, called, args, by_name)
            case ast.Attribute(value=of, attr=name) if not name.startswith("_"):
                return self._row(_GET, name, self._value(of), None)
            case ast.Subscript(value=of, slice=which):
                return self._row(_ITEM, None, self._value(of), self._value(which))
            case ast.Tuple(elts=[ast.Starred(value=of)]):
                return self._row(_ONE, _OF_ONE.index(tuple), self._value(of), None)
            case ast.Tuple(elts=parts):
                return self._row(_MANY, _OF_MANY.index(tuple), [*map(self._value, parts)], None)
            case ast.List(elts=parts):
                return self._row(_MANY, _OF_MANY.index(list), [*map(self._value, parts)], None)
        raise NotInRows(ast.unparse(value))

    def _row(self, *row: Any) -> Place:
        self._rows.append([*row])
        self._made += 1
        return "made", self._made - 1

    def _kept(self, value: object) -> Place:
        key = type(value).__name__, value if isinstance(value, (int, str)) else id(value)
        if key not in self._constants:
            self._constants[key] = len(self._values)
            self._values.append(self._constant(value))
        return "constant", self._constants[key]


def _operands(row: Row) -> list[Place]:
    """What a row takes."""
    found = list[Place]()
    for one in row[1:]:
        if isinstance(one, tuple):
            found.append(one)
        elif isinstance(one, list):
            found += one
        elif isinstance(one, dict):
            found += one.values()
    return found


def _moved(row: Row, at: Callable[[Place], int]) -> Row:
    """A row with numbers for what it takes."""

    def moved(one: Any) -> Any:
        if isinstance(one, tuple):
            return at(one)
        if isinstance(one, list):
            return [*map(at, one)]
        return {name: at(part) for name, part in one.items()} if isinstance(one, dict) else one

    return [row[0], *map(moved, row[1:])]


class TapeRows:
    """A tape that was data.

    Args:
        data: of ``rows_of``, perhaps by way of a file.
        constant: the constants of such data.

    Raises:
        Exception: of any kind, where it is none.

    >>> tape = TapeRows({"given": 1, "constants": [4], "wanted": [2],
    ...                  "rows": [[0, 2, 1, 0], [1, 9, 1, 0]]}, int)
    >>> tape.run([6]), tape.run([3])
    ([24], None)
    """

    def __init__(self, data: Mapping[str, Any], constant: Callable[[Any], Any]) -> None:
        self._constants = [*map(constant, data["constants"])]
        self._given = int(data["given"])
        self._rows, self._wanted = data["rows"], data["wanted"]

    def run(self, given: Sequence[int]) -> list[Any] | None:
        """What is wanted, for given sizes; None where a question has another answer then.

        Raises:
            Exception: of any kind, where a library refuses.
        """
        if len(given) != self._given:
            return None
        known = [*self._constants, *given]
        make = known.append
        for kind, which, one, other in self._rows:
            if kind == _TWO:
                make(_ON_TWO[which](known[one], known[other]))
            elif kind == _YES:
                if not _ON_TWO[which](known[one], known[other]):
                    return None
            elif kind == _NO:
                if _ON_TWO[which](known[one], known[other]):
                    return None
            elif kind == _CALL:
                called = known[which]
                if type(called).__module__ != _NATIVE and called not in TAPED:
                    raise ValueError(f"rows may not call {called}")
                named = {name: known[at] for name, at in other.items()}
                make(called(*[known[at] for at in one], **named))
            elif kind == _ITEM:
                make(known[one][known[other]])
            elif kind == _GET and _is_native(known[one]) and not which.startswith("_"):
                make(getattr(known[one], which))
            elif kind == _MANY:
                make(_OF_MANY[which]([known[at] for at in one]))
            elif kind == _ONE:
                make(_OF_ONE[which](known[one]))
            else:
                raise ValueError(f"there is no such row: {kind}, {which}")
        return [known[at] for at in self._wanted]


def _is_native(thing: object) -> bool:
    """It is of a class of a library's native module: of nothing else rows may ask more."""
    return type(type(thing)).__module__ == _NATIVE
