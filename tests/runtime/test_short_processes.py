"""Programs that are over soon: what they leave to the next one."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ptensor.stopping import go_on
from tests.runtime.test_better import settled
from tests.runtime.test_kept_blueprints import written
from vtensor import Session
from vtensor.runtime.better import Better

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

#: Work that never ends by itself.
ENDLESS = """
import time
from ptensor.stopping import go_on
from vtensor.runtime.better import Better

def work():
    try:
        while True:
            go_on()
            time.sleep(0.001)
    except BaseException as why:
        print(type(why).__name__, flush=True)
        raise

Better(work, "it may be off", lingers_s=0.1).wanted(lambda _: None)
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


def test_without_a_cache_nothing_goes_on_behind_the_end(tmp_path: Path) -> None:
    network, path = written("attention", tmp_path)
    with Session(path, threads=1, cache_dir=None) as session:
        session.run(None, network.feeds(3, 6))
        plans = session._runner.plans
        assert plans is not None
        assert not plans.ahead._works
        session.run(None, network.feeds(4, 7))
        assert not [one for one in plans.ahead._works if one.lingers_s]


def test_the_end_of_a_process_waits_for_a_while_alone() -> None:
    ran = subprocess.run(
        [sys.executable, "-c", ENDLESS],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
        cwd=ROOT,
    )
    assert ran.stdout == "Stopped\n"


def test_what_is_for_others_goes_on_where_nobody_wants_it_here() -> None:
    begun, stopped, done = threading.Event(), threading.Event(), list[str]()

    def work() -> None:
        begun.set()
        assert stopped.wait(60)
        go_on()
        done.append("it went on")

    for lingers_s, found in ((60.0, ["it went on"]), (0.0, [])):
        begun.clear()
        stopped.clear()
        done.clear()
        one = Better(work, "it may be off", lingers_s=lingers_s)
        one.wanted(lambda _: None)
        assert begun.wait(60)
        one.stop()
        stopped.set()
        settled()
        assert done == found


def test_what_is_for_others_comes_last() -> None:
    order, wait = list[int](), threading.Event()
    works = [
        Better(lambda: assert_waited(wait), "it may be off"),
        Better(lambda: order.append(1), "it may be off", lingers_s=60.0),
        Better(lambda: order.append(2), "it may be off"),
        Better(lambda: order.append(3), "it may be off", lingers_s=60.0),
    ]
    for one in works:
        one.wanted(lambda _: None)
    wait.set()
    settled()
    assert order == [2, 1, 3]


def assert_waited(event: threading.Event) -> None:
    """Wait for an event, which comes."""
    assert event.wait(60)
