"""``@invoker(first=..., before=...)``: a library goes before others, where it says so."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from libdesc.preferences import EVERY, Preferences
from libdesc.registry import register, registry
from libdesc.schema import Description
from ptensor.evaluation import Decline, lib_tagger
from ptensor.tensor import PTensor
from resolver.evaluate import resolve
from tests.libraries.bench import SIZES, Bench, message, unused, where
from vtensor.errors import InvokerError

WHY = "passed over: low says that it is faster here"


def taker(library: str) -> Any:
    """Takes any call, in declared order."""

    def take(ctx: Any, op: Any, x: Any, y: Any) -> None:
        src, dst = PTensor(x).require("NC"), PTensor(y).require("NC")
        if lib_tagger(library, [src], [dst]):
            return
        dst.data()[...] = src.data()

    return take


@pytest.fixture
def two(bench: Bench) -> Bench:
    """With a library of low priority beside ``toy``, which takes every call."""
    register(Description("low", 1, ("cpu",), python=True))
    bench.invoker()(taker("toy"))
    return bench


def decided(bench: Bench, preferences: Preferences = EVERY) -> tuple[str, list[tuple[str, str]]]:
    """Who took the call, and who did not, with the reason."""
    [node] = resolve(bench.graph(), preferences=preferences).operators
    return node.variant.library, [(one.library, one.reason) for one in node.variant.refused]


@pytest.mark.parametrize("answer", [True, np.True_])
def test_it_goes_first_where_its_condition_holds(two: Bench, answer: Any) -> None:
    seen: list[Any] = []

    def first(op: Any, x: Any) -> Any:
        seen.append((op, x.dims))
        return answer

    two.invoker(library="low", before=["toy"], first=first)(taker("low"))
    assert decided(two) == ("low", [("toy", WHY)])
    assert seen == [(two.op("Toy"), SIZES)]


@pytest.mark.parametrize("answer", [False, np.False_])
def test_elsewhere_priority_decides(two: Bench, answer: Any) -> None:
    two.invoker(library="low", before=["toy"], first=lambda op, x: answer)(taker("low"))
    assert decided(two) == ("toy", [])


@pytest.mark.parametrize(
    "preferences",
    [
        Preferences(order=("toy", "low")),
        Preferences(barred=("low",)),
        Preferences(operators={"Toy": "toy"}),
        Preferences(nodes={"toy": "toy"}),
    ],
)
def test_what_a_session_says_goes_before(two: Bench, preferences: Preferences) -> None:
    two.invoker(library="low", before=["toy"], first=lambda op, x: True)(taker("low"))
    assert decided(two, preferences)[0] == "toy"


def test_a_library_that_declines_is_not_first(two: Bench) -> None:
    two.invoker(library="low", before=["toy"], first=lambda op, x: True, dtypes=["s32"])(
        taker("low")
    )
    assert decided(two) == ("toy", [])


def test_a_library_that_is_absent_is_not_first(two: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry().libraries["low"], "absent", "no such processor")
    two.invoker(library="low", before=["toy"], first=unused)(taker("low"))
    assert decided(two) == ("toy", [])


def test_a_condition_that_raises(two: Bench) -> None:
    def first(op: Any, x: Any) -> bool:
        return bool(op.groups == 1)  # mark

    two.invoker(library="low", before=["toy"], first=first)(taker("low"))
    text = message(InvokerError, two.resolve)
    assert text.splitlines() == [
        f"Toy 'toy', the condition ({where(first)}) under which low goes first: "
        f"AttributeError: 'Toy' object has no attribute 'groups' (at {where(first, 'mark')})",
        "  x : N=2 C=3   f32",
    ]


@pytest.mark.parametrize("answer", [None, "it has groups"])
def test_a_condition_that_forgets_to_answer(two: Bench, answer: Any) -> None:
    """A text declines elsewhere; here it would hold."""
    two.invoker(library="low", before=["toy"], first=lambda op, x: answer)(taker("low"))
    text = message(InvokerError, two.resolve)
    assert f"under which low goes first: answers {answer!r}: it must return True or False" in text


def test_a_condition_that_declines_does_not_hold(two: Bench) -> None:
    def first(op: Any, x: Any) -> bool:
        raise Decline("it has groups")

    two.invoker(library="low", before=["toy"], first=first)(taker("low"))
    assert decided(two) == ("toy", [])


@pytest.fixture
def high(two: Bench) -> None:
    """A library of high priority, with which nobody has compared ``low``; it declines."""
    register(Description("high", 90, ("cpu",), python=True))
    two.invoker(library="high", when=lambda op, x, y: x.size("N") == 1)(taker("high"))


@pytest.mark.usefixtures("high")
def test_nobody_else_is_passed_over(two: Bench) -> None:
    two.invoker(library="low", before=["toy"], first=unused)(taker("low"))
    assert decided(two) == ("toy", [("high", "the condition of its invoker does not hold")])


@pytest.mark.usefixtures("high")
def test_who_is_absent_is_not_passed_over(two: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry().libraries["high"], "absent", "no such processor")
    two.invoker(library="low", before=["toy"], first=lambda op, x: True)(taker("low"))
    assert decided(two) == ("low", [("toy", WHY)])
