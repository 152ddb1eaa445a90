"""``Session(tune=True)``: what is measured, how often, and that answers stay."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from libdesc.preferences import Preferences
from libdesc.transforms import LayoutChange
from ops import Add, Conv2D, MatMul, MaxPool, Relu
from ptensor.call import forms_on
from ptensor.layout import Layout
from resolver.lowered import LoweredGraph, OpNode
from tests.libraries.bench import Bench
from tests.optimizer.clocks import Drawn
from tests.optimizer.graphs import random_graph
from vtensor import save_onnx
from vtensor.cli import app
from vtensor.errors import BudgetError, ContractError, InputError, NativeError
from vtensor.language.graph import Graph
from vtensor.language.tensor import VTensor
from vtensor.runtime.execution.executor import Executor
from vtensor.runtime.execution.plan import Plan
from vtensor.runtime.planning import choosing, tuned
from vtensor.runtime.session import Session
from vtensor.runtime.tuning import fewest_transforms as fewer
from vtensor.runtime.tuning import measure
from vtensor.runtime.tuning import tuner as tuning
from vtensor.runtime.tuning.measure import (
    GLANCE,
    TUNING,
    WARM,
    Effort,
    least_ns,
    node_ns,
    numbered,
    signature,
)
from vtensor.runtime.tuning.timings import Timings


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cache of the test's own; and a plan that was tuned is taken, whatever it takes."""
    monkeypatch.setenv("VTENSOR_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(tuned, "fastest", lambda plans, _: (plans[0], [0, 0]))


class Planned:
    """A plan whose runs take this long."""

    def __init__(self, seconds: float) -> None:
        self.seconds, self.own_sizes, self.runs = seconds, (), 0
        self.graph = SimpleNamespace(inputs=(), values={})

    def replay(self, memory: object) -> None:
        """Take that long, once as long again."""
        self.runs += 1
        self.clock.now += self.seconds * (1 if self.runs > 1 else 100)

    clock = SimpleNamespace(now=0.0)


@pytest.mark.parametrize(("seconds", "best"), [((3, 2, 4), 1), ((2.01, 3, 2), 0), ((5,), 0)])
def test_whole_plans_are_compared(
    seconds: Sequence[float], best: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "vtensor.runtime.tuning.measure.time.perf_counter_ns", lambda: int(Planned.clock.now * 1e9)
    )
    plans: list[Any] = [Planned(one) for one in seconds]
    found, took = measure.fastest(plans, Executor.of(1))
    assert found is plans[best]
    assert took == [pytest.approx(one * 1e9) for one in seconds]


def test_of_two_runs_in_a_row_the_second_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    class Cold(Planned):
        """A plan whose first run behind another one's takes much longer."""

        last: Planned | None = None

        def replay(self, memory: object) -> None:
            self.clock.now += self.seconds * (1 if Cold.last is self else 50)
            Cold.last = self

    monkeypatch.setattr(
        "vtensor.runtime.tuning.measure.time.perf_counter_ns", lambda: int(Planned.clock.now * 1e9)
    )
    plans: list[Any] = [Cold(3), Cold(2)]
    found, took = measure.fastest(plans, Executor.of(1))
    assert found is plans[1]
    assert took == [pytest.approx(3e9), pytest.approx(2e9)]


@pytest.fixture
def compared(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> list[list[int]]:
    """How many Transforms plans have that are compared, of toy operators in drawn times; the first
    is taken.
    """
    counts = list[list[int]]()

    def fastest(plans: Sequence[Plan], _: object) -> tuple[Plan, list[int]]:
        counts.append([transforms(plan) for plan in plans])
        return plans[0], [1] * len(plans)

    monkeypatch.setattr(tuning, "Tuner", lambda *_: Drawn(2))
    monkeypatch.setattr(tuned, "fastest", fastest)
    monkeypatch.setattr(fewer, "TRANSFORM_PRICE", 1.0)
    return counts


def transforms(plan: Plan) -> int:
    """How many it has."""
    return sum(1 for _ in plan.graph.transforms())


def test_a_plan_with_fewer_transforms_is_compared_as_a_whole(compared: list[list[int]]) -> None:
    with Session(random_graph(10), threads=1, tune=True) as session:
        [[few, made, _]] = compared
        assert transforms(session.plan) == few < made


def test_one_with_fewer_that_needs_too_much_memory_is_none(
    compared: list[list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    checked = list[LoweredGraph]()

    def check(lowered: LoweredGraph, limit: int) -> None:
        checked.append(lowered)
        if len(checked) == 3:  # behind the tuned plan and the plain one
            raise BudgetError("too much")

    monkeypatch.setattr(choosing, "check_plan", check)
    with Session(random_graph(10), threads=1, tune=True) as session:
        [[made, _]] = compared
        few = sum(1 for _ in checked[2].transforms())
        assert few < made == transforms(session.plan)


def test_a_tuned_plan_that_is_slower_is_not_taken(
    asked: Counter[str], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(tuned, "fastest", lambda plans, _: (plans[1], [3_000_000, 2_000_000]))
    with Session(network(), threads=1, tune=True) as session:
        assert not any(step.tuned for step in session.plan.steps)
    said = (
        "net: without measured times the plan takes 2.00 ms, with them 3.00 ms: they are not used"
    )
    assert said in caplog.messages


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often each way was measured; a way that comes later is faster."""
    found: Counter[str] = Counter()

    def node_ns(node: OpNode, values: Mapping[str, VTensor], *_: object) -> int:
        found["\n".join(signature(node, values))] += 1
        return 10_000 - len(found)

    def transform_ns(value: VTensor, change: LayoutChange, *_: object) -> int:
        found[f"{value.summary()} {change}"] += 1
        return 100_000

    monkeypatch.setattr(tuning, "node_ns", node_ns)
    monkeypatch.setattr(tuning, "transform_ns", transform_ns)
    return found


def network(blocks: int = 2) -> Graph:
    """Blocks of equal sizes: windows of one element and of nine, something light, a residual."""
    random = np.random.default_rng(1)
    g = Graph("net")
    x = g.input("x", {"N": 1, "C": 32, "H": 6, "W": 6})
    for _ in range(blocks):
        y = x
        for size, pads in ((1, (0,) * 4), (3, (1,) * 4)):
            w = g.constant(random.normal(size=(32, 32, size, size)).astype(np.float32), "O I h w")
            y = g.add(Relu(), g.add(Conv2D(pads=pads), y, w))
        x = g.add(Add(), x, y)
    g.output(g.add(MaxPool(kernel_shape=(2, 2)), x), "y")
    return g


def answer(graph: Graph, **options: object) -> np.ndarray:
    """What a session says to fixed input."""
    x = np.random.default_rng(2).normal(size=(1, 32, 6, 6)).astype(np.float32)
    with Session(graph, threads=1, **options) as session:  # type: ignore[arg-type]
        [y] = session.run(None, {"x": x})
    return y


def check_same(one: np.ndarray, other: np.ndarray) -> None:
    """Alike, to what a sum in another order changes."""
    np.testing.assert_allclose(one, other, rtol=0, atol=1e-5 * np.abs(one).max())


def test_a_tuned_session_answers_the_same() -> None:
    check_same(answer(network()), answer(network(), tune=True))


def test_what_is_measured_shows_and_is_kept() -> None:
    said: list[str] = []
    for _ in range(2):
        with Session(network(), threads=1, tune=True, progress=said.append) as session:
            steps, certificate = session.plan.steps, session.plan.certificate
        assert all(step.ns is not None for step in steps if step.op == "Conv2D")
        assert certificate is not None
        assert certificate.objective == "time"
        assert certificate.ns_after is not None
        assert certificate.ns_before is not None
        assert certificate.ns_after <= certificate.ns_before
        measured = [text for text in said if text.startswith("measuring ")]
        assert measured
    assert len(measured) == len(set(measured))  # the second session measured nothing


@pytest.mark.parametrize("seed", range(12))
def test_whatever_is_fastest_computes_the_same(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    monkeypatch.setattr(tuning, "Tuner", lambda *_: Drawn(seed))
    check_same(answer(network()), answer(network(), tune=True))


def test_a_way_that_is_faster_is_taken(asked: Counter[str]) -> None:
    with Session(network(), threads=1, tune=True) as session:
        steps = [step for step in session.plan.steps if step.op == "Conv2D"]
    assert all(step.tuned for step in steps)
    for step in steps:
        assert isinstance(step.node, OpNode)
        assert step.kernels[0] in step.node.variant.kernel


def test_nodes_of_equal_sizes_are_measured_once(asked: Counter[str]) -> None:
    with Session(network(3), threads=1, tune=True):
        assert asked
        assert set(asked.values()) == {1}


def test_a_call_has_a_budget(
    asked: Counter[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Where it is used up by the resolver's row, that is all that is known."""

    def calls() -> list[str]:
        return [call for call, end, _ in (one.partition("\n") for one in asked) if end]

    with Session(network(), threads=1, tune=True, tolerance=0):
        assert len({*calls()}) < len(calls())
    asked.clear()
    monkeypatch.setattr(tuning, "CALL_SECONDS", 0.0)
    monkeypatch.setenv("VTENSOR_CACHE_DIR", str(tmp_path / "other"))
    with Session(network(), threads=1, tune=True, tolerance=0) as session:
        assert not any(step.tuned for step in session.plan.steps)
    assert len({*calls()}) == len(calls()) > 0


def test_packing_is_not_in_a_calls_budget(
    asked: Counter[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Only runs are; here none says that it took anything."""
    with Session(network(), threads=1, tune=True, tolerance=0):
        rows = len(asked)
    asked.clear()
    monkeypatch.setattr(tuning, "CALL_SECONDS", 1e-9)
    monkeypatch.setenv("VTENSOR_CACHE_DIR", str(tmp_path / "other"))
    with Session(network(), threads=1, tune=True, tolerance=0):
        assert len(asked) == rows


def test_large_constants_are_read_from_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before each run that counts, and where a plan is tuned."""
    swept, real = list[int](), measure._sweep

    def seen(memory: Any, threads: int) -> Any:
        real(memory, threads)()
        return partial(swept.append, 1)

    monkeypatch.setattr(measure, "_sweep", seen)
    executor = Executor.of(1)
    for size, effort in ((640, TUNING), (64, TUNING), (640, WARM), (640, GLANCE)):
        graph = Graph("one")
        weights = graph.constant(np.ones((size, size), np.float32), "A B")
        graph.output(graph.add(MatMul("A"), graph.input("x", {"N": 2, "A": size}), weights), "y")
        with Session(graph, threads=1) as session:
            lowered = session.plan.graph.bare
            [node] = lowered.operators
            before, took = len(swept), list[float]()
            assert node_ns(node, lowered.tensors, executor, effort, took.append) > 0
            assert len(took) == 1
            assert (len(swept) - before >= measure.MIN_RUNS) == ((size, effort) == (640, TUNING))


def test_names_that_nobody_gave_do_not_tell_calls_apart() -> None:
    assert numbered("D7 over D12, D7; N2D4 D") == "D0 over D1, D0; N2D4 D"


def test_another_vtensor_has_times_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    ours = tuning.environment(1)
    assert tuning.environment(1) == ours
    monkeypatch.setattr(tuning, "__version__", "another")
    assert tuning.environment(1) != ours


def test_a_way_that_fails_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(node: OpNode, values: Mapping[str, VTensor], *_: object) -> int:
        if node.variant.kernel:
            raise NativeError("out of luck")
        return 100

    monkeypatch.setattr(tuning, "node_ns", fail)
    with Session(network(), threads=1, tune=True) as session:
        assert not any(step.tuned for step in session.plan.steps)


def test_a_transform_that_fails_is_not_taken(
    asked: Counter[str], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    tried = Counter[str]()

    def fail(value: VTensor, change: LayoutChange, *_: object) -> int:
        tried[f"{value.summary()} {change}"] += 1
        raise NativeError("out of luck")

    monkeypatch.setattr(tuning, "transform_ns", fail)
    caplog.set_level("INFO", logger=tuning.__name__)
    with Session(network(), threads=1) as plain, Session(network(), threads=1, tune=True) as tuned:
        assert len(tuned.plan.conversions) <= len(plain.plan.conversions)
    check_same(answer(network()), answer(network(), tune=True))
    tried.clear()
    caplog.clear()
    Session(network(), threads=1, tune=True).close()
    assert set(tried.values()) == {1}
    assert sum("does not run as" in text for text in caplog.messages) == len(tried)


def test_plans_that_cannot_be_timed(
    asked: Counter[str], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object) -> None:
        raise NativeError("out of luck")

    monkeypatch.setattr(tuned, "fastest", fail)
    with Session(network(), threads=1, tune=True) as session:
        assert not any(step.tuned for step in session.plan.steps)
    assert "net: plans cannot be timed, so no times are used: out of luck" in caplog.messages


@pytest.mark.parametrize(
    "options", [{"objective": "paper"}, {"optimize": "none"}, {"optimize": ["lho"]}], ids=str
)
def test_tuning_needs_its_pass_and_its_objective(options: dict[str, object]) -> None:
    with pytest.raises(InputError, match="tune=True"):
        Session(network(), tune=True, **options)  # type: ignore[arg-type]


def test_time_is_no_objective_without_tuning() -> None:
    with pytest.raises(InputError, match="tune=True"):
        Session(network(), objective="time")


def test_commands_show_it(asked: Counter[str], tmp_path: Path) -> None:
    file = tmp_path / "net.onnx"
    save_onnx(network(1), file)
    shown = CliRunner().invoke(app, ["plan", str(file), "--tune"])
    assert shown.exit_code == 0, shown.output
    assert re.search(r"\(\d+\.\d us, tuned\)", shown.stdout)
    assert "(time, " in shown.stdout
    data = json.loads(CliRunner().invoke(app, ["plan", str(file), "--tune", "--json"]).stdout)
    [step, *_] = [step for step in data["steps"] if step["tuned"]]
    node = CliRunner().invoke(app, ["explain", str(file), "--tune", "--node", step["node"]])
    assert f"measured: {step['ns'] / 1e3:.1f} us as " in node.stdout


def test_what_only_reference_code_runs_is_not_measured() -> None:
    """Chosen for another number of threads, say: its time would be nobody's."""
    graph = Graph("one")
    weights = graph.constant(np.ones((16, 16, 3, 3), np.float32), "O I h w")
    x = graph.input("x", {"N": 1, "C": 16, "H": 14, "W": 14})
    graph.output(graph.add(Conv2D(), x, weights), "y")
    executor = Executor.of(1)
    with Session(graph, libraries=["onednn"], threads=1) as session:
        lowered = session.plan.graph.bare
        [node] = lowered.operators
    odd = forms_on("cpu", tuple(map(Layout, ("NHWC", "OIhw", "NCHW"))))
    mixed = replace(node, variant=replace(node.variant, forms=odd, reference=False))
    assert executor.run(lambda: node_ns(node, lowered.tensors, executor)) > 0
    with pytest.raises(ContractError, match=r"only the kernel ref|reference code alone"):
        executor.run(lambda: node_ns(mixed, lowered.tensors, executor))


def test_a_glance_does_not_repeat_what_takes_long() -> None:
    runs = 0

    def run(times: Any) -> None:
        nonlocal runs
        runs += 1
        times[0, 0], times[-1, 1] = 0, 50_000_000

    assert least_ns(run, 1, GLANCE) == 50_000_000
    assert runs == 2  # the first one does not count
    assert least_ns(run, 1, GLANCE._replace(seconds=0.0, most_seconds=1.0)) == 50_000_000
    assert runs == 2 + 1 + measure.MIN_RUNS
    hurried = GLANCE._replace(most_seconds=0.05 / measure.FIRST_RUN_FACTOR / 2)
    assert least_ns(run, 1, hurried) == 50_000_000
    assert runs == 2 + 1 + measure.MIN_RUNS + 1  # even the first one takes far too long


def test_a_glance_ends_where_runs_are_no_faster() -> None:
    drawn = [900, 500, 400, *([399] * 50)]

    def run(times: Any) -> None:
        times[0, 0], times[-1, 1] = 0, drawn.pop(0)

    assert least_ns(run, 1, GLANCE._replace(seconds=60.0)) == 399
    assert len(drawn) == 50 - measure.DEFAULT_RUNS


def test_a_glance_at_what_is_far_from_the_best_is_short(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given, failing = list[float](), set[str]()

    def timed(node: OpNode, _: object, __: object, effort: Effort, *more: object) -> int:
        given.append(effort.most_seconds)
        if node.variant.kernel in failing:
            raise NativeError("out of luck")
        return 1000

    monkeypatch.setattr(tuning, "node_ns", timed)
    graph = Graph("one")
    graph.output(graph.add(Relu(), graph.input("x", {"N": 1, "C": 8})), "y")
    with Session(graph, threads=1) as session:
        lowered = session.plan.graph.bare
    [node] = lowered.operators
    one, other, third = (
        replace(node, variant=replace(node.variant, kernel=kernel)) for kernel in "abc"
    )
    for effort, limits in (
        (GLANCE, [GLANCE.most_seconds, tuning.FAR_FROM_BEST * 1e-6]),
        (TUNING, [TUNING.most_seconds] * 2),
    ):
        clock = tuning.Tuner(Executor.of(1), Preferences(), effort=effort)
        given.clear()
        assert [clock.node(each, lowered.tensors) for each in (one, other)] == [1000, 1000]
        assert given == limits
        failing.add("c")
        assert [clock.node(third, lowered.tensors) for _ in range(2)] == [None, None]
        assert len(given) == 3  # what fails is not tried again
        clock.save()
        later = Timings(clock._timings._environment)
        assert later.get(*signature(one, lowered.tensors)) == 1000


@pytest.mark.parametrize(("waits", "least"), [([600, 1, 1], 30), ([600] * 99, 130)])
def test_a_run_in_which_a_thread_waited_is_taken_again(
    waits: list[int], least: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the caches were emptied before it; not for ever."""
    took, waited = iter([99, *range(10, 3000, 20)]), [0]

    def run(times: Any) -> None:
        times[0] = (0, next(took))
        if times[0, 1] != 99:
            waited[0] += waits.pop(0) if waits else 0

    monkeypatch.setattr(measure, "_waited_ns", lambda: waited[0])
    effort = TUNING._replace(seconds=0.0, least=2)
    assert least_ns(run, 1, effort, lambda: None) == least
    assert least_ns(run, 1, effort) > least, "runs in a row are taken as they are"


def test_threads_wait_for_processors() -> None:
    """Three of them, on one."""
    told = Path("/proc/self/schedstat")
    if not told.exists() or told.read_text().startswith("0 "):
        pytest.skip("nobody tells")
    processors, before = os.sched_getaffinity(0), measure._waited_ns()
    busy = list[subprocess.Popen[bytes]]()
    try:
        os.sched_setaffinity(0, {min(processors)})
        busy += [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(2)]
        end = time.monotonic() + 60
        while time.monotonic() < end and measure._waited_ns() <= before + 10**7:
            pass
    finally:
        os.sched_setaffinity(0, processors)
        for one in busy:
            one.kill()
            one.wait()
    assert measure._waited_ns() > before + 10**7
