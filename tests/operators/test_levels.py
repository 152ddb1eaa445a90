"""No reference kernel that a layout spares, no NaN lost, at each level of instructions."""

from __future__ import annotations

import json
import re
from collections import Counter
from itertools import product

import numpy as np
import pytest

from libdesc.onednn import native
from ops import MaxPool, Relu
from ptensor.layout import Layout
from tests.libraries.processes import printed
from tests.libraries.slow import ALL, slow_but
from tests.operators.calls import levels
from tests.operators.calls.capped import ENDS
from tests.operators.calls.levels import CAPS, KNOWN, check_same, reference_faults, special_faults
from tests.operators.harness import definition
from tests.operators.tables.cases import CASES, Case
from tests.operators.tables.elementwise import ELEMENTWISE

#: The most cases of each operator that are drawn for each cap.
DRAWN, SHARE = (1000, 1) if ALL else (1, 12)
RUNS = [*product(CAPS, ("onednn", "eigen")), ("max", "numpy")]
USUAL = {run for run in ENDS if run[0] != "avx2"}
#: How many calls are compared at least: alone, behind another operator, of rows.
LEAST = {"onednn": (30, 30, 70), "eigen": (150, 100, 30), "numpy": (200, 0, 200)}


@pytest.mark.parametrize(("cap", "library"), slow_but(USUAL, RUNS))
def test_no_call_has_a_fault_under_a_cap(cap: str, library: str) -> None:
    text = printed("-m", "tests.operators.calls.capped", cap, library, DRAWN, SHARE, timeout=550)
    *faults, last = text.splitlines()
    assert not faults, "\n".join(["", *faults])
    counts: dict[str, int] = json.loads(last)
    if library != "numpy":
        operators = Counter(type(case.op) for case in levels.cases(library))
        assert counts["cases"] == sum(min(DRAWN, cases) for cases in operators.values())
    for kind, least in zip(("alone", "behind", "rows"), LEAST[library], strict=True):
        assert counts.get(kind, 0) >= (least if (cap, library) in ENDS else 0)
    assert library != "onednn" or counts["fused"] > 60


@pytest.mark.parametrize("name", [n for n, i, v in KNOWN if (i, v) == (0, "nan")])
def test_known_deviations_are_still_there(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A better oneDNN shortens the list."""
    monkeypatch.setattr(levels, "KNOWN", {})
    assert any(
        "nan in operand 0" in fault for case in CASES[name] for fault in special_faults(case)
    )


@pytest.mark.parametrize("name", sorted({type(op).__name__ for op, _, _ in ELEMENTWISE}))
def test_the_definition_lets_nan_of_each_operand_through(name: str) -> None:
    case = CASES[name][0]
    for index, operand in enumerate(case.given()):
        if operand.array.dtype.kind != "f" or (name, index) == ("PRelu", 1):
            continue  # a slope counts only for what is negative
        given = case.given()
        given[index] = levels.sprinkled(operand, np.nan)
        with np.errstate(all="ignore"):
            [result] = definition(case.op, given)
        marks = ("Hardmax", "Shrink", "ThresholdedRelu")  # the place of the largest; "otherwise 0"
        alike = result.shape == operand.array.shape and name not in ("Where", *marks)
        if result.dtype.kind == "f" and alike:
            assert np.isnan(result[np.isnan(given[index].array)]).all()


@pytest.mark.parametrize(
    ("name", "library"), [("LSTM", "onednn"), ("LSTM", "eigen"), ("ReduceLogSumExp", "eigen")]
)
def test_each_case_of_what_has_lost_infinities(name: str, library: str) -> None:
    cases = [case for case in CASES[name] if library not in case.refused]
    assert cases
    assert [fault for case in cases for fault in special_faults(case, library)] == []


def test_a_state_goes_to_gates_by_peepholes_alone() -> None:
    """Without these an infinite one is behind a tanh, which is 1 then."""
    [case] = [row for row in CASES["LSTM"] if row.op.given == ("bias", "hidden", "cell")]
    given = case.given()
    given[5] = levels.sprinkled(given[5], np.inf)
    y, hidden, cell = definition(case.op, given)
    assert np.isfinite(y).all()
    assert np.isfinite(hidden).all()
    assert (np.isinf(cell) == np.isinf(given[5].array)).all()


def test_an_invoker_that_swallows_nan_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """The twin of special_faults: oneDNN's own clip."""
    case = Case(Relu(), ("N=2 C=17 H=5 W=6",))
    assert list(special_faults(case)) == []
    monkeypatch.setattr(
        "libdesc.onednn.routines_pointwise.Function.primitive",
        lambda self, src, dst: native.dnnl.eltwise(self.alg, src, dst, self.alpha, self.beta),
    )
    assert any("nan in operand 0" in fault for fault in special_faults(case))


def test_a_reference_kernel_that_a_layout_spares_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """The twin of reference_faults: a guideline that asks for a layout without a real kernel."""
    case = Case(MaxPool((3, 3)), ("N=1 C=17 H=9 W=8",))
    assert list(reference_faults(case)) == []
    bad = [Layout("WHCN"), Layout("WHCN")]
    monkeypatch.setattr("libdesc.onednn.Pooling.rows", lambda self: iter([bad]))
    monkeypatch.setattr("libdesc.onednn.Pooling.alternative_rows", lambda self, row: iter(()))
    assert re.search(r"\['ref:any'\], where .* has (?!ref:)", next(reference_faults(case)))


def test_an_expression_that_makes_nan_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same on Eigen: an expression that makes NaN of an infinity."""
    case = Case(Relu(), ("N=2 C=17 H=5 W=6",))
    assert list(special_faults(case, "eigen")) == []
    monkeypatch.setattr("vtensor.language.expression.Expression.max", lambda self, other: self * 0)
    assert any("inf in operand 0" in fault for fault in special_faults(case, "eigen"))


@pytest.mark.parametrize("wrong", [0.0, np.inf, -np.inf])
def test_what_is_not_the_same_is_seen(wrong: float) -> None:
    """The twin of check_same."""
    right = np.array([1.0, np.nan, 2.0])
    check_same(right.astype(np.float32), right, 1e-6)
    with pytest.raises(AssertionError):
        check_same(np.array([1.0, wrong, 2.0], np.float32), right, 1e-6)
    with pytest.raises(AssertionError):
        check_same(np.array([np.nan, np.nan, 2.0], np.float32), right, 1e-6)
