"""Programs that are over soon: what they leave to the next one."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from ptensor.stopping import go_on
from tests.frontends.support import f32, model
from tests.runtime.test_better import settled
from tests.runtime.test_kept_blueprints import written
from vtensor import Session
from vtensor.runtime.better import Better
from vtensor.runtime.keys import PlanKey
from vtensor.runtime.last_used import LastUsed

ROOT = Path(__file__).parents[2]

#: A program that gives a model some sizes, in each of these ways, and says of what its plans are,
#: and how many graphs it made for them.
PROGRAM = """
import json, sys
from tests.runtime.opened import NETWORKS
from vtensor import Session
from vtensor.runtime.graphs import Graphs

graphs, given = [], Graphs.given
def noted(self, key):
    graphs.append(key)
    return given(self, key)
Graphs.given = noted

name, path, how, sizes = sys.argv[1], sys.argv[2], sys.argv[3], json.loads(sys.argv[4])
network, said = NETWORKS[name](), []

def run(session):
    for one in sizes:
        session.run(None, network.feeds(*one))
        said.append((type(session.plan).__name__, len(graphs)))
    print(json.dumps(said), flush=True)

def main():
    run(Session(path, threads=1))

if how == "with":
    with Session(path, threads=1) as session:
        run(session)
elif how == "function":
    main()
else:
    run(session := Session(path, threads=1))
    if how == "fails":
        raise SystemExit(0)
"""

#: Works that never end by themselves.
ENDLESS = """
import time
from ptensor.stopping import go_on
from vtensor.runtime.better import Better
from vtensor.runtime.keys import PlanKey
from vtensor.runtime.last_used import LastUsed

def work():
    try:
        print("begun", flush=True)
        while True:
            go_on()
            time.sleep(0.001)
    except BaseException as why:
        print(type(why).__name__, flush=True)
        raise

works = [Better(work, "it may be off", for_others=True, lingers_s=0.1) for _ in range(3)]
for one in works:
    one.wanted(lambda _: None)
"""


@pytest.fixture
def process(tmp_path: Path) -> Callable[..., list[Any]]:
    """Runs a program; processes of one test share a cache."""
    environment = {"VTENSOR_CACHE_DIR": str(tmp_path / "cache"), "PYTHONPATH": str(ROOT)}

    def run(name: str, path: Path, how: str, *sizes: tuple[int, ...]) -> list[Any]:
        ran = subprocess.run(
            [sys.executable, "-c", PROGRAM, name, str(path), how, json.dumps(sizes)],
            capture_output=True,
            text=True,
            check=True,
            timeout=120,
            cwd=ROOT,
            env=environment,
        )
        assert not ran.stderr, ran.stderr
        found: list[Any] = json.loads(ran.stdout)
        return found

    return run


@pytest.mark.parametrize("how", ["with", "function", "global", "fails"])
def test_a_second_process_finds_what_the_first_one_ran(
    process: Callable[..., list[Any]], tmp_path: Path, how: str
) -> None:
    """However the first one ended: it had run once in each size."""
    _, path = written("attention", tmp_path)
    first = process("attention", path, how, (3, 6), (4, 7))
    assert [plan for plan, _ in first] == ["Plan", "Plan"]
    assert process("attention", path, how, (3, 6), (4, 7), (5, 9)) == [
        ["KeptPlan", 0],
        ["DrawnPlan", 0],
        ["DrawnPlan", 0],
    ]


@pytest.mark.parametrize("how", ["with", "function", "global", "fails"])
def test_one_run_is_enough_for_the_next_start(
    process: Callable[..., list[Any]], tmp_path: Path, how: str
) -> None:
    """Nothing was imported in the first process that other sizes need."""
    _, path = written("mobile", tmp_path)
    assert process("mobile", path, how, (1, 16, 16))[0][0] == "Plan"
    assert process("mobile", path, how, (1, 16, 16)) == [["KeptPlan", 0]]


def test_each_process_has_another_size(process: Callable[..., list[Any]], tmp_path: Path) -> None:
    """The second one takes over what the first one chose; the others need no graph at all."""
    _, path = written("mobile", tmp_path)
    found = [process("mobile", path, "global", (2, 16, 8 * size)) for size in (2, 3, 4, 5)]
    assert [plan for [(plan, _)] in found] == ["Plan", "Plan", "DrawnPlan", "DrawnPlan"]
    assert [graphs for [(_, graphs)] in found][2:] == [0, 0]


def test_what_they_leave_answers_right(
    process: Callable[..., list[Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    network, path = written("attention", tmp_path)
    process("attention", path, "global", (3, 6), (4, 7))
    monkeypatch.setattr("vtensor.runtime.programs.only_own", lambda: True)
    plain = Session(path, threads=1, optimize="none", cache_dir=None)
    with Session(path, threads=1, cache_dir=tmp_path / "cache") as session:
        for sizes in ((3, 6), (4, 7), (9, 2)):
            feeds = network.feeds(*sizes)
            for one, other in zip(session.run(None, feeds), plain.run(None, feeds), strict=True):
                np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("in_a_file", [True, False])
def test_where_nothing_can_be_kept_nothing_goes_on_behind_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, in_a_file: bool
) -> None:
    """Without a cache, or of a model that somebody has read."""
    provisional(monkeypatch)
    network, path = written("attention", tmp_path)
    model, cache = (path, None) if in_a_file else (network.proto, tmp_path / "cache")
    with Session(model, threads=1, cache_dir=cache) as session:
        session.run(None, network.feeds(3, 6))
        plans = session._runner.plans
        assert plans is not None
        assert not plans.ahead._works
        session.run(None, network.feeds(4, 7))
        assert not [one for one in plans.ahead._works if one.for_others]


def test_the_end_of_a_process_waits_for_a_while_alone() -> None:
    """All that is left has that while together: none begins behind the first one."""
    ran = subprocess.run(
        [sys.executable, "-c", ENDLESS],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
        cwd=ROOT,
    )
    assert ran.stdout == "begun\nStopped\n"


@pytest.mark.parametrize("lingers_s", [60.0, 0.0])
def test_what_is_for_others_goes_on_where_nobody_wants_it_here(lingers_s: float) -> None:
    begun, stopped, done = threading.Event(), threading.Event(), list[str]()

    def work() -> None:
        begun.set()
        assert stopped.wait(60)
        go_on()
        done.append("it went on")

    one = Better(work, "it may be off", for_others=True, lingers_s=lingers_s)
    one.wanted(lambda _: None)
    assert begun.wait(60)
    one.stop()
    stopped.set()
    settled()
    assert bool(done) == bool(lingers_s)


def test_what_is_for_others_comes_last_and_what_is_over_first() -> None:
    order, wait = list[str](), threading.Event()

    def work(name: str, for_others: bool = False) -> Better[None]:
        made = partial(order.append, name)
        return Better(made, "it may be off", for_others=for_others, lingers_s=60.0 * for_others)

    before = Better(partial(waited, wait), "it may be off")
    works = [work("first", True), work("here"), work("second", True), work("over", True)]
    for one in (before, *works):
        one.wanted(lambda _: None)
    over = works[-1]
    assert not over.is_over()
    over._until = 0.0
    assert over.is_over()
    wait.set()
    settled()
    assert order == ["here", "first", "second"]
    assert over.done


def waited(event: threading.Event) -> None:
    """Wait for an event, which comes."""
    assert event.wait(60)


def test_whoever_closes_a_session_writes_by_himself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is written behind that: the folder may go."""
    provisional(monkeypatch)
    network, path = written("attention", tmp_path)
    with Session(path, threads=1, cache_dir=tmp_path) as session:
        for sizes in ((3, 6), (4, 7)):
            session.run(None, network.feeds(*sizes))
    found = {one.name.removeprefix("first-") for one in (tmp_path / "strategies").iterdir()}
    assert {"blueprint", "program", "surface"} <= {name.split("-")[0] for name in found}
    shutil.rmtree(tmp_path / "strategies")
    settled()
    assert not (tmp_path / "strategies").exists()


def test_what_takes_long_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Behind each end of a process it would be cut off again."""
    provisional(monkeypatch)
    monkeypatch.setattr("vtensor.runtime.ahead.LONG_S", 0.0)
    network, path = written("attention", tmp_path)
    with Session(path, threads=1, cache_dir=tmp_path) as session:
        for sizes in ((3, 6), (4, 7)):
            session.run(None, network.feeds(*sizes))
    settled()
    names = [one.name for one in (tmp_path / "strategies").iterdir()]
    assert not [one for one in names if "blueprint" in one or "program" in one]


def test_a_measured_plan_serves_behind_one_of_another_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its process was over before it was used again."""
    provisional(monkeypatch)
    network, path = written("attention", tmp_path)
    a, b = network.feeds(3, 6), network.feeds(4, 7)

    def run(*given: Any, locks: bool = False) -> tuple[str, bool]:
        with Session(path, threads=1, cache_dir=tmp_path) as session:
            for feeds in given:
                session.run(None, feeds)
            if locks:
                session.lock()
            return type(session.plan).__name__, session.plan.provisional

    assert run(a, b) == ("Plan", True)
    assert run(b) == ("DrawnPlan", True)
    assert not run(b, locks=True)[1]
    assert run(b) == ("KeptPlan", False)
    assert run(b) == ("KeptPlan", False)


@pytest.mark.parametrize("why", ["read-only", "progress", "registered"])
def test_what_cannot_be_kept_is_tried_once_at_most(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    provisional(monkeypatch)
    network, path = written("attention", tmp_path)
    cache, options = tmp_path / "cache", dict[str, Any]()
    if why == "read-only":
        monkeypatch.setattr("vtensor.runtime.entries.Entries.write", lambda *_: None)
    elif why == "progress":
        options["progress"] = lambda _: None
    else:
        monkeypatch.setattr("vtensor.runtime.programs.only_own", lambda: False)
    with Session(path, threads=1, cache_dir=cache, **options) as session:
        plans, works = session._runner.plans, set[int]()
        assert plans is not None
        kept = list[object]()  # so that none has the place of another
        for _ in range(6):
            feeds = {
                name: one[..., ::-1].copy()[..., ::-1] for name, one in network.feeds(3, 6).items()
            }
            session.run(None, feeds)  # the long way
            kept += plans.ahead._works
            works |= {id(one) for one in plans.ahead._works if one.for_others}
        assert len(works) == (why == "read-only")


def test_what_a_plan_is_made_of_is_noted_before_the_plan_is_there() -> None:
    last, key = LastUsed(), PlanKey(())
    last.networks[key] = lambda: pytest.fail("nobody asks for it")
    assert last.made_of() is None


@pytest.mark.parametrize("ends", ["closed", "looked at", "dropped"])
def test_what_was_chosen_is_written_down_though_nothing_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ends: str
) -> None:
    provisional(monkeypatch)
    text = "net (float[2, 64] x) => (float[2, 64] y) { y = MatMul(x, w) }"
    onnx.save(model(text, 17, w=f32(64, 64)), tmp_path / "net.onnx")
    cache = tmp_path / "cache"
    session = Session(tmp_path / "net.onnx", threads=2, cache_dir=cache)
    if ends == "closed":
        session.close()
    elif ends == "looked at":
        assert session.plan
    end = time.monotonic() + 30
    while not (found := [*cache.rglob("first-*")]) and time.monotonic() < end:
        time.sleep(0.02)
    assert found
    session.close()


def provisional(monkeypatch: pytest.MonkeyPatch) -> None:
    """First plans are provisional, as where speeds are asked for; other tests may have registered
    operators.
    """
    monkeypatch.setattr("vtensor.runtime.options.speeds_asked_for", lambda: dict)
    monkeypatch.setattr("vtensor.runtime.programs.only_own", lambda: True)
