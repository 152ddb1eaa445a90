"""Team: one thread, its queue, and how work ends early: by failure, signal, closing, or the end."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from tests.libraries.processes import run_python
from tests.native.stepping import held, step_of
from vtensor.runtime import _replay
from vtensor.runtime._replay import Program, Stopped, Team, empty_step


def test_work_runs_on_one_thread_that_has_the_budget(team: Team) -> None:
    assert team.call(threading.get_ident) == team.call(threading.get_ident) != threading.get_ident()
    assert (team.call(_replay.threads), Team(3, "three").call(_replay.threads)) == (2, 3)
    on: list[int] = []
    team.run(Program([], [(lambda: on.append(threading.get_ident()), [])]), [])
    assert on == [team.call(threading.get_ident)]


def test_the_thread_keeps_its_python_values(team: Team) -> None:
    local = threading.local()
    team.call(lambda: setattr(local, "kept", 3))
    assert team.call(lambda: local.kept) == 3
    assert not hasattr(local, "kept")


@pytest.mark.parametrize("threads", [0, -1, 1025])
def test_refuses_numbers_of_threads(threads: int) -> None:
    with pytest.raises(ValueError, match="1 to 1024"):
        Team(threads, "none")


def test_what_a_function_raises_is_what_the_caller_gets(team: Team) -> None:
    mine = KeyError("mine")

    def fails() -> None:
        raise mine

    with pytest.raises(KeyError) as caught:
        team.call(fails)
    assert caught.value is mine


def test_work_of_its_own_runs_at_once(team: Team) -> None:
    order: list[int] = []
    inner = Program([], [(lambda: order.append(1), []), (lambda: order.append(2), [])])
    outer = Program([], [(lambda: team.run(inner, []), []), (lambda: team.call(order.pop), [])])
    team.call(lambda: team.run(outer, []))
    assert order == [1]


def test_callers_take_turns(team: Team) -> None:
    inside, most = [0], [0]

    def enter() -> None:
        inside[0] += 1
        most[0] = max(most[0], inside[0])

    def leave() -> None:
        inside[0] -= 1

    program = Program([], [(enter, []), (lambda: time.sleep(0.001), []), (leave, [])])
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: team.run(program, []), range(32)))
    assert (inside, most) == ([0], [1])


class Begun:
    """A program whose first step waits, in native code, until it is told to go on."""

    def __init__(self, library: Path, *steps: Callable[[], object]) -> None:
        self.flags = np.zeros(2, np.int32)
        waiting = (held(step_of(library, "waiting")), [(0, 0)])
        self.program = Program([8], [waiting, *((step, []) for step in steps)])

    def run(self, team: Team) -> None:
        team.run(self.program, [self.flags])

    def wait(self) -> None:
        """Until it runs."""
        while not self.flags[0]:
            time.sleep(0.001)

    def checkpoint(self) -> None:
        self.flags[1] = 1


def test_closing_ends_the_run_between_two_steps_and_refuses_what_waits(
    team: Team, c_steps: Path
) -> None:
    later: list[int] = []
    begun = Begun(c_steps, lambda: later.append(1))
    with ThreadPoolExecutor(4) as pool:
        running = pool.submit(begun.run, team)
        begun.wait()
        queued: list[Future[object]] = [
            pool.submit(team.call, lambda: later.append(2)),
            pool.submit(team.run, Program([], [(lambda: later.append(3), [])]), []),
        ]
        closing = pool.submit(team.close)
        for waits in queued:
            with pytest.raises(Stopped, match="the team is closed"):
                waits.result()
        assert not running.done()
        begun.checkpoint()
        closing.result()
        with pytest.raises(Stopped, match="the run was stopped"):
            running.result()
    assert not later


def test_a_closed_team_refuses_work(team: Team) -> None:
    team.close()
    team.close()
    with pytest.raises(Stopped, match="closed"):
        team.call(int)
    with pytest.raises(Stopped, match="closed"):
        team.run(Program([], []), [])


def test_a_team_may_close_itself() -> None:
    team = Team(1, "self")
    with pytest.raises(Stopped, match="the run was stopped"):
        team.run(Program([], [(team.close, []), (empty_step(), [])]), [])
    with pytest.raises(Stopped):
        team.call(int)


def interrupting(begun: Begun) -> threading.Thread:
    """A thread that interrupts the main one as soon as a run has begun, and lets it go on later."""

    def interrupt() -> None:
        begun.wait()
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.2)
        begun.checkpoint()

    thread = threading.Thread(target=interrupt)
    thread.start()
    return thread


@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize("inside", [False, True])
def test_an_interrupt_ends_a_run_after_its_step(team: Team, c_steps: Path, inside: bool) -> None:
    later: list[int] = []
    begun = Begun(c_steps, lambda: later.append(1))
    thread = interrupting(begun)
    with pytest.raises(KeyboardInterrupt):
        team.call(lambda: begun.run(team)) if inside else begun.run(team)
    thread.join()
    assert begun.flags[1]  # it waited for the step
    assert not later
    assert team.call(lambda: 3) == 3
    team.run(Program([], [(lambda: later.append(2), [])]), [])
    assert later == [2]


@pytest.mark.usefixtures("interruptible")
def test_an_interrupt_ends_python(team: Team) -> None:
    def forever() -> None:
        threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGINT)).start()
        while True:
            time.sleep(0.001)

    with pytest.raises(KeyboardInterrupt):
        team.call(forever)
    assert team.call(lambda: sum(range(1000))) == 499500


@pytest.mark.usefixtures("interruptible")
def test_an_interrupt_that_comes_too_late_is_forgotten(team: Team) -> None:
    threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGINT)).start()
    with pytest.raises(KeyboardInterrupt):
        team.call(partial(time.sleep, 0.3))  # no bytecode in which to raise it
    assert team.call(lambda: sum(range(1000))) == 499500


@pytest.mark.usefixtures("interruptible")
def test_an_interrupt_takes_back_what_has_not_begun(team: Team, c_steps: Path) -> None:
    """Another thread's run goes on."""
    later: list[int] = []
    begun = Begun(c_steps, lambda: later.append(1))
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(begun.run, team)
        begun.wait()
        threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGINT)).start()
        with pytest.raises(KeyboardInterrupt):
            team.call(lambda: later.append(2))
        begun.checkpoint()
        running.result()
    assert later == [1]


def ended(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """A fresh interpreter after this code, with warnings as errors; a hang fails the test."""
    setup = (
        "import os, sys, threading, time, atexit\n"
        "from vtensor.runtime._replay import Program, Stopped, Team, empty_step\n"
        "team = Team(2, 'test')\n"
    )
    return run_python("-W", "error", "-c", setup + code, *arguments)


LONG = "Program([], [(lambda: time.sleep(0.01), []), (empty_step(), [])] * 100_000)"

ENDINGS = {
    "idle": "",
    "never closed, one closed": "other = Team(1, 'other'); other.call(int); other.close()",
    "other threads run": f"""
program = {LONG}
def work():
    try:
        while True: team.run(program, [])
    except Stopped: pass
for _ in range(3): threading.Thread(target=work, daemon=True).start()
time.sleep(0.1)
""",
    "other threads run short programs": """
program = Program([], [(empty_step(), [])])
def work():
    try:
        while True: team.run(program, []), team.call(int)
    except Stopped: pass
for _ in range(4): threading.Thread(target=work, daemon=True).start()
time.sleep(0.1)
""",
    "inside of a callable": "team.run(Program([], [(sys.exit, [])]), [])",
    "inside of a function": "team.call(sys.exit)",
    "a new team at the end": """
def late():
    for use in (lambda: Team(1, "late"), lambda: team.call(int)):
        try: use()
        except Stopped: continue
        os._exit(3)
# Called after VTensor's own handler: handlers are called in the opposite order.
handlers = atexit._ncallbacks()
atexit._run_exitfuncs()
late()
""",
    "in a child too": """
child = os.fork()
if child == 0:
    try: team.call(int)
    except Stopped: sys.exit(0)
    os._exit(3)
assert os.waitpid(child, 0)[1] == 0
assert team.call(lambda: 3) == 3
""",
    "a child that runs": """
program = Program([], [(empty_step(), [])])
other = Team(1, "other"); other.call(int); other.close()
child = os.fork()
if child == 0:
    mine = Team(2, "child")
    mine.run(program, [])
    sys.exit(mine.call(int))
assert os.waitpid(child, 0)[1] == 0
""",
}


@pytest.mark.parametrize("code", ENDINGS)
def test_the_interpreter_ends(code: str) -> None:
    began = time.monotonic()
    done = ended(ENDINGS[code])
    assert (done.returncode, done.stderr) == (0, "")
    assert time.monotonic() - began < 30


def test_an_ending_with_threads_left_is_seen() -> None:
    """The twin: VTensor's own handler is taken away, and what it prevents happens.

    Threads come back often: from a longer sleep none might before the process is gone.
    """
    code = ENDINGS["other threads run"].replace("time.sleep(0.01)", "time.sleep(0.0005)")
    done = ended(code + "atexit._clear()")
    assert done.returncode == -signal.SIGABRT
