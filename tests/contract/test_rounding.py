"""Tolerance 0, which every session has: nothing is stored in a type that rounds its values."""

from __future__ import annotations

import numpy as np
import pytest

from libdesc import register
from ptensor import Layout
from ptensor.evaluation import Evaluation
from resolver.evaluate import resolve
from resolver.extend import extend
from tests.contract.invokers import copying, tagging
from tests.libraries.bench import HERE, Bench, message
from tests.libraries.toy import handlers
from tests.resolver.networks import checked
from vtensor.errors import InputError, NoInvokerError, ResolutionError
from vtensor.runtime.session import Session

NUMBERS = np.array([[1.001, 2.002, 3.003], [4.004, 5.005, 6.006]], np.float32)  # none is a bf16


def transforms(bench: Bench, **entry: str) -> int:
    """The number of Transforms in the plan of one Toy."""
    layouts = {name: Layout(text) for name, text in entry.items()}
    graph = bench.graph()
    return len(list(checked(extend(resolve(graph, layouts)), graph, layouts).transforms()))


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
    """Without another library it is an error."""
    bench.invoker()(copying("toy", source, target))
    reason += "; the session's tolerance is 0"
    assert f"50 toy : {reason}" in message(NoInvokerError, bench.resolve)
    register(HERE / "other")
    bench.invoker(library="other")(copying("other"))
    decision = bench.decide()
    assert decision.library == "other"
    assert [r.reason for r in decision.refused] == [reason]
    assert np.array_equal(bench.run("Toy", NUMBERS), NUMBERS)


def test_above_tolerance_0_a_type_may_round(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Evaluation, "rounding", True)
    bench.invoker()(copying("toy", "NC:bf16"))
    assert bench.layouts() == ["NC:bf16", "NC"]


@pytest.mark.parametrize(
    ("source", "target", "layouts", "conversions"),
    [
        ("NC:f64", "NC:f64", ["NC:f64", "NC:f64"], 2),  # a wider type does not round
        ("NC:f32", "NC:f32", ["NC", "NC"], 0),  # a tensor's own type is no encoding
        ("NC", "NC:f32", ["NC", "NC"], 0),
    ],
)
def test_a_type_that_does_not_round_is_taken(
    bench: Bench, source: str, target: str, layouts: list[str], conversions: int
) -> None:
    bench.invoker()(copying("toy", source, target))
    assert bench.layouts() == layouts
    assert transforms(bench) == conversions
    assert np.array_equal(bench.run("Toy", NUMBERS), NUMBERS)


def test_any_does_not_take_over_a_type_that_rounds(bench: Bench) -> None:
    """The input comes in bf16; what is made of it is f32 all the same."""
    bench.invoker()(copying("toy", "ANY", "ANY"))
    assert bench.layouts("Toy", x0="CN:bf16") == ["NC", "NC"]
    assert transforms(bench, x0="CN:bf16") == 1  # widening


def test_the_own_type_may_be_said_in_a_guideline_and_an_entry(bench: Bench) -> None:
    handlers.answer = lambda call: {0: Layout("NC:f32"), 1: [Layout("NC:f32"), Layout("CN")]}
    bench.invoker()(tagging)
    assert bench.layouts() == ["NC", "NC"]
    assert transforms(bench, x0="NC:f32") == 0


def test_the_own_type_may_be_said_of_inputs_and_outputs(bench: Bench) -> None:
    bench.invoker()(copying("toy", "ANY", "ANY"))
    there, here = {"x0": "CN:f32"}, {"y": "CN:f32"}
    with Session(bench.graph(), input_layouts=there, output_layouts=here) as session:
        [result] = session.run(None, {"x0": np.asfortranarray(NUMBERS)})
        assert session.conversions == []
    assert np.array_equal(result, NUMBERS)
    with pytest.raises(InputError, match="its own element type"):
        Session(bench.graph(), output_layouts={"y": "CN:bf16"})
    assert message(ResolutionError, lambda: extend(bench.resolve(), {"y": Layout("NC:bf16")})) == (
        "output 'y': layout NC:bf16 rounds its f32, and the session's tolerance is 0; "
        "deliver it in its own element type"
    )
