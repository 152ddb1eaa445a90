"""Runs that stay on their caller's thread: those of one, and those of who runs often."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.libraries.processes import run_python
from tests.native.stepping import held, step_of
from tests.native.test_team import Begun
from vtensor.runtime import _replay
from vtensor.runtime._replay import Program, Stopped, Team, empty_step
from vtensor.runtime.execution.processors import available_threads

#: x86: flush results that are subnormal, take operands that are for zero.
FLUSHES = 0x8040


@pytest.fixture
def team() -> Iterator[Team]:
    one = Team(1, "test")
    yield one
    one.close()


class Whose:
    """A program that says which thread runs it, and a number that is subnormal."""

    def __init__(self, library: Path, *more: Any) -> None:
        self.thread, self.least = np.zeros(1, np.int64), np.zeros(1, np.float32)
        step = held(step_of(library, "whose"))
        self.program = Program([8, 4], [(step, [(0, 0), (1, 0)]), *more])

    def run(self, team: Team) -> int:
        """The system's number of the thread."""
        team.run(self.program, [self.thread, self.least])
        return int(self.thread[0])


def test_a_run_of_one_thread_stays_on_its_callers(team: Team, c_steps: Path) -> None:
    whose = Whose(c_steps)
    assert whose.run(team) == threading.get_native_id()
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(whose.run, team).result() != threading.get_native_id()
    assert team.waiting == 0


@pytest.mark.parametrize("threads", [1, 2])
def test_others_run_on_the_teams(threads: int, c_steps: Path) -> None:
    """A team of several belongs to a thread; and call-backs run where Python expects them."""
    more: Any = (lambda: None, []) if threads == 1 else (empty_step(), [])
    team = Team(threads, "test")
    try:
        whose = Whose(c_steps, more)
        assert whose.run(team) == team.call(threading.get_native_id)
    finally:
        team.close()


def test_a_thread_with_a_small_stack_runs_elsewhere(team: Team, c_steps: Path) -> None:
    whose, before, found = Whose(c_steps), threading.stack_size(1 << 18), list[bool]()
    try:
        thread = threading.Thread(
            target=lambda: found.append(whose.run(team) == threading.get_native_id())
        )
        thread.start()
    finally:
        threading.stack_size(before)
    thread.join()
    assert found == [False]


def test_who_comes_second_queues(team: Team, c_steps: Path) -> None:
    begun, whose = Begun(c_steps), Whose(c_steps)
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(begun.run, team)
        begun.wait()
        second = pool.submit(whose.run, team)
        while team.waiting < 2:
            time.sleep(0.001)
        assert not second.done()
        begun.checkpoint()
        first.result()
        assert second.result() == team.call(threading.get_native_id)


def test_the_callers_settings_neither_matter_nor_change(team: Team, c_steps: Path) -> None:
    math = ctypes.CDLL("libm.so.6")
    modes = (ctypes.c_char * 64)()  # an fenv_t, whose last word on x86-64 is MXCSR
    if math.fegetenv(modes) != 0 or os.uname().machine != "x86_64":
        pytest.skip("the modes of x86-64")
    whose, threads = Whose(c_steps), _replay.threads()
    plain = bytes(modes)
    mxcsr = int.from_bytes(plain[28:32], "little")
    flushing = plain[:28] + (mxcsr | FLUSHES).to_bytes(4, "little") + plain[32:]
    _replay.set_threads(3)
    math.fesetenv(ctypes.create_string_buffer(flushing, 64))
    try:
        whose.run(team)
        math.fegetenv(modes)
        assert int.from_bytes(bytes(modes)[28:32], "little") & FLUSHES == FLUSHES
        assert _replay.threads() == 3
    finally:
        math.fesetenv(ctypes.create_string_buffer(plain, 64))
        _replay.set_threads(threads)
    assert whose.least[0] > 0


def test_closing_ends_it_between_two_steps(team: Team, c_steps: Path) -> None:
    begun, whose = Begun(c_steps), Whose(c_steps)
    steps: list[Any] = [(held(step_of(c_steps, "waiting")), [(0, 0)]), (empty_step(), [])]
    begun.program = Program([8], steps)
    with ThreadPoolExecutor(2) as pool:
        running = pool.submit(begun.run, team)
        begun.wait()
        pool.submit(team.close).result()
        begun.checkpoint()
        with pytest.raises(Stopped, match="the run was stopped"):
            running.result()
    with pytest.raises(Stopped, match="closed"):
        whose.run(team)


@pytest.mark.usefixtures("interruptible")
def test_an_interrupt_ends_it_between_two_steps(team: Team, c_steps: Path) -> None:
    begun, whose = Begun(c_steps), Whose(c_steps)
    step, last = held(step_of(c_steps, "waiting")), held(step_of(c_steps, "whose"))
    begun.program = Program([8, 8, 4], [(step, [(0, 0)]), (last, [(1, 0), (2, 0)])])

    def interrupt() -> None:
        begun.wait()
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.2)  # longer than a run goes on without a look
        begun.checkpoint()

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        team.run(begun.program, [begun.flags, whose.thread, whose.least])
    thread.join()
    assert whose.thread[0] == 0  # the second step never began
    assert whose.run(team) == threading.get_native_id()


#: More runs in a row than a thread needs to be at home.
MANY = 40


several = pytest.mark.skipif(available_threads() < 2, reason="a team of two needs two processors")


@several
def test_who_runs_often_is_at_home_in_a_team_of_several(c_steps: Path) -> None:
    team, whose, here = Team(2, "test"), Whose(c_steps), threading.get_native_id()
    try:
        theirs = team.call(threading.get_native_id)
        assert whose.run(team) == theirs
        assert [whose.run(team) for _ in range(MANY)][-1] == here
        team.call(int)  # as those that make plans do
        assert whose.run(team) == here
        with ThreadPoolExecutor(1) as pool:
            assert pool.submit(whose.run, team).result() == theirs
        runs = [whose.run(team) for _ in range(MANY)]
        assert (runs[MANY // 2], runs[-1]) == (theirs, here)  # it takes longer than before
    finally:
        team.close()


def test_two_that_run_in_turn_are_not(c_steps: Path) -> None:
    team, whose = Team(2, "test"), Whose(c_steps)
    try:
        theirs = team.call(threading.get_native_id)
        with ThreadPoolExecutor(1) as pool:
            for _ in range(MANY):
                assert whose.run(team) == theirs
                assert pool.submit(whose.run, team).result() == theirs
    finally:
        team.close()


TEAMS = """
import os, signal, sys, warnings
os.environ["OPENBLAS_NUM_THREADS"] = "1"  # its threads end with a fork
warnings.filterwarnings("ignore", "This process .* is multi-threaded", DeprecationWarning)
import numpy as np
import vtensor
from libdesc.onednn import native
from ops import Conv2D
from vtensor.runtime import _replay
native.load()
def tasks():
    return len(os.listdir("/proc/self/task"))
g = vtensor.Graph("one")
x = g.input("x", {"N": 1, "C": 64, "H": 32, "W": 32})
w = g.constant(np.ones((64, 64, 3, 3), np.float32), "O I h w")
g.output(g.add(Conv2D(), x, w), "y")
feeds = {"x": np.ones((1, 64, 32, 32), np.float32)}
def often(session):
    for _ in range(40):
        [y] = session.run(None, feeds)
        assert (y == 576).all()
before = tasks()
session = vtensor.Session(g, threads=2, libraries=["onednn"])
often(session)
"""

ENDS = {
    "one team": "print(tasks() - before)",
    "a child with a team on the same thread": """
if (child := os.fork()) == 0:
    signal.alarm(60)
    step = session.plan.recorded[-1].native
    room = [np.zeros(n, np.uint8) for _, n, _ in _replay.describe(step)["slots"]]
    _replay.execute(step, room, 2)
    often(session)
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
often(session)
print(tasks() - before)
""",
}


@several
@pytest.mark.skipif(sys.platform != "linux", reason="threads are counted in /proc")
@pytest.mark.parametrize("code", ENDS.values(), ids=ENDS)
def test_there_is_one_team_at_a_time(code: str) -> None:
    """The thread of the session's team, and the one that the caller's has.

    Threads spin for as long as is said, so that none come since others use the processors.
    """
    done = run_python("-c", TEAMS + code, environment={"GOMP_SPINCOUNT": "1000"})
    assert (done.returncode, done.stderr, done.stdout.strip()) == (0, "", "2")
