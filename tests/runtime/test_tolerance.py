"""``Session(tolerance=...)``: results are within it, and where nobody allows it they are strict."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

from ops import ArgMax, Floor, Sigmoid, Softmax
from optimizer.observed import observed
from optimizer.pipeline import optimise
from resolver.errors import ErrorProof
from tests.libraries.bench import Bench
from tests.libraries.sloppy import Hasty, declare_sloppy
from tests.optimizer.graphs import random_graph
from vtensor import Session
from vtensor.errors import InputError
from vtensor.language.graph import Graph
from vtensor.runtime import erring, gains, planning, tolerant
from vtensor.runtime.plan import Plan

Array = np.ndarray[Any, Any]


@pytest.fixture
def sloppy(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> Bench:
    """Toy operators and an inexact library of them, in drawn times; a faster plan is taken."""
    declare_sloppy()
    monkeypatch.setattr(planning, "Tuner", lambda *_: Hasty(1))
    monkeypatch.setattr(planning, "fastest", lambda plans, _: (plans[0], [0, 0]))
    return bench


def feeds(graph: Graph, seed: int) -> dict[str, Array]:
    """Seeded inputs."""
    draw = np.random.default_rng((99, seed))
    return {
        name: draw.standard_normal([*graph.values[name].dims.values()]).astype(np.float32)
        for name in graph.inputs
    }


def inexact(session: Session) -> list[str]:
    """The nodes of its plan that are."""
    return [node.name for node in session.plan.graph.operators if node.variant.inexact]


def proof_of(session: Session) -> ErrorProof:
    """The errors for which its plan was chosen."""
    certificate = session.plan.certificate
    assert certificate is not None
    assert certificate.errors is not None
    return certificate.errors


def off_by(graph: Graph, session: Session, strict: Session, seed: int) -> float:
    """The largest error of an output on inputs that nothing was measured on."""
    given = feeds(graph, seed)
    pairs = zip(strict.run(None, given), session.run(None, given), strict=True)
    return max(float(np.abs(one - other).max() / np.abs(one).max()) for one, other in pairs)


@pytest.mark.parametrize("tolerance", [1e-5, 1e-3])
def test_random_graphs_keep_to_it(sloppy: Bench, tolerance: float) -> None:
    chosen = 0
    for seed in range(6):
        graph = random_graph(seed)
        with (
            Session(graph, threads=1, optimize="none") as strict,
            Session(graph, threads=1, tune=True, tolerance=tolerance) as session,
        ):
            chosen += len(inexact(session))
            assert off_by(graph, session, strict, seed) <= tolerance
    assert chosen > 6


def test_at_0_nothing_is_inexact(sloppy: Bench) -> None:
    for seed in range(4):
        graph = random_graph(seed)
        for options in ({"tolerance": 0}, {"tolerance": 0.0, "tune": True}, {"tolerance": 1.0}):
            with Session(graph, threads=1, **options) as session:
                assert not inexact(session)


def test_a_plan_that_breaks_its_budget_is_solved_again(
    sloppy: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Gains that are said to be a thousandth: whole plans show what they are."""
    graph, asked, real = random_graph(3), list[float](), gains.probed

    def lying(plan: Any, bindings: Any, nodes: Any) -> dict[str, Any]:
        found = real(plan, bindings, nodes)
        return {name: tuple((sent, got / 1000) for sent, got in p) for name, p in found.items()}

    def solved(*args: Any) -> Any:
        asked.append(args[2].allowed.budget)
        return optimise(*args)

    monkeypatch.setattr(erring, "probed", lying)
    monkeypatch.setattr(tolerant, "optimise", solved)
    with (
        Session(graph, threads=1, optimize="none") as strict,
        Session(graph, threads=1, tune=True, tolerance=1e-4) as session,
    ):
        assert len(asked) > 1
        assert asked == sorted(asked, reverse=True)
        assert off_by(graph, session, strict, 0) <= 1e-4


def test_errors_are_measured_on_the_executors_thread(
    sloppy: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second thread that ran kernels would keep a team, and all teams would be slow together."""
    threads, real = list[int](), Plan.replay

    def seen(plan: Plan, *args: Any) -> None:
        threads.append(threading.get_ident())
        real(plan, *args)

    monkeypatch.setattr(Plan, "replay", seen)
    with Session(random_graph(3), threads=1, tune=True, tolerance=1e-4):
        assert len(threads) > 3
        assert len({*threads}) == 1
        assert threading.get_ident() not in threads


def test_what_keeps_breaking_it_stays_strict(
    sloppy: Bench, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(erring.Meter, "whole", lambda *_: 1.01e-4)
    with Session(random_graph(3), threads=1, tune=True, tolerance=1e-4) as session:
        assert not inexact(session)
    assert any("no plan kept to the tolerance" in one for one in caplog.messages)


@pytest.mark.parametrize("finite", [False, True])
def test_where_numbers_are_not_finite_the_strict_plan_answers(sloppy: Bench, finite: bool) -> None:
    """The inexact kernel spreads one infinity over all that it makes."""
    graph = random_graph(2)
    with (
        Session(graph, threads=1, optimize="none") as strict,
        Session(graph, threads=1, tune=True, tolerance=1e-4, finite=finite) as session,
    ):
        assert inexact(session)
        given = feeds(graph, 0)
        session.run(None, given)
        for times in range(3):  # the short way, too
            next(iter(given.values())).flat[5] = np.inf if times else 0
            answers = [one.run(None, given) for one in (strict, session)]
            alike = all(np.array_equal(a, b) for a, b in zip(*answers, strict=True))
            assert alike == (bool(times) and not finite)
            assert bool(inexact(session)) != alike
        tensors = [one.numpy() for one in session.run_tensors(None, given)]
        out = {
            name: np.empty_like(one) for name, one in zip(graph.outputs, answers[0], strict=True)
        }
        session.run(None, given, out=out)
        bound = session.bind(given)
        bound.run()
        for found in (tensors, [*out.values()], [*bound.outputs.values()]):
            assert all(map(np.array_equal, answers[0], found)) != finite


def test_it_counts_in_front_of_what_stretches_it(sloppy: Bench) -> None:
    """Also where that would be fused: no value at which errors count passes inside of a node."""
    g = Graph("closing")
    x = g.input("x", {"N": 1, "C": 8})
    y = g.add(sloppy.op("Mix", ("NC", "NC")), x, name="mix")
    z = g.add(Sigmoid(), y, name="sigmoid")
    g.output(z, "y")
    assert observed(g.seal()) == ("mix",)
    h = Graph("jumping")
    x = h.input("x", {"N": 4, "C": 8})
    y = h.add(sloppy.op("Mix", ("NC", "NC")), x, name="mix")
    s = h.add(Softmax(("C",)), y, name="softmax")
    h.output(h.add(ArgMax("C"), s, name="best"), "best")
    h.output(h.add(Floor(), y, name="floor"), "floor")
    h.output(x, "x")
    assert observed(h.seal()) == ("mix",)
    with Session(g, threads=1, tune=True, tolerance=1e-3) as session:
        assert inexact(session) == ["mix"]


def test_what_is_given_to_calibrate_is_measured_on(sloppy: Bench) -> None:
    graph = random_graph(2)
    given = {name: 100 * array for name, array in feeds(graph, 0).items()}
    errors = []
    for calibrate in ({}, given):
        with Session(graph, threads=1, tune=True, tolerance=1e-4, calibrate=calibrate) as session:
            errors.append([share.trials for share in proof_of(session).shares])
    largest = [max(most for trials in one for _, most in trials) for one in errors]
    assert largest[1] > 10 * largest[0]


@pytest.mark.parametrize("tolerance", [-1e-9, float("nan"), float("inf"), "1e-5", None, True])
def test_a_tolerance_is_a_number_from_0_on(tolerance: Any) -> None:
    with pytest.raises(InputError, match=r"tolerance=.* must be a number of at least 0"):
        Session(Graph.parse("graph g\ninput x : f32 N=1\noutput x"), tolerance=tolerance)


@pytest.mark.parametrize(
    ("calibrate", "message"),
    [
        ({"z": np.zeros(2, np.float32)}, "no input 'z'"),
        ({"x": np.zeros((2, 2), np.float32)}, "calibrate: input 'x': rank 2"),
        ({"x": np.zeros(3, np.float32)}, r"calibrate: input 'x': shape \(3,\)"),
        ({"x": np.zeros(2, np.float64)}, "calibrate: input 'x': element type f64"),
        ([1.0], "calibrate is given as"),
    ],
)
def test_arrays_to_calibrate_with_fit_the_inputs(calibrate: Any, message: str) -> None:
    g = Graph("small")
    g.output(g.add(Sigmoid(), g.input("x", {"N": 2})))
    with pytest.raises(InputError, match=message):
        Session(g, calibrate=calibrate)
