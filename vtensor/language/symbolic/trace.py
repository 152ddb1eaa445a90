"""Traces: Python's arithmetic, comparisons and calls on symbolic sizes, recorded as rows.

Planning runs once on symbolic sizes (``SymbolicSize``). A symbolic size has a *current number*, for
which it stands in this run. Each operation on a symbolic size adds a row and gives another symbolic
size. Each comparison is answered for the current numbers and adds a guard, which is a row with that
answer. ``Rows.run`` evaluates the rows for other sizes. If the comparison of every guard has the
same answer for them, Python would take the same path with these sizes. The result of planning then
holds for them, once their numbers are put in. If a guard has another answer, the trace says nothing
about these sizes.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Hashable, Sequence
from contextlib import suppress
from dataclasses import fields, is_dataclass
from numbers import Integral
from types import BuiltinFunctionType, FunctionType, MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from vtensor.errors import VTensorError
from vtensor.language.symbolic.rows import (
    COMPUTE,
    FUNCTIONS,
    GUARD,
    MANY,
    MAX_ROWS,
    SIGNS,
    TWO,
    Row,
)
from vtensor.language.symbolic.rows import NotSaved as NotSaved
from vtensor.language.symbolic.rows import NotTraced as NotTraced
from vtensor.language.symbolic.rows import Rows as Rows

if TYPE_CHECKING:
    _Integer = int
else:  # C code takes the value of a subclass of int without asking
    _Integer = object

#: The first and last character of a symbolic size's text.
MARK = "\ue000"


#: What an open size counts as in decisions that hold for all sizes.
TYPICAL = 64


class TraceClosedError(VTensorError):
    """A symbolic size is used after its trace was closed."""


class Placed(NamedTuple):
    """An argument of a call that is the result of an earlier row.

    Attributes:
        place: the index of that result among the trace's values.
    """

    place: int


class Trace:
    """Symbols, and rows: the computations with the symbols, and the guards.

    A *place* is the index of a value among the results of the symbols and rows (0, 1, ...) or, if
    it is negative, among the constants (-1, -2, ...).

    Attributes:
        values: the values for the current numbers of the symbols, by place.
        failed: why the trace cannot be used; empty if it can.
        pinned: True if the exact number of a symbolic size was needed. A guard then requires this
            number, so the trace holds for few other sizes.

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
        #: The places of rows, constants and guards, by a key, so that equal ones are recorded once.
        self._places: dict[Hashable, int] = {}
        self._closed: Rows | None = None
        #: By a number of all symbols: the values for it, and how many rows they were computed from.
        self._at: dict[int, tuple[list[Any], int]] = {}

    def size(self, value: int) -> SymbolicSize:
        """Add a symbol and return it; its current number is ``value``."""
        self._check_open()
        self._given.append(self._new(value))
        return self._symbol(self._given[-1])

    def computed(self, sign: str, a: int, b: int) -> SymbolicSize:
        """Return the result of arithmetic on two sizes, at least one of them symbolic.

        Args:
            sign: the operation: ``+``, ``-``, ``*``, ``//`` or ``%``.
            a, b: the left and the right operand.
        """
        self._check_open()
        key = TWO, SIGNS[sign], self._operand(a), self._operand(b)
        place = self._places.get(key)
        if place is None:
            place = self._row(key, FUNCTIONS[key[1]](_current(a), _current(b)))
        return self._symbol(place)

    def asked(self, sign: str, a: int, b: int) -> bool:
        """Return the answer to a comparison of two sizes, and add a guard with that answer.

        Args:
            sign: the comparison: ``==``, ``!=``, ``<``, ``<=``, ``>`` or ``>=``.
            a, b: the left and the right operand.
        """
        self._check_open()
        answer = bool(FUNCTIONS[SIGNS[sign]](_current(a), _current(b)))
        self.guard(answer, sign, self._operand(a), self._operand(b))
        return answer

    def guard(self, answer: bool, sign: str, a: int, b: int) -> None:
        """Add a guard: a comparison of two values of the trace must have this answer.

        Args:
            answer: True or False.
            sign: the comparison: ``==``, ``!=``, ``<``, ``<=``, ``>`` or ``>=``.
            a, b: the places of the left and the right operand: their indices among the trace's
                values, negative for constants.
        """
        self._check_open()
        key = GUARD, SIGNS[sign], a, b
        if key not in self._places:
            self._places[key] = 0
            self._write((GUARD, answer, *key[1:]))

    def call(self, function: Callable[..., Any], arguments: Sequence[Any], value: Any) -> int:
        """Add a row for a call that accepts all sizes, and return the place of its result.

        The place is the index of the result among the trace's values.

        Args:
            function: the function that is called.
            arguments: plain values, symbolic sizes, results of earlier rows (``Placed``), and
                tuples and lists of these.
            value: the result for the current numbers of the symbols.
        """
        places = tuple(map(self.place_of, arguments))
        return self._row((COMPUTE, self.constant(function), places, ()), value)

    def integer(self, function: Callable[..., int], arguments: Sequence[Any], value: int) -> int:
        """Add a row for a call that returns an integer, and return it as a symbolic size.

        Args:
            function, arguments, value: the arguments of ``call``.
        """
        return self._symbol(self.call(function, arguments, value))

    def constant(self, value: Any, key: Hashable = None) -> int:
        """Return the place of a constant: -1, -2, ...; equal plain values share a place.

        Args:
            value: the constant.
            key: constants with equal keys share a place; None is a key made of the value, or of its
                identity if it is not plain.
        """
        key = _key(value) if key is None else key
        place = self._places.get(key)
        if place is None:
            self._constants.append(value)
            place = self._places[key] = -len(self._constants)
        return place

    def place_of(self, value: Any) -> int:
        """Return the place of an argument of a call: its index among the trace's values.

        The index of a constant is negative. A new constant, a tuple or a list is added first.

        Args:
            value: a symbolic size, the result of an earlier row (``Placed``), a plain value, or a
                tuple or list of these.
        """
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
        """Return whether an argument of a call is a symbolic size or a row's result, or contains
        one.
        """
        kind = type(value)
        if kind is Placed or kind is SymbolicSize:
            return True
        return isinstance(value, (tuple, list)) and any(map(self.reads, value))

    def rows(self) -> Rows:
        """Close the trace and return its rows; its sizes can no longer be computed with."""
        if self._closed is None:
            count = len(self.values)
            self._closed = Rows(self._given, count, self._constants, self._rows, self._sources)
            self._places = {}
        return self._closed

    def run(self, numbers: Sequence[int]) -> list[Any] | None:
        """Close the trace, and return the values for other numbers of the symbols: ``Rows.run``."""
        return self.rows().run(numbers)

    def at(self, number: int) -> list[Any]:
        """Return the values, by place, as they would be if each symbol had the same number.

        They are for estimates: guards are not checked, and results of calls keep their values.

        >>> trace = Trace()
        >>> n = trace.size(6)
        >>> size = 3 * n - 1
        >>> trace.at(10)[size.place]
        29
        """
        values, done = self._at.get(number, (list[Any](), 0))
        known = len(values)
        values += self.values[known:]
        for place in self._given:
            values[place] = number
        for kind, target, which, a, b in self._rows[done:]:
            if kind == TWO:
                left, right = (values[p] if p >= 0 else self._constants[-1 - p] for p in (a, b))
                with suppress(ZeroDivisionError, TypeError):
                    values[target] = FUNCTIONS[which](left, right)
        self._at[number] = values, len(self._rows)
        return values

    def _operand(self, size: int) -> int:
        return self.place_of(size if type(size) is SymbolicSize else int(size))

    def _check_open(self) -> None:
        if self._closed is not None:
            raise TraceClosedError("a symbolic size is used after its trace was closed")

    def _new(self, value: Any) -> int:
        self.values.append(value)
        return len(self.values) - 1

    def _row(self, key: tuple[int, Any, Any, Any], value: Any) -> int:
        """Add a row, unless there is an equal one; return the index of the row's result in
        ``values``.

        Args:
            key: the row without the place of its result: its kind, then three parts that depend on
                the kind.
            value: the result for the current numbers of the symbols.
        """
        self._check_open()
        place = self._places.get(key)
        if place is None:
            place = self._places[key] = self._new(value)
            kind, *parts = key
            self._write((kind, place, *parts))
        return place

    def _write(self, row: Row) -> None:
        if len(self._rows) >= MAX_ROWS:
            self.failed = f"it has more than {MAX_ROWS} rows"
        else:
            self._rows.append(row)

    def _symbol(self, place: int) -> SymbolicSize:
        symbol = SymbolicSize()
        symbol.trace, symbol.place, symbol.value = self, place, self.values[place]
        return symbol


def _current(size: int) -> int:
    return size.value if type(size) is SymbolicSize else int(size)


def _key(value: Any) -> Hashable:
    """Return a key of a constant: type and value if it is plain, else its identity."""
    kind = type(value)
    if kind in (int, str, bool, bytes, type(None)):
        return kind, value
    if kind is float:
        return kind, repr(value)
    if kind is tuple or kind is list:
        return kind, tuple(map(_key, value))
    return "is", id(value)


class SymbolicSize(_Integer):
    """A symbolic size: a value of a trace. Its class is no ``int``, but ``__class__`` is.

    An operation that needs the number itself, such as indexing, gets the current number and adds a
    guard that the size equals that number. The text of a symbolic size is not that of its number.
    It is enclosed in a mark (``MARK``) that occurs in no name, so that ``is_open`` can find texts
    that contain symbolic sizes. Sizes with the same text are equal.

    Attributes:
        trace: the trace.
        place: the index of the size among the trace's values.
        value: the size's current number.
    """

    trace: Trace
    place: int
    value: int

    #: Makes NumPy's numbers and arrays leave arithmetic with a size to this class.
    __array_ufunc__ = None

    #: Not hashable, since a dict with a symbolic size as a key would be used for other sizes, too.
    __hash__ = None  # type: ignore[assignment]

    if not TYPE_CHECKING:

        @property
        def __class__(self) -> type:
            return int

    def pinned(self) -> int:
        """Return the current number, and add the guard that the size equals that number."""
        self.trace.pinned = True
        self.trace.asked("==", self, self.value)
        return self.value

    def __getattr__(self, name: str) -> Any:
        """Return an attribute of the current number: ``n.real``, ``n.bit_length``; adds a guard."""
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.pinned(), name)

    def __repr__(self) -> str:
        return f"{MARK}{self.place}{MARK}"

    __str__ = __repr__

    def __format__(self, spec: str) -> str:
        """Format ``repr(self)``, not the number.

        A message with this text is not shown to users.
        """
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
    """Return the current number of a symbolic size, without a guard; return an integer as it is."""
    return _current(size)


def typical_of(size: int) -> int:
    """Return what a symbolic size would be if each open size were ``TYPICAL``, at least 1; return
    an integer as it is.

    >>> typical_of(3 * Trace().size(5) + 1), typical_of(7)
    (193, 7)
    """
    if type(size) is not SymbolicSize:
        return int(size)
    return max(1, int(size.trace.at(TYPICAL)[size.place]))


def is_open(value: Any) -> bool:
    """Return whether a value holds a symbolic size.

    Raises:
        NotTraced: the value is of a type that may hide a symbolic size.

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
    if isinstance(value, _TYPES_WITHOUT_SIZES) or getattr(kind, "holds_no_sizes", False):
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
    """Return a value with numbers in place of its symbolic sizes; the same object if it has none.

    Args:
        value: an integer, a tuple, a list, a mapping, or a dataclass such as an operator, whose
            parameters are not checked again.
        number: returns the number of a symbolic size.

    Raises:
        NotTraced: the value is of a type that may hide a symbolic size.

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
            object.__setattr__(copy, part.name, substituted(getattr(value, part.name), number))
        return copy
    raise NotTraced(f"a {kind.__name__} holds sizes")


#: Types whose values hold no symbolic size. A class can declare the same by ``holds_no_sizes``.
_TYPES_WITHOUT_SIZES = (
    *(bool, float, complex, bytes, type, enum.Enum, np.dtype, np.generic),
    *(FunctionType, BuiltinFunctionType),
)


def _is_integer(value: object) -> bool:
    return type(value) is SymbolicSize or type(value) is int or isinstance(value, Integral)


#: By sign, (neutral right operand, neutral left operand); None if there is none.
_NEUTRAL = {"+": (0, 0), "-": (0, None), "*": (1, 1), "//": (1, None)}


def _computing(sign: str, reflected: bool) -> Callable[[Any, Any], Any]:
    """Return a method of ``SymbolicSize``, such as ``__add__``, that does arithmetic by a sign.

    Args:
        sign: ``+``, ``-``, ``*``, ``//`` or ``%``.
        reflected: True if the symbolic size is the right operand, as in ``__radd__``.
    """
    neutral, function = _NEUTRAL.get(sign, (None, None))[reflected], FUNCTIONS[SIGNS[sign]]

    def compute(self: SymbolicSize, other: Any) -> Any:
        if not _is_integer(other):
            return NotImplemented if not isinstance(other, float) else as_float(self, other)
        if neutral is not None and type(other) is not SymbolicSize and other == neutral:
            return self
        a, b = (other, self) if reflected else (self, other)
        if sign in ("//", "%") and b == 0:
            raise ZeroDivisionError("division by zero")
        return self.trace.computed(sign, a, b)

    def as_float(self: SymbolicSize, other: float) -> Any:
        a, b = (other, self.pinned()) if reflected else (self.pinned(), other)
        return function(a, b)

    return compute


def _comparing(sign: str) -> Callable[[Any, Any], Any]:
    """Return a method of ``SymbolicSize``, such as ``__lt__``, that compares by a sign.

    The method adds a guard with its answer.
    """
    function = FUNCTIONS[SIGNS[sign]]
    of_itself = function(0, 0)

    def compare(self: SymbolicSize, other: Any) -> Any:
        if type(other) is SymbolicSize:
            if other.trace is self.trace and other.place == self.place:
                return of_itself
        elif not _is_integer(other):
            if isinstance(other, float):
                return function(self.pinned(), other)
            return NotImplemented
        return self.trace.asked(sign, self, other)

    return compare


def _on_number(name: str) -> Callable[..., Any]:
    """Return a method of ``SymbolicSize`` that calls the method ``name`` of the current number.

    The method adds the guard that the size equals that number.
    """
    return lambda self, *arguments: getattr(self.pinned(), name)(*arguments)


for _name, _sign in {"add": "+", "sub": "-", "mul": "*", "floordiv": "//", "mod": "%"}.items():
    setattr(SymbolicSize, f"__{_name}__", _computing(_sign, False))
    setattr(SymbolicSize, f"__r{_name}__", _computing(_sign, True))
for _name, _sign in {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}.items():
    setattr(SymbolicSize, f"__{_name}__", _comparing(_sign))
for _name in (
    *("index", "int", "float", "complex", "invert", "truediv", "rtruediv", "pow", "rpow"),
    *("and", "rand", "or", "ror", "xor", "rxor", "lshift", "rlshift", "rshift", "rrshift"),
    *("trunc", "floor", "ceil"),
):
    setattr(SymbolicSize, f"__{_name}__", _on_number(f"__{_name}__"))
