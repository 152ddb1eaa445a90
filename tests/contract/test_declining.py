"""Priorities, ``first=`` and declining: which library has a call, and every reason why not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from libdesc import Decline, guideline, register
from libdesc.preferences import EVERY, Preferences
from libdesc.registry import registry
from libdesc.schema import Description
from ptensor import Layout, PTensor, lib_tagger
from resolver.evaluate import resolve
from tests.contract.invokers import copying, tagging
from tests.libraries.bench import HERE, SIZES, Bench, message, unused, where
from tests.libraries.toy import handlers
from vtensor.errors import ContractError, InvokerError, NoInvokerError
from vtensor.language.graph import Graph
from vtensor.runtime.planning.library_options import preferences_of

CONDITION = "the condition of its invoker does not hold"
DTYPES = "dtype f32 of x is not among bf16, f16"


@pytest.fixture
def two(bench: Bench) -> Bench:
    """A second library, ``other``, of lower priority (30), that takes everything in CN."""
    register(HERE / "other")
    bench.invoker(library="other")(copying("other", "CN", "CN"))
    return bench


@pytest.mark.parametrize(
    ("options", "library"),
    [
        ({}, "toy"),
        ({"priority": 29}, "other"),  # an invoker's priority goes before its library's
        ({"priority": 30}, "other"),  # the name decides a tie
        ({"when": lambda op, x, y: True}, "toy"),
        ({"when": lambda op, x, y: np.True_}, "toy"),
        ({"dtypes": {"x": ["f32"], "y": ["f32"]}}, "toy"),
    ],
)
def test_the_larger_priority_is_tried_first(
    two: Bench, options: dict[str, Any], library: str
) -> None:
    two.invoker(library="missing")(unused)  # which is not registered, and so not tried
    two.invoker(**options)(copying())
    variant = two.decide()
    assert (variant.library, variant.refused) == (library, ())


def even(op: Any, x: Any, y: Any) -> str:
    assert (type(op).__name__, x.dims, y.dims) == ("Toy", SIZES, SIZES)
    return "N is even"


def picky(ctx: Any, op: Any, x: Any, y: Any) -> None:
    PTensor(x).require("NC")
    raise Decline("C is odd")


def asking(ctx: Any, op: Any, x: Any, y: Any) -> None:
    PTensor(x).require(guideline("toy", PTensor(y)))


#: Options of an invoker, the invoker, and why its call is declined.
DECLINED: dict[str, tuple[dict[str, Any], Callable[..., Any], str]] = {
    "a condition": ({"when": lambda op, x, y: False}, unused, CONDITION),
    "a condition of NumPy": ({"when": lambda op, x, y: np.False_}, unused, CONDITION),
    "a condition with a reason": ({"when": even}, unused, "N is even"),
    "a condition with an empty reason": ({"when": lambda op, x, y: ""}, unused, CONDITION),
    "element types": ({"dtypes": ["bf16", "f16"]}, unused, DTYPES),
    "element types of an operand": ({"dtypes": {"x": ["f16", "bf16"]}}, unused, DTYPES),
    "the invoker": ({}, picky, "C is odd"),
    "the guideline": ({}, asking, "no kernel for this size"),
    "the guideline of what is never required": ({}, tagging, "no kernel for this size"),
    "confirm": ({}, copying(), "NC NC: only on Sundays"),
}


@pytest.mark.parametrize("case", DECLINED)
def test_a_call_is_declined_with_its_reason(two: Bench, case: str) -> None:
    def answer(call: Any) -> Any:
        raise Decline("no kernel for this size")

    options, invoker, reason = DECLINED[case]
    handlers.answer, handlers.refusal = answer, lambda call, row: "only on Sundays"
    two.invoker(**options)(invoker)
    refused = [(r.priority, r.library, r.reason) for r in two.decide().refused]
    assert refused == [(50, "toy", reason)]


def test_an_attempt_that_declines_leaves_nothing_behind(bench: Bench) -> None:
    """The PTensors, requirements and guideline of one attempt are unknown to the next."""
    register(HERE / "other")
    handlers.answer = lambda call: {0: Layout("NC4c")}

    @bench.invoker()
    def fickle(ctx: Any, op: Any, x: Any, y: Any) -> None:
        src, dst = PTensor(x).require("NC8c"), PTensor(y).require("NC8c")
        assert guideline("toy", src) == Layout("NC4c")
        assert dst.required_layout == Layout("NC8c")
        raise Decline("changed its mind")

    @bench.invoker(library="other")
    def calm(ctx: Any, op: Any, x: Any, y: Any) -> None:
        src, dst = PTensor(x), PTensor(y)
        assert src.required_layout.is_any
        assert guideline("other", src).is_any  # type: ignore[union-attr]
        lib_tagger("other", [src], [dst.require("CN")])

    variant = bench.decide()
    assert [str(layout) for layout in variant.layouts] == ["NC", "CN"]
    assert [r.reason for r in variant.refused] == ["changed its mind"]


def test_a_call_that_no_library_takes_is_an_error_with_every_reason(two: Bench) -> None:
    """The whole text: operands a line each, attempts by priority, what to do."""
    two.invoker(dtypes=["bf16"])(unused)
    graph = Graph("bench")
    x = graph.input("x", {"N": 8, "C": 3, "H": 224, "W": 224})
    graph.output(graph.add(two.op("Toy"), x, name="conv1"))
    assert message(
        NoInvokerError, lambda: resolve(graph.seal(), preferences=preferences_of(["toy"]))
    ) == (
        "Toy 'conv1': no library can run this call on cpu\n"
        "  x : N=8 C=3 H=224 W=224   f32\n"
        "  y : N=8 C=3 H=224 W=224   f32\n"
        "  tried, in the session's order:\n"
        "     50 toy   : dtype f32 of x is not among bf16\n"
        "     30 other : not among this session's libraries (toy)\n"
        "  to fix: list more libraries, cast the operands, or register a library that takes them"
    )


def test_a_call_without_any_invoker_is_an_error(bench: Bench) -> None:
    assert message(NoInvokerError, bench.resolve) == (
        "Toy 'toy': no library can run this call on cpu\n"
        "  x : N=2 C=3   f32\n"
        "  y : N=2 C=3   f32\n"
        "  to fix: write an @invoker('Toy', library=..., device='cpu')"
    )


@pytest.mark.parametrize("python", [False, True])
def test_declining_during_a_run_is_an_error(two: Bench, python: bool) -> None:
    """The other library, which takes the call, is not tried."""
    evaluations: list[int] = []

    @two.invoker(python=python)
    def wavering(ctx: Any, op: Any, x: Any, y: Any) -> None:
        evaluations.append(1)
        if len(evaluations) > 1:
            raise Decline("not today")
        tagging(ctx, op, x, y)

    what = "declines during a run" if python else "declines what was decided"
    assert message(ContractError, two.run) == (
        f"Toy 'toy', toy invoker: {what}: not today ({where(wavering)})"
    )
    assert len(evaluations) == 2


# ``@invoker(first=..., before=...)``

WHY = "passed over: low says that it is faster here"


@pytest.fixture
def low(bench: Bench) -> Callable[..., None]:
    """Registers an invoker of ``low`` (1), with options, before that of ``toy``."""
    register(Description("low", 1, ("cpu",), python=True))
    bench.invoker()(copying())

    def register_low(**options: Any) -> None:
        bench.invoker(library="low", before=["toy"], **options)(copying("low"))

    return register_low


def decided(bench: Bench, preferences: Preferences = EVERY) -> tuple[str, list[tuple[str, str]]]:
    """Return the library of the call, and the others with the reason why not."""
    [node] = resolve(bench.graph(), preferences=preferences).operators
    return node.variant.library, [(one.library, one.reason) for one in node.variant.refused]


def holds(op: Any, x: Any) -> Any:
    assert (type(op).__name__, x.dims) == ("Toy", SIZES)
    return True


def declines(op: Any, x: Any) -> bool:
    raise Decline("it has groups")


@pytest.mark.parametrize(
    ("options", "library"),
    [
        ({"first": holds}, "low"),
        ({"first": lambda op, x: np.True_}, "low"),
        ({"first": lambda op, x: False}, "toy"),
        ({"first": lambda op, x: np.False_}, "toy"),
        ({"first": declines}, "toy"),
        ({"first": holds, "dtypes": ["s32"]}, "toy"),  # it goes first only if it takes the call
    ],
)
def test_a_library_goes_first_where_its_condition_holds(
    bench: Bench, low: Any, options: dict[str, Any], library: str
) -> None:
    low(**options)
    assert decided(bench) == (library, [("toy", WHY)] if library == "low" else [])


@pytest.mark.parametrize(
    "preferences",
    [
        Preferences(order=("toy", "low")),
        Preferences(barred=("low",)),
        Preferences(operators={"Toy": "toy"}),
        Preferences(nodes={"toy": "toy"}),
    ],
)
def test_what_a_session_says_goes_before(bench: Bench, low: Any, preferences: Preferences) -> None:
    low(first=holds)
    assert decided(bench, preferences)[0] == "toy"


def test_a_library_that_is_absent_does_not_go_first(
    bench: Bench, low: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry().libraries["low"], "absent", "no such processor")
    low(first=unused)
    assert decided(bench) == ("toy", [])


def test_a_condition_of_going_first_that_raises_says_where(bench: Bench, low: Any) -> None:
    def first(op: Any, x: Any) -> bool:
        return bool(op.groups == 1)  # mark

    low(first=first)
    assert message(InvokerError, bench.resolve).splitlines() == [
        f"Toy 'toy', the condition ({where(first)}) under which low goes first: "
        f"AttributeError: 'Toy' object has no attribute 'groups' (at {where(first, 'mark')})",
        "  x : N=2 C=3   f32",
    ]


@pytest.mark.parametrize("answer", [None, "it has groups"])
def test_a_condition_of_going_first_answers_true_or_false(
    bench: Bench, low: Any, answer: Any
) -> None:
    """A text declines elsewhere; here it would hold."""
    low(first=lambda op, x: answer)
    text = message(InvokerError, bench.resolve)
    assert f"under which low goes first: answers {answer!r}: it must return True or False" in text


@pytest.mark.parametrize("absent", [False, True])
def test_only_the_libraries_that_it_names_are_passed_over(
    bench: Bench, low: Any, absent: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another of higher priority that declines goes before them, unless it is absent."""
    register(Description("high", 90, ("cpu",), python=True))
    bench.invoker(library="high", when=lambda op, x, y: x.size("N") == 1)(copying("high"))
    if absent:
        monkeypatch.setattr(registry().libraries["high"], "absent", "no such processor")
    low(first=holds if absent else unused)
    expected = ("low", [("toy", WHY)]) if absent else ("toy", [("high", CONDITION)])
    assert decided(bench) == expected
