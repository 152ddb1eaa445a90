"""``Session(tolerance=...)``: results are within it; without it they are strict."""

from __future__ import annotations

import re
import threading
from collections.abc import Mapping, Sequence
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
from tests.frontends.support import model
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
from vtensor.runtime.planning.frontier import TOLERANCES, check_ports
from vtensor.runtime.tuning import error_amplification as gains
from vtensor.runtime.tuning import measure
from vtensor.runtime.tuning import tolerant_choice as tolerant
from vtensor.runtime.tuning import tuner as tuning
from vtensor.runtime.tuning import variant_errors as erring
from vtensor.runtime.tuning.measure import GLANCE, MIN_RUNS, node_ns
from vtensor.storage.inputs import Port

#: The product's own tuner, for the test that needs it.
TUNER = tuning.Tuner

Array = np.ndarray[Any, Any]
Patch = pytest.MonkeyPatch
Caplog = pytest.LogCaptureFixture

pytestmark = pytest.mark.usefixtures("sloppy")


def take_fastest(monkeypatch: Patch, clock: object, index: int = 0) -> None:
    """Measure by a clock, and take one of the plans that are compared."""
    monkeypatch.setattr(tuning, "Tuner", lambda *_: clock)
    monkeypatch.setattr(tuned, "fastest", lambda plans, _: (plans[index], [1] * len(plans)))


@pytest.fixture
def sloppy(bench: Bench, monkeypatch: Patch) -> Bench:
    """Toy operators and an approximate library of them, in drawn times; faster plans are taken."""
    declare_sloppy()
    take_fastest(monkeypatch, Hasty(1))
    return bench


@pytest.fixture
def understated(monkeypatch: Patch) -> None:
    """Error amplifications that are measured as a thousandth of what they are."""
    real = gains.probed

    def probed(plan: Any, bindings: Any, nodes: Any) -> dict[str, Any]:
        pairs = real(plan, bindings, nodes)
        return {name: tuple((sent, got / 1000) for sent, got in p) for name, p in pairs.items()}

    monkeypatch.setattr(erring, "probed", probed)


def small() -> Graph:
    """Return a graph that no library approximates."""
    graph = Graph("small")
    graph.output(graph.add(Sigmoid(), graph.input("x", {"N": 2})))
    return graph


def strict_session(graph: Graph) -> Session:
    return Session(graph, threads=1, optimize="none")


def tuned_session(graph: Graph, tolerance: float = 1e-4, **options: Any) -> Session:
    return Session(graph, threads=1, tolerance=tolerance, **{"tune": True, **options})


def feeds(graph: Graph, seed: int) -> dict[str, Array]:
    """Return seeded inputs."""
    draw = np.random.default_rng((99, seed))
    return {
        name: draw.standard_normal([*graph.values[name].dims.values()]).astype(np.float32)
        for name in graph.inputs
    }


def inexact(session: Session) -> list[str]:
    """Return the approximate nodes of its plan."""
    return [node.name for node in session.plan.graph.operators if node.variant.inexact]


def proof_of(session: Session) -> ErrorProof:
    """Return the errors for which its plan was chosen."""
    certificate = session.plan.certificate
    assert certificate is not None
    assert certificate.errors is not None
    return certificate.errors


def largest_error(graph: Graph, session: Session, strict: Session, seed: int) -> float:
    """Return the largest error of an output on inputs on which nothing was measured."""
    x = feeds(graph, seed)
    pairs = zip(strict.run(None, x), session.run(None, x), strict=True)
    return max(float(np.abs(one - other).max() / np.abs(one).max()) for one, other in pairs)


def equal(answers: Sequence[Array], others: Sequence[Array]) -> bool:
    return all(map(np.array_equal, answers, others))


@pytest.mark.parametrize("tolerance", [1e-5, 1e-3])
def test_random_graphs_keep_to_the_tolerance(
    tolerance: float, request: pytest.FixtureRequest
) -> None:
    chosen, broken, seeds = 0, list[str](), request.config.getoption("--seeds")
    for seed in range(seeds):
        graph = random_graph(seed)
        with strict_session(graph) as strict, tuned_session(graph, tolerance) as session:
            chosen += len(inexact(session))
            if not (error := largest_error(graph, session, strict, seed)) <= tolerance:
                broken.append(f"{seed}: {error:.2g}")
    assert not broken
    assert chosen > seeds


@pytest.mark.parametrize(("tolerance", "tune"), [(0, False), (0.0, True), (1.0, False)])
def test_a_plan_is_strict_without_a_tolerance_or_tuning(tolerance: float, tune: bool) -> None:
    for seed in range(4):
        with tuned_session(random_graph(seed), tolerance, tune=tune) as session:
            assert not inexact(session)


@pytest.mark.usefixtures("understated")
def test_a_plan_that_breaks_its_budget_is_solved_again(monkeypatch: Patch) -> None:
    """Whole plans show what understated errors are."""
    graph, budgets = random_graph(3), list[float]()

    def solved(*args: Any) -> Any:
        if args[2].allowed is not None:
            budgets.append(args[2].allowed.budget)
        return optimise(*args)

    monkeypatch.setattr(tolerant, "optimise", solved)
    with strict_session(graph) as strict, tuned_session(graph) as session:
        assert len(budgets) > 1
        assert budgets == sorted(budgets, reverse=True)
        assert largest_error(graph, session, strict, 0) <= 1e-4


@pytest.mark.parametrize("factor", [1, 4])
def test_errors_that_cancel_leave_room_for_others(factor: int, monkeypatch: Patch) -> None:
    """Whole plans show what overstated errors are: as much is approximate as with true ones."""
    real, graph, tolerance = gains.probed, random_graph(3), 2e-4

    def probed(plan: Any, bindings: Any, nodes: Any) -> dict[str, Any]:
        pairs = real(plan, bindings, nodes)
        return {name: tuple((sent, factor * got) for sent, got in p) for name, p in pairs.items()}

    def kernels() -> list[str]:
        with tuned_session(graph, tolerance) as session, strict_session(graph) as strict:
            assert largest_error(graph, session, strict, 0) <= tolerance
            scales.append(proof_of(session).scale if inexact(session) else 1.0)
            return sorted(node.variant.kernel for node in session.plan.graph.operators)

    scales = list[float]()
    honest = kernels()
    monkeypatch.setattr(erring, "probed", probed)
    with monkeypatch.context() as unscaled:
        unscaled.setattr(tolerant, "LESS", 0.0)  # errors are never scaled
        timid = kernels()
    bold = kernels()
    assert (timid < honest) == (bold > timid) == (scales[-1] < 1) == (factor > 1)


def check_near(session: Session) -> None:
    """Check that the expected error is about the measured one."""
    proof = proof_of(session)
    assert proof.measured is not None
    assert proof.measured / 3 <= proof.expected <= 3 * proof.measured


def test_few_large_errors_are_not_taken_for_many(sloppy: Bench, monkeypatch: Patch) -> None:
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
    with tuned_session(g, 1e-2) as session:
        assert inexact(session) == ["mix"]
        check_near(session)


class Keen(Drawn):
    """Times by which approximate kernels are faster than all others."""

    def node(self, node: OpNode, values: Mapping[str, VTensor]) -> int | None:
        """Return the time of a node."""
        return 1 if node.variant.inexact else 1000


def test_convolutions_in_a_row_err_as_is_expected(monkeypatch: Patch) -> None:
    take_fastest(monkeypatch, Keen(1))
    random, g = np.random.default_rng(0), Graph("row")
    x = g.input("x", {"N": 1, "C": 32, "H": 24, "W": 24})
    for _ in range(4):
        weights = (random.normal(size=(32, 32, 3, 3)) / 12).astype(np.float32)
        x = g.add(Relu(), g.add(Conv2D(pads=(1, 1, 1, 1)), x, g.constant(weights, "O I h w")))
    g.output(x, "y")
    with tuned_session(g) as session:
        assert len(inexact(session)) == 4
        check_near(session)


def test_errors_are_measured_on_the_executors_thread(monkeypatch: Patch) -> None:
    """A second thread that ran kernels would keep a team, and all teams would be slow together."""
    threads, real = list[int](), Plan.replay

    def replay(plan: Plan, *args: Any) -> bool:
        threads.append(threading.get_ident())
        return real(plan, *args)

    monkeypatch.setattr(Plan, "replay", replay)
    with tuned_session(random_graph(3)):
        assert len(threads) > 3
        assert len({*threads}) == 1
        assert threading.get_ident() not in threads


@pytest.mark.parametrize(("tune", "seed"), [(True, 3), ("background", 2)])
def test_a_graph_whose_plans_all_break_the_tolerance_stays_strict(
    monkeypatch: Patch, caplog: Caplog, tune: bool | str, seed: int
) -> None:
    monkeypatch.setattr(erring.Meter, "whole", lambda *_: 1.01e-4)
    graph = random_graph(seed)
    with strict_session(graph) as strict, tuned_session(graph, tune=tune) as session:
        for seed in range(3):
            assert largest_error(graph, session, strict, seed) <= 1e-6
            settled()
            assert not inexact(session)
    assert sum("no plan kept to the tolerance" in line for line in caplog.messages) == 1


@pytest.mark.parametrize("finite", [False, True])
def test_a_strict_plan_answers_where_numbers_are_not_finite(finite: bool) -> None:
    """The approximate kernel spreads one infinity over all that it makes."""
    graph = random_graph(2)
    with strict_session(graph) as strict, tuned_session(graph, finite=finite) as session:
        assert inexact(session)
        x = feeds(graph, 0)
        session.run(None, x)
        for times in range(3):  # the short way, too
            next(iter(x.values())).flat[5] = np.inf if times else 0
            expected = strict.run(None, x)
            alike = equal(expected, session.run(None, x))
            assert alike == (bool(times) and not finite)
            assert bool(inexact(session)) != alike
        tensors = [tensor.numpy() for tensor in session.run_tensors(None, x)]
        out = {name: np.empty_like(y) for name, y in zip(graph.outputs, expected, strict=True)}
        session.run(None, x, out=out)
        binding = session.bind(x)
        binding.run()
        for answers in (tensors, [*out.values()], [*binding.outputs.values()]):
            assert equal(expected, answers) != finite


def test_a_strict_plan_in_the_cache_is_compared_again(tmp_path: Path, monkeypatch: Patch) -> None:
    """It may have been as fast as others on a busy machine alone."""
    with monkeypatch.context() as slow:
        take_fastest(slow, Hasty(1), -1)
        with tuned_session(random_graph(3), 1e-3, cache_dir=tmp_path) as session:
            assert not inexact(session)
    with tuned_session(random_graph(3), 1e-3, cache_dir=tmp_path) as session:
        assert inexact(session)


def test_errors_count_before_a_node_that_changes_them(sloppy: Bench) -> None:
    """Also if that would be fused: no value at which errors count is inside of a node."""
    g = Graph("closing")
    y = g.add(sloppy.op("Mix", ("NC", "NC")), g.input("x", {"N": 1, "C": 8}), name="mix")
    g.output(g.add(Sigmoid(), y, name="sigmoid"), "y")
    assert observed(g.seal()) == ("mix",)
    h = Graph("jumping")
    x = h.input("x", {"N": 4, "C": 8})
    y = h.add(sloppy.op("Mix", ("NC", "NC")), x, name="mix")
    s = h.add(Softmax(("C",)), y, name="softmax")
    h.output(h.add(ArgMax("C"), s, name="best"), "best")
    h.output(h.add(Floor(), y, name="floor"), "floor")
    h.output(x, "x")
    assert observed(h.seal()) == ("mix",)
    with tuned_session(g, 1e-3) as session:
        assert inexact(session) == ["mix"]


def test_errors_are_measured_on_the_arrays_to_calibrate_with() -> None:
    graph, largest = random_graph(2), []
    for calibrate in ({}, {name: 100 * array for name, array in feeds(graph, 0).items()}):
        with tuned_session(graph, calibrate=calibrate) as session:
            trials = [trial for share in proof_of(session).shares for trial in share.trials]
            largest.append(max(most for _, most in trials))
    assert largest[1] > 10 * largest[0]


@pytest.mark.parametrize("tolerance", [-1e-9, float("nan"), float("inf"), "1e-5", None, True])
def test_a_tolerance_is_a_number_from_0_on(tolerance: Any) -> None:
    with pytest.raises(InputError, match=r"tolerance=.* must be a number of at least 0"):
        Session(small(), tolerance=tolerance)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"calibrate": {"z": np.zeros(2, np.float32)}}, "no input 'z'"),
        ({"calibrate": {"x": np.zeros((2, 2), np.float32)}}, "calibrate: input 'x': rank 2"),
        ({"calibrate": {"x": np.zeros(3, np.float32)}}, r"calibrate: input 'x': shape \(3,\)"),
        ({"calibrate": {"x": np.zeros(2, np.float64)}}, "calibrate: input 'x': element type f64"),
        ({"calibrate": [1.0]}, "calibrate is given as"),
        ({"tune": "later"}, "tune='later' must be True, False or 'background'"),
        ({"tune": "background", "optimize": "none"}, "needs the pass 'joint'"),
    ],
)
def test_options_that_do_not_fit_are_refused(options: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        Session(small(), **options)


def test_a_frontier_has_a_point_for_each_plan(monkeypatch: Patch) -> None:
    """Tolerances with one choice are one plan; 0 is always there. Errors are measured once."""
    graph, said, asked, real = random_graph(3), list[str](), list[set[str]](), gains.probed

    def probed(plan: Any, bindings: Any, nodes: set[str]) -> Any:
        asked.append(nodes)
        return real(plan, bindings, nodes)

    monkeypatch.setattr(erring, "probed", probed)
    tolerances = (1e-3, 1e-5, 1e-12, 1e-3, 1.0001e-5)
    with tuned_session(graph, 0) as session:
        frontier = session.frontier(tolerances, feeds(graph, 0), runs=3, progress=said.append)
        assert session.plan is frontier.points[0].plan
        session.run(None, feeds(graph, 0))
    named = [point.tolerances for point in frontier.points]
    assert named == [(0.0, 1e-12), (1e-5, 1.0001e-5), (1e-3,)]
    assert not frontier.note
    strict, *others = frontier.points
    assert (strict.error, strict.expected, strict.forms) == (0.0, 0.0, {})
    for point in others:
        proof = point.plan.certificate.errors if point.plan.certificate else None
        assert proof is not None
        assert proof.tolerance == point.tolerances[0]
        assert 0 < point.error <= point.tolerances[0]
        assert 0 < point.expected <= point.tolerances[0]
        assert sum(point.forms.values()) == len(proof.shares)
        assert all(form.startswith("other") for form in point.forms)
    assert [len(point.runs) for point in frontier.points] == [3, 3, 3]
    assert said[0] == "strict"
    assert said[-1] == "turn 3 of 3"
    assert strict in frontier.best
    assert len(asked) == 1


@pytest.mark.usefixtures("understated")
def test_a_frontier_measures_errors_itself(monkeypatch: Patch) -> None:
    """Also of a plan that is said to be within its tolerance and is not."""
    monkeypatch.setattr(erring.Meter, "whole", lambda *_: 0.0)
    with tuned_session(random_graph(3), 1e-5) as session:
        assert inexact(session)  # its own plan is not the strict one
        strict, point = session.frontier([1e-5], runs=1).points
    assert point.expected <= 1e-5 < point.error
    assert not strict.forms


def test_a_frontier_of_the_strict_plan_alone_says_why(monkeypatch: Patch) -> None:
    with Session(small(), threads=1, tune=True) as session:
        frontier = session.frontier(runs=1)
        assert [point.tolerances for point in frontier.points] == [TOLERANCES]
        assert frontier.note.startswith("no library has an approximate form of any of its nodes")
        assert session.frontier([0], runs=1).note == "tolerance 0 is that of the strict plan alone"
    take_fastest(monkeypatch, Hasty(1), -1)
    with Session(random_graph(3), threads=1, tune=True) as session:
        frontier = session.frontier([1e-3], runs=1)
        assert [point.name for point in frontier.points] == ["0, 1e-3", "other alone"]
        assert re.match(r"\d+ nodes? may run in approximate forms, and no plan", frontier.note)


@pytest.mark.parametrize(
    ("options", "message"),
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
def test_a_frontier_of_nothing_is_refused(options: Any, message: str) -> None:
    with Session(small(), threads=1) as session, pytest.raises(InputError, match=message):
        session.frontier(**options)


def note(session: Session) -> str:
    """Return where its better plan stands."""
    better = session.plan.better
    assert better is not None
    return better.note


def test_a_faster_plan_of_the_background_replaces_a_strict_one() -> None:
    graph = random_graph(2)
    with strict_session(graph) as strict, tuned_session(graph, tune="background") as session:
        first = session.plan
        assert not inexact(session)
        assert note(session).startswith("it was made without measured times")
        assert largest_error(graph, session, strict, 0) <= 1e-6
        settled()
        assert largest_error(graph, session, strict, 1) <= 1e-4
        assert inexact(session)
        assert session.plan is not first
        assert session.plan.better is None
        assert session.lock().options.tolerance == 1e-4
        x = feeds(graph, 0)
        next(iter(x.values())).flat[5] = np.inf
        assert equal(strict.run(None, x), session.run(None, x))


def test_a_deterministic_session_measures_first() -> None:
    with tuned_session(random_graph(2), tune="background", deterministic=True) as session:
        assert inexact(session)
        assert session.plan.better is None


def test_a_failure_in_the_background_is_said_once(monkeypatch: Patch, caplog: Caplog) -> None:
    def fails(*_: object) -> None:
        raise MemoryError("no room")

    monkeypatch.setattr(tolerant, "tolerant", fails)
    graph = random_graph(2)
    with tuned_session(graph, tune="background") as session:
        first = session.plan
        for _ in range(3):
            session.run(None, feeds(graph, 0))
            settled()
        assert session.plan is first
        assert note(session).endswith("it stays: MemoryError: no room")
    [said] = [line for line in caplog.messages if "no room" in line]
    assert said.startswith(f"{graph.name}: times cannot be measured in the background")


def test_measuring_ends_with_the_session(monkeypatch: Patch, tmp_path: Path) -> None:
    """Also while it is under way: the next time is not measured any more."""
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
    session = tuned_session(graph, tune="background")
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


def test_background_measurements_queue_in_small_parts(monkeypatch: Patch) -> None:
    """Between two of its runs another one may begin."""
    queued, where, counts = list[object](), list[int](), list[int]()
    real: Any = Executor.run

    def counted(executor: Executor, function: Any) -> Any:
        queued.append(function)
        return real(executor, function)

    def visitor(run: RunSteps, memory: Array) -> None:
        where.append(threading.get_ident())
        run(0, None)

    with Session(small(), threads=1) as session:
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


def test_a_frontier_has_points_of_other_models() -> None:
    """Their errors are those of their outputs, against the strict plan of the first model."""
    first, second = random_graph(3), random_graph(3)
    for name, array in first.constants.items():
        second.constants[name] = array * array.dtype.type(1.001)
    with tuned_session(first, 0) as session, tuned_session(second, 0) as other:
        frontier = session.frontier([0], feeds(first, 0), runs=1, also={"scaled": other})
        expected, actual = (s.run(None, feeds(first, 0)) for s in (session, other))
    point = frontier.points[-1]
    pairs = zip(expected, actual, strict=True)
    errors = [float(np.abs(one - two).max() / np.abs(one).max()) for one, two in pairs]
    assert (point.name, point.label, point.forms) == ("scaled", "scaled: f32", {})
    assert point.error == pytest.approx(max(errors), rel=1e-3)
    assert point.error > 0
    assert frontier.to_dict()["points"][-1]["model"] == "scaled"
    assert frontier.lock(point).text() != frontier.lock(frontier.points[0]).text()


def sized(name: str, *sizes: int | None, dtype: str = "f32") -> Port:
    dims = tuple("NCHW"[: len(sizes)])
    return Port(name, dtype, sizes, dims)


@pytest.mark.parametrize(
    ("others", "message"),
    [
        ([sized("x", 1, 3, dtype="f16")], r"model 'int8' has x : f16 N=1 C=3, .* has x : f32"),
        ([sized("x", 1, 4)], r"has x : f32 N=1 C=4"),
        ([sized("x", 1)], r"has x : f32 N=1,"),
        ([sized("z", 1, 3)], r"model 'int8' has no input 'x'"),
        ([sized("x", 1, 3), sized("z", 1)], r"has an input 'z' that the first model lacks"),
    ],
)
def test_models_of_other_networks_are_refused(others: list[Port], message: str) -> None:
    own = [sized("x", None, 3)]
    check_ports("int8", "input", own, [sized("x", 2, 3)])
    with pytest.raises(InputError, match=message):
        check_ports("int8", "input", [sized("x", 1, 3)], others)


def test_sessions_of_other_models_have_as_many_threads() -> None:
    message = "its session has threads=2, the first one has 1"
    with (
        tuned_session(small(), 0) as session,
        Session(small(), threads=2) as other,
        pytest.raises(InputError, match=message),
    ):
        session.frontier([0], runs=1, also={"other": other})


def test_other_models_in_segments_are_refused() -> None:
    text = """g (float[6] x) => (float[6] y) {
        n = NonZero(x) t = Transpose(n) g = GatherND(x, t) m = ReduceMax(g) y = Add(x, m) }"""
    with (
        Session(model("g (float[6] x) => (float[6] y) { y = Relu(x) }"), tune=True) as session,
        Session(model(text)) as other,
        pytest.raises(InputError, match="model 'other' runs in segments"),
    ):
        session.frontier([0], {"x": np.ones(6, np.float32)}, runs=1, also={"other": other})
