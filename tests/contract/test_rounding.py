"""Tolerance 0, which every session has: nothing is stored in a type that rounds its values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from libdesc import register
from libdesc.registry import registry
from ptensor import Layout, PTensor, lib_tagger
from ptensor.evaluation import Evaluation
from resolver.check import check
from resolver.evaluate import resolve
from resolver.extend import extend
from resolver.lowered import TransformNode
from tests.libraries.bench import HERE, Bench, message
from tests.libraries.toy import handlers
from vtensor.errors import InputError, NoInvokerError, ResolutionError
from vtensor.runtime.session import Session

NUMBERS = np.array([[1.001, 2.002, 3.003], [4.004, 5.005, 6.006]], np.float32)  # none is a bf16


def copies(bench: Bench, library: str, source: str, target: str) -> None:
    """An invoker that copies, with these requirements."""

    @bench.invoker(library=library)
    def copy(ctx: Any, op: Any, x: Any, y: Any) -> None:
        src, dst = PTensor(x).require(source), PTensor(y).require(target)
        if lib_tagger(library, [src], [dst]):
            return
        dst.data()[...] = src.data()


def transforms(bench: Bench, **entry: str) -> list[str]:
    """The Transforms of the plan of one Toy."""
    layouts = {name: Layout(text) for name, text in entry.items()}
    graph = bench.graph()
    extended = extend(resolve(graph, layouts))
    able = [library.name for library in registry().libraries.values() if library.transforms]
    check(extended, graph, able, layouts)
    return [node.name for node in extended.nodes if isinstance(node, TransformNode)]


@pytest.mark.parametrize(
    ("source", "target", "reason"),
    [
        ("NC:bf16", "NC", "NC:bf16 NC: x in NC:bf16 rounds f32"),
        ("NC", "NC:f16", "NC NC:f16: y in NC:f16 rounds f32"),
        ("NC:s8(scale=0.5)", "NC", "NC:s8(scale=0.5) NC: x in NC:s8(scale=0.5) rounds f32"),
    ],
)
def test_a_type_that_rounds_is_declined(
    bench: Bench, source: str, target: str, reason: str
) -> None:
    copies(bench, "toy", source, target)
    register(HERE / "other")
    copies(bench, "other", "NC", "NC")
    decision = bench.decide()
    assert decision.library == "other"
    assert [r.reason for r in decision.refused] == [f"{reason}; the session's tolerance is 0"]
    assert np.array_equal(bench.run("Toy", NUMBERS), NUMBERS)


def test_without_another_library_it_is_an_error(bench: Bench) -> None:
    copies(bench, "toy", "NC:bf16", "NC")
    text = message(NoInvokerError, bench.resolve)
    assert "50 toy : NC:bf16 NC: x in NC:bf16 rounds f32; the session's tolerance is 0" in text


def test_above_tolerance_0_a_type_may_round(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Evaluation, "rounding", True)
    copies(bench, "toy", "NC:bf16", "NC")
    assert bench.layouts() == ["NC:bf16", "NC"]


def test_a_wider_type_is_no_rounding(bench: Bench) -> None:
    copies(bench, "toy", "NC:f64", "NC:f64")
    assert bench.layouts() == ["NC:f64", "NC:f64"]
    assert len(transforms(bench)) == 2
    assert np.array_equal(bench.run("Toy", NUMBERS), NUMBERS)


def test_any_does_not_take_over_a_type_that_rounds(bench: Bench) -> None:
    """The input comes in bf16; what is made of it is f32 all the same."""
    copies(bench, "toy", "ANY", "ANY")
    assert bench.layouts("Toy", x0="CN:bf16") == ["NC", "NC"]
    assert len(transforms(bench, x0="CN:bf16")) == 1  # widening


@pytest.mark.parametrize(("source", "target"), [("NC:f32", "NC:f32"), ("NC", "NC:f32")])
def test_the_own_type_is_no_encoding(bench: Bench, source: str, target: str) -> None:
    copies(bench, "toy", source, target)
    assert bench.layouts() == ["NC", "NC"]
    assert transforms(bench) == []
    assert np.array_equal(bench.run("Toy", NUMBERS), NUMBERS)


def test_the_own_type_in_a_guideline(bench: Bench) -> None:
    handlers.answer = lambda call: {0: Layout("NC:f32"), 1: [Layout("NC:f32"), Layout("CN")]}

    @bench.invoker()
    def silent(ctx: Any, op: Any, x: Any, y: Any) -> None:
        lib_tagger("toy", [PTensor(x)], [PTensor(y)])

    assert bench.layouts() == ["NC", "NC"]


def test_the_own_type_of_an_entry(bench: Bench) -> None:
    copies(bench, "toy", "NC", "NC")
    assert transforms(bench, x0="NC:f32") == []


def test_the_own_type_of_what_goes_in_and_out(bench: Bench) -> None:
    copies(bench, "toy", "ANY", "ANY")
    there, here = {"x0": "CN:f32"}, {"y": "CN:f32"}
    with Session(bench.graph(), input_layouts=there, output_layouts=here) as session:
        [result] = session.run(None, {"x0": np.asfortranarray(NUMBERS)})
        assert session.conversions == []
    assert np.array_equal(result, NUMBERS)
    with pytest.raises(InputError, match="its own element type"):
        Session(bench.graph(), output_layouts={"y": "CN:bf16"})


def test_an_output_is_not_delivered_in_a_type_that_rounds(bench: Bench) -> None:
    copies(bench, "toy", "NC", "NC")
    resolution = bench.resolve()
    text = message(ResolutionError, lambda: extend(resolution, {"y": Layout("NC:bf16")}))
    assert text == (
        "output 'y': layout NC:bf16 rounds its f32, and the session's tolerance is 0; "
        "deliver it in its own element type"
    )
