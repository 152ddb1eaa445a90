"""``@invoker(first=...)``: a library goes before others of higher priority, where it says so."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from libdesc.preferences import EVERY, Preferences
from libdesc.registry import register, registry
from libdesc.schema import Description
from ptensor.evaluation import lib_tagger
from ptensor.tensor import PTensor
from resolver.evaluate import resolve
from tests.libraries.bench import SIZES, Bench, message, unused, where
from vtensor.errors import InvokerError

WHY = "low goes before it here, where its kernels are faster"


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

    two.invoker(library="low", first=first)(taker("low"))
    assert decided(two) == ("low", [("toy", WHY)])
    assert seen == [(two.op("Toy"), SIZES)]


@pytest.mark.parametrize("answer", [False, None, np.False_])
def test_elsewhere_priority_decides(two: Bench, answer: Any) -> None:
    two.invoker(library="low", first=lambda op, x: answer)(taker("low"))
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
    two.invoker(library="low", first=lambda op, x: True)(taker("low"))
    assert decided(two, preferences)[0] == "toy"


def test_a_library_that_declines_is_not_first(two: Bench) -> None:
    two.invoker(library="low", first=lambda op, x: True, dtypes=["s32"])(taker("low"))
    assert decided(two) == ("toy", [])


def test_a_library_that_is_absent_is_not_first(two: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry().libraries["low"], "absent", "no such processor")
    two.invoker(library="low", first=unused)(taker("low"))
    assert decided(two) == ("toy", [])


def test_a_condition_that_raises(two: Bench) -> None:
    def first(op: Any, x: Any) -> bool:
        return bool(op.groups == 1)  # mark

    two.invoker(library="low", first=first)(taker("low"))
    text = message(InvokerError, two.resolve)
    assert text.splitlines() == [
        f"Toy 'toy', the condition ({where(first)}) under which low goes first: "
        f"AttributeError: 'Toy' object has no attribute 'groups' (at {where(first, 'mark')})",
        "  x : N=2 C=3   f32",
    ]
