"""Declining: before the tagger, during resolution, with every reason kept."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from libdesc import Decline, guideline, register
from ptensor import Layout, PTensor, lib_tagger
from resolver.evaluate import resolve
from tests.libraries.bench import HERE, SIZES, Bench, message, unused, where
from tests.libraries.toy import handlers
from vtensor.errors import ContractError, NoInvokerError
from vtensor.language.graph import Graph
from vtensor.runtime.planning.library_options import preferences_of

TOY = "Toy 'toy', toy invoker: "


@pytest.fixture
def two(bench: Bench) -> Bench:
    """A second library, ``other``, of lower priority, that takes everything in CN."""
    register(HERE / "other")

    @bench.invoker(library="other")
    def other_toy(ctx: Any, op: Any, x: Any, y: Any) -> None:
        src, dst = PTensor(x).require("CN"), PTensor(y).require("CN")
        if lib_tagger("other", [src], [dst]):
            return
        dst.data()[...] = src.data()

    return bench


def takes(library: str = "toy") -> Any:
    """An invoker that takes everything in NC."""

    def invoke(ctx: Any, op: Any, x: Any, y: Any) -> None:
        src, dst = PTensor(x).require("NC"), PTensor(y).require("NC")
        if lib_tagger(library, [src], [dst]):
            return
        dst.data()[...] = src.data()

    return invoke


def refused(bench: Bench) -> list[tuple[int, str, str]]:
    """The refusals that are kept in the variant."""
    return [(r.priority, r.library, r.reason) for r in bench.decide().refused]


def test_the_larger_priority_is_tried_first(two: Bench) -> None:
    two.invoker()(takes())
    variant = two.decide()
    assert (variant.library, variant.refused) == ("toy", ())


def test_an_invokers_priority_goes_before_its_librarys(two: Bench) -> None:
    two.invoker(priority=29)(takes())
    assert two.decide().library == "other"


def test_a_tie_is_decided_by_the_name(two: Bench) -> None:
    two.invoker(priority=30)(takes())
    assert two.decide().library == "other"


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (False, "the condition of its invoker does not hold"),
        ("N is even", "N is even"),
        ("", "the condition of its invoker does not hold"),
        (np.False_, "the condition of its invoker does not hold"),
    ],
)
def test_when(two: Bench, answer: Any, reason: str) -> None:
    seen: list[Any] = []

    def when(op: Any, x: Any, y: Any) -> Any:
        seen.append((op, x.dims, y.dims))
        return answer

    two.invoker(when=when)(unused)
    assert refused(two) == [(50, "toy", reason)]
    assert seen == [(two.op("Toy"), SIZES, SIZES)]


@pytest.mark.parametrize("answer", [True, np.True_])
def test_when_that_holds(two: Bench, answer: Any) -> None:
    two.invoker(when=lambda op, x, y: answer)(takes())
    assert two.decide().library == "toy"


def test_decline_before_the_tagger(two: Bench) -> None:
    @two.invoker()
    def picky(ctx: Any, op: Any, x: Any, y: Any) -> None:
        PTensor(x).require("NC")
        raise Decline("C is odd")

    assert refused(two) == [(50, "toy", "C is odd")]


def test_the_guideline_declines(two: Bench) -> None:
    def answer(call: Any) -> Any:
        raise Decline("no kernel for this size")

    handlers.answer = answer

    @two.invoker()
    def asking(ctx: Any, op: Any, x: Any, y: Any) -> None:
        PTensor(x).require(guideline("toy", PTensor(y)))

    assert refused(two) == [(50, "toy", "no kernel for this size")]


def test_the_guideline_of_a_ptensor_never_required_declines(two: Bench) -> None:
    def answer(call: Any) -> Any:
        raise Decline("no kernel for this size")

    handlers.answer = answer

    @two.invoker()
    def silent(ctx: Any, op: Any, x: Any, y: Any) -> None:
        lib_tagger("toy", [PTensor(x)], [PTensor(y)])

    assert refused(two) == [(50, "toy", "no kernel for this size")]


def test_confirm_declines_with_the_row(two: Bench) -> None:
    handlers.refusal = lambda call, row: "only on Sundays"
    two.invoker()(takes())
    assert refused(two) == [(50, "toy", "NC NC: only on Sundays")]


@pytest.mark.parametrize("dtypes", [["bf16", "f16"], {"x": ["f16", "bf16"]}])
def test_dtypes(two: Bench, dtypes: Any) -> None:
    two.invoker(dtypes=dtypes)(unused)
    assert refused(two) == [(50, "toy", "dtype f32 of x is not among bf16, f16")]


def test_dtypes_by_role(two: Bench) -> None:
    two.invoker(dtypes={"x": ["f32"], "y": ["f32"]})(takes())
    assert two.decide().library == "toy"


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


def test_no_invoker_error(two: Bench) -> None:
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


def test_no_invoker_error_without_any_invoker(bench: Bench) -> None:
    assert message(NoInvokerError, bench.resolve) == (
        "Toy 'toy': no library can run this call on cpu\n"
        "  x : N=2 C=3   f32\n"
        "  y : N=2 C=3   f32\n"
        "  to fix: write an @invoker('Toy', library=..., device='cpu')"
    )


def test_an_invoker_without_its_library_is_not_tried(bench: Bench) -> None:
    bench.invoker(library="missing")(unused)
    bench.invoker()(takes())
    assert bench.decide().library == "toy"


@pytest.mark.parametrize("python", [False, True])
def test_declining_during_a_run_is_an_error(bench: Bench, python: bool) -> None:
    evaluations: list[int] = []

    @bench.invoker(python=python)
    def wavering(ctx: Any, op: Any, x: Any, y: Any) -> None:
        evaluations.append(1)
        if len(evaluations) > 1:
            raise Decline("not today")
        lib_tagger("toy", [PTensor(x)], [PTensor(y)])

    what = "declines during a run" if python else "declines what was decided"
    assert message(ContractError, bench.run) == f"{TOY}{what}: not today ({where(wavering)})"
    assert len(evaluations) == 2


def test_another_library_is_never_tried_during_a_run(two: Bench) -> None:
    evaluations: list[int] = []

    @two.invoker(python=False)
    def wavering(ctx: Any, op: Any, x: Any, y: Any) -> None:
        evaluations.append(1)
        if len(evaluations) > 1:
            raise Decline("not today")
        lib_tagger("toy", [PTensor(x)], [PTensor(y)])

    message(ContractError, two.run)
