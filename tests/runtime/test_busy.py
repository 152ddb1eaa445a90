"""Beside other processes: how long threads spin, and what a run does about others."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from collections.abc import Iterator
from resource import RUSAGE_THREAD, getrusage

import numpy as np
import pytest

import vtensor
from ops import Conv2D, Relu
from tests.libraries.processes import printed
from vtensor.language.process.openmp import TURNS, VARIABLES
from vtensor.runtime import _replay
from vtensor.runtime.execution import executor
from vtensor.runtime.execution.processors import Quota

#: Loads libgomp as a session does, or as the library alone; it then says what it has read.
LOADS = {
    "session": "import vtensor, ops\ng = vtensor.Graph('one')\n"
    "g.output(g.add(ops.Relu(), g.input('x', {'N': 4})), 'y')\nvtensor.Session(g)\n",
    "library": "from libdesc.onednn import native\nnative.load()\n",
}
TELLS = f"import os\nprint([os.environ.get(name) for name in {VARIABLES!r}])\n"


def told(loads: str, own: dict[str, str]) -> tuple[str, str]:
    """What libgomp read, and what a program's environment is afterwards."""
    rest = {name: value for name, value in os.environ.items() if name not in VARIABLES}
    done = subprocess.run(
        [sys.executable, "-c", LOADS[loads] + TELLS],
        env=rest | own | {"OMP_DISPLAY_ENV": "verbose"},
        check=True,
        capture_output=True,
        text=True,
        timeout=120,
    )
    [line] = [line for line in done.stderr.splitlines() if "GOMP_SPINCOUNT" in line]
    return line.split("=")[1].strip(" '"), done.stdout.strip()


@pytest.mark.parametrize("loads", LOADS)
def test_threads_spin_briefly(loads: str) -> None:
    assert told(loads, {}) == (str(TURNS), "[None, None]")


@pytest.mark.parametrize(
    ("own", "turns"),
    [({"GOMP_SPINCOUNT": "77"}, "77"), ({"OMP_WAIT_POLICY": "passive"}, "0")],
)
def test_the_users_word_stands(own: dict[str, str], turns: str) -> None:
    expected = str([own.get(name) for name in VARIABLES])
    assert told("session", own) == (turns, expected)


def test_a_single_look_changes_nothing() -> None:
    crowding = _replay.Crowding()
    assert not any(crowding.observe(crowded) for crowded in [True, False] * 20)


def test_what_the_system_does_now_and_then_changes_nothing() -> None:
    crowding = _replay.Crowding()
    assert not any(crowding.observe(crowded) for crowded in ([True] * 5 + [False]) * 20)


def test_two_long_waits_say_as_much() -> None:
    """A run may take 100 ms, and there is one look a run."""
    crowding = _replay.Crowding()
    assert [crowding.observe(True, 31_000_000) for _ in range(3)] == [False, True, True]


@pytest.mark.parametrize("waited", [30_000_000, 500_000_000])
def test_a_task_of_the_system_is_no_long_wait(waited: int) -> None:
    """It takes a processor from one run, or from two that share one wait of 60 ms."""
    crowding = _replay.Crowding()
    looks = [True, False] if waited > 60_000_000 else [True, True, False]
    assert not any(crowding.observe(crowded, waited * crowded) for crowded in looks * 20)


def crowded() -> _replay.Crowding:
    """Others are there, as looks have said."""
    crowding = _replay.Crowding()
    while not crowding.observe(True):
        pass
    return crowding


def tried_after(idle: float) -> int:
    """How many looks of a team that shares a processor come before it is tried apart."""
    crowding, looks = crowded(), 1
    while crowding.observe_together(idle, held_up=False):
        looks += 1
    return looks


def test_who_shares_a_processor_looks_whether_the_other_one_is_idle() -> None:
    assert tried_after(0.8) == 1
    assert tried_after(0.5) == tried_after(0.125) == tried_after(-1) == 64
    assert tried_after(0.1) == tried_after(0) == 64 * 16, "there is hardly anything to try"


def test_who_has_to_wait_there_as_well_stays() -> None:
    crowding = crowded()
    assert crowding.observe_together(0.8, held_up=True)
    assert not crowding.observe_together(0.8, held_up=False)
    assert [crowding.observe(True) for _ in range(6)] == [*[False] * 5, True], "as at first"


def test_others_that_were_there_are_found_sooner() -> None:
    crowding = _replay.Crowding()
    looks = [crowding.observe(True) for _ in range(6 + 64 + 2)]
    assert looks == [False] * 5 + [True] * 64 + [False, False, True]


def test_looks_in_a_row_begin_and_end_it() -> None:
    crowding = _replay.Crowding()
    assert [crowding.observe(True) for _ in range(7)] == [*[False] * 5, True, True]
    freed = [crowding.observe(False) for _ in range(12)]
    assert freed.index(False) > 2
    assert freed == sorted(freed, reverse=True)  # once free, it stays so
    assert [crowding.observe(True) for _ in range(6)] == [*[False] * 5, True]


def test_now_and_then_it_is_tried_again() -> None:
    """Threads that sleep may wait for us alone: then it looks as if others were there, for ever."""
    crowding = _replay.Crowding()

    def until_tried() -> int:
        """Looks that all say yes, from the one that begins it."""
        while not crowding.observe(True):
            pass
        looks = 1
        while crowding.observe(True):
            looks += 1
        return looks

    patience = [until_tried() for _ in range(3)]
    assert patience == [64, 128, 256], "they are there: trying costs a little each time"
    assert not any(crowding.observe(False) for _ in range(64))
    assert until_tried() == 64, "they had gone"


#: Of a group's quota, in nanoseconds.
PERIOD = 100_000_000


class Stopping:
    """A group of processes as the system stops it, whose runs begin one behind the other."""

    def __init__(self, processors: float, threads: int, run: int, paced: bool) -> None:
        self.pace = _replay.Pace(processors, PERIOD) if paced else None
        self.quota, self.threads, self.run = round(processors * PERIOD), threads, run
        self.now = self.used = self.last = 0
        self.left = self.quota

    def rest(self, time: int) -> None:
        """Nobody runs anything for so long; where a period begins meanwhile, so does its quota."""
        if self.now // PERIOD != (self.now + time) // PERIOD:
            self.left = self.quota
        self.now += time

    def runs(self, count: int) -> list[int]:
        """What each of so many runs takes, with its wait."""
        return [self._one() for _ in range(count)]

    def _one(self) -> int:
        asked, todo = self.now, self.run
        if self.pace is not None:
            self.rest(self.pace.wait(self.now, self.used, self.threads, self.last))
        begin = self.now
        while todo:
            if self.now % PERIOD == 0:
                self.left = self.quota
            step = min(todo, PERIOD - self.now % PERIOD, self.left // self.threads)
            if not step:  # stopped until the period is over
                self.now += PERIOD - self.now % PERIOD
                continue
            self.now, todo = self.now + step, todo - step
            self.used, self.left = self.used + self.threads * step, self.left - self.threads * step
        self.last = self.now - begin
        return self.now - asked


#: Processors, threads, and milliseconds of a run.
QUOTAS = [
    (1.5, 2, 1),
    (1.5, 2, 4),
    (1.5, 2, 15),
    (0.5, 1, 7),
    (0.5, 2, 4),
    (3.5, 4, 2),
    (7.5, 8, 3),
]


@pytest.mark.parametrize(("processors", "threads", "run_ms"), QUOTAS)
def test_under_a_quota_no_run_stands_still_for_long(
    processors: float, threads: int, run_ms: int
) -> None:
    """About as many runs are done, and the longest of them is far shorter; but for those in the
    period in which they began.
    """
    run = run_ms * 1_000_000
    plain, paced = (Stopping(processors, threads, run, paced) for paced in (False, True))
    stopped, longest = (max(one.runs(600)[300:]) for one in (plain, paced))
    assert stopped - run > 0.8 * PERIOD * (1 - processors / threads), "there is something to mend"
    assert longest - run < 0.6 * (stopped - run)
    assert paced.now < 1.05 * plain.now


@pytest.mark.parametrize(("processors", "threads", "run_ms"), QUOTAS)
def test_what_nobody_would_stop_does_not_wait(processors: float, threads: int, run_ms: int) -> None:
    """Some runs behind one another, as of one request, and then a rest."""
    run = run_ms * 1_000_000
    count = int(0.9 * processors * PERIOD) // (threads * run)
    for paced in (False, True):
        group = Stopping(processors, threads, run, paced)
        for _ in range(5):
            assert {*group.runs(count)} == {run}
            group.rest(3 * PERIOD - group.now % PERIOD)


def test_a_quota_that_is_enough_holds_nothing_up() -> None:
    for processors, threads in ((2.0, 2), (1.0, 1), (64.0, 2)):
        pace = _replay.Pace(processors, PERIOD)
        waits = [pace.wait(now, threads * now, threads, 10) for now in range(0, PERIOD, 10**6)]
        assert not any(waits), processors


def test_runs_that_are_stopped_anyway_do_not_wait_as_well() -> None:
    pace = _replay.Pace(1.5, PERIOD)
    assert not any(pace.wait(now, 2 * now, 2, PERIOD) for now in range(0, 10 * PERIOD, PERIOD))


@pytest.mark.parametrize(
    ("processors", "period"), [(0.0, 1), (-1.0, 1), (1.0, 0), (math.nan, 1), (-math.inf, 1)]
)
def test_a_quota_that_is_none_is_refused(processors: float, period: int) -> None:
    for take in (_replay.Pace, _replay.limit_processors):
        with pytest.raises(ValueError, match="quota"):
            take(processors, period)


def test_so_are_runs_that_are_none() -> None:
    pace = _replay.Pace(1.5, PERIOD)
    with pytest.raises(ValueError, match="no time"):
        pace.wait(0, 0, 2, -1)
    for threads in (0, -1, 1 << 20):
        with pytest.raises(ValueError, match="threads"):
            pace.wait(0, 0, threads, 1)
    with pytest.raises(ValueError, match="quota"):
        _replay.Pace(math.inf, PERIOD)


#: The threads of a process, waited for since they begin and end by themselves.
COUNTS = """
import os, time
from vtensor.runtime import _replay
processors = len(os.sched_getaffinity(0))
def more(count):
    last = time.monotonic() + 20
    while (now := len(os.listdir("/proc/self/task")) - before) != count and time.monotonic() < last:
        time.sleep(0.005)
    return now
before = len(os.listdir("/proc/self/task"))
for shared in (True, True, False, True, False):
    _replay.share_processors(shared, processors + 1)
    print(more(2 if shared else 0), end=" ")
"""


@pytest.mark.skipif(sys.platform != "linux", reason="threads are counted in /proc")
def test_idle_threads_come_and_go() -> None:
    """Where a team has all processors: one that sleeps, and the one that began it."""
    assert printed("-c", COUNTS).split()[:5] == ["2", "2", "0", "2", "0"]


#: Runs of some milliseconds on two processors; another thread sees on which its threads may be, and
#: says so once it is what was asked for; of the first run alone, if that is, which takes a tenth of
#: a second. Then all of them are free again. What never sleeps is there until they share one.
SEATS = """
import os, subprocess, sys, threading, time
import numpy as np
import vtensor
from ops import Conv2D
from vtensor.runtime import _replay
two = set(sorted(os.sched_getaffinity(0))[:2])
os.sched_setaffinity(0, two)
g = vtensor.Graph("one")
once = sys.argv[1] == "first"
pictures = 32 if once else 1
x = g.input("x", {"N": pictures, "C": 256, "H": 64, "W": 64})
g.output(g.add(Conv2D(), x, g.constant(np.ones((256, 256, 3, 3), np.float32), "O I h w")), "y")
feeds = {"x": np.ones((pictures, 256, 64, 64), np.float32)}
wanted, seen = sys.argv[1].split("-"), threading.Event()
burns = [sys.executable, "-c", "while True: pass"]
other = subprocess.Popen(burns) if "together" in wanted else None
def leave():
    if other:
        other.kill()
        other.wait()
def masks():
    found = []
    for thread in os.listdir("/proc/self/task"):
        try:
            found.append(tuple(sorted(os.sched_getaffinity(int(thread)))))
        except ProcessLookupError:
            pass
    return found
def watch():
    while not seen.is_set():
        seats = sorted(one for one in masks() if len(one) == 1)
        if len(seats) == 2 and (len(set(seats)) == 1) == (wanted[0] == "together"):
            del wanted[0]
            leave()
            if not wanted:
                seen.set()
        time.sleep(0.0002)
try:
    with vtensor.Session(g, threads=2) as session:
        threading.Thread(target=watch, daemon=True).start()
        end = time.monotonic() + 60
        while not seen.is_set() and time.monotonic() < end:
            if not other:
                _replay.share_processors(False, 2)
            session.run(None, feeds)
            if once:
                break
        print(seen.is_set(), set(masks()) == {tuple(sorted(two))})
finally:
    seen.set()
    leave()
"""


@pytest.mark.skipif(
    sys.platform != "linux" or len(os.sched_getaffinity(0)) < 2, reason="it takes two processors"
)
@pytest.mark.parametrize("wanted", ["first", "apart", "together-apart"])
def test_two_threads_have_seats_while_they_run(wanted: str) -> None:
    """Each on a processor of its own, also in a thread's first run; beside a process that never
    sleeps they share one, until it has gone.
    """
    assert printed("-c", SEATS, wanted).split() == ["True", "True"]


def test_answers_are_the_same_beside_others() -> None:
    g = vtensor.Graph("one")
    x = g.input("x", {"N": 1, "C": 16, "H": 32, "W": 32})
    w = g.constant(
        np.linspace(-1, 1, 64 * 16 * 9, dtype=np.float32).reshape(64, 16, 3, 3), "O I h w"
    )
    g.output(g.add(Relu(), g.add(Conv2D(), x, w)), "y")
    feeds = {"x": np.linspace(-1, 1, 16 * 32 * 32, dtype=np.float32).reshape(1, 16, 32, 32)}
    with vtensor.Session(g, threads=2, deterministic=True) as session:
        [alone] = session.run(None, feeds)
        for shared in (True, False, True, False):
            _replay.share_processors(shared, 2)
            [beside] = session.run(None, feeds)
            assert np.array_equal(alone, beside)


@pytest.fixture
def without_quota() -> Iterator[None]:
    """Tests behind this one have no quota."""
    yield
    _replay.limit_processors(math.inf, PERIOD)


def _relu() -> vtensor.Graph:
    g = vtensor.Graph("one")
    g.output(g.add(Relu(), g.input("x", {"N": 4})), "y")
    return g


FEEDS = {"x": np.linspace(-1, 1, 4, dtype=np.float32)}


@pytest.mark.usefixtures("without_quota")
@pytest.mark.parametrize("threads", [1, 2])
def test_runs_answer_the_same_under_a_quota(threads: int) -> None:
    with vtensor.Session(_relu(), threads=threads) as session:
        [free] = session.run(None, FEEDS)
        _replay.limit_processors(0.02, 10_000_000)
        for _ in range(100):
            [paced] = session.run(None, FEEDS)
            assert np.array_equal(free, paced)


@pytest.mark.usefixtures("without_quota")
@pytest.mark.skipif(sys.platform != "linux", reason="it counts how often a thread has slept")
def test_runs_wait_under_a_quota() -> None:
    """A run of one thread stays on its caller's, which has no other reason to sleep."""
    with vtensor.Session(_relu(), threads=1) as session:
        session.run(None, FEEDS)
        _replay.limit_processors(0.02, 10_000_000)
        before = getrusage(RUSAGE_THREAD).ru_nvcsw
        for _ in range(300):
            session.run(None, FEEDS)
        assert getrusage(RUSAGE_THREAD).ru_nvcsw - before > 30


@pytest.mark.usefixtures("without_quota")
def test_a_session_says_the_quota(monkeypatch: pytest.MonkeyPatch) -> None:
    said = list[tuple[float, int]]()
    monkeypatch.setattr(executor, "binding_quota", lambda: Quota(0.5, 100_000))
    monkeypatch.setattr(_replay, "limit_processors", lambda *about: said.append(about))
    vtensor.Session(_relu(), threads=1).close()
    assert said == [(0.5, 100_000_000)]


#: A child makes a session of its own and runs it, while runs of its parent are under way.
FORKS = """
import os, sys, threading
import numpy as np
import vtensor
from ops import Relu
from vtensor.runtime import _replay
g = vtensor.Graph("one")
g.output(g.add(Relu(), g.input("x", {"N": 4})), "y")
feeds = {"x": np.ones(4, np.float32)}
session = vtensor.Session(g, threads=1)
_replay.limit_processors(0.9, 10_000_000)
done = threading.Event()
def runs():
    while not done.is_set():
        session.run(None, feeds)
thread = threading.Thread(target=runs)
thread.start()
for _ in range(20):
    child = os.fork()
    if not child:
        _replay.limit_processors(0.5, 10_000_000)
        vtensor.Session(g, threads=1).run(None, feeds)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
done.set()
thread.join()
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there are no forks")
def test_a_forked_child_has_a_pace_of_its_own() -> None:
    printed("-c", FORKS)
