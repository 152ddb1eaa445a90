"""Rows say what Python would say of other sizes, or nothing; data of anybody is checked."""

from __future__ import annotations

import copy
import json
import operator
import signal
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ptensor.layout import Layout
from vtensor.language.symbolic.trace import (
    MARK,
    NotSaved,
    NotTraced,
    Placed,
    Rows,
    SymbolicSize,
    Trace,
    TraceClosedError,
    is_open,
    number_of,
    substituted,
)

PROGRAMS: list[Callable[[Any, Any], Any]] = [
    lambda a, b: (a + b) * 2 - a // 3 + b % 4,
    lambda a, b: max(a, b) - min(a, 7),
    lambda a, b: -(-a // 2) if a > b else abs(a - b),
    lambda a, b: divmod(a * b, 5) if b else 0,
    lambda a, b: [a, b, 12].index(12) + a,
    lambda a, b: 1 + a if a != b and a <= 9 else b * a,
    lambda a, b: sum(range(int(a))) + b,
    lambda a, b: a / 2 + b,
    lambda a, b: a if 3 < a < 2.5 * b else b,
    lambda a, b: 7 // (b or 1) + 7 % (a + 1) + (3 - a),
    lambda a, b: (a + True) * np.int64(3) - np.int64(2) + b,
    lambda a, b: (a == a, a + 0 is a, a * 1 - 0 is a, b),
    lambda a, b: {"x": [a, (b, a * b)]}["x"],
]


def numbers(value: Any, sizes: list[int]) -> Any:
    """Return a result with the numbers of other sizes."""
    return substituted(value, lambda size: sizes[size.place])


def saved(rows: Rows) -> Rows:
    """Return rows that were written as JSON and read again."""
    data = json.loads(json.dumps(rows.data(lambda value, _: [value])))
    return Rows.of(data, constant)


def constant(data: Any) -> Any:
    """Read a constant of ``saved`` rows or of ``GOOD``."""
    [value] = data
    return value


@pytest.mark.parametrize("program", PROGRAMS)
def test_rows_say_what_python_says_or_nothing(program: Callable[[Any, Any], Any]) -> None:
    random = Random(5)
    answers = 0
    for _ in range(60):
        trace = Trace()
        result = program(*(trace.size(random.randrange(12)) for _ in "ab"))
        rows = saved(trace.rows())
        for _ in range(8):
            other = [random.randrange(12), random.randrange(12)]
            sizes = trace.run(other)
            assert rows.run(other) == sizes
            if sizes is not None:
                answers += 1
                assert numbers(result, sizes) == program(*other)
    assert answers


#: Steps of a random program: an operation or a comparison, and the places of its operands.
COMPARISONS = [operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge]
STEPS = st.lists(
    st.tuples(st.sampled_from([*"+-*/%", *COMPARISONS]), st.integers(0, 30), st.integers(0, 30)),
    max_size=12,
)


def computed(steps: Any, sizes: Any) -> tuple[list[Any], list[bool]]:
    """Return the results of a random program, and the outcomes of its comparisons."""
    stack, ways = [*sizes, 3, 0], list[bool]()
    for sign, i, j in steps:
        a, b = stack[i % len(stack)], stack[j % len(stack)]
        if callable(sign):
            ways.append(bool(sign(a, b)))
            stack.append(a + 1 if ways[-1] else b)
        elif sign in "/%":
            ways.append(bool(b == 0))
            if not ways[-1]:
                stack.append(a // b if sign == "/" else a % b)
        else:
            stack.append(a + b if sign == "+" else a - b if sign == "-" else (a * b) % 997)
    return stack, ways


SIZES = st.lists(st.integers(0, 40), min_size=3, max_size=3)


@settings(max_examples=200, deadline=None)
@given(STEPS, SIZES, st.lists(SIZES, min_size=1, max_size=6))
def test_guards_fail_where_python_takes_another_way(
    steps: Any, now: list[int], others: list[list[int]]
) -> None:
    trace = Trace()
    result, ways = computed(steps, [trace.size(size) for size in now])
    rows = trace.rows()
    for sizes in (now, *others):
        expected, taken = computed(steps, sizes)
        values = rows.run(sizes)
        # A way that is decided by two equal results of different operations is one guard more.
        assert values is None or (taken == ways and numbers(result, values) == expected)
        assert values is not None or taken != ways
        assert saved(rows).run(sizes) == values
        places = [size.place for size in result if type(size) is SymbolicSize]
        pruned = saved(rows.pruned(places)).run(sizes)
        assert (pruned is None) == (values is None)
        for place in places:
            assert pruned is None or values is None or pruned[place] == values[place]


def test_equal_operations_and_constants_share_a_place() -> None:
    trace = Trace()
    n = trace.size(4)
    for _ in range(3):
        assert number_of(n * 3 + 2) == 14
        assert n > 2
        assert trace.call(len, [[n, 2.0]], 2) == trace.call(len, [[n, 2.0]], 2)
    rows = trace.rows()
    assert len(rows.rows) == 5
    assert len({*map(repr, rows.constants)}) == len(rows.constants)
    trace = Trace()
    assert len({trace.constant(value) for value in (0, False, 0.0, -0.0, "0", (0,), [0])}) == 7


def test_calls_are_made_for_other_sizes() -> None:
    trace = Trace()
    n = trace.size(4)
    listed = trace.call(range, [n, (n + 6), 2], range(4, 10, 2))
    summed = trace.call(sum, [Placed(listed)], 18)
    nested = trace.call(repr, [([n, 1], (2, n))], "")
    values = trace.run([10])
    assert values is not None
    assert (values[summed], values[nested]) == (10 + 12 + 14, "([10, 1], (2, 10))")
    rows = trace.rows().pruned([summed])
    assert rows.run([10])[nested] is None  # type: ignore[index]


class _Timeout(Exception):
    """Stands for the exception of a signal handler."""


def refusing(error: type[BaseException]) -> Trace:
    """Return a trace of a call that raises for size 5."""

    def refuse(size: int) -> None:
        if size == 5:
            raise error

    trace = Trace()
    trace.call(refuse, [trace.size(4)], 0)
    return trace


@pytest.mark.parametrize(
    "refusal", [ZeroDivisionError, KeyError, TypeError, ValueError, RuntimeError, AttributeError]
)
def test_a_call_that_refuses_says_nothing(refusal: type[Exception]) -> None:
    trace = refusing(refusal)
    assert trace.run([4]) is not None
    assert trace.run([5]) is None


@pytest.mark.parametrize("error", [MemoryError, OSError, KeyboardInterrupt, _Timeout])
def test_other_exceptions_come_through(error: type[BaseException]) -> None:
    with pytest.raises(error):
        refusing(error).run([5])


def test_an_exception_of_a_signal_handler_comes_through() -> None:
    trace = Trace()
    trace.call(lambda _: signal.raise_signal(signal.SIGUSR1), [trace.size(4)], 0)

    def handler(*_: object) -> None:
        raise _Timeout

    before = signal.signal(signal.SIGUSR1, handler)
    try:
        with pytest.raises(_Timeout):
            trace.run([5])
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_a_size_is_of_no_use_once_its_trace_is_closed() -> None:
    trace = Trace()
    n = trace.size(4)
    assert trace.run([]) is None, "a number of sizes that differs says nothing"
    assert trace.run([1, 2]) is None
    assert trace.run([5]) == [5]
    for use in (int, bool, lambda n: n + 1, lambda n: n == 4, range, np.zeros):
        with pytest.raises(TraceClosedError):
            use(n)
    with pytest.raises(TraceClosedError):
        trace.size(3)
    with pytest.raises(TraceClosedError):
        trace.call(len, [[n]], 1)
    with pytest.raises(TypeError):
        hash(n)
    assert trace.run([5]) == [5]


def test_a_size_of_another_trace_pins_that_trace_to_its_number() -> None:
    trace, other = Trace(), Trace()
    n, m = trace.size(4), other.size(7)
    total: Any = n + m
    assert number_of(total) == 11
    assert total > m
    assert trace.run([5])[total.place] == 12  # type: ignore[index]
    assert other.pinned
    assert other.run([7]) is not None
    assert other.run([8]) is None


def test_a_trace_of_too_many_rows_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vtensor.language.symbolic.trace.MAX_ROWS", 3)
    trace = Trace()
    n = trace.size(4)
    assert [n + i for i in range(1, 4)]
    assert not trace.failed
    assert n > 1
    assert trace.failed


@dataclass(frozen=True)
class Parameters:
    """Stands for the parameters of an operator."""

    size: Any
    rest: Any = ()
    scale: float = 1.0


class Pair(NamedTuple):
    """A tuple with names."""

    first: Any
    second: Any


class Opaque:
    """A class that may hide a size."""


def test_numbers_take_the_place_of_sizes() -> None:
    n = Trace().size(4)
    double: Callable[[SymbolicSize], int] = lambda size: 2 * size.value  # noqa: E731
    for value, expected in (
        (n, 8),
        ((n, 3), (8, 3)),
        ([n, [n]], [8, [8]]),
        ({"N": n}, {"N": 8}),
        (MappingProxyType({"N": n}), {"N": 8}),
        (Pair(n, 1), Pair(8, 1)),
        (Parameters(n, (1, n)), Parameters(8, (1, 8))),
    ):
        assert is_open(value)
        result = substituted(value, double)
        assert result == expected
        assert type(result) is type(expected) or type(value) is MappingProxyType
        assert not is_open(result)
    for plain in (3, None, "x", (1, 2), Parameters(3), {"N": 1}, np.ones(2), Layout("NCHW"), len):
        assert not is_open(plain)
        assert substituted(plain, double) is plain


@pytest.mark.parametrize("hide", [lambda n: iter([n]), lambda n: f"{n}", lambda _: Opaque()])
def test_a_kind_that_may_hide_a_size_is_not_traced(hide: Callable[[Any], Any]) -> None:
    n = Trace().size(4)
    for value in (hide(n), (1, hide(n)), Parameters(1, [hide(n)]), {"x": hide(n)}):
        with pytest.raises(NotTraced):
            is_open(value)
        with pytest.raises(NotTraced):
            substituted(value, lambda size: size.value)
    assert MARK in f"{n}"


def test_rows_of_what_cannot_be_data_are_not_saved() -> None:
    trace = Trace()
    n = trace.size(4)
    needed = trace.call(Opaque, [n], 0)
    trace.call(list, [n], 0)

    def plain(value: Any, _: int) -> Any:
        if value is not list:
            raise NotSaved(f"a {value}")
        return [1]

    rows = trace.rows()
    with pytest.raises(NotSaved):
        rows.data(plain)
    with pytest.raises(NotSaved):
        rows.pruned([needed]).data(plain)
    assert rows.pruned([]).data(plain)["rows"] == []


GOOD: dict[str, Any] = {
    "given": [0],
    "count": 6,
    "constants": [[4], [2], None, ["x"], [int], [1]],
    "rows": [
        [0, 1, 2, 0, -1],
        [1, True, 9, 1, -2],
        [6, 2, 0, [0, 1], None],
        [7, 3, 0, 2, None],
        [2, 4, -5, [3], []],
        [5, 5, -6, 2, None],
    ],
}
#: Changes of ``GOOD``: the way to an entry, and its new value.
BAD: dict[str, tuple[list[Any], Any]] = {
    "a row of no kind": (["rows", 0, 0], 9),
    "a check that only readers make": (["rows", 0, 0], 8),
    "no sign": (["rows", 0, 2], 99),
    "a sign of a comparison": (["rows", 0, 2], 9),
    "a guard by arithmetic": (["rows", 1, 2], 2),
    "an answer that is no truth": (["rows", 1, 1], 1),
    "a value before it is computed": (["rows", 0, 3], 1),
    "no constant": (["rows", 0, 4], -9),
    "a place that is a text": (["rows", 0, 3], "0"),
    "a place that is a truth": (["rows", 0, 3], False),
    "a place computed twice": (["rows", 2, 1], 1),
    "a symbol that is computed": (["rows", 2, 1], 0),
    "a place beyond all": (["rows", 2, 1], 6),
    "a symbol beyond all": (["given"], [6]),
    "a symbol twice": (["given"], [0, 0]),
    "a negative symbol": (["given"], [-1]),
    "more places than all memory": (["count"], 1 << 60),
    "no number of places": (["count"], "6"),
    "a text that is multiplied": (["rows", 0, 4], -4),
    "a tuple that is multiplied": (["rows", 3, slice(None)], [0, 3, 2, 2, -1]),
    "a result that is called": (["rows", 4, 2], 3),
    "a size that is called": (["rows", 4, 2], 0),
    "a private attribute": (["rows", 5, slice(None)], [4, 5, "_x", 2, None]),
    "an attribute that is no text": (["rows", 5, slice(None)], [4, 5, 7, 2, None]),
    "no part": (["rows", 2, 2], 2),
    "a row that is too short": (["rows", 0], [0, 1]),
    "no rows": (["rows"], None),
    "no arguments": (["rows", 4, 3], 7),
    "no constants": (["constants"], {}),
    "no names": (["rows", 4, 4], [["x"]]),
}


@pytest.mark.parametrize("fault", BAD)
def test_data_that_is_no_rows_is_refused(fault: str) -> None:
    assert Rows.of(GOOD, constant).run([3])[4] == 2  # type: ignore[index]
    (*outer, last), value = BAD[fault]
    entry = data = copy.deepcopy(GOOD)
    for key in outer:
        entry = entry[key]
    entry[last] = value
    try:
        rows = Rows.of(data, constant)
    except ValueError:
        return
    assert rows.run([3]) is None


@pytest.mark.parametrize("value", [np.zeros(3), "text", [1]])
def test_rows_from_data_read_no_attribute_of_pythons_own(value: Any) -> None:
    """An array could write a file."""
    data = {"given": [], "count": 1, "constants": [[0]], "rows": [[4, 0, "copy", -1, None]]}
    assert Rows.of(data, lambda _: value).run([]) is None


@settings(max_examples=300, deadline=None)
@given(st.randoms(use_true_random=False), st.integers(1, 4))
def test_damage_neither_crashes_nor_calls(random: Random, times: int) -> None:
    calls = list[Any]()
    data = copy.deepcopy(GOOD)
    data["constants"][4] = ["called"]
    for _ in range(times):
        row = random.choice([*data["rows"], data["given"], data["constants"]])
        row[random.randrange(len(row))] = random.choice(
            [None, True, -1, 0, 1, 3, 7, 10**9, "x", [], [0], [[1]], {}, "__class__"]
        )

    def read(data: Any) -> Any:
        value = constant(data)
        return calls.append if value == "called" else value

    try:
        rows = Rows.of(data, read)
    except ValueError:
        return
    assert isinstance(rows.run([3]), list | None)
    assert len(calls) <= 1
