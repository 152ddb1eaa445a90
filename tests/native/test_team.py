"""Team: its queue, runs that stay on their caller's thread, and how work ends early.

Work ends by failure, signal, closing, or the end of the interpreter.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.libraries.processes import run_python
from tests.native.stepping import Array, NamedSteps, RunStruct, held, step_of
from vtensor.runtime import _replay
from vtensor.runtime._replay import Program, Stopped, Team, empty_step
from vtensor.runtime.execution.processors import available_threads

#: x86: flush results that are subnormal, take operands that are for zero.
FLUSHES = 0x8040
#: More runs in a row than inline execution requires.
MANY = 40


@pytest.fixture
def either(request: pytest.FixtureRequest) -> Iterator[Team]:
    """Make a team of as many threads as the parameter says."""
    team = Team(request.param, "test")
    yield team
    team.close()


of_both = pytest.mark.parametrize("either", [1, 2], indirect=True)


class Whose:
    """A program that says which thread runs it, and a number that is subnormal."""

    def __init__(self, library: Path, *more: Any) -> None:
        self.thread, self.least = np.zeros(1, np.int64), np.zeros(1, np.float32)
        step = held(step_of(library, "whose"))
        self.program = Program([8, 4], [(step, [(0, 0), (1, 0)]), *more])

    def run(self, team: Team) -> int:
        """Return the system's number of the thread."""
        team.run(self.program, [self.thread, self.least])
        return int(self.thread[0])


class Begun(Whose):
    """The same after a step that waits, in native code, until it is told to go on."""

    def __init__(self, library: Path) -> None:
        super().__init__(library)
        self.flags = np.zeros(2, np.int32)
        waiting, whose = (held(step_of(library, name)) for name in ("waiting", "whose"))
        self.program = Program([8, 8, 4], [(waiting, [(0, 0)]), (whose, [(1, 0), (2, 0)])])

    def run(self, team: Team) -> int:
        team.run(self.program, [self.flags, self.thread, self.least])
        return int(self.thread[0])

    def wait(self) -> None:
        """Wait until it runs."""
        while not self.flags[0]:
            time.sleep(0.001)

    def checkpoint(self) -> None:
        self.flags[1] = 1


def test_work_runs_on_one_thread_that_has_the_budget(team: Team) -> None:
    assert team.call(threading.get_ident) == team.call(threading.get_ident) != threading.get_ident()
    assert (team.call(_replay.threads), Team(3, "three").call(_replay.threads)) == (2, 3)
    on: list[int] = []
    team.run(Program([], [(lambda: on.append(threading.get_ident()), [])]), [])
    assert on == [team.call(threading.get_ident)]
    local = threading.local()  # the thread keeps its values
    team.call(lambda: setattr(local, "kept", 3))
    assert team.call(lambda: local.kept) == 3
    assert not hasattr(local, "kept")


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


def test_a_run_of_one_thread_stays_on_its_callers(alone: Team, c_steps: Path) -> None:
    whose = Whose(c_steps)
    assert whose.run(alone) == threading.get_native_id()
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(whose.run, alone).result() != threading.get_native_id()
    assert alone.waiting == 0


@of_both
def test_other_runs_are_on_the_teams_thread(either: Team, c_steps: Path) -> None:
    """A team of several belongs to a thread; and call-backs run where Python expects them."""
    calls = either.call(_replay.threads) == 1
    whose = Whose(c_steps, (lambda: None, []) if calls else (empty_step(), []))
    assert whose.run(either) == either.call(threading.get_native_id)


def test_a_thread_with_a_small_stack_runs_elsewhere(alone: Team, c_steps: Path) -> None:
    whose, before, stays = Whose(c_steps), threading.stack_size(1 << 18), list[bool]()
    try:
        thread = threading.Thread(
            target=lambda: stays.append(whose.run(alone) == threading.get_native_id())
        )
        thread.start()
    finally:
        threading.stack_size(before)
    thread.join()
    assert stays == [False]


def test_a_second_run_queues(alone: Team, c_steps: Path) -> None:
    begun, whose = Begun(c_steps), Whose(c_steps)
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(begun.run, alone)
        begun.wait()
        second = pool.submit(whose.run, alone)
        while alone.waiting < 2:
            time.sleep(0.001)
        assert not second.done()
        begun.checkpoint()
        first.result()
        assert second.result() == alone.call(threading.get_native_id)


def test_the_callers_settings_neither_matter_nor_change(alone: Team, c_steps: Path) -> None:
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
        whose.run(alone)
        math.fegetenv(modes)
        assert int.from_bytes(bytes(modes)[28:32], "little") & FLUSHES == FLUSHES
        assert _replay.threads() == 3
    finally:
        math.fesetenv(ctypes.create_string_buffer(plain, 64))
        _replay.set_threads(threads)
    assert whose.least[0] > 0


@pytest.mark.skipif(available_threads() < 2, reason="a team of two needs two processors")
def test_a_thread_that_runs_often_runs_a_team_of_several_itself(team: Team, c_steps: Path) -> None:
    whose, here = Whose(c_steps), threading.get_native_id()
    theirs = team.call(threading.get_native_id)
    assert whose.run(team) == theirs
    assert [whose.run(team) for _ in range(MANY)][-1] == here
    team.call(int)  # as those that make plans do
    assert whose.run(team) == here
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(whose.run, team).result() == theirs
    runs = [whose.run(team) for _ in range(MANY)]
    assert (runs[MANY // 2], runs[-1]) == (theirs, here)  # it takes longer than before


def test_two_threads_that_run_in_turn_do_not(team: Team, c_steps: Path) -> None:
    whose, theirs = Whose(c_steps), team.call(threading.get_native_id)
    with ThreadPoolExecutor(1) as pool:
        for _ in range(MANY):
            assert whose.run(team) == theirs
            assert pool.submit(whose.run, team).result() == theirs


@of_both
def test_closing_ends_the_run_between_two_steps_and_refuses_what_waits(
    either: Team, c_steps: Path
) -> None:
    later: list[int] = []
    begun = Begun(c_steps)
    with ThreadPoolExecutor(4) as pool:
        running = pool.submit(begun.run, either)
        begun.wait()
        queued: list[Future[object]] = [
            pool.submit(either.call, lambda: later.append(2)),
            pool.submit(either.run, Program([], [(lambda: later.append(3), [])]), []),
        ]
        closing = pool.submit(either.close)
        for waits in queued:
            with pytest.raises(Stopped, match="the team is closed"):
                waits.result()
        assert not running.done()
        begun.checkpoint()
        closing.result()
        with pytest.raises(Stopped, match="the run was stopped"):
            running.result()
    assert not later
    assert begun.thread[0] == 0  # the second step never began
    either.close()
    for use in (partial(either.call, int), partial(Whose(c_steps).run, either)):
        with pytest.raises(Stopped, match="closed"):
            use()


def test_a_team_may_close_itself() -> None:
    team = Team(1, "self")
    with pytest.raises(Stopped, match="the run was stopped"):
        team.run(Program([], [(team.close, []), (empty_step(), [])]), [])
    with pytest.raises(Stopped):
        team.call(int)


def interrupt(*_: object) -> None:
    os.kill(os.getpid(), signal.SIGINT)


@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize(
    ("either", "inside"), [(1, False), (2, False), (2, True)], indirect=["either"]
)
def test_an_interrupt_ends_a_run_after_its_step(either: Team, c_steps: Path, inside: bool) -> None:
    begun, whose = Begun(c_steps), Whose(c_steps)

    def interrupting() -> None:
        begun.wait()
        interrupt()
        time.sleep(0.2)  # longer than a run goes on without a look
        begun.checkpoint()

    thread = threading.Thread(target=interrupting)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        either.call(lambda: begun.run(either)) if inside else begun.run(either)
    thread.join()
    assert begun.flags[1]  # it waited for the step
    assert begun.thread[0] == 0  # the second step never began
    assert either.call(lambda: 3) == 3
    assert whose.run(either) > 0


@pytest.mark.usefixtures("interruptible")
def test_an_interrupt_ends_python(team: Team) -> None:
    def forever() -> None:
        threading.Timer(0.05, interrupt).start()
        while True:
            time.sleep(0.001)

    with pytest.raises(KeyboardInterrupt):
        team.call(forever)
    assert team.call(lambda: sum(range(1000))) == 499500


@pytest.mark.usefixtures("interruptible")
def test_an_interrupt_that_comes_too_late_is_forgotten(team: Team) -> None:
    threading.Timer(0.05, interrupt).start()
    with pytest.raises(KeyboardInterrupt):
        team.call(partial(time.sleep, 0.3))  # no bytecode in which to raise it
    assert team.call(lambda: sum(range(1000))) == 499500


@pytest.mark.usefixtures("interruptible")
def test_an_interrupt_takes_back_what_has_not_begun(team: Team, c_steps: Path) -> None:
    """Another thread's run goes on."""
    later: list[int] = []
    begun = Begun(c_steps)
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(begun.run, team)
        begun.wait()
        threading.Timer(0.05, interrupt).start()
        with pytest.raises(KeyboardInterrupt):
            team.call(lambda: later.append(2))
        begun.checkpoint()
        assert running.result() > 0
    assert not later


def answered(run: Callable[[Any], object]) -> bool:
    """Run something on flags that a Python thread answers; return whether it is content."""
    flags, done = np.zeros(2, np.int32), threading.Event()

    def answer() -> None:
        while not flags[0] and not done.is_set():
            done.wait(0.001)
        flags[1] = flags[0]

    thread = threading.Thread(target=answer)
    thread.start()
    try:
        return bool(run(flags))
    finally:
        done.set()
        thread.join()


def test_other_threads_run_python_during_a_step(c_steps: Path, step: NamedSteps) -> None:
    """The twin: the same function, called without letting go of the lock, gets no answer."""
    assert answered(lambda flags: not _replay.execute(step("waiting"), [flags]))  # type: ignore[func-returns-value]
    function = ctypes.PyDLL(str(c_steps)).wait_for_answer
    function.argtypes = [ctypes.c_void_p] * 3

    def locked(flags: Any) -> bool:
        slots = (ctypes.c_void_p * 1)(flags.ctypes.data)
        brief, room = ctypes.c_int(0), ctypes.create_string_buffer(64)
        told = RunStruct(ctypes.sizeof(RunStruct), None, None, ctypes.addressof(room), 64)
        return bool(function(*map(ctypes.addressof, (brief, slots, told))) == 0)

    assert not answered(locked)


def ended(code: str) -> subprocess.CompletedProcess[str]:
    """Run a fresh interpreter after this code, with warnings as errors; a hang fails the test."""
    setup = (
        "import os, sys, threading, time, atexit\n"
        "from vtensor.runtime._replay import Program, Stopped, Team, empty_step\n"
        "team = Team(2, 'test')\n"
    )
    return run_python("-W", "error", "-c", setup + code)


#: Threads that run a program until the interpreter ends.
RUNS = """
def work():
    try:
        while True: team.run(program, []), team.call(int)
    except Stopped: pass
for _ in range(4): threading.Thread(target=work, daemon=True).start()
time.sleep(0.1)
"""
LONG = "program = Program([], [(lambda: time.sleep(0.01), []), (empty_step(), [])] * 100_000)"
ENDINGS = {
    "idle": "",
    "never closed, one closed": "other = Team(1, 'other'); other.call(int); other.close()",
    "other threads run": LONG + RUNS,
    "other threads run short programs": "program = Program([], [(empty_step(), [])])" + RUNS,
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
other = Team(1, "other"); other.call(int); other.close()
child = os.fork()
if child == 0:
    mine = Team(2, "child")
    mine.run(Program([], [(empty_step(), [])]), [])
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


def turns(team: Team, library: Path, carried: Any, most: int = 3) -> tuple[Any, list[Array]]:
    """Repeat dst = 3 * src for a state of ones; return the result and the memory."""
    memory = [np.ones(4, np.float32), np.zeros(4, np.float32)]
    program = Program([16, 16], [(held(step_of(library, "scale")), [(0, 0), (1, 0)])])
    return team.repeat(program, memory, carried, 0, most), memory


def test_a_state_and_its_next_value_change_places(team: Team, c_steps: Path) -> None:
    rows = np.zeros((3, 4), np.float32)
    done, memory = turns(team, c_steps, ([(0, 1)], None, None, [], [(1, rows)]))
    assert done == (3, True)
    np.testing.assert_array_equal(rows, np.outer([3, 9, 27], np.ones(4)))
    np.testing.assert_array_equal(memory[1], rows[2])  # an odd number of turns


def test_a_source_is_another_row_in_each_turn(team: Team, c_steps: Path) -> None:
    rows, results = np.arange(1, 9, dtype=np.float32).reshape(2, 4), np.zeros((2, 4), np.float32)
    carried: Any = [], None, None, [(0, rows)], [(1, results)]
    assert turns(team, c_steps, carried, 2)[0] == (2, True)
    np.testing.assert_array_equal(results, 3 * rows)


@pytest.mark.parametrize(
    ("carried", "complaint"),
    [
        (([(0, 7)], None, None, [], []), "binding 7 of a loop, which has 2"),
        (([(0, 1), (1, 0)], None, None, [], []), "of several states"),
        (([(0, 0)], None, None, [], []), "of several states"),
        (([], 0, None, [], []), "not 8 bytes"),
        (([], None, 2, [], []), "binding 2"),
        (([], None, None, [(0, np.zeros(11, np.float32))], []), "3 rows of 16 bytes has 44"),
        (([], None, None, [], [(1, np.zeros(11, np.float32))]), "3 rows of 16 bytes has 44"),
    ],
)
def test_what_a_loop_cannot_carry_is_refused(
    team: Team, c_steps: Path, carried: Any, complaint: str
) -> None:
    with pytest.raises(ValueError, match=complaint):
        turns(team, c_steps, carried)
