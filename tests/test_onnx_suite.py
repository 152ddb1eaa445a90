"""ONNX's backend suite: every case of the operators that VTensor has, and the suite's own judge."""

from __future__ import annotations

from copy import deepcopy
from functools import cache
from random import Random

import numpy as np
import onnx
import pytest
from onnx import helper

from tests.libraries.slow import ALL
from tests.onnx_suite import refused
from tests.onnx_suite.cases import Case, load
from tests.onnx_suite.engines import (
    Outcome,
    at_load,
    difference,
    judge,
    onnx_reference,
    vtensor_numpy,
    vtensor_reference,
)
from vtensor.errors import NativeError
from vtensor.frontends import builder
from vtensor.frontends.network import NetworkNode


@cache
def found() -> dict[str, Outcome]:
    """What becomes of each case whose operators VTensor has."""
    return {name: judge(case) for name, case in load().items() if case.supported}


def test_no_case_of_a_supported_operator_fails() -> None:
    assert {n: o.reason for n, o in found().items() if o.status == "failed"} == {}


def test_what_is_refused_is_what_the_file_lists() -> None:
    now = {n: o.reason for n, o in found().items() if o.status == "unsupported"}
    assert now == refused.read(), "python -m tests.onnx_suite --update, and look at the difference"


def test_the_definitions_alone_pass_what_passes() -> None:
    """All libraries are compared with them: they are ONNX's, too."""
    passed = [load()[name] for name, outcome in found().items() if outcome.status == "passed"]
    drawn = passed if ALL else Random(1).sample(passed, 30)
    outcomes = {case.name: judge(case, vtensor_numpy) for case in drawn}
    assert {n: o.reason for n, o in outcomes.items() if o.status != "passed"} == {}


def test_nothing_is_left_out() -> None:
    cases = load()
    assert len(cases) > 1500
    assert sum(outcome.status == "passed" for outcome in found().values()) > 150
    assert not any(outcome.status == "skipped" for outcome in found().values())


def test_operators_that_are_missing_are_a_typed_refusal() -> None:
    others = [case for case in load().values() if not case.supported]
    for case in others[::25]:  # the command runs them all
        outcome = judge(case)
        assert outcome.status != "failed", (case.name, outcome.reason)


def test_what_vtensor_lacks_does_not_fail_on_the_reference() -> None:
    others = [case for case in load().values() if not case.supported and not is_random(case)]
    outcomes = {case.name: judge(case, vtensor_reference) for case in others}
    assert {n: o.reason for n, o in outcomes.items() if o.status == "failed"} == {}
    assert sum(outcome.status == "passed" for outcome in outcomes.values()) > 5


def is_random(case: Case) -> bool:
    """What a case expects was drawn at random."""
    schemas = [onnx.defs.get_schema(op, domain=domain) for domain, op in case.operators]
    return any(getattr(schema, "non_deterministic", False) for schema in schemas)


def test_the_reference_is_not_taken_where_vtensor_has_the_operator(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def taken(node: NetworkNode, *rest: object) -> None:
        raise AssertionError(f"{node.label} is handed to onnx.reference")

    monkeypatch.setattr(builder, "reference_spelling", taken)
    supported = [load()[name] for name, outcome in found().items() if outcome.status == "passed"]
    outcomes = {
        case.name: judge(case, vtensor_reference) for case in supported[:: 9 if ALL else 72]
    }
    assert {n: o.reason for n, o in outcomes.items() if o.status == "failed"} == {}
    lacking = next(case for case in load().values() if not case.supported)
    assert "is handed to onnx.reference" in judge(lacking, vtensor_reference).reason


def test_what_is_decided_while_loading_is_told_from_what_runs() -> None:
    cases = load()
    names = ("relu", "shape", "range_float_type_positive_delta", "attention_4d")
    decided = [name for name in names if at_load(cases[f"test_{name}"])]
    assert decided == ["shape", "range_float_type_positive_delta"]


@pytest.fixture
def relu() -> Case:
    """A case that passes."""
    case = load()["test_relu"]
    assert judge(case) == judge(case, onnx_reference) == Outcome("passed")
    return case


def test_no_case_passes_without_an_answer() -> None:
    outcomes = {name: judge(case, lambda model, feeds: []) for name, case in load().items()}
    assert [name for name, outcome in outcomes.items() if outcome.status != "failed"] == []


def test_wrong_values_shapes_types_and_errors_are_failures(relu: Case) -> None:
    [(_, [right])] = relu.data
    wrong = right.copy()
    wrong.flat[7] += 1
    for answer in ([wrong], [right[:1]], [right.astype(np.float64)], [], [right * np.nan]):
        assert difference(answer, [right], relu.rtol, relu.atol) != ""

    def crashes(model: object, feeds: object) -> list[object]:
        raise KeyError("axes")

    def breaks(model: object, feeds: object) -> list[object]:
        raise NativeError("a library failed")

    assert judge(relu, crashes) == Outcome("failed", "KeyError: 'axes'")
    assert judge(relu, breaks) == Outcome("failed", "NativeError: a library failed")


def test_a_refusal_is_told_from_a_failure(relu: Case) -> None:
    source = deepcopy(relu.source)
    source.model.graph.node[0].CopyFrom(helper.make_node("Bernoulli", ["x"], ["y"]))
    missing = Case("missing", "node", source, 0, 0)
    assert not missing.supported
    assert judge(missing) == Outcome("unsupported", "no Bernoulli")


def test_sequences_and_texts_are_compared() -> None:
    one, two = np.ones(2, np.float32), np.zeros(2, np.float32)
    assert difference([[one, two]], [[one, two]], 0, 0) == ""
    assert difference([[one, one]], [[one, two]], 0, 0) != ""
    assert difference([one], [[one]], 0, 0) == "output 0: no list"
    assert difference([None], [None], 0, 0) == ""
    assert difference([np.array(["a"])], [np.array(["b"])], 0, 0) != ""
