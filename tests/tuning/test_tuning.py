"""``Session(tune=True)``: what is measured and how often, which plan is taken, equal answers."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from libdesc.preferences import Preferences
from libdesc.transforms import LayoutChange
from ops import Add, Conv2D, MatMul, MaxPool, Relu
from ptensor.call import forms_on
from ptensor.layout import Layout
from resolver.lowered import LoweredGraph, OpNode
from tests.frontends.support import f32, model, same_as_runtime
from tests.libraries.bench import Bench
from tests.libraries.command import vtensor
from tests.libraries.slow import ALL
from tests.optimizer.clocks import Drawn
from tests.optimizer.graphs import random_graph
from vtensor import save_onnx
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
from vtensor.runtime.tuning.measure import GLANCE, TUNING, WARM, Effort, least_ns, node_ns
from vtensor.runtime.tuning.timings import Timings


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Use a cache of the test's own, and take a tuned plan whatever its time."""
    monkeypatch.setenv("VTENSOR_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(tuned, "fastest", lambda plans, _: (plans[0], [0, 0]))


def network(blocks: int = 2) -> Graph:
    """Return blocks of equal sizes: two convolutions, something light, a residual."""
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


def tuned_session(graph: Graph | None = None, **options: Any) -> Session:
    """Return a session on one thread that tunes its plan."""
    return Session(graph or network(), threads=1, tune=True, **options)


def same_answers(session: Session) -> None:
    """Check a session's answer against that of an untuned one, up to the order of sums."""
    x = np.random.default_rng(2).normal(size=(1, 32, 6, 6)).astype(np.float32)
    with Session(network(), threads=1) as plain:
        [expected], [y] = plain.run(None, {"x": x}), session.run(None, {"x": x})
    np.testing.assert_allclose(expected, y, rtol=0, atol=1e-5 * np.abs(expected).max())


def transforms(plan: Plan) -> int:
    """Return the number of Transforms of a plan."""
    return sum(1 for _ in plan.graph.transforms())


def out_of_luck(*_: object) -> Any:
    """Fail as a kernel that cannot run."""
    raise NativeError("out of luck")


class Cold:
    """A plan of so many seconds a run; a run after one of another plan takes much longer."""

    clock = SimpleNamespace(now=0.0, last=None)

    def __init__(self, seconds: float) -> None:
        self.seconds, self.own_sizes = seconds, ()
        self.graph = SimpleNamespace(inputs=(), values={})

    def replay(self, memory: object) -> None:
        """Let the clock go on."""
        self.clock.now += self.seconds * (1 if self.clock.last is self else 50)
        self.clock.last = self


@pytest.mark.parametrize(
    ("seconds", "best"), [((3, 2, 4), 1), ((2.01, 3, 2), 0), ((5,), 0), ((3, 2), 1)]
)
def test_plans_are_compared_by_the_second_of_two_runs_in_a_row(
    seconds: Sequence[float], best: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "vtensor.runtime.tuning.measure.time.perf_counter_ns", lambda: int(Cold.clock.now * 1e9)
    )
    plans: list[Any] = [Cold(each) for each in seconds]
    fastest, times = measure.fastest(plans, Executor.of(1))
    assert fastest is plans[best]
    assert times == [pytest.approx(each * 1e9) for each in seconds]


@pytest.fixture
def compared(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> list[list[int]]:
    """Count the Transforms of the plans that are compared, in drawn times; the first is taken."""
    counts = list[list[int]]()

    def fastest(plans: Sequence[Plan], _: object) -> tuple[Plan, list[int]]:
        counts.append([transforms(plan) for plan in plans])
        return plans[0], [1] * len(plans)

    monkeypatch.setattr(tuning, "Tuner", lambda *_: Drawn(2))
    monkeypatch.setattr(tuned, "fastest", fastest)
    monkeypatch.setattr(fewer, "TRANSFORM_PRICE", 1.0)
    return counts


def test_plan_with_fewer_transforms_is_compared_as_a_whole(compared: list[list[int]]) -> None:
    with tuned_session(random_graph(10)) as session:
        [[few, made, _]] = compared
        assert transforms(session.plan) == few < made


def test_plan_with_fewer_transforms_is_dropped_when_over_budget(
    compared: list[list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    checked = list[LoweredGraph]()

    def check(lowered: LoweredGraph, limit: int) -> None:
        checked.append(lowered)
        if len(checked) == 3:  # after the tuned plan and the plain one
            raise BudgetError("too much")

    monkeypatch.setattr(choosing, "check_plan", check)
    with tuned_session(random_graph(10)) as session:
        [[made, _]] = compared
        few = sum(1 for _ in checked[2].transforms())
        assert few < made == transforms(session.plan)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Count the measurements of each variant; a variant that comes later is faster."""
    counts: Counter[str] = Counter()

    def node_ns(node: OpNode, values: Mapping[str, VTensor], *_: object) -> int:
        counts["\n".join(measure.signature(node, values))] += 1
        return 10_000 - len(counts)

    def transform_ns(value: VTensor, change: LayoutChange, *_: object) -> int:
        counts[f"{value.summary()} {change}"] += 1
        return 100_000

    monkeypatch.setattr(tuning, "node_ns", node_ns)
    monkeypatch.setattr(tuning, "transform_ns", transform_ns)
    return counts


@pytest.mark.parametrize(
    ("fastest", "message"),
    [
        (
            lambda plans, _: (plans[1], [3_000_000, 2_000_000]),
            "net: without measured times the plan takes 2.00 ms, with them 3.00 ms: they are not "
            "used",
        ),
        (out_of_luck, "net: plans cannot be timed, so no times are used: out of luck"),
    ],
    ids=["slower", "not timed"],
)
def test_tuned_plan_is_not_taken_when(
    fastest: Callable[..., Any],
    message: str,
    asked: Counter[str],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(tuned, "fastest", fastest)
    caplog.set_level("INFO", logger="vtensor")
    with tuned_session() as session:
        assert not any(step.tuned for step in session.plan.steps)
    assert message in caplog.messages


def test_measured_times_are_shown_and_cached() -> None:
    lines: list[str] = []
    for _ in range(2):
        with tuned_session(progress=lines.append) as session:
            steps, certificate = session.plan.steps, session.plan.certificate
            same_answers(session)
        assert all(step.ns is not None for step in steps if step.op == "Conv2D")
        assert certificate is not None
        assert certificate.objective == "time"
        assert certificate.ns_after is not None
        assert certificate.ns_before is not None
        assert certificate.ns_after <= certificate.ns_before
        measured = [line for line in lines if line.startswith("measuring ")]
        assert measured
    assert len(measured) == len(set(measured))  # the second session measured nothing


@pytest.mark.parametrize("seed", range(12 if ALL else 4))
def test_any_fastest_choice_computes_the_same(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    monkeypatch.setattr(tuning, "Tuner", lambda *_: Drawn(seed))
    with tuned_session() as session:
        same_answers(session)


def test_faster_variant_is_taken_and_equal_nodes_are_measured_once(asked: Counter[str]) -> None:
    with tuned_session(network(3)) as session:
        steps = [step for step in session.plan.steps if step.op == "Conv2D"]
        assert set(asked.values()) == {1}
    assert all(step.tuned for step in steps)
    for step in steps:
        assert isinstance(step.node, OpNode)
        assert step.kernels[0] in step.node.variant.kernel


def test_call_has_a_budget_of_runs_and_packing_is_not_in_it(
    asked: Counter[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Without a budget only the resolver's row is measured; no run here takes any time."""

    def calls() -> list[str]:
        return [call for call, end, _ in (key.partition("\n") for key in asked) if end]

    with tuned_session(tolerance=0):
        assert len({*calls()}) < len(calls())
        rows = len(asked)
    for seconds in (0.0, 1e-9):
        asked.clear()
        monkeypatch.setattr(tuning, "CALL_SECONDS", seconds)
        monkeypatch.setenv("VTENSOR_CACHE_DIR", str(tmp_path / str(seconds)))
        with tuned_session(tolerance=0) as session:
            if seconds:
                assert len(asked) == rows
            else:
                assert not any(step.tuned for step in session.plan.steps)
                assert len({*calls()}) == len(calls()) > 0


def test_approximate_variants_have_seconds_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    def node_ns(node: OpNode, *rest: Any) -> int:
        spent: Callable[[float], None] = rest[3]
        spent(1.0)
        return 5

    monkeypatch.setattr(tuning, "node_ns", node_ns)
    with Session(network(1), threads=1) as session:
        graph = session.plan.graph.bare
    node = next(node for node in graph.operators if node.followers)
    tuner = tuning.Tuner(Executor.of(1), Preferences(), call_seconds=1.5)

    def times(inexact: bool) -> list[int | None]:
        variants = [
            replace(node.variant, kernel=f"{inexact} {number}", inexact=inexact)
            for number in range(3)
        ]
        return [tuner.node(replace(node, variant=v), graph.tensors) for v in variants]

    assert times(False) == times(True) == [5, 5, None]


def test_narrow_values_of_an_odd_number_of_bytes_are_measured() -> None:
    """An image of 3 x 15 x 15 in bf16, where the processor is fast in it."""
    proto = model(
        """g (float[1, 3, 15, 15] x) => (float[a, b, c, d] y) {
        z = Conv<strides = [2, 2]>(x, w) y = Relu(z) }""",
        w=f32(32, 3, 3, 3),
    )
    feeds = {"x": f32(1, 3, 15, 15)}
    with Session(proto, threads=1, tune=True, tolerance=0.05) as session:
        same_as_runtime(session, proto, feeds, 0, 0.5)  # the largest result is about 20


def test_large_constants_are_swept_from_the_caches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before each run that counts, and only where a plan is tuned."""
    swept, sweep = list[int](), measure._sweep

    def counted(memory: Any, threads: int) -> Any:
        sweep(memory, threads)()
        return partial(swept.append, 1)

    monkeypatch.setattr(measure, "_sweep", counted)
    executor = Executor.of(1)
    for size, effort in ((640, TUNING), (64, TUNING), (640, WARM), (640, GLANCE)):
        graph = Graph("one")
        weights = graph.constant(np.ones((size, size), np.float32), "A B")
        graph.output(graph.add(MatMul("A"), graph.input("x", {"N": 2, "A": size}), weights), "y")
        with Session(graph, threads=1) as session:
            lowered = session.plan.graph.bare
            [node] = lowered.operators
            before, seconds = len(swept), list[float]()
            assert node_ns(node, lowered.tensors, executor, effort, seconds.append) > 0
            assert len(seconds) == 1
            assert (len(swept) - before >= measure.MIN_RUNS) == ((size, effort) == (640, TUNING))


def test_a_value_that_is_read_twice_is_one_input_of_a_measurement() -> None:
    """A kernel may do less work then; the times of both calls have keys of their own."""
    graph, sizes = Graph("sums"), {"N": 2, "A": 64}
    x, y = (graph.input(name, sizes) for name in ("x", "y"))
    graph.output(graph.add(Add(), x, x, name="twice"), "doubled")
    graph.output(graph.add(Add(), x, y, name="both"), "sum")
    with Session(graph, threads=1, optimize="none") as session:
        lowered = session.plan.graph.bare
        nodes = {node.name: node for node in lowered.operators}
        tensors, executor = lowered.tensors, Executor.of(1)
        for name, count in (("twice", 1), ("both", 2)):
            alone, _ = measure.alone([nodes[name]], tensors)
            assert len(alone.inputs) == count
            assert executor.run(partial(node_ns, nodes[name], tensors, executor)) > 0
        once, twice = (measure.signature(nodes[name], tensors)[0] for name in ("both", "twice"))
        assert once != twice


def test_keys_of_times_say_sizes_and_the_version(monkeypatch: pytest.MonkeyPatch) -> None:
    assert measure.numbered("D7 over D12, D7; N2D4 D") == "D0 over D1, D0; N2D4 D"
    environment = tuning.environment(1)
    assert tuning.environment(1) == environment
    monkeypatch.setattr(tuning, "__version__", "another")
    assert tuning.environment(1) != environment


def test_variant_that_fails_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(node: OpNode, values: Mapping[str, VTensor], *_: object) -> int:
        return out_of_luck() if node.variant.kernel else 100

    monkeypatch.setattr(tuning, "node_ns", fail)
    with tuned_session() as session:
        assert not any(step.tuned for step in session.plan.steps)


def test_transform_that_fails_is_tried_once_and_not_taken(
    asked: Counter[str], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    tried = Counter[str]()

    def fail(value: VTensor, change: LayoutChange, *_: object) -> int:
        tried[f"{value.summary()} {change}"] += 1
        return int(out_of_luck())

    monkeypatch.setattr(tuning, "transform_ns", fail)
    caplog.set_level("INFO", logger=tuning.__name__)
    with Session(network(), threads=1) as plain, tuned_session() as session:
        assert len(session.plan.conversions) <= len(plain.plan.conversions)
        same_answers(session)
    tried.clear()
    caplog.clear()
    tuned_session().close()
    assert set(tried.values()) == {1}
    assert sum("does not run as" in text for text in caplog.messages) == len(tried)


@pytest.mark.parametrize(
    "options",
    [
        {"tune": True, "objective": "paper"},
        {"tune": True, "optimize": "none"},
        {"tune": True, "optimize": ["lho"]},
        {"objective": "time"},
    ],
    ids=str,
)
def test_tuning_needs_its_pass_and_its_objective(options: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="tune=True"):
        Session(network(), **options)


def test_commands_show_measured_times(asked: Counter[str], tmp_path: Path) -> None:
    file = tmp_path / "net.onnx"
    save_onnx(network(1), file)
    shown = vtensor("plan", file, "--tune")
    assert shown.exit_code == 0, shown.output
    assert re.search(r"\(\d+\.\d us, tuned\)", shown.stdout)
    assert "(time, " in shown.stdout
    data = json.loads(vtensor("plan", file, "--tune", "--json").stdout)
    [step, *_] = [step for step in data["steps"] if step["tuned"]]
    node = vtensor("explain", file, "--tune", "--node", step["node"])
    assert f"measured: {step['ns'] / 1e3:.1f} us as " in node.stdout


def test_variant_of_reference_code_alone_is_not_measured() -> None:
    """One that was chosen for another number of threads, for instance."""
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


@pytest.mark.parametrize(
    ("effort", "runs"),
    [
        (GLANCE, 2),  # the first one does not count
        (GLANCE._replace(seconds=0.0, most_seconds=1.0), 1 + measure.MIN_RUNS),
        (GLANCE._replace(most_seconds=0.05 / measure.FIRST_RUN_FACTOR / 2), 1),
    ],
    ids=["glance", "longer", "hurried"],
)
def test_glance_does_not_repeat_long_runs(effort: Effort, runs: int) -> None:
    counted = list[int]()

    def run(times: Any) -> None:
        counted.append(1)
        times[0, 0], times[-1, 1] = 0, 50_000_000

    assert least_ns(run, 1, effort) == 50_000_000
    assert len(counted) == runs


def test_glance_ends_when_runs_are_no_faster() -> None:
    drawn = [900, 500, 400, *([399] * 50)]

    def run(times: Any) -> None:
        times[0, 0], times[-1, 1] = 0, drawn.pop(0)

    assert least_ns(run, 1, GLANCE._replace(seconds=60.0)) == 399
    assert len(drawn) == 50 - measure.DEFAULT_RUNS


def test_layouts_in_which_a_node_does_the_same_work_are_measured_as_one() -> None:
    dims = {"N": 1, "C": 8, "H": 4, "W": 4}
    graph = Graph("net")
    x, row = graph.input("x", dims), graph.input("row", {"C": 8})
    graph.output(graph.add(Relu(), x), "relu")
    graph.output(graph.add(Add(), x, x), "sum")
    graph.output(graph.add(Add(), x, row), "biased")
    graph.output(graph.add(MaxPool(kernel_shape=(2, 2)), x), "pooled")
    with Session(graph, threads=1) as session:
        lowered = session.plan.graph.bare

    def ways(node: OpNode, *texts: str) -> int:
        """Return the number of ways of a node whose operands are in one of some layouts."""
        names = (*node.inputs, *node.outputs)
        rows = [
            [Layout(text) if len(lowered.tensors[name].dims) > 1 else Layout("C") for name in names]
            for text in texts
        ]
        variants = [replace(node.variant.lying(row), kernel="k") for row in rows]
        nodes = [replace(node, variant=variant) for variant in variants]
        return len({measure.signature(each, lowered.tensors)[1] for each in nodes})

    counts = {node.outputs[0]: ways(node, "NCHW", "NHWC") for node in lowered.operators}
    assert [*counts.values()] == [1, 1, 2, 2]
    relu = lowered.operators[0]
    assert ways(relu, "NCHW", "NCHW8c") == 1
    assert ways(relu, "NCHW", "NCHW16c") == 2  # with pads


def test_glance_is_short_when_far_from_the_best(monkeypatch: pytest.MonkeyPatch) -> None:
    limits, failing = list[float](), set[str]()

    def timed(node: OpNode, _: object, __: object, effort: Effort, *more: object) -> int:
        limits.append(effort.most_seconds)
        return out_of_luck() if node.variant.kernel in failing else 1000

    monkeypatch.setattr(tuning, "node_ns", timed)
    graph = Graph("one")
    graph.output(graph.add(Relu(), graph.input("x", {"N": 1, "C": 8})), "y")
    with Session(graph, threads=1) as session:
        lowered = session.plan.graph.bare
    [node] = lowered.operators
    first, second, third = (
        replace(node, variant=replace(node.variant, kernel=kernel)) for kernel in "abc"
    )
    for effort, expected in (
        (GLANCE, [GLANCE.most_seconds, tuning.FAR_FROM_BEST * 1e-6]),
        (TUNING, [TUNING.most_seconds] * 2),
    ):
        clock = tuning.Tuner(Executor.of(1), Preferences(), effort=effort)
        limits.clear()
        assert [clock.node(each, lowered.tensors) for each in (first, second)] == [1000, 1000]
        assert limits == expected
        failing.add("c")
        assert [clock.node(third, lowered.tensors) for _ in range(2)] == [None, None]
        assert len(limits) == 3  # what fails is not tried again
        clock.save()
        later = Timings(clock._timings._environment)
        assert later.get(*measure.signature(first, lowered.tensors)) == 1000


@pytest.mark.parametrize(("waits", "least"), [([600, 1, 1], 30), ([600] * 99, 130)])
def test_run_in_which_a_thread_waited_is_repeated_a_few_times(
    waits: list[int], least: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only after caches were emptied."""
    ends, waited = iter([99, *range(10, 3000, 20)]), [0]

    def run(times: Any) -> None:
        times[0] = (0, next(ends))
        if times[0, 1] != 99:
            waited[0] += waits.pop(0) if waits else 0

    monkeypatch.setattr(measure, "_waited_ns", lambda: waited[0])
    effort = TUNING._replace(seconds=0.0, least=2)
    assert least_ns(run, 1, effort, lambda: None) == least
    assert least_ns(run, 1, effort) > least, "runs in a row count as they are"


def test_waiting_for_a_processor_is_counted() -> None:
    """Three processes share one."""
    schedstat = Path("/proc/self/schedstat")
    if not schedstat.exists() or schedstat.read_text().startswith("0 "):
        pytest.skip("the system does not count")
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
        for process in busy:
            process.kill()
            process.wait()
    assert measure._waited_ns() > before + 10**7
