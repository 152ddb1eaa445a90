"""A blueprint's plan is, to the byte, the one that is made node by node."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from time import monotonic, sleep
from typing import Any

import numpy as np
import pytest

from libdesc.onednn.native import dnnl
from ops import Gather
from tests.frontends.support import f32, model
from tests.operators.cases import CASES
from tests.runtime.opened import NETWORKS, Network
from tests.runtime.test_sized import FEW, SIZES, opened, run, unasked
from vtensor import Graph, Session
from vtensor.errors import BudgetError, InputError, NativeError, VTensorError
from vtensor.language.trace import Rows, Trace
from vtensor.report import plan_dict
from vtensor.runtime import _replay, sized, taken_over
from vtensor.runtime import open_program as program_module
from vtensor.runtime import strategies as strategies_module
from vtensor.runtime.all_of import ALONE_S, all_of
from vtensor.runtime.blueprint import Blueprint
from vtensor.runtime.drawn import DrawnPlan
from vtensor.runtime.executor import Executor
from vtensor.runtime.plan import Plan

Array = np.ndarray[Any, Any]

#: What a program is made of: its regions, and its steps with their places.
Made = tuple[list[Any], list[Any]]

#: Operators of which no plan is drawn here: they call back into Python, look at the values of
#: constants, have sizes in parameters or dims, or their cases are of one size.
NONE = {
    *("Adagrad", "Adam", "DequantizeLinear", "GatherElements", "Kept", "Momentum", "Reshape"),
    "ScatterElements",
}


@pytest.fixture
def programs(monkeypatch: pytest.MonkeyPatch) -> list[Made]:
    """Of all programs, what they are made of: sizes and bytes of regions, steps and places."""
    made: list[Made] = []
    program = _replay.Program

    def noted(regions: Any, steps: Any, **rest: Any) -> Any:
        told = [one.tobytes() if isinstance(one, np.ndarray) else one for one in regions[1:]]
        rows = [
            (None if callable(step) else str(_replay.describe(step)), list(places))
            for step, places in steps
        ]
        made.append((told, rows))
        return program(regions, steps, **rest)

    monkeypatch.setattr(_replay, "Program", noted)
    return made


def check(session: Session, feeds: Mapping[str, Array], programs: list[Made]) -> bool:
    """A run's plan is the one that is made node by node; returns whether it was drawn."""
    settle(session)
    programs.clear()
    found = session.run(None, feeds)
    plan = session.plan
    if not isinstance(plan, DrawnPlan):
        return False
    [drawn] = programs[-1:]
    names = [step.node for step in plan.recorded]  # made now
    assert len(names) == len(drawn[1])
    wanted = programs[-1]
    assert wanted is not drawn
    regions = ordered(drawn), ordered(wanted)
    assert regions[0] == regions[1]
    again = session.run(None, feeds)
    for one, other in zip(found, again, strict=True):
        np.testing.assert_array_equal(one, other)
    return True


def settle(session: Session) -> None:
    """Wait until what is drawn in the background is there."""
    plans = session._runner.plans
    until = monotonic() + 60
    while plans is not None and not all(one.done for one in plans.ahead._works):
        assert monotonic() < until
        sleep(0.001)


def settled(session: Session, feeds: Mapping[str, Array]) -> None:
    """A run when all is drawn that there is."""
    settle(session)
    session.run(None, feeds)


def ordered(made: Made) -> list[Any]:
    """A program whose constants stand at their slots: the order of regions says nothing."""
    regions, steps = made
    return [
        (
            step,
            [
                (r if r == 0 or type(regions[r - 1]) is int else regions[r - 1], begin)
                for r, begin in places
            ],
        )
        for step, places in steps
    ] + [[one for one in regions if type(one) is int]]


@pytest.mark.parametrize("name", NETWORKS)
def test_networks(name: str, programs: list[Made]) -> None:
    network = NETWORKS[name]()
    with Session(network.proto, threads=2, cache_dir=None) as session:
        drawn = [check(session, network.feeds(*row), programs) for row in network.sizes(5, 12)]
    assert any(drawn) == (name != "detector")  # which has scales that are of sizes


@pytest.mark.parametrize("name", [*CASES])
def test_each_operator(name: str, programs: list[Made]) -> None:
    drawn = 0
    for case in CASES[name][:FEW]:
        found = opened(case)
        if found is None:
            continue
        graph, feeds = found
        options: dict[str, Any] = {"threads": 1, "cache_dir": None}
        with (
            Session(graph, **options) as session,
            Session(graph, deterministic=True, **options) as other,
        ):
            for size in SIZES:
                fed = feeds(size)
                wanted = run(other, fed)
                if wanted is not None:
                    drawn += check(session, fed, programs)
                one = run(session, fed)
                assert (one is None) == (wanted is None), size
                for result, expected in zip(one or [], wanted or [], strict=True):
                    np.testing.assert_array_equal(result, expected)
    assert bool(drawn) == (name not in NONE)


MASKED = """
    s = Shape(x) n = Gather(s, one0) r = Range(zero, n, one0) f = Cast<to = 1>(r)
    h = Mul(f, half) z = Add(x, h) y = Relu(z)
"""


def test_constants_that_depend_on_sizes_are_made_anew(programs: list[Made]) -> None:
    numbers = {"one0": np.array(1), "zero": np.array(0), "half": np.array(0.5, np.float32)}
    proto = model(f"g (float[a, b] x) => (float[a, b] y) {{ {MASKED} }}", 17, **numbers)
    drawn = 0
    with Session(proto, threads=1, cache_dir=None) as session:
        for a, b in ((2, 3), (3, 4), (4, 7), (9, 33), (1, 1)):
            x = f32(a, b)
            drawn += check(session, {"x": x}, programs)
            [y] = session.run(None, {"x": x})
            np.testing.assert_array_equal(y, np.maximum(x + np.arange(b, dtype=np.float32) / 2, 0))
    assert drawn >= 2


def test_constants_that_depend_on_sizes_are_transformed_ahead(programs: list[Made]) -> None:
    """Two layers of a language model have masks that they compute of sizes alike."""
    attention = """
        g (float[h, L, 8] x) => (float[h, L, L] y) {
            s = Shape(x) n = Gather(s, one0) r = Range(zero, n, one0) c = Unsqueeze(r, one)
            l = LessOrEqual(r, c) m = Where(l, none, low)
            t = Transpose<perm = [0, 2, 1]>(x) a = MatMul(x, t) p = Add(a, m) o = Softmax(p)
            l2 = LessOrEqual(r, c) m2 = Where(l2, none, low)
            q = MatMul(o, o) e = Add(q, m2) y = Softmax(e)
        }
    """
    numbers = {
        "one0": np.array(1),
        "zero": np.array(0),
        "one": np.array([1]),
        "none": np.array(0, np.float32),
        "low": np.array(-9, np.float32),
    }
    drawn = 0
    with (
        Session(model(attention, 17, **numbers), threads=1, cache_dir=None) as session,
        Session(model(attention, 17, **numbers), threads=1, deterministic=True) as other,
    ):
        for h, size in ((2, 5), (2, 7), (3, 16), (2, 33)):
            feeds = {"x": f32(h, size, 8)}
            drawn += check(session, feeds, programs)
            for one, wanted in zip(session.run(None, feeds), other.run(None, feeds), strict=True):
                np.testing.assert_allclose(one, wanted, rtol=1e-5, atol=1e-6)
    assert drawn >= 1


def test_without_questions_it_is_found_out(
    monkeypatch: pytest.MonkeyPatch, programs: list[Made]
) -> None:
    """Where traces have no guards, plans are wrong for some sizes, and these see it."""
    monkeypatch.setattr(Trace, "asked", unasked)
    asked = Blueprint.plan

    def plan(self: Blueprint, *rest: Any) -> Any:
        self.asked = []
        return asked(self, *rest)

    monkeypatch.setattr(Blueprint, "plan", plan)
    network = NETWORKS["attention"]()
    with (
        Session(network.proto, threads=2, cache_dir=None) as session,
        pytest.raises((AssertionError, VTensorError, ValueError)),
    ):
        [check(session, network.feeds(*row), programs) for row in network.sizes(3, 12)]


def picks() -> Graph:
    graph = Graph("picks")
    x = graph.input("x", {"N": None, "C": 8})
    graph.output(graph.add(Gather("C"), x, graph.input("i", {"K": 2}, "s64")), "y")
    graph.seal()
    return graph


def test_an_error_names_the_sizes_of_its_run() -> None:
    with Session(picks(), threads=1) as session:
        for size in (2, 3, 4):
            settled(session, {"x": np.ones((size, 8), np.float32), "i": np.array([0, 7])})
        with pytest.raises(InputError, match="N=5"):
            session.run(None, {"x": np.ones((5, 8), np.float32), "i": np.array([0, 99])})
        assert isinstance(session.plan, DrawnPlan)


def test_what_does_not_fit_is_refused_as_ever() -> None:
    with Session(picks(), threads=1, max_bytes=1 << 16) as session:
        for size in (2, 3, 4):
            settled(session, {"x": np.ones((size, 8), np.float32), "i": np.array([0, 7])})
        assert isinstance(session.plan, DrawnPlan)
        with pytest.raises(BudgetError, match="the largest value takes"):
            session.run(None, {"x": np.ones((4096, 8), np.float32), "i": np.array([0, 7])})
        [y] = session.run(None, {"x": np.ones((5, 8), np.float32), "i": np.array([0, 7])})
        assert y.shape == (5, 2)


def test_everything_is_said_of_it_that_is_of_others() -> None:
    network = NETWORKS["mobile"]()
    with Session(network.proto, threads=1, cache_dir=None, streams=2) as session:
        for n in (1, 2, 3):
            settled(session, network.feeds(n, 16, 16))
        plan = session.plan
        assert isinstance(plan, DrawnPlan)
        assert plan.taken_from == {"x": (1, 3, 16, 16)}
        assert session.memory.planned >= session.memory.live > 0
        assert len(plan_dict(session, "mobile")["steps"]) == len(plan.steps)
        profile = session.profile(network.feeds(3, 16, 16), runs=1)
        assert len(profile.calls) == len(plan.recorded)
        assert session.plan is plan


def test_what_is_drawn_waits_for_the_first_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody waits for that, and drawing would take its processors."""
    network, begun = NETWORKS["mobile"](), list[bool]()
    with Session(network.proto, threads=1, cache_dir=None) as session:
        session.run(None, network.feeds(1, 16, 16))
        plans, replay = session._runner.plans, Plan.replay
        assert plans is not None

        def noted(plan: Plan, *given: Any) -> bool:
            finite = replay(plan, *given)
            begun.append(bool(plans.ahead._works or plans.ahead.drawings))
            return finite

        monkeypatch.setattr(Plan, "replay", noted)
        session.run(None, network.feeds(2, 16, 16))
        assert begun == [False]
        assert plans.ahead._works
        check_drawn(session, network.feeds(3, 16, 16))


def test_a_first_run_that_fails_does_not_lose_it(monkeypatch: pytest.MonkeyPatch) -> None:
    network = NETWORKS["mobile"]()

    def fail(*given: Any, **named: Any) -> bool:
        raise NativeError("no luck")

    with Session(network.proto, threads=1, cache_dir=None) as session:
        session.run(None, network.feeds(1, 16, 16))
        with monkeypatch.context() as patched:
            patched.setattr(Executor, "replay", fail)
            with pytest.raises(NativeError, match="no luck"):
                session.run(None, network.feeds(2, 16, 16))
        check_drawn(session, network.feeds(3, 16, 16))


def check_drawn(session: Session, feeds: Mapping[str, Array]) -> None:
    """A run has a blueprint's plan."""
    settled(session, feeds)
    assert isinstance(session.plan, DrawnPlan)


@pytest.mark.usefixtures("others_done")
def test_what_was_traced_in_vain_is_drawn_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each drawing of a detector traces its convolutions anew: whoever draws has no other way."""
    monkeypatch.setattr(sized, "TRIES", 0)
    network = NETWORKS["mobile"]()
    with Session(network.proto, threads=1, cache_dir=None) as session:
        for batch in (1, 2):
            settled(session, network.feeds(batch, 16, 16))
        check_drawn(session, network.feeds(3, 16, 16))


@pytest.mark.usefixtures("others_done")
def test_a_call_that_was_decided_is_asked_for_once() -> None:
    """A convolution is compared with what it is without followers only where that is decided."""
    body = "c = Conv(x, w) y = Relu(c)"
    proto = model(
        f"g (float[n, 32, h, h] x) => (float[n, 32, h, h] y) {{ {body} }}", w=f32(32, 32, 1, 1)
    )
    with Session(proto, threads=1, cache_dir=None) as session:
        for size in (8, 9, 10):
            misses = dnnl.cache_info()["misses"]
            session.run(None, {"x": f32(2, 32, size, size)})
            asked = dnnl.cache_info()["misses"] - misses
            settle(session)
        assert isinstance(session.plan, DrawnPlan)
        assert asked == len(session.plan.recorded)


def test_threads_with_shapes_of_their_own() -> None:
    """Blueprints are drawn and followed while others run, and while a session is closed."""
    network = NETWORKS["mobile"]()
    given = [network.feeds(n, 16, 8 * h) for n in (1, 2, 3, 5) for h in (1, 2, 3)]
    with Session(network.proto, threads=1, deterministic=True, cache_dir=None) as alone:
        wanted = [alone.run(None, feeds) for feeds in given]
    for _ in range(3):
        with Session(network.proto, threads=1, cache_dir=None) as session:
            session.run(None, given[0])
            meet = threading.Barrier(4)

            def runs(begin: int, session: Session = session, meet: Any = meet) -> None:
                meet.wait(60)
                for place in (*range(begin, len(given), 4), *range(begin)):
                    for one, other in zip(
                        session.run(None, given[place]), wanted[place], strict=True
                    ):
                        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)

            with ThreadPoolExecutor(4) as pool:
                list(pool.map(runs, range(4)))


def drawn_of(session: Session, network: Network) -> tuple[Any, Any]:
    """The session's outline and blueprint, once it has seen two sizes of its network."""
    for n in (2, 3):
        session.run(None, network.feeds(n, 16, 16))
        settle(session)
    plans = session._runner.plans
    assert plans is not None
    [outline] = [one for row in plans._others.outlines._kept.values() for one in row]
    [blueprint] = [one for one in outline.drawn.values() if one is not None]
    return outline, blueprint


def test_what_says_no_is_asked_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a call is another one in other sizes, the others need not be asked of the next ones."""
    network, asked = NETWORKS["mobile"](), list[Any]()
    with Session(network.proto, threads=1, cache_dir=None) as session:
        outline, blueprint = drawn_of(session, network)
        sizes, last, ask = outline.sizes([4, 16, 16]), blueprint.calls[-1].rows, Rows.run

        def noted(rows: Rows, sizes: Any) -> Any:
            asked.append(rows)
            return None if rows is last else ask(rows, sizes)

        monkeypatch.setattr(Rows, "run", noted)
        assert blueprint._told(sizes, {}, session._runner.workspace) is None
        assert len(asked) > 1
        asked.clear()
        assert blueprint._told(sizes, {}, session._runner.workspace) is None
        assert asked == [last]


def test_what_libraries_decline_before_anything_is_compiled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    network = NETWORKS["mobile"]()
    with Session(network.proto, threads=1, cache_dir=None) as session:
        _, blueprint = drawn_of(session, network)
        [*_, one] = [one for one in blueprint.calls if len(one.nodes) == 1]
        monkeypatch.setattr(program_module, "described", None)  # which compiles a step
        assert blueprint.declining([4, 16, 16]) == frozenset()
        ask = Rows.run
        monkeypatch.setattr(
            Rows, "run", lambda rows, sizes: None if rows is one.rows else ask(rows, sizes)
        )
        assert blueprint.declining([4, 16, 16]) == {*one.nodes}
        assert blueprint.declining([4, 16, 0]) == frozenset()  # there is no such graph


def test_what_a_blueprint_refuses_is_refit_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """No plan is recorded first that would say the same."""
    network, asked = NETWORKS["mobile"](), list[Any]()
    refitted = taken_over.refitted
    with Session(network.proto, threads=1, cache_dir=None) as session:
        _, blueprint = drawn_of(session, network)
        [*_, first, second] = [one for one in blueprint.calls if len(one.nodes) == 1]
        ask = Rows.run

        def noted(rows: Rows, sizes: Any) -> Any:
            return None if rows in (first.rows, second.rows) else ask(rows, sizes)

        def refit(known: Any, faults: Any, **given: Any) -> Any:
            asked.append(faults)
            return refitted(known, faults, **given)

        monkeypatch.setattr(Rows, "run", noted)
        monkeypatch.setattr(strategies_module, "refitted", refit)
        monkeypatch.setattr(strategies_module, "taken", None)
        feeds = network.feeds(4, 16, 16)
        [y] = session.run(None, feeds)
        assert asked == [{*first.nodes, *second.nodes}]
        assert {*asked[0]} == {*session.plan.anew}
        with Session(network.proto, threads=1, optimize="none", cache_dir=None) as plain:
            np.testing.assert_allclose(y, plain.run(None, feeds)[0], rtol=1e-4, atol=1e-5)
        assert blueprint.refusing([4, 16, 16], session._runner.workspace, {}) == asked[0]


def test_what_takes_long_is_looked_at_side_by_side(monkeypatch: pytest.MonkeyPatch) -> None:
    executor, seen, meet = Executor.of(2), list[Any](), threading.Barrier(2)

    def brief(row: int) -> bool:
        seen.append((row, threading.get_ident()))
        return True

    def long(row: int) -> bool:
        if row:
            meet.wait(60)  # two of them, or nothing comes of it
        sleep(2 * ALONE_S)
        return True

    with monkeypatch.context() as patched:
        patched.setattr("vtensor.runtime.all_of.ALONE_S", 60.0)
        assert all_of(brief, range(4), executor, 2)
    assert seen == [(row, threading.get_ident()) for row in range(4)]
    assert all_of(long, range(5), executor, 2)
    assert all_of(long, range(1), executor, 1)


def test_what_took_long_is_known_to_take_long() -> None:
    executor, meet = Executor.of(2), threading.Barrier(2)

    def does(row: int) -> bool:
        return meet.wait(60) < 2  # each needs another one beside it

    assert all_of(does, range(2), executor, 2, takes=2 * ALONE_S)


def test_what_took_long_is_asked_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else one thread is still at it when the others are done."""
    network = NETWORKS["mobile"]()
    with Session(network.proto, threads=1, cache_dir=None) as session:
        outline, blueprint = drawn_of(session, network)
        ask, asked = Rows.run, list[Any]()
        slow = blueprint.calls[len(blueprint.calls) // 2].rows

        def noted(rows: Rows, sizes: Any) -> Any:
            asked.append(rows)
            sleep(0.5 * (rows is slow))
            return ask(rows, sizes)

        monkeypatch.setattr(Rows, "run", noted)
        for n in (4, 5):
            sizes = outline.sizes([n, 16, 16])
            asked.clear()
            assert blueprint._told(sizes, {}, session._runner.workspace) is not None
        assert asked[0] is slow
        assert len(asked) > 2


@pytest.mark.parametrize("threads", [1, 2])
def test_nobody_looks_further_than_at_what_says_no(threads: int) -> None:
    seen = list[int]()

    def does(row: int) -> bool:
        seen.append(row)
        sleep(2 * ALONE_S)
        return row < 2

    assert not all_of(does, range(50), Executor.of(2), threads)
    assert len(seen) <= 2 + threads
