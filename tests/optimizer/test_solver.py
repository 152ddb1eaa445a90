"""Solvers that are missing, crash, or run out of time: the plan stays LHO's, and says so."""

from __future__ import annotations

from typing import Any

import pulp
import pytest

from optimizer import ewo
from optimizer.choice import ilp, solver
from optimizer.choice.solver import Solved, SolverError, solve, solver_name
from optimizer.pipeline import optimise
from optimizer.settings import Settings
from tests.libraries.bench import Bench, unused
from tests.libraries.processes import printed
from tests.optimizer.graphs import extended_of, moved, random_graph
from tests.resolver.networks import mixes
from vtensor.report import certificate_lines
from vtensor.runtime.session import Session

SEED = 8  # a graph that EWO improves


def test_the_two_solvers_agree(bench: Bench) -> None:
    for seed in range(10):
        resolved = extended_of(random_graph(seed))
        settings = (Settings(solver=name, time_limit=300.0) for name in ("HiGHS", "CBC"))
        plans = [optimise(resolved, "ewo", one) for one in settings]
        assert moved(plans[0]) == moved(plans[1])
        assert [one.certificate and one.certificate.status for one in plans] == ["optimal"] * 2


@pytest.mark.parametrize("name", ["HiGHS", "CBC"])
def test_a_solver_that_fails_is_said(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    def crash(model: Any, limit: float) -> tuple[str, float]:
        raise RuntimeError("out of luck")

    monkeypatch.setattr(solver, f"_{name.lower()}", crash)
    resolved = extended_of(random_graph(SEED))
    plan = optimise(resolved, "ewo", Settings(solver=name))
    assert str(plan) == str(optimise(resolved, "lho"))
    assert plan.certificate is not None
    assert plan.certificate.status == f"failed: {name}: RuntimeError: out of luck"
    assert plan.certificate.bound is None
    [line] = certificate_lines(plan.certificate)
    assert "not optimised (shared, " in line.text
    assert "out of luck" in line.text


def test_a_model_that_has_no_solution_is_an_error() -> None:
    model = pulp.LpProblem("none", pulp.LpMinimize)
    x = model.add_variable("x", 0, 1, cat="Binary")
    model += 1 * x
    model += x >= 2
    for name in ("HiGHS", "CBC"):
        with pytest.raises(SolverError, match=name):
            solve(model, name)


def test_a_time_limit_never_makes_it_worse(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was found by then counts only where it is better than what there was."""
    real = ilp.choose

    def worst(problem: Any, *rest: Any) -> Any:
        choice = real(problem, *rest)
        variants = {name: len(several) - 1 for name, several in problem.variants.items()}
        late = Solved("HiGHS", "time limit", 1.0, 0.0, 1.0)
        return choice._replace(chosen=variants, solved=late, bound=0)

    monkeypatch.setattr(ewo, "choose", worst)
    for seed in range(10):
        resolved = extended_of(random_graph(seed))
        plan = optimise(resolved, ["ewo"])
        assert moved(plan) <= moved(resolved)
        certificate = plan.certificate
        assert certificate is not None
        assert certificate.status == "time limit"
        assert not certificate.minimal
        assert certificate.bound is not None
        assert certificate.bound <= moved(optimise(resolved, "all")).bytes


def test_without_highs_it_is_cbc(monkeypatch: pytest.MonkeyPatch) -> None:
    assert solver_name() == "HiGHS"
    monkeypatch.setattr("optimizer.choice.solver.importlib.util.find_spec", lambda name: None)
    assert solver_name() == "CBC"


def test_a_session_has_the_certificate(bench: Bench) -> None:
    with Session(random_graph(SEED), threads=1, objective="shared") as session:
        certificate, conversions = session.plan.certificate, session.conversions
    assert certificate is not None
    assert certificate.minimal
    assert certificate.gap == 0
    assert (
        certificate.bound
        == certificate.bytes_after
        == sum(conversion.bytes for conversion in conversions)
    )


def test_importing_loads_no_solver() -> None:
    code = "import vtensor, sys, optimizer.pipeline; print({'pulp', 'highspy'} & set(sys.modules))"
    assert printed("-c", code).strip() == "set()"


def test_without_a_choice_no_solver_is_asked(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ilp, "_Program", unused)
    plan = optimise(extended_of(mixes("only: x NHWC NHWC")), "all", Settings("shared"))
    assert plan.certificate is not None
    assert plan.certificate.minimal
    assert plan.certificate.count_after == 2
