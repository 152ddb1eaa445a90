"""Rows say what Python would say of other sizes, or nothing; data of anybody is checked."""

from __future__ import annotations

import copy
import json
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
    """A result with the numbers of other sizes."""
    return substituted(value, lambda size: sizes[size.place])


@pytest.mark.parametrize("program", PROGRAMS)
def test_rows_say_what_python_says_or_nothing(program: Callable[[Any, Any], Any]) -> None:
    random = Random(5)
    said = 0
    for _ in range(60):
        trace = Trace()
        result = program(*(trace.size(random.randrange(12)) for _ in "ab"))
        saved = again(trace.rows())
        for _ in range(8):
            other = [random.randrange(12), random.randrange(12)]
            sizes = trace.run(other)
            assert saved.run(other) == sizes
            if sizes is not None:
                said += 1
                assert numbers(result, sizes) == program(*other)
    assert said


def again(rows: Rows) -> Rows:
    """The same by way of a file."""
    return Rows.of(json.loads(json.dumps(rows.data(lambda value, _: [value]))), lambda one: one[0])


#: Steps of a random program: each pushes a number, or goes one of two ways.
STEPS = st.lists(
    st.tuples(
        st.sampled_from([*"+-*/%?"]),
        st.integers(0, 30),
        st.integers(0, 30),
        st.sampled_from(["==", "!=", "<", "<=", ">", ">="]),
    ),
    max_size=12,
)
COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    "==": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
}


def computed(steps: Any, sizes: Any) -> tuple[list[Any], list[bool]]:
    """The results of a random program, and the ways that it took."""
    stack, ways = [*sizes, 3, 0], list[bool]()
    for sign, i, j, compare in steps:
        a, b = stack[i % len(stack)], stack[j % len(stack)]
        if sign == "?":
            ways.append(bool(COMPARE[compare](a, b)))
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
        wanted, taken = computed(steps, sizes)
        values = rows.run(sizes)
        # A way that is decided by two equal results of different operations is one guard more.
        assert values is None or (taken == ways and numbers(result, values) == wanted)
        assert values is not None or taken != ways
        assert again(rows).run(sizes) == values
        places = [one.place for one in result if type(one) is SymbolicSize]
        pruned = again(rows.pruned(places)).run(sizes)
        assert (pruned is None) == (values is None)
        for place in places:
            assert pruned is None or values is None or pruned[place] == values[place]


def test_equal_operations_and_constants_are_one() -> None:
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


def test_calls_are_made_again() -> None:
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


@pytest.mark.parametrize(
    "refusal", [ZeroDivisionError, KeyError, TypeError, ValueError, RuntimeError, AttributeError]
)
def test_a_call_that_refuses_says_nothing(refusal: type[Exception]) -> None:
    trace, rest = Trace(), trace_of_refusing(refusal)
    n = trace.size(4)
    trace.call(rest, [n], 0)
    assert trace.run([4]) is not None
    assert trace.run([5]) is None


def trace_of_refusing(error: type[BaseException]) -> Callable[[int], int]:
    def refusing(size: int) -> int:
        if size == 5:
            raise error("not this one")
        return size

    return refusing


class _Timeout(Exception):
    """What a signal handler raises."""


@pytest.mark.parametrize("error", [MemoryError, OSError, KeyboardInterrupt, _Timeout])
def test_other_exceptions_come_through(error: type[BaseException]) -> None:
    trace = Trace()
    trace.call(trace_of_refusing(error), [trace.size(4)], 0)
    with pytest.raises(error):
        trace.run([5])


def test_an_exception_of_a_signal_handler_comes_through() -> None:
    trace = Trace()
    trace.call(lambda _: signal.raise_signal(signal.SIGUSR1), [trace.size(4)], 0)

    def raises(*_: object) -> None:
        raise _Timeout

    before = signal.signal(signal.SIGUSR1, raises)
    try:
        with pytest.raises(_Timeout):
            trace.run([5])
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_another_number_of_sizes_says_nothing() -> None:
    trace = Trace()
    trace.size(4)
    assert trace.run([]) is None
    assert trace.run([1, 2]) is None


def test_a_size_is_of_no_use_once_its_trace_is_closed() -> None:
    trace = Trace()
    n = trace.size(4)
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


def test_a_size_of_another_trace_is_a_number_that_holds_for_it_alone() -> None:
    trace, other = Trace(), Trace()
    n, m = trace.size(4), other.size(7)
    total: Any = n + m
    assert number_of(total) == 11
    assert total > m
    assert trace.run([5])[total.place] == 12  # type: ignore[index]
    assert other.pinned
    assert other.run([7]) is not None
    assert other.run([8]) is None


def test_more_than_a_model_has_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vtensor.language.symbolic.trace.MAX_ROWS", 3)
    trace = Trace()
    n = trace.size(4)
    assert [n + i for i in range(1, 4)]
    assert not trace.failed
    assert n > 1
    assert trace.failed


@dataclass(frozen=True)
class Parameters:
    """An operator's parameters."""

    size: Any
    rest: Any = ()
    scale: float = 1.0


class Pair(NamedTuple):
    """A tuple with names."""

    first: Any
    second: Any


class Odd:
    """What nobody looks into."""


def test_numbers_take_the_place_of_sizes() -> None:
    n = Trace().size(4)
    double: Callable[[SymbolicSize], int] = lambda size: 2 * size.value  # noqa: E731
    for value, wanted in (
        (n, 8),
        ((n, 3), (8, 3)),
        ([n, [n]], [8, [8]]),
        ({"N": n}, {"N": 8}),
        (MappingProxyType({"N": n}), {"N": 8}),
        (Pair(n, 1), Pair(8, 1)),
        (Parameters(n, (1, n)), Parameters(8, (1, 8))),
    ):
        assert is_open(value)
        made = substituted(value, double)
        assert made == wanted
        assert type(made) is type(wanted) or type(value) is MappingProxyType
        assert not is_open(made)
    for plain in (3, None, "x", (1, 2), Parameters(3), {"N": 1}, np.ones(2), Layout("NCHW"), len):
        assert not is_open(plain)
        assert substituted(plain, double) is plain


@pytest.mark.parametrize("hide", [lambda n: iter([n]), lambda n: f"{n}", lambda _: Odd()])
def test_a_kind_that_may_hide_a_size_is_not_traced(hide: Callable[[Any], Any]) -> None:
    n = Trace().size(4)
    for value in (hide(n), (1, hide(n)), Parameters(1, [hide(n)]), {"x": hide(n)}):
        with pytest.raises(NotTraced):
            is_open(value)
        with pytest.raises(NotTraced):
            substituted(value, lambda size: size.value)
    assert MARK in f"{n}"


def test_what_cannot_be_data_says_so() -> None:
    trace = Trace()
    n = trace.size(4)
    needed = trace.call(Odd, [n], 0)
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


def constant(one: Any) -> Any:
    """Read a constant of ``GOOD``."""
    [value] = one
    return value


def changed(*way: Any, to: Any) -> Callable[[Any], None]:
    """Put something else into ``GOOD``."""
    *outer, last = way

    def change(data: Any) -> None:
        for key in outer:
            data = data[key]
        data[last] = to

    return change


BAD: dict[str, Callable[[Any], None]] = {
    "a row of no kind": changed("rows", 0, 0, to=9),
    "a check that only readers make": changed("rows", 0, 0, to=8),
    "a sign that there is not": changed("rows", 0, 2, to=99),
    "a sign of a comparison": changed("rows", 0, 2, to=9),
    "a guard by arithmetic": changed("rows", 1, 2, to=2),
    "an answer that is none": changed("rows", 1, 1, to=1),
    "a value before it is made": changed("rows", 0, 3, to=1),
    "a constant that there is not": changed("rows", 0, 4, to=-9),
    "a place that is a text": changed("rows", 0, 3, to="0"),
    "a place that is a truth": changed("rows", 0, 3, to=False),
    "a place made twice": changed("rows", 2, 1, to=1),
    "a symbol that is made": changed("rows", 2, 1, to=0),
    "a place beyond all": changed("rows", 2, 1, to=6),
    "a symbol beyond all": changed("given", to=[6]),
    "a symbol twice": changed("given", to=[0, 0]),
    "a negative symbol": changed("given", to=[-1]),
    "more places than all memory": changed("count", to=1 << 60),
    "no number of places": changed("count", to="6"),
    "a text that is multiplied": changed("rows", 0, 4, to=-4),
    "a tuple that is multiplied": changed("rows", 3, slice(None), to=[0, 3, 2, 2, -1]),
    "a result that is called": changed("rows", 4, 2, to=3),
    "a given size that is called": changed("rows", 4, 2, to=0),
    "an attribute of nobody else": changed("rows", 5, slice(None), to=[4, 5, "_x", 2, None]),
    "an attribute that is no text": changed("rows", 5, slice(None), to=[4, 5, 7, 2, None]),
    "a part that is none": changed("rows", 2, 2, to=2),
    "a row that is too short": changed("rows", 0, to=[0, 1]),
    "rows that are none": changed("rows", to=None),
    "arguments that are none": changed("rows", 4, 3, to=7),
    "no constants": changed("constants", to={}),
    "names that are none": changed("rows", 4, 4, to=[["x"]]),
}


@pytest.mark.parametrize("what", BAD)
def test_what_is_no_data_of_rows_is_refused(what: str) -> None:
    assert Rows.of(GOOD, constant).run([3])[4] == 2  # type: ignore[index]
    data = copy.deepcopy(GOOD)
    BAD[what](data)
    try:
        rows = Rows.of(data, constant)
    except ValueError:
        return
    assert rows.run([3]) is None


def test_rows_that_were_data_read_nothing_of_pythons() -> None:
    """An array could write a file."""
    for thing in (np.zeros(3), "text", [1]):
        data = {"given": [], "count": 1, "constants": [[0]], "rows": [[4, 0, "copy", -1, None]]}
        assert Rows.of(data, lambda _, thing=thing: thing).run([]) is None  # type: ignore[misc]


@settings(max_examples=300, deadline=None)
@given(st.randoms(use_true_random=False), st.integers(1, 4))
def test_damage_neither_crashes_nor_calls(random: Random, times: int) -> None:
    called = list[Any]()
    data = copy.deepcopy(GOOD)
    data["constants"][4] = ["called"]
    for _ in range(times):
        row = random.choice([*data["rows"], data["given"], data["constants"]])
        row[random.randrange(len(row))] = random.choice(
            [None, True, -1, 0, 1, 3, 7, 10**9, "x", [], [0], [[1]], {}, "__class__"]
        )

    def read(one: Any) -> Any:
        [value] = one
        return called.append if value == "called" else value

    try:
        rows = Rows.of(data, read)
    except ValueError:
        return
    assert isinstance(rows.run([3]), list | None)
    assert len(called) <= 1
