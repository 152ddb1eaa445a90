"""Better plans are made in the background and exchanged between runs; whatever happens meanwhile,
the plan that is there is right.
"""

from __future__ import annotations

import builtins
import contextvars
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import cycle
from pathlib import Path
from random import Random

import numpy as np
import pytest

from libdesc import register
from optimizer.bound import excess, total_ns
from optimizer.candidates import shared_variants
from optimizer.pipeline import optimise
from optimizer.problem import Problem
from optimizer.remake import remade
from optimizer.settings import Settings
from ptensor import stopping as stopping_module
from ptensor.stopping import Stopped, behind, go_on, in_front, in_no_hurry, stopping
from resolver.strategy import Strategy
from tests.libraries.bench import Bench
from tests.optimizer.graphs import extended_of, random_graph
from tests.runtime.opened import NETWORKS, Array
from vtensor import Session
from vtensor.report import plan_dict, plan_lines
from vtensor.runtime.better import Better
from vtensor.runtime.plan import Plan

ROOT = Path(__file__).parents[2]


def settled() -> None:
    """Wait for what is made in the background."""
    for thread in threading.enumerate():
        if thread.name == "vtensor-better":
            thread.join(60)


@pytest.fixture
def off(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """Plans that are taken from others look as if they were far off; a plan of their own takes this
    part of their time, and is made when they are used again.
    """

    def set_to(part: float) -> None:
        times = cycle([1000, round(1000 * part)])
        monkeypatch.setattr(Better, "wait", lambda *_: None)
        monkeypatch.setattr(Strategy, "_certificate", None)
        monkeypatch.setattr("optimizer.bound.excess", lambda *_: 0.5)
        monkeypatch.setattr("optimizer.bound.total_ns", lambda *_: next(times))

    yield set_to
    settled()


def note(plan: Plan) -> str:
    """Where its better plan stands."""
    assert plan.better is not None
    return plan.better.note


def taken(session: Session) -> tuple[Plan, dict[str, Array], list[Array]]:
    """A plan that is taken from that of other sizes; what it was fed, and what came of it."""
    network = NETWORKS["mobile"]()
    session.run(None, network.feeds(1, 8, 8))
    feeds = network.feeds(2, 10, 10)
    found = session.run(None, feeds)
    assert session.plan.taken_from == {"x": (1, 3, 8, 8)}
    return session.plan, feeds, found


def test_a_better_plan_takes_the_place_of_one_that_is_used_again(off: Callable[..., None]) -> None:
    off(0.5)
    with Session(NETWORKS["mobile"]().proto, threads=1) as session:
        plan, feeds, found = taken(session)
        assert "when it is used again" in plan_dict(session, "")["better"]
        np.testing.assert_array_equal(session.run(None, feeds)[0], found[0])
        settled()
        for _ in range(2):
            np.testing.assert_allclose(session.run(None, feeds)[0], found[0], rtol=1e-5)
            assert session.plan is not plan
            assert session.plan.taken_from is None
            assert session.plan.better is None
        assert plan_dict(session, "")["replaces"] == {"x": [1, 3, 8, 8]}
        lines = [line.text for line in plan_lines(session, "")]
        assert any("in the background, in the place of" in line for line in lines)


def test_it_is_kept_for_later_processes(off: Callable[..., None], tmp_path: Path) -> None:
    off(0.5)
    proto, entries = NETWORKS["mobile"]().proto, tmp_path / "strategies"
    with Session(proto, threads=1, cache_dir=tmp_path) as session:
        _, feeds, _ = taken(session)
        [first] = entries.iterdir()
        session.run(None, feeds)
        settled()
        wanted, plan = session.run(None, feeds), session.plan
        assert len([*entries.iterdir()]) == 2
    for damaged in (False, True):
        if damaged:
            [better] = {*entries.iterdir()} - {first}
            better.write_bytes(better.read_bytes()[:-1])
        with Session(proto, threads=1, cache_dir=tmp_path) as session:
            found, other = session.run(None, feeds), session.plan
        assert (other.taken_from is None) is not damaged
        np.testing.assert_allclose(found[0], wanted[0], rtol=1e-5)
        if not damaged:
            assert str(other.graph) == str(plan.graph)
            np.testing.assert_array_equal(found[0], wanted[0])


def test_it_stays_where_nothing_is_gained(off: Callable[..., None]) -> None:
    off(0.99)
    with Session(NETWORKS["mobile"]().proto, threads=1) as session:
        plan, feeds, found = taken(session)
        session.run(None, feeds)
        settled()
        np.testing.assert_array_equal(session.run(None, feeds)[0], found[0])
        assert session.plan is plan
        assert "it stays: one of its own takes 1.0% less" in note(plan)


def test_what_goes_wrong_in_the_background_is_only_said(
    off: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> None:
        raise MemoryError("no room")

    off(0.5)
    with Session(NETWORKS["mobile"]().proto, threads=1) as session:
        plan, feeds, found = taken(session)
        monkeypatch.setattr("vtensor.runtime.own_plan.resolved_of", fails)
        for _ in range(3):
            np.testing.assert_array_equal(session.run(None, feeds)[0], found[0])
            settled()
        assert session.plan is plan
        assert note(plan).endswith("it stays: MemoryError: no room")
        assert any(note(plan) in line.text for line in plan_lines(session, ""))


def test_deterministic_sessions_exchange_nothing(off: Callable[..., None]) -> None:
    off(0.5)
    with Session(NETWORKS["mobile"]().proto, threads=1, deterministic=True) as session:
        plan, feeds, found = taken(session)
        assert plan.better is None
        for _ in range(3):
            np.testing.assert_array_equal(session.run(None, feeds)[0], found[0])
            assert session.plan is plan


def test_runs_go_on_while_plans_are_exchanged(off: Callable[..., None]) -> None:
    """Eight threads, eight shapes, each of which gets a better plan."""
    off(0.5)
    network = NETWORKS["transformer"]()
    sizes = [(1 + i % 3, 3 + i) for i in range(8)]
    with Session(network.proto, threads=1) as other:
        wanted = [other.run(None, network.feeds(*one))[0] for one in sizes]
    faults: list[BaseException] = []
    with Session(network.proto, threads=1) as session:

        def runs(place: int) -> None:
            try:
                for _ in range(12):
                    [found] = session.run(None, network.feeds(*sizes[place]))
                    np.testing.assert_allclose(found, wanted[place], rtol=1e-5, atol=1e-5)
            except BaseException as error:
                faults.append(error)

        threads = [threading.Thread(target=runs, args=[place]) for place in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        settled()
        assert not faults
        replaced = 0
        for place, one in enumerate(sizes):
            [found] = session.run(None, network.feeds(*one))
            np.testing.assert_allclose(found, wanted[place], rtol=1e-5, atol=1e-5)
            replaced += session.plan.replaces is not None
        assert replaced >= 6


ENDS = {
    "the interpreter ends": "",
    "the session is closed": """
begin = time.monotonic()
session.close()
assert time.monotonic() - begin < 5
settled()
assert "closed" in better.note, better.note
""",
    "a child is forked": """
warnings.filterwarnings("ignore", "This process .* is multi-threaded", DeprecationWarning)
pid = os.fork()
if pid == 0:
    signal.alarm(20)
    np.testing.assert_array_equal(session.run(None, feeds)[0], found)
    assert "being made" in better.note
    session.close()
    settled()
    os._exit(0)
assert os.waitpid(pid, 0)[1] == 0
np.testing.assert_array_equal(session.run(None, feeds)[0], found)
""",
    "it is interrupted": """
try:
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(10)
except KeyboardInterrupt:
    np.testing.assert_array_equal(session.run(None, feeds)[0], found)
""",
}

SCRIPT = """
import os, signal, threading, time, warnings
import numpy as np
from optimizer import bound
from ptensor.stopping import go_on
from resolver.strategy import Strategy
from tests.runtime.opened import NETWORKS
from tests.runtime.test_better import settled
from vtensor import Session
from vtensor.runtime import strategies
from vtensor.runtime.better import Better

def never(*_):
    while True:
        go_on()
        time.sleep(0.01)

Strategy._certificate, bound.excess = None, lambda *_: 0.5
Better.wait = lambda *_: None
network = NETWORKS["mobile"]()
session = Session(network.proto, threads=1)
session.run(None, network.feeds(1, 16, 16))
feeds = network.feeds(2, 24, 24)
[found] = session.run(None, feeds)
strategies.resolved_of = never
session.run(None, feeds)
better = session.plan.better
assert "being made" in better.note
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.parametrize("code", ENDS.values(), ids=ENDS)
def test_all_ends_well_while_a_better_plan_is_being_made(code: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT + code],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        cwd=ROOT,
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_no_choice_of_variants_is_below_the_bound(bench: Bench) -> None:
    """Of random graphs, each in as many random choices of variants, and in the best one."""
    random, settings, apart = Random(0), Settings(), 0
    for seed in range(20):
        extended = extended_of(random_graph(seed))
        problem = Problem.of(extended, shared_variants(extended))
        plans = [extended, optimise(extended, ["joint"]), optimise(extended, ["ewo"])]
        for _ in range(20):
            drawn = {name: random.randrange(len(of)) for name, of in problem.variants.items()}
            plans.append(remade(extended, problem, drawn))
        times = [total_ns(one, settings) for one in plans]
        for plan, takes in zip(plans, times, strict=True):
            off = excess(plan, settings)
            assert 0 <= off < 1
            assert takes * (1 - off) <= min(times) + len(times)
            apart += takes > min(times)
    assert apart


def test_the_bound_is_reached_where_nothing_is_converted_and_nothing_runs_on_reference_code() -> (
    None
):
    network = NETWORKS["transformer"]()
    with Session(network.proto, threads=1) as session:
        session.run(None, network.feeds(2, 9))
        graph = session.plan.graph
        assert excess(graph, Settings()) < 0.02
        node = graph.operators[3]
        slow = replace(node, variant=replace(node.variant, reference=True))
        nodes = [slow if one is node else one for one in graph.nodes]
        assert excess(replace(graph, nodes=nodes), Settings()) > 0.02


def test_it_begins_when_runs_have_taken_as_long_as_planning_and_nothing_was_planned_between() -> (
    None
):
    made = list[int]()
    better = Better(lambda: 7, "it may be off")
    better.wait(2.0)
    assert "2.000 s" in better.note
    for seconds, others, wanted in (
        (0, 1, []),  # it is asked for again, and has not run
        (1.5, 1, []),
        (1.0, 2, []),  # another plan was made: it waits anew
        (1.9, 2, []),
        (0.2, 2, [7]),
    ):
        better.ran(seconds)
        better.wanted(made.append, others)
        settled()
        assert made == wanted


def test_while_sizes_grow_nothing_is_made_in_the_background(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Strategy, "_certificate", None)
    network, plans = NETWORKS["transformer"](), list[Plan]()
    with Session(network.proto, threads=1) as session:
        for length in range(3, 9):
            for _ in range(2):
                session.run(None, network.feeds(1, length))
            plans.append(session.plan)
        settled()
        waiting = [plan for plan in plans if plan.better is not None]
        assert waiting
        assert all("when it has run for" in note(plan) for plan in waiting)
        plan, feeds = waiting[-1], network.feeds(1, 8)
        for _ in range(100_000):
            if "when it has run for" not in note(plan):
                break
            session.run(None, feeds)
        settled()
        assert "when it has run for" not in note(plan)


def test_work_that_nobody_waits_for_rests_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Next to runs one after another it takes a fifth of a processor."""
    clock, rests = [0.0], list[float]()
    monkeypatch.setattr("ptensor.stopping.thread_time", lambda: clock[0])
    monkeypatch.setattr("ptensor.stopping.sleep", rests.append)
    with stopping(lambda: False):
        for worked in (0.004, 0.002, 0.001, 9.0):  # too little, enough, too little, a solver
            clock[0] += worked
            go_on()
    clock[0] += 1.0
    go_on()  # somebody waits
    assert rests == [pytest.approx(0.024), 0.1]


def test_work_that_is_in_a_hurry_does_not_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    """It looks every other thousandth of a second whether it is."""
    clock, rests, hurries = [0.0], list[float](), [False]
    monkeypatch.setattr("ptensor.stopping.thread_time", lambda: clock[0])

    def sleep(seconds: float) -> None:
        rests.append(seconds)
        hurries[0] = len(rests) == 6

    monkeypatch.setattr("ptensor.stopping.sleep", sleep)
    with stopping(lambda: False, lambda: hurries[0]):
        clock[0] += 0.006
        go_on()
        assert rests[:3] == [pytest.approx(0.002)] * 3
        del rests[3:]  # what arithmetic leaves
        clock[0] += 9.0
        go_on()
        clock[0] += 9.0
        go_on()
    assert rests[3:] == [0.002] * 3


def test_part_of_hurried_work_may_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, rests, over = [0.0], list[float](), [False]
    monkeypatch.setattr("ptensor.stopping.thread_time", lambda: clock[0])
    monkeypatch.setattr("ptensor.stopping.sleep", rests.append)

    def work() -> None:
        clock[0] += 0.006
        go_on()

    with stopping(lambda: over[0], lambda: True):
        work()
        with in_no_hurry():
            work()
            over[0] = True
            with pytest.raises(Stopped):
                work()
        over[0] = False
        work()
    with in_no_hurry():  # somebody waits
        work()
    assert rests == [pytest.approx(0.024)]


def test_two_threads_that_want_it_at_once_get_it_once() -> None:
    made: list[int] = []
    better = Better(lambda: 7, "it may be off")
    for _ in range(2):
        better.wanted(made.append)
        better._process = 0  # as a second thread sees it that looks at the same moment
    settled()
    assert made == [7]
    assert not better.stays


def test_libraries_let_go_when_nothing_more_is_to_be_done(
    scratch: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that cannot keeps what it has, and the others are asked all the same."""
    held, events = threading.Event(), list[str]()
    monkeypatch.setattr("vtensor.runtime.leftovers.give_back", lambda: events.append("pages"))
    monkeypatch.setattr("vtensor.runtime.leftovers.give_back_code", lambda _: events.append("code"))
    monkeypatch.setattr(builtins, "leftovers", events.append, raising=False)
    text = "def f():\n    leftovers('{0}')\n    {1}\n"
    for name, rest in (("one", "raise OSError"), ("other", "pass")):
        (tmp_path / f"{name}_handlers.py").write_text(text.format(name, rest), "utf-8")
        told = f'[library]\nname = "{name}"\npriority = 1\ndevices = ["cpu"]\n'
        file = tmp_path / f"{name}.toml"
        file.write_text(f'{told}let_go = ".{name}_handlers:f"\n', "utf-8")
        register(file)
    for make in (lambda: int(held.wait(60)), lambda: 2):
        Better(make, "it may be off").wanted(lambda made: events.append(str(made)))
    held.set()
    settled()
    assert events == ["1", "2", "one", "other", "code", "pages"]


def test_what_is_not_wanted_any_more_is_not_begun() -> None:
    held, made = threading.Event(), list[int]()

    def waits() -> int:
        held.wait(60)
        return 1

    first, second = Better(waits, "it may be off"), Better(lambda: 2, "it may be off")
    for one in (first, second):
        one.wanted(made.append)
    second.stop()
    held.set()
    settled()
    assert made == [1]
    assert second.stays
    assert "closed" in second.note


@contextmanager
def another_in_front() -> Iterator[Callable[[], None]]:
    """Another thread is in front, until the block ends or what this gives is called."""
    begun, over = threading.Event(), threading.Event()

    def stand() -> None:
        begun.set()
        over.wait()

    thread = threading.Thread(target=lambda: in_front(stand))
    thread.start()
    begun.wait()

    def end() -> None:
        over.set()
        thread.join()

    try:
        yield end
    finally:
        end()


def test_work_rests_while_somebody_waits_for_other_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """However little it has done, and as long as that is in front: twice here, then it goes on."""
    rests = list[float]()
    with another_in_front() as end:

        def sleep(seconds: float) -> None:
            rests.append(seconds)
            if len(rests) == 2:
                end()

        monkeypatch.setattr("ptensor.stopping.sleep", sleep)
        with stopping(lambda: False):
            go_on()
            assert rests == [0.002, 0.002]
            go_on()
            in_front(go_on)  # nobody waits for this: it is not in front
    assert len(rests) == 2


def test_work_does_not_rest_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who is in front may need what it has: then it gives way, or both go on in small steps."""
    rests, over = list[float](), [False]
    monkeypatch.setattr("ptensor.stopping.sleep", rests.append)
    with another_in_front(), stopping(lambda: over[0]):
        go_on()
        assert sum(rests) == pytest.approx(0.1)
        over[0] = True
        with pytest.raises(Stopped):
            go_on()
        assert sum(rests) == pytest.approx(0.1)


def test_who_waits_for_other_work_is_not_in_front(monkeypatch: pytest.MonkeyPatch) -> None:
    rests = list[float]()
    monkeypatch.setattr("ptensor.stopping.sleep", rests.append)

    def work() -> None:
        with stopping(lambda: False):
            go_on()

    def stand() -> None:
        contextvars.Context().run(work)
        assert rests
        rests.clear()
        behind(lambda: contextvars.Context().run(work))
        assert not rests
        contextvars.Context().run(work)
        assert rests

    in_front(lambda: in_front(stand))
    rests.clear()
    contextvars.Context().run(work)
    assert not rests


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no forks here")
def test_a_child_of_who_is_in_front_is_not() -> None:
    """Until it is by itself; who made it stays."""

    def stand() -> None:
        child = os.fork()
        if child == 0:
            try:
                behind(lambda: in_front(lambda: behind(int)))
            except BaseException:
                os._exit(1)
            os._exit(bool(stopping_module._threads_in_front()))
        assert os.waitpid(child, 0)[1] == 0
        assert stopping_module._threads_in_front() == {threading.get_ident()}

    in_front(stand)
    assert not stopping_module._threads_in_front()
