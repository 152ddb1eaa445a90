"""``Session(tolerance=...)``: results are within it, and where nobody allows it they are strict."""

from __future__ import annotations

import re
import threading
from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ops import ArgMax, Conv2D, Floor, Mean, Relu, Sigmoid, Softmax
from optimizer.constants.observed import observed
from optimizer.pipeline import optimise
from ptensor.background_work import stopping
from resolver.errors import ErrorProof
from resolver.lowered import OpNode
from tests.libraries.bench import Bench
from tests.libraries.sloppy import Hasty, declare_sloppy
from tests.optimizer.clocks import Drawn
from tests.optimizer.graphs import random_graph
from tests.runtime.waiting import settled
from vtensor import Session
from vtensor.errors import InputError
from vtensor.language.graph import Graph
from vtensor.language.tensor import VTensor
from vtensor.runtime.execution.executor import Executor
from vtensor.runtime.execution.plan import Plan, RunSteps
from vtensor.runtime.planning import tuned
from vtensor.runtime.planning.frontier import TOLERANCES
from vtensor.runtime.tuning import error_amplification as gains
from vtensor.runtime.tuning import measure
from vtensor.runtime.tuning import tolerant_choice as tolerant
from vtensor.runtime.tuning import tuner as tuning
from vtensor.runtime.tuning import variant_errors as erring
from vtensor.runtime.tuning.measure import GLANCE, MIN_RUNS, node_ns

#: What measures where no test says otherwise.
TUNER = tuning.Tuner

Array = np.ndarray[Any, Any]


@pytest.fixture
def sloppy(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> Bench:
    """Toy operators and an inexact library of them, in drawn times; a faster plan is taken."""
    declare_sloppy()
    monkeypatch.setattr(tuning, "Tuner", lambda *_: Hasty(1))
    monkeypatch.setattr(tuned, "fastest", lambda plans, _: (plans[0], [0, 0]))
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
def test_random_graphs_keep_to_it(
    sloppy: Bench, tolerance: float, request: pytest.FixtureRequest
) -> None:
    chosen, broken, seeds = 0, list[str](), request.config.getoption("--seeds")
    for seed in range(seeds):
        graph = random_graph(seed)
        with (
            Session(graph, threads=1, optimize="none") as strict,
            Session(graph, threads=1, tune=True, tolerance=tolerance) as session,
        ):
            chosen += len(inexact(session))
            if not (error := off_by(graph, session, strict, seed)) <= tolerance:
                broken.append(f"{seed}: {error:.2g}")
    assert not broken
    assert chosen > seeds


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
        if args[2].allowed is not None:
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


def check_near(session: Session) -> None:
    """What is expected is about what is measured."""
    proof = proof_of(session)
    assert proof.measured is not None
    assert proof.measured / 3 <= proof.expected <= 3 * proof.measured


def test_few_large_errors_are_not_taken_for_many(
    sloppy: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thousandth of the elements are off: in a mean of them that is little."""

    def spoilt(exact: Array, off: float) -> Array:
        draw = np.random.default_rng(5)
        spikes = draw.choice([-1, 1], exact.shape) * (draw.random(exact.shape) < 1e-3)
        return np.asarray(exact + off * np.abs(exact).max() * spikes, exact.dtype)

    monkeypatch.setattr("tests.libraries.sloppy.spoilt", spoilt)
    g = Graph("averaged")
    x = g.input("x", {"N": 64, "C": 1024})
    y = g.add(sloppy.op("Mix", ("NC", "NC")), x, name="mix")
    g.output(g.add(Mean(("C",), keepdims=False), y), "y")
    with Session(g, threads=1, tune=True, tolerance=1e-2) as session:
        assert inexact(session) == ["mix"]
        check_near(session)


class Keen(Drawn):
    """Inexact kernels take less than all others."""

    def node(self, node: OpNode, values: Mapping[str, VTensor]) -> int | None:
        """Of a node as it is decided."""
        return 1 if node.variant.inexact else 1000


def test_convolutions_in_a_row_err_as_is_expected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuning, "Tuner", lambda *_: Keen(1))
    monkeypatch.setattr(tuned, "fastest", lambda plans, _: (plans[0], [0, 0]))
    random, g = np.random.default_rng(0), Graph("row")
    x = g.input("x", {"N": 1, "C": 32, "H": 24, "W": 24})
    for _ in range(4):
        weights = (random.normal(size=(32, 32, 3, 3)) / 12).astype(np.float32)
        x = g.add(Relu(), g.add(Conv2D(pads=(1, 1, 1, 1)), x, g.constant(weights, "O I h w")))
    g.output(x, "y")
    with Session(g, threads=1, tune=True, tolerance=1e-4) as session:
        assert len(inexact(session)) == 4
        check_near(session)


def test_errors_are_measured_on_the_executors_thread(
    sloppy: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second thread that ran kernels would keep a team, and all teams would be slow together."""
    threads, real = list[int](), Plan.replay

    def seen(plan: Plan, *args: Any) -> bool:
        threads.append(threading.get_ident())
        return real(plan, *args)

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


def test_a_strict_plan_that_is_kept_does_not_stay(
    sloppy: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was once as fast as others, on a machine that had much to do, say: look again."""
    options: dict[str, Any] = {"threads": 1, "tune": True, "tolerance": 1e-3, "cache_dir": tmp_path}
    with monkeypatch.context() as slow:
        slow.setattr(tuned, "fastest", lambda plans, _: (plans[-1], [0] * len(plans)))
        with Session(random_graph(3), **options) as session:
            assert not inexact(session)
    with Session(random_graph(3), **options) as session:
        assert inexact(session)


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


def test_a_frontier_has_a_point_for_each_plan(
    sloppy: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tolerances for which the same is chosen are one plan, that of 0 is always there. Errors of
    nodes are measured once.
    """
    graph, said, asked, real = random_graph(3), list[str](), list[set[str]](), gains.probed

    def probed(plan: Any, bindings: Any, nodes: set[str]) -> Any:
        asked.append(nodes)
        return real(plan, bindings, nodes)

    monkeypatch.setattr(erring, "probed", probed)
    tolerances = (1e-3, 1e-5, 1e-12, 1e-3, 1.0001e-5)
    with Session(graph, threads=1, tune=True, tolerance=0) as session:
        found = session.frontier(tolerances, feeds(graph, 0), runs=3, progress=said.append)
        assert session.plan is found.points[0].plan
        session.run(None, feeds(graph, 0))
    named = [one.tolerances for one in found.points]
    assert named == [(0.0, 1e-12), (1e-5, 1.0001e-5), (1e-3,)]
    assert not found.note
    strict, *others = found.points
    assert (strict.error, strict.expected, strict.forms) == (0.0, 0.0, {})
    for one in others:
        proof = one.plan.certificate.errors if one.plan.certificate else None
        assert proof is not None
        assert proof.tolerance == one.tolerances[0]
        assert 0 < one.error <= one.tolerances[0]
        assert 0 < one.expected <= one.tolerances[0]
        assert sum(one.forms.values()) == len(proof.shares)
        assert all(form.startswith("other") for form in one.forms)
    assert [len(one.runs) for one in found.points] == [3, 3, 3]
    assert said[0] == "strict"
    assert said[-1] == "turn 3 of 3"
    assert found.points[0] in found.best
    assert len(asked) == 1


def test_a_frontier_measures_errors_itself(sloppy: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a plan is said to be within its tolerance and is not."""
    real = gains.probed

    def lying(plan: Any, bindings: Any, nodes: Any) -> dict[str, Any]:
        found = real(plan, bindings, nodes)
        return {name: tuple((sent, got / 1000) for sent, got in p) for name, p in found.items()}

    monkeypatch.setattr(erring, "probed", lying)
    monkeypatch.setattr(erring.Meter, "whole", lambda *_: 0.0)
    with Session(random_graph(3), threads=1, tune=True, tolerance=1e-5) as session:
        assert inexact(session)  # its own plan is not the strict one
        strict, point = session.frontier([1e-5], runs=1).points
    assert point.expected <= 1e-5 < point.error
    assert not strict.forms


def test_a_frontier_of_the_strict_plan_alone_says_why(
    sloppy: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    g = Graph("small")
    g.output(g.add(Sigmoid(), g.input("x", {"N": 2})))
    with Session(g, threads=1, tune=True) as session:
        found = session.frontier(runs=1)
        assert [one.tolerances for one in found.points] == [TOLERANCES]
        assert found.note.startswith("no library has an approximate form of any of its nodes")
        assert session.frontier([0], runs=1).note == "tolerance 0 is that of the strict plan alone"
    monkeypatch.setattr(tuned, "fastest", lambda plans, _: (plans[-1], [1, 1]))
    with Session(random_graph(3), threads=1, tune=True) as session:
        found = session.frontier([1e-3], runs=1)
        assert [one.tolerances for one in found.points] == [(0.0, 1e-3)]
        assert re.match(r"\d+ nodes? may run in approximate forms, and no plan", found.note)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"tolerances": []}, "there must be at least one"),
        ({"tolerances": [1e-5, -1.0]}, r"tolerance=-1\.0 .* must be a number of at least 0"),
        ({"tolerances": [float("nan")]}, "tolerance=nan"),
        ({"tolerances": ["1e-5"]}, "tolerance='1e-5'"),
        ({"runs": 0}, "runs=0 must be"),
        ({"inputs": {"z": np.zeros(2, np.float32)}}, "inputs unknown: z"),
        ({}, r"to fix: Session\(\.\.\., tune=True\)"),
    ],
)
def test_a_frontier_of_nothing_is_an_error(given: Any, message: str) -> None:
    g = Graph("small")
    g.output(g.add(Sigmoid(), g.input("x", {"N": 2})))
    with Session(g, threads=1) as session, pytest.raises(InputError, match=message):
        session.frontier(**given)


def note(session: Session) -> str:
    """Where its better plan stands."""
    better = session.plan.better
    assert better is not None
    return better.note


def test_in_the_background_a_faster_plan_takes_the_place_of_a_strict_one(sloppy: Bench) -> None:
    graph = random_graph(2)
    with (
        Session(graph, threads=1, optimize="none") as strict,
        Session(graph, threads=1, tune="background", tolerance=1e-4) as session,
    ):
        first = session.plan
        assert not inexact(session)
        assert note(session).startswith("it was made without measured times")
        assert off_by(graph, session, strict, 0) <= 1e-6
        settled()
        assert off_by(graph, session, strict, 1) <= 1e-4
        assert inexact(session)
        assert session.plan is not first
        assert session.plan.better is None
        assert session.lock().options.tolerance == 1e-4
        given = feeds(graph, 0)
        next(iter(given.values())).flat[5] = np.inf
        answers = [one.run(None, given) for one in (strict, session)]
        assert all(map(np.array_equal, *answers))


def test_what_deterministic_sessions_measure_is_measured_first(sloppy: Bench) -> None:
    graph = random_graph(2)
    options = {"threads": 1, "tune": "background", "tolerance": 1e-4}
    with Session(graph, deterministic=True, **options) as session:  # type: ignore[arg-type]
        assert inexact(session)
        assert session.plan.better is None


def test_a_broken_tolerance_leaves_a_strict_plan_in_the_background(
    sloppy: Bench, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(erring.Meter, "whole", lambda *_: 1.01e-4)
    graph = random_graph(2)
    with (
        Session(graph, threads=1, optimize="none") as strict,
        Session(graph, threads=1, tune="background", tolerance=1e-4) as session,
    ):
        for seed in range(3):
            assert off_by(graph, session, strict, seed) <= 1e-6
            settled()
            assert not inexact(session)
    assert sum("no plan kept to the tolerance" in one for one in caplog.messages) == 1


def test_what_goes_wrong_in_the_background_is_said_once(
    sloppy: Bench, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(*_: object) -> None:
        raise MemoryError("no room")

    monkeypatch.setattr(tolerant, "tolerant", fails)
    graph = random_graph(2)
    with Session(graph, threads=1, tune="background", tolerance=1e-4) as session:
        first = session.plan
        for _ in range(3):
            session.run(None, feeds(graph, 0))
            settled()
        assert session.plan is first
        assert note(session).endswith("it stays: MemoryError: no room")
    [said] = [one for one in caplog.messages if "no room" in one]
    assert said.startswith(f"{graph.name}: times cannot be measured in the background")


def test_measuring_ends_with_the_session(
    sloppy: Bench, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Also where it is under way: the next question to a clock is not answered any more."""
    asked, closed = threading.Event(), threading.Event()
    measured = list[str]()

    def node_ns(node: OpNode, *_: object) -> int:
        measured.append(node.name)
        asked.set()
        assert closed.wait(60)
        return 100

    monkeypatch.setenv("VTENSOR_CACHE_DIR", str(tmp_path))  # where nothing is known yet
    monkeypatch.setattr(tuning, "Tuner", TUNER)
    monkeypatch.setattr(tuning, "node_ns", node_ns)
    graph = random_graph(2)
    session = Session(graph, threads=1, tune="background", tolerance=1e-4)
    session.run(None, feeds(graph, 0))
    better = session.plan.better
    assert better is not None
    assert asked.wait(60)
    session.run(None, feeds(graph, 1))  # which waits for nothing that is measured
    session.close()
    closed.set()
    settled()
    assert len(measured) == 1
    assert better.note.endswith("the session was closed before there was a better one")


def test_only_one_word_tunes_later() -> None:
    g = Graph("small")
    g.output(g.add(Sigmoid(), g.input("x", {"N": 2})))
    with pytest.raises(InputError, match="tune='later' must be True, False or 'background'"):
        Session(g, tune="later")
    with pytest.raises(InputError, match="needs the pass 'joint'"):
        Session(g, tune="background", optimize="none")


def test_what_nobody_waits_for_queues_in_small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between two of its runs another one may begin."""
    queued, where, counts = list[object](), list[int](), list[int]()
    real: Any = Executor.run

    def counted(executor: Executor, function: Any) -> Any:
        queued.append(function)
        return real(executor, function)

    def visitor(run: RunSteps, memory: Array) -> None:
        where.append(threading.get_ident())
        run(0, None)

    g = Graph("small")
    g.output(g.add(Sigmoid(), g.input("x", {"N": 2})))
    with Session(g, threads=1) as session:
        plan, graph = session.plan, session.plan.graph
        monkeypatch.setattr(Executor, "run", counted)
        for context in (nullcontext(), stopping(lambda: False)):
            queued.clear()
            with context:
                node_ns(graph.operators[0], graph.tensors, Executor.of(1), GLANCE)
                plan.visit(measure._memory(plan), visitor)
            counts.append(len(queued))
    assert counts[1] - counts[0] >= MIN_RUNS
    assert where[0] != where[1] == threading.get_ident()
