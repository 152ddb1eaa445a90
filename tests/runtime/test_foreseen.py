"""A session whose model is used again is ready for sizes that it has not seen."""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from pathlib import Path
from time import sleep
from typing import Any

import numpy as np
import pytest

from ptensor.layout import Layout
from ptensor.stopping import go_on
from resolver.evaluate import resolutions
from resolver.strategy import Strategy, StrategyRefused
from tests.frontends.support import f32, model
from tests.runtime.opened import NETWORKS, Network
from tests.runtime.test_blueprint import Made, check, programs, settle
from vtensor import Session
from vtensor.language.index import importing
from vtensor.runtime import strategies as strategies_module
from vtensor.runtime import taken_over
from vtensor.runtime.ahead import NEAR
from vtensor.runtime.blueprint import Blueprint
from vtensor.runtime.drawn import DrawnPlan
from vtensor.runtime.entries import FOLDER, Entries
from vtensor.runtime.executor import Executor
from vtensor.runtime.feeds import Port
from vtensor.runtime.keys import InputKey, PlanKey
from vtensor.runtime.source import Source

__all__ = ["programs"]  # a fixture

ROOT = Path(__file__).parents[2]

#: Of these no blueprint can be: ``test_blueprint`` says why.
NONE = {"detector"}


def used(session: Session, feeds: dict[str, Any]) -> None:
    """Run twice, and wait for what that begins."""
    for _ in range(2):
        session.run(None, feeds)
    settle(session)


def strategies(session: Session) -> int:
    plans = session._runner.plans
    assert plans is not None
    return sum(len(known) for known in plans._others.strategies._known.values())


@pytest.mark.parametrize("name", NETWORKS)
def test_the_first_other_size_has_a_blueprint(name: str, programs: list[Made]) -> None:
    network = NETWORKS[name]()
    drawn = []
    for first, other in zip(network.sizes(3, 8), network.sizes(4, 8), strict=True):
        with Session(network.proto, threads=1, cache_dir=None) as session:
            used(session, network.feeds(*first))
            if first != other:
                drawn.append(check(session, network.feeds(*other), programs))
    assert any(drawn) == (name not in NONE)


def test_of_one_there_are_two(programs: list[Made]) -> None:
    """A batch of one is unlike all others, and what is made for it serves none of them."""
    network = NETWORKS["attention"]()
    base = network.feeds(1, 6)
    with Session(network.proto, threads=1, cache_dir=None) as session:
        used(session, base)
        for n in (2, 3, 7):
            assert check(session, network.feeds(n, 6), programs), n


def test_shapes_that_stand_for_others() -> None:
    source = Source.__new__(Source)
    source.inputs = [
        Port("x", "f32", (None, 3, None), ("N", "C", "W")),
        Port("n", "s64", (None,), ("N",)),
    ]
    fixed = {"n": (1,)}
    found = source.foreseen({"x": (1, 3, 1), **fixed}, {"n"})
    assert found == [{"x": (2, 3, 2), **fixed}, {"x": (3, 3, 3), **fixed}]
    found = source.foreseen({"x": (1, 3, 8), **fixed}, ())
    assert found == [
        {"x": (1, 3, 8), **fixed},
        {"x": (2, 3, 8), "n": (2,)},
        {"x": (3, 3, 8), "n": (3,)},
    ]
    assert source.foreseen({"x": (4, 3, 8), **fixed}, {"n"}) == [{"x": (4, 3, 8), **fixed}]


def test_what_a_library_refuses_of_the_next_size_is_chosen_ahead(
    monkeypatch: pytest.MonkeyPatch, programs: list[Made]
) -> None:
    """What was drawn for two does not do for three: there is another for that."""
    network = NETWORKS["attention"]()
    given = dict[int, frozenset[str]]()

    def refusing(blueprint: Blueprint, sizes: Sequence[int], *_: Any) -> frozenset[str]:
        names = sorted(node.name for node in blueprint.strategy.chosen.operators)
        three = 3 in sizes and blueprint.sizes([3, 6]) is not None and not given
        if three:
            given[3] = frozenset(names[:1])
        return given[3] if three else frozenset()

    monkeypatch.setattr(Blueprint, "refusing", refusing)
    with Session(network.proto, threads=1, cache_dir=None) as session:
        used(session, network.feeds(1, 6))
        assert given
        assert strategies(session) == 2
        assert check(session, network.feeds(3, 6), programs)


def test_shapes_near_by() -> None:
    source = Source.__new__(Source)
    source.inputs = [
        Port("x", "f32", (None, 3, None, None), ("N", "C", "H", "W")),
        Port("n", "s64", (None,), ("N",)),
    ]
    fixed = {"n": (7,)}
    found = source.near({"x": (1, 3, 320, 24), **fixed}, {"n"})
    every = [(352, 32), (384, 40), (288, 16), (416, 48)]
    apart = [*((one, 24) for one, _ in every), *((320, one) for _, one in every)]
    assert found == [{"x": (1, 3, *sizes), **fixed} for sizes in (*every, *apart)]
    found = source.near({"x": (1, 3, 1, 8), **fixed}, {"n"})  # nor is there a size of none
    assert found == [{"x": (1, 3, 1, size), **fixed} for size in (16, 24, 32)]
    assert source.near({"x": (1, 3, 1, 1), **fixed}, {"n"}) == []
    source.inputs = [Port(name, "s64", (None, None), ("N", "T")) for name in ("ids", "mask")]
    found = source.near({"ids": (1, 6), "mask": (1, 6)}, ())
    assert found == [{"ids": (1, size), "mask": (1, size)} for size in (8, 10, 4, 12)]


def test_what_is_refused_of_any_size_near_by_is_chosen_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    network, faults = NETWORKS["mobile"](), list[frozenset[str]]()
    sizes = {(32, 32): 0, (48, 48): 1, (16, 64): 2}

    def refusing(blueprint: Blueprint, given: Sequence[int], *_: Any) -> frozenset[str]:
        names = sorted(node.name for node in blueprint.strategy.chosen.operators)
        at = sizes.get((given[1], given[2]))
        return frozenset(() if at is None or faults else [names[at]])

    def widened(_: object, nodes: frozenset[str]) -> None:
        faults.append(nodes)
        raise StrategyRefused("for a test")

    monkeypatch.setattr(Blueprint, "refusing", refusing)
    monkeypatch.setattr(Blueprint, "declining", refusing)
    monkeypatch.setattr(strategies_module, "widened", widened)
    with Session(network.proto, threads=1, cache_dir=None) as session:
        used(session, network.feeds(1, 16, 16))
    assert [len(nodes) for nodes in faults] == [3]


@pytest.mark.parametrize("kinds", [0, 1, 2, 5])
def test_what_a_library_refuses_of_sizes_near_by_is_chosen_ahead(
    monkeypatch: pytest.MonkeyPatch, programs: list[Made], kinds: int
) -> None:
    """One drawing is for as many of them as can be, and there are few: sizes are of so many kinds
    of which each needs one of its own.
    """
    network, known = NETWORKS["mobile"](), list[Strategy]()

    def refusing(blueprint: Blueprint, sizes: Sequence[int], *_: Any) -> frozenset[str]:
        if blueprint.strategy not in known:
            known.append(blueprint.strategy)
        batch, height, width = sizes
        kind = 0 if batch > 1 or (height, width) == (8, 8) else (height + width) // 8 % kinds + 1
        names = sorted(node.name for node in blueprint.strategy.chosen.operators)
        return frozenset(names[:1] if known.index(blueprint.strategy) != kind else ())

    with Session(network.proto, threads=1, cache_dir=None) as session:
        used(session, network.feeds(1, 8, 8))
        without = strategies(session)
    with Session(network.proto, threads=1, cache_dir=None) as session:
        if kinds:
            monkeypatch.setattr(Blueprint, "refusing", refusing)
            monkeypatch.setattr(Blueprint, "declining", refusing)
        used(session, network.feeds(1, 8, 8))
        assert strategies(session) == without + min(kinds, NEAR)
        assert check(session, network.feeds(1, 24, 16), programs)


def test_nodes_are_decided_anew_until_all_fit() -> None:
    asked = list[frozenset[str]]()

    def make(faults: frozenset[str]) -> str:
        asked.append(faults)
        if missing := sorted({"a", "b", "c"} - faults):
            raise StrategyRefused("it declines", missing[:1])
        return "fits"

    assert taken_over.widened(make, frozenset("c")) == "fits"
    assert asked == [frozenset("c"), frozenset("ac"), frozenset("abc")]


def test_nodes_are_not_added_for_ever() -> None:
    asked = list[int]()

    def make(faults: frozenset[str]) -> None:
        asked.append(len(faults))
        raise StrategyRefused("it declines", {*faults, str(len(faults))})

    with pytest.raises(StrategyRefused, match="declines"):
        taken_over.widened(make, frozenset())
    assert asked == [*range(taken_over.WIDENED + 1)]


def test_where_no_other_node_is_named_it_ends() -> None:
    def make(faults: frozenset[str]) -> str:
        raise StrategyRefused("its library has nothing else", faults)

    with pytest.raises(StrategyRefused, match="nothing else"):
        taken_over.widened(make, frozenset("a"))


@pytest.mark.parametrize("options", [{"deterministic": True}, {"optimize": "none"}])
def test_where_a_plan_is_one_of_its_own_nothing_is_foreseen(options: dict[str, Any]) -> None:
    network = NETWORKS["mobile"]()
    with Session(network.proto, threads=1, cache_dir=None, **options) as session:
        used(session, network.feeds(1, 16, 16))
        session.run(None, network.feeds(2, 16, 16))
        assert not isinstance(session.plan, DrawnPlan)


def test_one_run_foresees_nothing() -> None:
    network = NETWORKS["mobile"]()
    with Session(network.proto, threads=1, cache_dir=None) as session:
        session.run(None, network.feeds(1, 16, 16))
        plans = session._runner.plans
        assert plans is not None
        assert not plans.ahead.foreseen
        assert not plans.ahead._works


def test_sizes_that_cannot_be_are_nobodys_concern() -> None:
    """The batch has to be one: whoever looks further finds that out, and all is as before."""
    body = "s = Reshape(x, eight) t = Transpose<perm = [1, 0]>(s) y = Add(x, s)"
    proto = model(f"g (float[n, 8] x) => (float[n, 8] y) {{ {body} }}", 17, eight=np.array([1, 8]))
    with Session(proto, threads=1, cache_dir=None) as session:
        used(session, {"x": f32(1, 8)})
        [y] = session.run(None, {"x": f32(1, 8)})
        np.testing.assert_array_equal(y, 2 * f32(1, 8))
        assert strategies(session) == 1


#: Sizes whose choice does not fit where two stands for each one; nor does that where three does.
ALIKE = (1, 31, 1)


def chosen_anew(network: Network, folder: Path) -> bool:
    """Use a model in a session with a cache; whether what other sizes need was chosen."""
    found, choose = list[object](), taken_over.refit_or_anew

    def noted(*given: Any) -> Any:
        found.append(given)
        return choose(*given)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(strategies_module, "refit_or_anew", noted)
        with Session(network.proto, threads=1, cache_dir=folder) as session:
            used(session, network.feeds(*ALIKE))
            assert strategies(session) == 3
    return bool(found)


def test_another_process_need_not_choose_again(tmp_path: Path, programs: list[Made]) -> None:
    network = NETWORKS["mobile"]()
    assert chosen_anew(network, tmp_path)
    assert not chosen_anew(network, tmp_path)
    with Session(network.proto, threads=1, cache_dir=tmp_path) as session:
        used(session, network.feeds(*ALIKE))
        assert check(session, network.feeds(2, 31, 2), programs)


def test_sizes_that_come_sooner_take_it_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    network, chosen = NETWORKS["mobile"](), list[object]()
    assert chosen_anew(network, tmp_path)
    for name in ("refitted", "mended"):
        monkeypatch.setattr(strategies_module, name, lambda *given: chosen.append(given))
    with Session(network.proto, threads=1, cache_dir=tmp_path) as session:
        session.run(None, network.feeds(*ALIKE))
        [found] = session.run(None, network.feeds(2, 31, 2))
    with Session(network.proto, threads=1, cache_dir=None) as session:
        [wanted] = session.run(None, network.feeds(2, 31, 2))
    assert not chosen
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("damage", ["inputs", "chosen"])
def test_an_entry_that_says_something_else_is_not_taken(tmp_path: Path, damage: str) -> None:
    network = NETWORKS["mobile"]()
    assert chosen_anew(network, tmp_path)
    cache = Entries(tmp_path)
    names = cache.names("ahead-")
    assert len(names) == 2
    for name in names:
        data = json.loads(cache.read(name) or b"")
        data[damage] = []
        cache.write(name, json.dumps(data).encode())
    assert chosen_anew(network, tmp_path)


def test_a_start_takes_nothing_that_was_chosen_ahead(tmp_path: Path) -> None:
    """It may be less than what a plan of these sizes gets."""
    network = NETWORKS["mobile"]()
    assert chosen_anew(network, tmp_path)
    for name in (cache := Entries(tmp_path)).names(""):
        if not name.startswith("ahead-"):
            (tmp_path / FOLDER / name).unlink()
    assert cache.names("")
    before = resolutions()
    with Session(network.proto, threads=1, cache_dir=tmp_path) as session:
        session.run(None, network.feeds(2, 31, 2))
    assert resolutions() > before


def test_nobody_waits_for_what_others_import() -> None:
    """Neither a shape that runs again, which is when others are foreseen, nor another one."""
    network, held, over = NETWORKS["mobile"](), threading.Event(), threading.Event()

    def imports() -> None:
        with importing:
            held.set()
            over.wait(120)

    with Session(network.proto, threads=1, cache_dir=None) as session:
        session.run(None, network.feeds(*ALIKE))

        def runs() -> None:
            for sizes in (ALIKE, (3, 24, 24)):
                session.run(None, network.feeds(*sizes))

        threads = [threading.Thread(target=one) for one in (imports, runs)]
        threads[0].start()
        assert held.wait(60)
        threads[1].start()
        threads[1].join(60)
        waits = threads[1].is_alive()
        over.set()
        for thread in threads:
            thread.join()
    assert not waits


@pytest.mark.usefixtures("others_done")
def test_work_beside_runs_knows_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """It rests then, and not before or behind them."""
    replay, seen = Executor.replay, list[tuple[bool, bool]]()
    network = NETWORKS["mobile"]()
    with Session(network.proto, threads=1, cache_dir=None) as session:
        plans = session._runner.open()

        def noted(*given: Any, **named: Any) -> bool:
            seen.append((plans._workspace.lanes.busy, plans.ahead.hurries()))
            return replay(*given, **named)

        monkeypatch.setattr(Executor, "replay", noted)
        used(session, network.feeds(*ALIKE))
        assert plans.ahead.hurries()
    assert seen
    assert set(seen) == {(True, False)}


def test_what_is_for_other_ones_is_tried_alone_or_not_at_all() -> None:
    def key(n: int, w: int) -> PlanKey:
        return PlanKey((InputKey("x", (n, w), "f32", Layout("N/1 W/1")),))

    def tried(n: int, w: int, *known: PlanKey) -> list[PlanKey]:
        strategies = strategies_module.Strategies()
        for one in known:
            strategies.add(taken_over.Known(Strategy.__new__(Strategy), one, 0.0))
        return [one.key for one in strategies._nearest(key(n, w))]

    one, two, three = key(1, 8), key(2, 8), key(3, 64)
    assert tried(1, 9, two, one) == [one]
    assert tried(2, 9, one, two, three) == [two]
    assert tried(2, 9, two, three) == [two, three]
    assert tried(2, 9, one) == [one]


class Slow:
    """Drawing that waits, the first time, until somebody wants a plan.

    Attributes:
        begun: set when it begins.
        tries: how often it has begun.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.begun, self.tries, self._draw = threading.Event(), 0, strategies_module._draw
        monkeypatch.setattr(strategies_module, "_draw", self)

    def __call__(self, *given: Any) -> None:
        self.tries += 1
        self.begun.set()
        while self.tries == 1:
            go_on()
            sleep(0.001)
        self._draw(*given)

    def passed(self, session: Session, feeds: dict[str, Any]) -> None:
        """A run has a plan of its own meanwhile; behind it, all is drawn."""
        assert self.begun.wait(60)
        session.run(None, feeds)
        assert not isinstance(session.plan, DrawnPlan)
        settle(session)
        assert self.tries == 2


def test_who_wants_a_plan_meanwhile_has_it_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once: then what plans are made of is drawn to its end."""
    network, slow = NETWORKS["attention"](), Slow(monkeypatch)
    with Session(network.proto, threads=1, cache_dir=None) as session:
        for _ in range(2):
            session.run(None, network.feeds(3, 6))
        slow.passed(session, network.feeds(4, 6))
        session.run(None, network.feeds(5, 6))
        assert isinstance(session.plan, DrawnPlan)


def test_what_is_drawn_behind_a_run_gives_way_once(monkeypatch: pytest.MonkeyPatch) -> None:
    network = NETWORKS["attention"]()
    with Session(network.proto, threads=1, cache_dir=None) as session:
        session.run(None, network.feeds(3, 6))
        slow = Slow(monkeypatch)
        session.run(None, network.feeds(4, 6))
        slow.passed(session, network.feeds(5, 6))
        session.run(None, network.feeds(6, 6))
        assert isinstance(session.plan, DrawnPlan)


def test_closed_meanwhile() -> None:
    network = NETWORKS["attention"]()
    for _ in range(5):
        session = Session(network.proto, threads=1, cache_dir=None)
        for _ in range(2):
            session.run(None, network.feeds(1, 6))
        session.close()
        settle(session)
