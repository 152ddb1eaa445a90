"""ONNX's backend suite: every case of the operators that VTensor has, and the suite's own judge."""

from __future__ import annotations

import importlib
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from copy import deepcopy
from functools import cache
from random import Random
from unittest.mock import Mock

import numpy as np
import onnx
import pytest
import typer
from onnx import helper
from typer.testing import CliRunner

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
from vtensor.frontends import builder, functions
from vtensor.frontends.network import NetworkNode
from vtensor.language.spelling import Spelling

#: Operators that a test takes from VTensor.
TAKEN = ("Celu", "Det", "Elu", "Hardmax", "Trilu")

#: Processes share the parts.
PARTS = 6


@cache
def supported() -> list[Case]:
    """Return the cases whose operators VTensor has; of those that are operators' expansions, which
    other cases compute, every fifth in ``make test``.
    """
    cases = [case for case in load().values() if case.supported]
    expanded = [case for case in cases if "_expanded" in case.name]
    tried = {*(expanded if ALL else expanded[::5])}
    return [case for case in cases if case in tried or "_expanded" not in case.name]


@cache
def passed() -> list[Case]:
    """Return the cases that are to pass."""
    known = refused.read()
    return [case for case in supported() if case.name not in known]


def reasons(found: Mapping[str, Outcome], *statuses: str) -> dict[str, str]:
    """Return the reasons of the cases with one of these statuses."""
    return {name: outcome.reason for name, outcome in found.items() if outcome.status in statuses}


@pytest.mark.parametrize("part", range(PARTS))
def test_no_case_of_a_supported_operator_fails_but_what_the_file_lists(part: int) -> None:
    found, known = {c.name: judge(c) for c in supported()[part::PARTS]}, refused.read()
    assert reasons(found, "failed") == {}
    listed = {name: known[name] for name in found if name in known}
    now = reasons(found, "unsupported")
    assert now == listed, "python -m tests.onnx_suite --update, and look at the difference"


def test_the_definitions_alone_pass_what_passes() -> None:
    """All libraries are compared with them: they are ONNX's, too."""
    drawn = passed() if ALL else Random(1).sample(passed(), 30)
    by_numpy = {case.name: judge(case, vtensor_numpy) for case in drawn}
    assert reasons(by_numpy, "failed", "unsupported") == {}


def test_nothing_is_left_out() -> None:
    assert len(load()) > 1500
    assert len(passed()) > 1400
    assert refused.read().keys() <= {name for name, case in load().items() if case.supported}


def test_operators_that_are_missing_are_a_typed_refusal() -> None:
    others = [case for case in load().values() if not case.supported]
    for case in others[::25]:  # the command runs them all
        outcome = judge(case)
        assert outcome.status != "failed", (case.name, outcome.reason)


def test_what_vtensor_lacks_does_not_fail_on_the_reference() -> None:
    others = [case for case in load().values() if not case.supported and not is_random(case)]
    found = {case.name: judge(case, vtensor_reference) for case in others}
    assert reasons(found, "failed") == {}
    assert reasons(found, "passed") != {}


def test_what_is_taken_from_vtensor_passes_on_the_reference(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As what it lacks would, of which little is left."""
    whole, handed = functions.spellings_of, Counter[str]()

    def left(node: NetworkNode) -> Sequence[Spelling]:
        handed[node.proto.op_type] += node.proto.op_type in TAKEN
        return () if node.proto.op_type in TAKEN else whole(node)

    monkeypatch.setattr(builder, "spellings_of", left)
    cases = [c for c in passed() if len(c.operators) == 1 and c.operators[0][1] in TAKEN]
    found = {case.name: judge(case, vtensor_reference) for case in cases}
    assert reasons(found, "failed", "unsupported") == {}
    assert len(found) > 20
    assert {op for op, count in handed.items() if count} == {*TAKEN}


def is_random(case: Case) -> bool:
    """Return whether a case expects what was drawn at random."""
    schemas = [onnx.defs.get_schema(op, domain=domain) for domain, op in case.operators]
    return any(getattr(schema, "non_deterministic", False) for schema in schemas)


def test_the_reference_is_not_taken_where_vtensor_has_the_operator(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def taken(node: NetworkNode, *rest: object) -> None:
        raise AssertionError(f"{node.label} is handed to onnx.reference")

    monkeypatch.setattr(builder, "reference_spelling", taken)
    drawn = passed()[:: 9 if ALL else 72]
    assert reasons({c.name: judge(c, vtensor_reference) for c in drawn}, "failed") == {}
    lacking = next(case for case in load().values() if not case.supported)
    assert "is handed to onnx.reference" in judge(lacking, vtensor_reference).reason


def test_what_is_decided_while_loading_is_told_from_what_runs() -> None:
    cases = load()
    names = ["relu", "shape", "range_float_type_positive_delta", "attention_4d"]
    names += ["nonzero_example", "nonmaxsuppression_center_point_box_format"]
    decided = [name for name in names if at_load(cases[f"test_{name}"])]
    assert decided == ["shape", "range_float_type_positive_delta"]


@pytest.fixture
def relu() -> Case:
    """A case that passes."""
    case = load()["test_relu"]
    assert judge(case) == judge(case, onnx_reference) == Outcome("passed")
    return case


def test_no_case_passes_without_an_answer() -> None:
    found = {name: judge(case, lambda model, feeds: []) for name, case in load().items()}
    assert reasons(found, "passed", "unsupported") == {}


def test_wrong_values_shapes_types_and_errors_are_failures(relu: Case) -> None:
    [(_, [right])] = relu.data
    wrong = right.copy()
    wrong.flat[7] += 1
    for answer in ([wrong], [right[:1]], [right.astype(np.float64)], [], [right * np.nan]):
        assert difference(answer, [right], relu.rtol, relu.atol) != ""

    for error in (KeyError("axes"), NativeError("a library failed")):
        fails = Mock(side_effect=error)
        assert judge(relu, fails) == Outcome("failed", f"{type(error).__name__}: {error}")


def test_a_refusal_is_told_from_a_failure(relu: Case) -> None:
    source = deepcopy(relu.source)
    source.model.graph.node[0].CopyFrom(helper.make_node("Bernoulli", ["x"], ["y"]))
    missing = Case("missing", "node", source, 0, 0)
    assert not missing.supported
    assert judge(missing) == Outcome("unsupported", "no Bernoulli")


def test_figures_are_printed_as_json() -> None:
    app = typer.Typer()
    app.command()(importlib.import_module("tests.onnx_suite.__main__").main)
    result = CliRunner().invoke(app, ["--filter", "^test_relu$", "--json"])
    figures = json.loads(result.stdout)
    passed = {"passed": 1, "unsupported": 0, "failed": 0}
    assert figures["engines"]["VTensor"][""] == figures["operators"]["Relu"] == passed
    assert figures["cases"]["test_relu"]["status"] == "passed"


def test_sequences_and_texts_are_compared() -> None:
    one, two = np.ones(2, np.float32), np.zeros(2, np.float32)
    assert difference([[one, two]], [[one, two]], 0, 0) == ""
    assert difference([[one, one]], [[one, two]], 0, 0) != ""
    assert difference([one], [[one]], 0, 0) == "output 0: no list"
    assert difference([None], [None], 0, 0) == ""
    assert difference([np.array(["a"])], [np.array(["b"])], 0, 0) != ""
