"""A first plan by what libraries declare, and the one by times of the machine that replaces it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pytest

from ops import Relu
from optimizer.joint import joint
from optimizer.settings import Settings
from ptensor.stopping import stopping
from resolver.lowered import LoweredGraph, OpNode
from resolver.strategy import Strategy
from tests.optimizer.test_joint import lowered, tail
from vtensor import Graph, Session, save_onnx
from vtensor.language.trace import NotSaved
from vtensor.report import plan_dict
from vtensor.runtime import provisional
from vtensor.runtime.better import Better
from vtensor.runtime.burden import avoidable, nearby
from vtensor.runtime.executor import Executor
from vtensor.runtime.keys import PlanKey
from vtensor.runtime.measure import GLANCE, node_ns
from vtensor.runtime.options import Options
from vtensor.runtime.probing import Probe
from vtensor.runtime.program_notes import Notes
from vtensor.runtime.programs import KeptPlan
from vtensor.runtime.strategies import Strategies
from vtensor.runtime.strategy_cache import StrategyCache
from vtensor.runtime.taken_over import Known

if TYPE_CHECKING:
    from vtensor.runtime.outline import Outline

WAIT = Better.wait

#: Rows of which a Relu is large enough to be looked at.
ROWS = 1000


def settled() -> None:
    """Wait for what is made in the background."""
    for thread in threading.enumerate():
        if thread.name == "vtensor-better":
            thread.join(60)


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[int], list[str]]]:
    """Relus on Eigen take a millisecond, on oneDNN what is said; lists who was looked at.

    A better plan is made when a plan is used again.
    """

    def set_to(onednn_ns: int) -> list[str]:
        seen, ns = list[str](), {"onednn": onednn_ns, "eigen": 10**6}

        def node(self: Probe, node: OpNode, values: object) -> int | None:
            seen.append(node.variant.library)
            return ns.get(node.variant.library)

        monkeypatch.setattr(Probe, "node", node)
        return seen

    monkeypatch.setattr("vtensor.runtime.options.speeds_asked_for", lambda: dict)
    monkeypatch.setattr(Better, "wait", lambda *_: None)
    monkeypatch.setattr("vtensor.runtime.programs.only_own", lambda: True)  # other tests are there
    yield set_to
    settled()


def network(rows: int | None = ROWS) -> Graph:
    """A Relu, in open sizes where none are said."""
    g = Graph("one")
    g.output(g.add(Relu(), g.input("x", {"N": rows, "C": 800}), name="relu"), "y")
    return g.seal()


def feeds(rows: int = ROWS) -> dict[str, Any]:
    """Numbers on both sides of zero."""
    return {"x": np.random.default_rng(rows).standard_normal((rows, 800)).astype(np.float32)}


def library(session: Session) -> str:
    """Who runs the Relu."""
    [node] = session.plan.graph.operators
    return node.variant.library


def used(session: Session, given: dict[str, Any], times: int = 2) -> None:
    """Run it so often; wait for what that begins; run it again, and wait for that."""
    for _ in range(times):
        np.testing.assert_array_equal(session.run(None, given)[0], given["x"].clip(0))
    settled()
    for _ in range(2):
        np.testing.assert_array_equal(session.run(None, given)[0], given["x"].clip(0))
    settled()


def test_a_measured_plan_takes_the_place_of_a_provisional_one(
    looks: Callable[[int], list[str]], tmp_path: Path
) -> None:
    seen = looks(10**9)
    with Session(network(), threads=1, cache_dir=tmp_path) as session:
        assert (session.plan.provisional, library(session), seen) == (True, "onednn", [])
        assert (
            "it is provisional: chosen by what libraries declare"
            in plan_dict(session, "")["better"]
        )
        used(session, feeds())
        assert (session.plan.provisional, library(session)) == (False, "eigen")
        assert session.plan.better is None
    assert set(seen) == {"onednn", "eigen"}
    seen.clear()
    with Session(network(), threads=1, cache_dir=tmp_path) as session:
        assert (session.plan.provisional, library(session), seen) == (False, "eigen", [])


def test_a_process_that_runs_once_leaves_a_provisional_plan_to_the_next(
    looks: Callable[[int], list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = looks(10**9)
    with monkeypatch.context() as patch:
        patch.setattr(Better, "wait", WAIT)
        with Session(network(), threads=1, cache_dir=tmp_path) as session:
            session.run(None, feeds())
            assert not [one for one in threading.enumerate() if one.name == "vtensor-better"]
    assert seen == []
    with monkeypatch.context() as patch:
        patch.setattr(provisional, "first_plan", None)  # nothing is chosen again
        second = Session(network(), threads=1, cache_dir=tmp_path)
    with second:
        assert (second.plan.provisional, library(second)) == (True, "onednn")
        used(second, feeds())
        assert (second.plan.provisional, library(second)) == (False, "eigen")


def test_where_the_same_is_chosen_the_plan_stays(
    looks: Callable[[int], list[str]], tmp_path: Path
) -> None:
    seen = looks(1)
    with Session(network(), threads=1, cache_dir=tmp_path) as session:
        plan = session.plan
        used(session, feeds())
        assert seen == ["onednn"]
        assert session.plan is plan
        assert (plan.provisional, plan.better) == (False, None)
    with Session(network(), threads=1, cache_dir=tmp_path) as session:
        assert not session.plan.provisional


@pytest.mark.parametrize(
    "options",
    [{"deterministic": True}, {"optimize": "lho"}, {"optimize": "ewo"}, {"objective": "shared"}],
    ids=str,
)
def test_what_is_not_provisional(
    looks: Callable[[int], list[str]], options: dict[str, Any]
) -> None:
    looks(10**9)
    with Session(network(), threads=1, **options) as session:
        assert not session.plan.provisional
        assert library(session) == ("eigen" if "deterministic" in options else "onednn")


@pytest.mark.parametrize("what", ["lock", "profile", "bind"])
def test_who_wants_the_measured_plan_waits_for_it(
    looks: Callable[[int], list[str]], what: str
) -> None:
    looks(10**9)
    with Session(network(), threads=1) as session:
        if what == "lock":
            assert 'library = "eigen"' in session.lock().text()
        elif what == "profile":
            session.profile(feeds(), runs=1)
        else:
            session.bind(feeds()).run()
        assert (session.plan.provisional, library(session)) == (False, "eigen")
        used(session, feeds())
        assert library(session) == "eigen"


def test_other_sizes_follow(looks: Callable[[int], list[str]], tmp_path: Path) -> None:
    """A plan that is taken from a provisional one is one itself, and has its own place taken; sizes
    that come then are as the measured one is.
    """
    seen = looks(10**9)
    with Session(network(None), threads=1, cache_dir=tmp_path) as session:
        session.run(None, feeds())
        session.run(None, feeds(2 * ROWS))
        assert (session.plan.provisional, library(session)) == (True, "onednn")
        assert session.plan.taken_from == {"x": (ROWS, 800)}
        used(session, feeds(2 * ROWS))
        assert (session.plan.provisional, library(session)) == (False, "eigen")
        seen.clear()
        session.run(None, feeds(3 * ROWS))
        assert (session.plan.provisional, library(session)) == (False, "eigen")
        used(session, feeds())
        assert (session.plan.provisional, library(session)) == (False, "eigen")
        assert session.plan.taken_from == {"x": (2 * ROWS, 800)}
        assert seen == []


def test_a_look_takes_its_place_between_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that neither takes processors from the other."""
    begun, both = list[str](), [Executor.of(1), Executor(2)]
    real = Executor.run

    def run(self: Executor, function: Callable[[], Any]) -> Any:
        begun.append("one" if self is both[0] else "session")
        return real(self, function)

    with Session(network(), threads=1) as session:
        graph = session.plan.graph
    [node] = graph.operators
    monkeypatch.setattr(Executor, "run", run)
    told = (node, graph.tensors, both[0], GLANCE, lambda _: None, both[1])
    with stopping(lambda: False):
        node_ns(*told)
    assert begun[-2:] == ["session", "one"]
    begun.clear()
    node_ns(*told)  # somebody waits for it
    assert "session" not in begun


@pytest.mark.parametrize("enough", [0.0, -1.0])
def test_libraries_are_asked_where_other_variants_may_gain(
    looks: Callable[[int], list[str]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    enough: float,
) -> None:
    looks(1)
    for limit in ("ENOUGH", "WORTH"):
        monkeypatch.setattr(provisional, limit, enough)
    for _ in range(2):  # the second time from the cache
        with Session(network(), threads=1, cache_dir=tmp_path) as session:
            assert session.plan.provisional
            assert ("joint" in session.plan.passes) == (enough < 0)
            assert session.plan.certificate is None, "nobody asked about nodes that are far away"


def test_what_other_variants_could_spare() -> None:
    """By estimate: the time of Transforms, and of reference code."""
    resolved, _ = lowered(tail())
    assert any(resolved.transforms())
    assert 0 < avoidable(resolved, Options()) < 1
    bare = resolved.bare
    assert avoidable(bare, Options()) == 0
    first, *others = bare.operators
    slow = replace(first, variant=replace(first.variant, reference=True))
    assert 0.5 < avoidable(replace(bare, nodes=[slow, *others]), Options()) < 1


def test_nodes_are_asked_that_are_near_to_what_takes_time() -> None:
    """A Transform's ends, and as many nodes farther as is said."""
    bare = lowered(tail())[0].bare
    slow, *others = bare.operators
    slow = replace(slow, variant=replace(slow.variant, reference=True))
    graph = replace(bare, nodes=[slow, *others])
    assert nearby(bare, 9) == set()
    reached = [nearby(graph, hops) for hops in range(len(others) + 1)]
    assert reached[0] == {slow.name}
    near = {
        node.name
        for node in others
        if {*node.inputs, *node.outputs} & {*slow.inputs, *slow.outputs}
    }
    assert reached[1] == {slow.name, *near}
    assert reached[-1] == {node.name for node in graph.operators}


def test_the_rest_of_a_network_is_not_asked(
    looks: Callable[[int], list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It keeps its variants, and nothing is proven of it."""
    looks(1)
    asked = list[frozenset[str] | None]()

    def noted(graph: LoweredGraph, settings: Settings) -> LoweredGraph:
        asked.append(settings.only)
        return joint(graph, settings)

    monkeypatch.setattr("optimizer.joint.joint", noted)
    for limit in ("ENOUGH", "WORTH"):
        monkeypatch.setattr(provisional, limit, -1.0)
    monkeypatch.setattr(provisional, "nearby", lambda *_: frozenset(["near"]))
    with Session(tail(), threads=1, cache_dir=False) as session:
        assert session.plan.provisional
        assert any(session.plan.graph.transforms())
        assert session.plan.certificate is None
    assert asked == [frozenset(["near"])]


def test_what_is_kept_of_a_plan_as_it_runs_gives_way_to_a_measured_one(
    looks: Callable[[int], list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks(10**9)
    model, cache = tmp_path / "one.onnx", tmp_path / "cache"
    save_onnx(network(), model)

    def starts() -> list[tuple[bool, bool, str]]:
        """Of three processes that run once: the plan is a kept one, provisional, and on which
        library."""
        found = []
        with monkeypatch.context() as patch:
            patch.setattr(Better, "wait", WAIT)
            for _ in range(3):
                with Session(model, threads=1, cache_dir=cache) as session:
                    np.testing.assert_array_equal(
                        session.run(None, feeds())[0], feeds()["x"].clip(0)
                    )
                    kept = isinstance(session.plan, KeptPlan)
                    settled()
                    found.append((kept, session.plan.provisional, library(session)))
        return found

    assert starts() == [(False, True, "onednn"), (True, True, "onednn"), (True, True, "onednn")]
    with Session(model, threads=1, cache_dir=cache) as session:
        assert isinstance(session.plan, KeptPlan)
        used(session, feeds())
        assert (session.plan.provisional, library(session)) == (False, "eigen")
    assert starts() == [(True, False, "eigen")] * 3
    with Session(model, threads=1, cache_dir=cache, deterministic=True) as session:
        assert (session.plan.provisional, library(session)) == (False, "eigen")


@pytest.mark.parametrize("can_be_kept", [True, False])
def test_a_measured_plan_is_written_down_as_it_runs_by_who_made_it(
    looks: Callable[[int], list[str]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    can_be_kept: bool,
) -> None:
    looks(10**9)
    model = tmp_path / "model.onnx"
    save_onnx(network(), model)
    if not can_be_kept:

        def refused(_: Notes) -> None:
            raise NotSaved("for a test")

        monkeypatch.setattr(Notes, "check", refused)
    with Session(model, threads=1, cache_dir=tmp_path) as session:
        before = session.memory
        used(session, feeds())
        assert (session.plan.provisional, library(session)) == (False, "eigen")
        assert session.memory == before  # what was made to be written is gone
    with Session(model, threads=1, cache_dir=tmp_path) as session:
        assert isinstance(session.plan, KeptPlan) is can_be_kept
        assert (session.plan.provisional, library(session)) == (False, "eigen")
        used(session, feeds())


@pytest.mark.parametrize("in_a_file", [True, False])
def test_nothing_is_made_to_be_written_of_what_no_file_has(
    looks: Callable[[int], list[str]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    in_a_file: bool,
) -> None:
    looks(10**9)
    asked: list[object] = []
    honest = StrategyCache.plan

    def plan(*given: Any, **named: Any) -> Any:
        asked.append(given)
        return honest(*given, **named)

    monkeypatch.setattr(StrategyCache, "plan", plan)
    model = tmp_path / "model.onnx"
    save_onnx(network(), model)
    with Session(model if in_a_file else network(), threads=1, cache_dir=tmp_path) as session:
        used(session, feeds())
        assert not session.plan.provisional
    # For the first plan, to see whether another process has measured it, and to write it then.
    assert len(asked) == 2 + in_a_file


def test_fixed_sizes_get_no_room_for_others(
    looks: Callable[[int], list[str]], tmp_path: Path
) -> None:
    looks(10**9)
    model = tmp_path / "model.onnx"
    save_onnx(network(), model)
    with Session(model, threads=1, cache_dir=tmp_path) as session:
        arena = session.memory.arena
        used(session, feeds())
        assert (session.plan.provisional, session.memory.arena) == (False, arena)


def test_a_plan_that_another_took_the_place_of_can_be_locked(
    looks: Callable[[int], list[str]],
) -> None:
    looks(10**9)
    with Session(network(), threads=1) as session:
        first = session.plan
        session.run(None, feeds())
        settled()
        assert session.plan is first
        assert first.provisional
        assert "eigen" in str(session.lock())
        assert session.plan is not first
        assert session.plan.provisional is False


def test_a_measured_plan_of_another_session_is_taken_without_measuring(
    looks: Callable[[int], list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As long as nobody has written it down as it runs, a start has the provisional one."""
    seen = looks(10**9)
    model, cache = tmp_path / "one.onnx", tmp_path / "cache"
    save_onnx(network(), model)
    with monkeypatch.context() as patch:
        patch.setattr(Better, "wait", WAIT)
        for _ in range(3):
            with Session(model, threads=1, cache_dir=cache) as session:
                assert session.plan.provisional
        with Session(model, threads=1, cache_dir=cache, deterministic=True) as session:
            assert library(session) == "eigen"
    seen.clear()
    with Session(model, threads=1, cache_dir=cache) as session:
        assert isinstance(session.plan, KeptPlan)
        assert session.plan.provisional
        used(session, feeds())
        assert (session.plan.provisional, library(session)) == (False, "eigen")
    assert not seen
    with Session(model, threads=1, cache_dir=cache) as session:
        assert isinstance(session.plan, KeptPlan)
        assert (session.plan.provisional, library(session)) == (False, "eigen")


def test_blueprints_of_provisional_plans_serve_until_others_are_drawn() -> None:
    """Which takes a second or so; whoever looks for a measured plan has none of them."""
    key, outline = PlanKey(()), SimpleNamespace(drawn=dict[object, object]())
    first, own = (Strategy(LoweredGraph("none")) for _ in range(2))
    strategies, outlines = Strategies(), cast("list[Outline]", [outline])
    strategies.add(Known(first, key, 0.0, provisional=True))
    strategies.add(Known(own, key, 0.0))
    outline.drawn[first] = outline.drawn[own] = None
    asked = strategies._asked(key, outlines, provisional=True)
    assert [one.strategy for one in asked] == [first, own]
    asked = strategies._asked(key, outlines, provisional=False)
    assert [one.strategy for one in asked] == [own]
    outline.drawn[own] = "a blueprint"
    asked = strategies._asked(key, outlines, provisional=True)
    assert [one.strategy for one in asked] == [own]
    assert strategies.measured(key)


def test_provisional_plans_are_not_taken_over_where_there_are_others() -> None:
    key = PlanKey(())
    strategies = Strategies()
    for first in (True, False):
        empty = Strategy(LoweredGraph("none"))
        strategies.add(Known(empty, key, 0.0, provisional=first))
    assert [one.provisional for one in strategies._nearest(key)] == [False]
