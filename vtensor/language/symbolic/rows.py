"""Rows: a trace to which nothing is added any more, in the process and as data that can be saved.

``trace.py`` records traces. A row is an operation on earlier values: arithmetic on sizes, a guard,
a call. ``Rows.run``
evaluates the rows in order for given sizes. A *place* is the index of a value in the list that
``Rows.run`` returns.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import field
from typing import Any

from vtensor.errors import VTensorError
from vtensor.language.process.interrupts import Unfit
from vtensor.language.records import dataclass, replace

#: The most rows of a trace; a trace that needs more fails.
MAX_ROWS = 200_000

#: A row: its kind, and four parts whose meaning depends on the kind. Places 0, 1, ... are values in
#: the order in which they are computed; places -1, -2, ... are constants.
Row = tuple[int, Any, Any, Any, Any]

#: The kinds of rows, and the meaning of their parts; the target is the place of the result:
#: TWO: the target, the number of an arithmetic sign, two places.
#: GUARD: the answer that a comparison must have, the number of its sign, two places.
#: CALL: the target, the function's place, places of arguments, (name, place) of named arguments.
#: COMPUTE: as CALL, of a function that refuses no sizes: the row is removed if its result is not
#:     needed.
#: GET: the target, an attribute's name, the place of the object that has it.
#: ITEM: the target, the place of a key, the place of the container that has it.
#: MANY: the target, 0 for a tuple and 1 for a list, places of the parts.
#: ONE: the target, 0 for the length and 1 for a tuple of the keys, the place of the container.
#: INTEGER: a place whose value must be an integer; only rows that were read from data have it.
TWO, GUARD, CALL, COMPUTE, GET, ITEM, MANY, ONE, INTEGER = range(9)

#: The number of each sign in rows; arithmetic comes first.
SIGNS = {
    sign: number
    for number, sign in enumerate(("+", "-", "*", "//", "%", "==", "!=", "<", "<=", ">", ">="))
}
FUNCTIONS: tuple[Callable[[Any, Any], Any], ...] = (
    *(operator.add, operator.sub, operator.mul, operator.floordiv, operator.mod),
    *(operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge),
)
#: The number of arithmetic signs.
_ARITHMETIC = 5

#: The functions of MANY and of ONE, by the number in the row.
_MANY_FUNCTIONS: tuple[Callable[[Any], Any], ...] = (tuple, list)
_ONE_FUNCTIONS: tuple[Callable[[Any], Any], ...] = (len, tuple)

#: Kinds of rows that are removed if nothing needs their result.
_REMOVABLE = frozenset({TWO, COMPUTE, GET, ITEM, MANY, ONE})

#: The ``__module__`` of the types of native functions, and of the metaclass of native classes.
NATIVE = "nanobind"


class NotTraced(Unfit):
    """Planning does something that a trace cannot record."""


class NotSaved(Unfit):  # it is no error: the trace serves its own process all the same
    """A trace has a constant that cannot be saved as data."""


#: The errors by which a function that a row calls says that it does not accept the sizes.
#: ``Rows.run`` lets any other exception pass, such as one of a signal handler.
REFUSALS = (
    *(ArithmeticError, LookupError, TypeError, ValueError, RuntimeError, AttributeError),
    *(VTensorError, NotTraced),
)


@dataclass(frozen=True, eq=False)
class Rows:
    """A closed trace (one to which nothing is added any more), which can be evaluated for other
    sizes.

    Attributes:
        given: the places of the symbols, in order; a place is an index in the list that ``run``
            returns.
        count: the number of values, without constants.
        constants: the constants; their places are -1, -2, ..., in order.
        rows: the rows, in order.
        sources: the origins of native constants, by index into ``constants``.
        was_data: True if the rows were read from data; GET then works on native objects only.
    """

    given: Sequence[int]
    count: int
    constants: Sequence[Any]
    rows: Sequence[Row]
    sources: Mapping[int, Any] = field(default_factory=dict)
    was_data: bool = False

    def run(self, numbers: Sequence[int]) -> list[Any] | None:
        """Evaluate the rows and return all values: a list with each value at its place.

        The constants are at the end of the list, at the places -1, -2, ...

        Args:
            numbers: the numbers of the symbols, in order.

        Returns:
            The values; None if a guard fails, or a called function does not accept the sizes.
        """
        if len(numbers) != len(self.given):
            return None
        values: list[Any] = [None] * self.count
        values += reversed(self.constants)
        for place, size in zip(self.given, numbers, strict=True):
            values[place] = size
        functions, was_data = FUNCTIONS, self.was_data
        try:
            for kind, target, which, a, b in self.rows:
                if kind == TWO:
                    values[target] = functions[which](values[a], values[b])
                elif kind == GUARD:
                    if (not functions[which](values[a], values[b])) is target:
                        return None
                elif kind in (CALL, COMPUTE):
                    arguments = [values[place] for place in a]
                    if b:
                        named = {name: values[place] for name, place in b}
                        values[target] = values[which](*arguments, **named)
                    else:
                        values[target] = values[which](*arguments)
                elif kind == ITEM:
                    values[target] = values[a][values[which]]
                elif kind == GET:
                    if was_data and type(type(values[a])).__module__ != NATIVE:
                        return None
                    values[target] = getattr(values[a], which)
                elif kind == MANY:
                    values[target] = _MANY_FUNCTIONS[which]([values[place] for place in a])
                elif kind == ONE:
                    values[target] = _ONE_FUNCTIONS[which](values[a])
                elif type(values[target]) is not int:  # the row is INTEGER, the last kind
                    return None
        except REFUSALS:
            return None
        return values

    def pruned(self, wanted: Collection[int]) -> Rows:
        """Return a copy with only the rows that the values at the places ``wanted`` need.

        All guards stay, too, and all calls that may say that the sizes are not possible. Values
        keep their places (indices in the list that ``run`` returns).
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
            constant: returns a constant as data other than None, given its value and its index in
                ``constants``. It is not called for constants that no row uses.

        Raises:
            NotSaved: ``constant`` raises it for a value that cannot be data.

        >>> from vtensor.language.symbolic.trace import Trace
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
        """Return rows from the plain data of ``Rows.data``, perhaps read from a file.

        Args:
            data: the data. All of it is checked: no row may read a value before it is known, or
                call anything but a constant or an attribute of a native object.
            constant: returns a constant from its data. The only callables that it may return are
                those that untrusted data may call.

        Raises:
            ValueError: the data are no rows.

        >>> rows = Rows.of({"given": [0], "count": 2, "constants": [4],
        ...                 "rows": [[0, 1, 2, 0, -1], [1, True, 9, 0, -1]]}, int)
        >>> rows.run([6]), rows.run([3])
        ([6, 24, 4], None)
        """
        try:
            return _Reader(data, constant).rows()
        except (LookupError, TypeError, AttributeError, OverflowError) as why:
            raise ValueError(f"no rows: {why!r}") from why


#: Rows, and the sizes that they are evaluated for.
Asked = tuple[Rows, tuple[int, ...]]

#: Results of ``Rows.run``, by rows and sizes: the values, or None if the rows do not hold for the
#: sizes.
Known = dict[Asked, "list[Any] | None"]


def evaluated(rows: Rows, numbers: Sequence[int], known: Known) -> list[Any] | None:
    """Return ``rows.run(numbers)``; it is kept in ``known``, and computed once for the same
    numbers.

    None if a guard fails, or a called function does not accept the sizes.

    Args:
        rows: a closed trace.
        numbers: the numbers of the symbols, in order.
        known: the results of earlier evaluations, to which this one is added.
    """
    key = rows, tuple(numbers)
    if key not in known:
        known[key] = rows.run(numbers)
    return known[key]


class _Reader:
    """The reading of rows from untrusted data; each row is checked. See ``Rows.of``."""

    def __init__(self, data: Mapping[str, Any], constant: Callable[[Any], Any]) -> None:
        self._given, self._count, self._data = [*data["given"]], data["count"], data["rows"]
        self._constants = [None if part is None else constant(part) for part in data["constants"]]
        if type(self._count) is not int or not 0 <= self._count <= 2 * MAX_ROWS:
            raise ValueError("no rows: there is no such number of places")
        #: For each value, by its place, the kind of the row that computes it; constants count as
        #: CALL, symbols as TWO.
        self._kinds = dict.fromkeys(range(-len(self._constants), 0), CALL)
        for place in self._given:
            self._add(place, TWO)
        #: The places that are known to be integers, besides results of arithmetic.
        self._integers = {
            -1 - index for index, value in enumerate(self._constants) if type(value) is int
        }

    def rows(self) -> Rows:
        """Return the rows, with a row INTEGER added before arithmetic on a value of unknown type.

        Raises:
            ValueError, LookupError, TypeError, AttributeError, OverflowError: the data are no rows.
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
        """Return ``place`` after checking that a constant, a symbol or an earlier row has made its
        value.

        A place is the index of a value in the list that ``Rows.run`` returns.

        Raises:
            ValueError: none of these has made a value at this place.
        """
        if type(place) is not int or place not in self._kinds:
            raise ValueError(f"no rows: nothing has made {place}")
        return place

    def _add(self, place: Any, kind: int) -> None:
        """Note that a row of this kind computes the value at a place.

        A place is the index of a value in the list that ``Rows.run`` returns.

        Raises:
            ValueError: there is no such place, or it has a value already.
        """
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
    """Return the places of the values that a row reads, as indices in the list of ``Rows.run``."""
    kind, _, which, a, b = row
    if kind in (TWO, GUARD):
        return a, b
    if kind in (CALL, COMPUTE):
        return which, *a, *(place for _, place in b)
    if kind == ITEM:
        return which, a
    return a if kind == MANY else (a,)
