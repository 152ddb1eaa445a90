"""Traces: what Python computes with sizes, asks about them and calls, written down as rows.

Planning runs once on symbolic sizes (``SymbolicSize``). Each operation on a symbolic size is a row
and gives another symbolic size. Each comparison is answered with the number of now, and is a guard:
a row with that answer. ``Rows.run`` carries the rows out for other sizes. If every guard has its
answer, Python would take the same way with these sizes, and a result of planning holds for them
once their numbers are put in. If a guard fails, the trace says nothing about these sizes.
"""

from __future__ import annotations

import enum
import operator
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import field, fields, is_dataclass
from numbers import Integral
from types import BuiltinFunctionType, FunctionType, MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from vtensor.errors import VTensorError
from vtensor.language.records import dataclass, replace

if TYPE_CHECKING:
    _Integer = int
else:  # C code takes the value of a subclass of int without asking
    _Integer = object

#: The first and last character of a symbolic size's text.
MARK = "\ue000"

#: The most rows of a trace; one that needs more fails.
MOST = 200_000

#: A row: its kind, and four parts that the kind gives a meaning. Places 0, 1, ... are values, in
#: the order of their making; places -1, -2, ... are constants.
Row = tuple[int, Any, Any, Any, Any]

#: The kinds of rows, and the meaning of their parts:
#: TWO: the target, an arithmetic sign, two places.
#: GUARD: the answer that a comparison must have, its sign, two places.
#: CALL: the target, the function's place, places of arguments, (name, place) of named arguments.
#: COMPUTE: as CALL; the row goes where its result is not needed, for it refuses no sizes.
#: GET: the target, an attribute's name, the place of the thing that has it.
#: ITEM: the target, the place of a key, the place of the thing that has it.
#: MANY: the target, 0 for a tuple and 1 for a list, places of the parts.
#: ONE: the target, 0 for the length and 1 for a tuple of the keys, the place of the thing.
#: INTEGER: a place whose value must be an integer; only rows that were data have it.
TWO, GUARD, CALL, COMPUTE, GET, ITEM, MANY, ONE, INTEGER = range(9)

#: Signs in rows are numbers: places in this table, arithmetic first.
SIGNS = {
    sign: number
    for number, sign in enumerate(("+", "-", "*", "//", "%", "==", "!=", "<", "<=", ">", ">="))
}
_FUNCTIONS: tuple[Callable[[Any, Any], Any], ...] = (
    *(operator.add, operator.sub, operator.mul, operator.floordiv, operator.mod),
    *(operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge),
)
_ARITHMETIC = 5

#: What MANY and ONE make.
_GATHERED: tuple[Callable[[Any], Any], ...] = (tuple, list)
_TAKEN: tuple[Callable[[Any], Any], ...] = (len, tuple)

#: Rows of these kinds go where their result is not needed.
_REMOVABLE = frozenset({TWO, COMPUTE, GET, ITEM, MANY, ONE})

#: The module of the types of native functions and of native classes.
NATIVE = "nanobind"


class NotTraced(Exception):
    """Planning does something that a trace cannot write down."""


class NotSaved(Exception):  # it is no error: a trace works in its own process only
    """A trace has something that cannot be data."""


class TraceClosedError(VTensorError):
    """A symbolic size is used after its trace was closed."""


#: What a call may raise to refuse sizes. Everything else, an exception of a signal handler among
#: it, comes through ``Rows.run``.
REFUSALS = (
    *(ArithmeticError, LookupError, TypeError, ValueError, RuntimeError, AttributeError),
    *(VTensorError, NotTraced),
)


@dataclass(frozen=True, eq=False)
class Rows:
    """A closed trace: a program of sizes.

    Attributes:
        given: the places of the symbols, in order.
        count: how many places of values there are.
        constants: the values of places -1, -2, ...
        rows: the rows, in order.
        sources: what constants came from, by their places in ``constants``; of native things alone.
        was_data: the rows were read from data, so GET serves native things only.
    """

    given: Sequence[int]
    count: int
    constants: Sequence[Any]
    rows: Sequence[Row]
    sources: Mapping[int, Any] = field(default_factory=dict)
    was_data: bool = False

    def run(self, given: Sequence[int]) -> list[Any] | None:
        """Return all values by place, those of constants at the negative places.

        Args:
            given: the numbers of the symbols, in order.

        Returns:
            The values; None if a guard fails or a called function refuses.
        """
        if len(given) != len(self.given):
            return None
        known: list[Any] = [None] * self.count
        known += reversed(self.constants)
        for place, size in zip(self.given, given, strict=True):
            known[place] = size
        functions, was_data = _FUNCTIONS, self.was_data
        try:
            for kind, target, which, a, b in self.rows:
                if kind == TWO:
                    known[target] = functions[which](known[a], known[b])
                elif kind == GUARD:
                    if (not functions[which](known[a], known[b])) is target:
                        return None
                elif kind in (CALL, COMPUTE):
                    arguments = [known[place] for place in a]
                    if b:
                        named = {name: known[place] for name, place in b}
                        known[target] = known[which](*arguments, **named)
                    else:
                        known[target] = known[which](*arguments)
                elif kind == ITEM:
                    known[target] = known[a][known[which]]
                elif kind == GET:
                    if was_data and type(type(known[a])).__module__ != NATIVE:
                        return None
                    known[target] = getattr(known[a], which)
                elif kind == MANY:
                    known[target] = _GATHERED[which]([known[place] for place in a])
                elif kind == ONE:
                    known[target] = _TAKEN[which](known[a])
                elif type(known[target]) is not int:  # INTEGER
                    return None
        except REFUSALS:
            return None
        return known

    def pruned(self, wanted: Collection[int]) -> Rows:
        """Return the rows that the places ``wanted`` need, with all guards and all calls that may
        refuse sizes. Places stay what they are.
        """
        used, needed = set(wanted), list[Row]()
        for row in reversed(self.rows):
            if row[0] not in _REMOVABLE or row[1] in used:
                needed.append(row)
                used.update(_operands(row))
        needed.reverse()
        return replace(self, rows=needed)

    def data(self, constant: Callable[[Any, int], Any]) -> dict[str, Any]:
        """Return the rows as plain data, which JSON can hold.

        Args:
            constant: returns a constant's value as data, given the value and its place in
                ``constants``; never None. Constants of which no row makes use are not written.

        Raises:
            NotSaved: ``constant`` cannot.

        >>> trace = Trace()
        >>> n = trace.size(6)
        >>> (n * 2 + 1).value, n > 4
        (13, True)
        >>> trace.rows().data(lambda value, _: value)["rows"]
        [(0, 1, 2, 0, -1), (0, 2, 0, 1, -2), (1, True, 9, 0, -3)]
        """
        used = {place for row in self.rows for place in _operands(row)}
        return {
            "given": [*self.given],
            "count": self.count,
            "constants": [
                constant(value, index) if -1 - index in used else None
                for index, value in enumerate(self.constants)
            ],
            "rows": [*self.rows],
        }

    @classmethod
    def of(cls, data: Mapping[str, Any], constant: Callable[[Any], Any]) -> Rows:
        """Return the rows that ``data`` made data, perhaps by way of a file.

        Args:
            data: checked in full: no row reads a place before it has a value, or calls anything
                but a constant or a native thing's attribute.
            constant: returns a constant from data. Of callables it may return those alone that any
                data may call.

        Raises:
            ValueError: these are no rows.

        >>> rows = Rows.of({"given": [0], "count": 2, "constants": [4],
        ...                 "rows": [[0, 1, 2, 0, -1], [1, True, 9, 0, -1]]}, int)
        >>> rows.run([6]), rows.run([3])
        ([6, 24, 4], None)
        """
        try:
            return _Reader(data, constant).rows()
        except (LookupError, TypeError, AttributeError, OverflowError) as why:
            raise ValueError(f"no rows: {why!r}") from why


class _Reader:
    """Checks rows that are data."""

    def __init__(self, data: Mapping[str, Any], constant: Callable[[Any], Any]) -> None:
        self._given, self._count, self._data = [*data["given"]], data["count"], data["rows"]
        self._constants = [None if one is None else constant(one) for one in data["constants"]]
        if type(self._count) is not int or not 0 <= self._count <= 2 * MOST:
            raise ValueError("no rows: there is no such number of places")
        #: The kind of row that made each value, by its place; of constants CALL, of symbols TWO.
        self._kinds = dict.fromkeys(range(-len(self._constants), 0), CALL)
        for place in self._given:
            self._add(place, TWO)
        #: The places that are integers for sure, beside results of arithmetic.
        self._integers = {
            -1 - index for index, value in enumerate(self._constants) if type(value) is int
        }

    def rows(self) -> Rows:
        """Return the rows.

        Raises:
            Exception: of several kinds, where they are none.
        """
        rows, read, kinds, integers = list[Row](), self._read, self._kinds, self._integers
        for kind, target, which, a, b in self._data:
            if kind == GUARD:
                if type(target) is not bool or not self._is_sign(which, _ARITHMETIC, len(SIGNS)):
                    raise ValueError("no rows: a guard has no such answer or sign")
                rows.append((GUARD, target, which, read(a), read(b)))
                continue
            if kind == TWO:
                if not self._is_sign(which, 0, _ARITHMETIC):
                    raise ValueError("no rows: arithmetic has no such sign")
                for place in (read(a), read(b)):
                    if kinds[place] != TWO and place not in integers:
                        if place < 0:
                            raise ValueError("no rows: arithmetic on a constant that is no integer")
                        integers.add(place)
                        rows.append((INTEGER, place, 0, 0, 0))
                rows.append((TWO, target, which, a, b))
            else:
                rows.append(self._row(kind, target, which, a, b))
            self._add(target, kind)
        parts = self._given, self._count, self._constants, rows
        return Rows(*parts, was_data=True)

    def _row(self, kind: Any, target: int, which: Any, a: Any, b: Any) -> Row:
        read = self._read
        if kind in (CALL, COMPUTE):
            if read(which) >= 0 and self._kinds[which] != GET:
                raise ValueError("no rows: a result is called")
            named = tuple([(_public(name), read(place)) for name, place in b]) if b else ()
            return kind, target, which, tuple([read(place) for place in a]), named
        if kind == GET:
            return GET, target, _public(which), read(a), None
        if kind == ITEM:
            return ITEM, target, read(which), read(a), None
        if kind not in (MANY, ONE) or not self._is_sign(which, 0, 2):
            raise ValueError(f"no rows: there is no kind {kind} of {which}")
        places = tuple([read(place) for place in a]) if kind == MANY else read(a)
        return kind, target, which, places, None

    def _read(self, place: Any) -> int:
        """Return a place that has a value."""
        if type(place) is not int or place not in self._kinds:
            raise ValueError(f"no rows: nothing has made {place}")
        return place

    def _add(self, place: Any, kind: int) -> None:
        """Let a place have a value."""
        if type(place) is not int or not 0 <= place < self._count or place in self._kinds:
            raise ValueError(f"no rows: {place} is no place for a value")
        self._kinds[place] = kind

    @staticmethod
    def _is_sign(sign: Any, first: int, end: int) -> bool:
        return type(sign) is int and first <= sign < end


def _public(name: Any) -> str:
    if type(name) is not str or name.startswith("_"):
        raise ValueError(f"no rows: {name!r} is no public name")
    return name


def _operands(row: Row) -> Sequence[int]:
    """Return the places that a row reads."""
    kind, _, which, a, b = row
    if kind in (TWO, GUARD):
        return a, b
    if kind in (CALL, COMPUTE):
        return which, *a, *(place for _, place in b)
    if kind == ITEM:
        return which, a
    return a if kind == MANY else (a,)


class Placed(NamedTuple):
    """An argument of a call that an earlier row makes."""

    place: int


class Trace:
    """Symbols, and the rows of what is computed with them and asked about them.

    Attributes:
        values: the values of now, by place.
        failed: why the trace is of no use; empty if it is.
        pinned: the very number of a symbolic size was needed, so few other sizes pass the guards.

    >>> trace = Trace()
    >>> n, c = trace.size(6), trace.size(3)
    >>> (n * c + 1).value, n > c
    (19, True)
    >>> trace.run([8, 3])[:4], trace.run([2, 3]) is None
    ([8, 3, 24, 25], True)
    """

    def __init__(self) -> None:
        self.values: list[Any] = []
        self.failed = ""
        self.pinned = False
        self._given: list[int] = []
        self._constants: list[Any] = []
        self._rows: list[Row] = []
        self._sources: dict[int, Any] = {}
        #: The places of rows, constants and guards, by what they say.
        self._places: dict[Hashable, int] = {}
        self._closed: Rows | None = None

    def size(self, value: int) -> SymbolicSize:
        """Return the next symbol, whose number is ``value`` now."""
        self._check_open()
        self._given.append(self._new(value))
        return self._symbol(self._given[-1])

    @property
    def given(self) -> Sequence[int]:
        """The places of the symbols, in order."""
        return self._given

    def computed(self, sign: str, a: int, b: int) -> SymbolicSize:
        """Return the result of arithmetic on two sizes, of which one at least is symbolic."""
        self._check_open()
        key = TWO, SIGNS[sign], self._operand(a), self._operand(b)
        place = self._places.get(key)
        if place is None:
            place = self._row(key, _FUNCTIONS[key[1]](_now(a), _now(b)))
        return self._symbol(place)

    def asked(self, sign: str, a: int, b: int) -> bool:
        """Return the answer to a comparison of two sizes, and guard it."""
        self._check_open()
        answer = bool(_FUNCTIONS[SIGNS[sign]](_now(a), _now(b)))
        self.guard(answer, sign, self._operand(a), self._operand(b))
        return answer

    def guard(self, answer: bool, sign: str, a: int, b: int) -> None:
        """Write down that a comparison of the values at two places must have this answer."""
        self._check_open()
        key = GUARD, SIGNS[sign], a, b
        if key not in self._places:
            self._places[key] = 0
            self._write((GUARD, answer, *key[1:]))

    def call(self, function: Callable[..., Any], arguments: Sequence[Any], value: Any) -> int:
        """Write down a call that refuses no sizes, and return the place of its result.

        Args:
            function: what is called.
            arguments: plain values, symbolic sizes, results of earlier rows (``Placed``), and
                tuples and lists of these.
            value: the result for the numbers of now.
        """
        places = tuple(map(self.place_of, arguments))
        return self._row((COMPUTE, self.constant(function), places, ()), value)

    def constant(self, value: Any, key: Hashable = None) -> int:
        """Return the place of a constant; equal plain values, and equal keys, share one."""
        key = _key(value) if key is None else key
        place = self._places.get(key)
        if place is None:
            self._constants.append(value)
            place = self._places[key] = -len(self._constants)
        return place

    def place_of(self, value: Any) -> int:
        """Return the place of an argument: of a size, of a row's result, or of a constant."""
        kind = type(value)
        if kind is SymbolicSize:
            return value.place if value.trace is self else self.constant(int(value))
        if kind is Placed:
            return value.place  # type: ignore[no-any-return]
        if kind is not int and self.reads(value):
            parts = tuple(map(self.place_of, value))
            return self._row((MANY, int(isinstance(value, list)), parts, None), None)
        return self.constant(value)

    def reads(self, value: Any) -> bool:
        """Return whether an argument is no constant: a row's result or a size is in it."""
        kind = type(value)
        if kind is Placed or kind is SymbolicSize:
            return True
        return isinstance(value, (tuple, list)) and any(map(self.reads, value))

    def rows(self) -> Rows:
        """Close the trace and return its rows: nothing may be computed with its sizes any more."""
        if self._closed is None:
            count = len(self.values)
            self._closed = Rows(self._given, count, self._constants, self._rows, self._sources)
            self._places = {}
        return self._closed

    def run(self, given: Sequence[int]) -> list[Any] | None:
        """Close the trace and return ``Rows.run``."""
        return self.rows().run(given)

    def _operand(self, size: int) -> int:
        return self.place_of(size if type(size) is SymbolicSize else int(size))

    def _check_open(self) -> None:
        if self._closed is not None:
            raise TraceClosedError("a size was traced for other sizes, and is used for these")

    def _new(self, value: Any) -> int:
        self.values.append(value)
        return len(self.values) - 1

    def _row(self, key: tuple[int, Any, Any, Any], value: Any) -> int:
        """Return the place of a row's result; an equal row is written once."""
        self._check_open()
        place = self._places.get(key)
        if place is None:
            place = self._places[key] = self._new(value)
            kind, *parts = key
            self._write((kind, place, *parts))
        return place

    def _write(self, row: Row) -> None:
        if len(self._rows) >= MOST:
            self.failed = "too much is computed"
        else:
            self._rows.append(row)

    def _symbol(self, place: int) -> SymbolicSize:
        symbol = SymbolicSize()
        symbol.trace, symbol.place, symbol.value = self, place, self.values[place]
        return symbol


def _now(size: int) -> int:
    return size.value if type(size) is SymbolicSize else int(size)


def _key(value: Any) -> Hashable:
    """Return a key of a constant: of plain values their type and what they are, else identity."""
    kind = type(value)
    if kind in (int, str, bool, bytes, type(None)):
        return kind, value
    if kind is float:
        return kind, repr(value)
    if kind is tuple or kind is list:
        return kind, tuple(map(_key, value))
    return "is", id(value)


class SymbolicSize(_Integer):
    """A size of a trace. It is no ``int``, but says that it is one.

    An operation that needs the very number (an index) has it and is a guard, too: that the size
    has this number. The text of a symbolic size is not the number's, but has a mark (``MARK``) that
    no name has: sizes of one text are equal, and text that was made of sizes can be found.

    Attributes:
        trace: its trace.
        place: its place there.
        value: its number now.
    """

    trace: Trace
    place: int
    value: int

    #: NumPy's numbers and arrays leave arithmetic to it.
    __array_ufunc__ = None

    #: A table that has it as a key would serve later sizes, too.
    __hash__ = None  # type: ignore[assignment]

    if not TYPE_CHECKING:

        @property
        def __class__(self) -> type:
            return int

    def pinned(self) -> int:
        """Return the number; a result of it holds for no other number."""
        self.trace.pinned = True
        self.trace.asked("==", self, self.value)
        return self.value

    def __getattr__(self, name: str) -> Any:
        """Return what else integers have: ``n.real``, ``n.bit_length()``."""
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.pinned(), name)

    def __repr__(self) -> str:
        return f"{MARK}{self.place}{MARK}"

    __str__ = __repr__

    def __format__(self, spec: str) -> str:
        """Format it as text, for messages that are not shown."""
        return format(repr(self), spec)

    def __bool__(self) -> bool:
        return self.trace.asked("!=", self, 0)

    def __neg__(self) -> Any:
        return self.trace.computed("-", 0, self)

    def __pos__(self) -> Any:
        return self

    def __abs__(self) -> Any:
        return self if self >= 0 else -self

    def __divmod__(self, other: Any) -> Any:
        return self // other, self % other

    def __rdivmod__(self, other: Any) -> Any:
        return other // self, other % self

    def __round__(self, ndigits: Any = None) -> Any:
        return self if ndigits is None else round(self.pinned(), ndigits)


def number_of(size: int) -> int:
    """Return the number that a size has now."""
    return _now(size)


def is_open(value: Any) -> bool:
    """Return whether a value holds a symbolic size.

    Raises:
        NotTraced: the value is of a kind that may hide one.

    >>> n = Trace().size(4)
    >>> is_open((3, {"N": n})), is_open((3, {"N": 4}))
    (True, False)
    """
    kind = type(value)
    if kind is SymbolicSize:
        return True
    if kind is int or value is None:
        return False
    if isinstance(value, str):
        if MARK in value:
            raise NotTraced("sizes are in a text")
        return False
    if isinstance(value, _CLOSED) or getattr(kind, "holds_no_sizes", False):
        return False
    if isinstance(value, (tuple, list, frozenset, set)):
        return any(map(is_open, value))
    if isinstance(value, (dict, MappingProxyType)):
        return any(map(is_open, value)) or any(map(is_open, value.values()))
    if isinstance(value, np.ndarray) and not value.dtype.hasobject:
        return False
    if is_dataclass(value):
        return any(is_open(getattr(value, part.name)) for part in fields(value))
    raise NotTraced(f"a {kind.__name__} may hold sizes")


def substituted(value: Any, number: Callable[[SymbolicSize], int]) -> Any:
    """Return a value with numbers in the place of its symbolic sizes; the same object if it has
    none.

    Args:
        value: integers, tuples, lists, mappings, and dataclasses such as an operator's parameters,
            which were checked when they were made of symbolic sizes.
        number: the number of a size.

    Raises:
        NotTraced: the value is of a kind that may hide a symbolic size.

    >>> n = Trace().size(4)
    >>> substituted({"N": n, "C": (n, 3)}, lambda size: 10 * size.value)
    {'N': 40, 'C': (40, 3)}
    """
    kind: Any = type(value)
    if kind is SymbolicSize:
        return number(value)
    if not is_open(value):
        return value
    if kind is tuple or kind is list:
        return kind([substituted(part, number) for part in value])
    if isinstance(value, tuple) and hasattr(kind, "_make"):
        return kind._make(substituted(part, number) for part in value)
    if kind is dict or kind is MappingProxyType:
        return kind({key: substituted(part, number) for key, part in value.items()})
    if is_dataclass(value):
        copy = kind.__new__(kind)
        for part in fields(value):
            made = substituted(getattr(value, part.name), number)
            object.__setattr__(copy, part.name, made)
        return copy
    raise NotTraced(f"a {kind.__name__} holds sizes")


#: Values of these types hold no symbolic size. A class can say the same by ``holds_no_sizes``.
_CLOSED = (
    *(bool, float, complex, bytes, type, enum.Enum, np.dtype, np.generic),
    *(FunctionType, BuiltinFunctionType),
)


def _is_integer(value: object) -> bool:
    return type(value) is SymbolicSize or type(value) is int or isinstance(value, Integral)


#: The other operand with which arithmetic leaves a size as it is: on the right, on the left.
_SAME = {"+": (0, 0), "-": (0, None), "*": (1, 1), "//": (1, None)}


def _computing(sign: str, turned: bool) -> Callable[[Any, Any], Any]:
    same, function = _SAME.get(sign, (None, None))[turned], _FUNCTIONS[SIGNS[sign]]

    def compute(self: SymbolicSize, other: Any) -> Any:
        if not _is_integer(other):
            return NotImplemented if not isinstance(other, float) else as_float(self, other)
        if same is not None and type(other) is not SymbolicSize and other == same:
            return self
        a, b = (other, self) if turned else (self, other)
        if sign in ("//", "%") and b == 0:
            raise ZeroDivisionError("division by zero")
        return self.trace.computed(sign, a, b)

    def as_float(self: SymbolicSize, other: float) -> Any:
        a, b = (other, self.pinned()) if turned else (self.pinned(), other)
        return function(a, b)

    return compute


def _asking(sign: str) -> Callable[[Any, Any], Any]:
    function = _FUNCTIONS[SIGNS[sign]]
    of_itself = function(0, 0)

    def ask(self: SymbolicSize, other: Any) -> Any:
        if type(other) is SymbolicSize:
            if other.trace is self.trace and other.place == self.place:
                return of_itself
        elif not _is_integer(other):
            if isinstance(other, float):
                return function(self.pinned(), other)
            return NotImplemented
        return self.trace.asked(sign, self, other)

    return ask


def _number(name: str) -> Callable[..., Any]:
    return lambda self, *rest: getattr(self.pinned(), name)(*rest)


for _name, _sign in {"add": "+", "sub": "-", "mul": "*", "floordiv": "//", "mod": "%"}.items():
    setattr(SymbolicSize, f"__{_name}__", _computing(_sign, False))
    setattr(SymbolicSize, f"__r{_name}__", _computing(_sign, True))
for _name, _sign in {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}.items():
    setattr(SymbolicSize, f"__{_name}__", _asking(_sign))
for _name in (
    *("index", "int", "float", "complex", "invert", "truediv", "rtruediv", "pow", "rpow"),
    *("and", "rand", "or", "ror", "xor", "rxor", "lshift", "rlshift", "rshift", "rrshift"),
    *("trunc", "floor", "ceil"),
):
    setattr(SymbolicSize, f"__{_name}__", _number(f"__{_name}__"))
