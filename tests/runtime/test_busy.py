"""Beside other processes: how long threads spin, and what a run does about others."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Iterator
from resource import RUSAGE_THREAD, getrusage

import numpy as np
import pytest

import vtensor
from ops import Relu
from tests.libraries.processes import printed, run_python
from tests.session.test_session import image, network
from vtensor.language.process.openmp import TURNS, VARIABLES
from vtensor.runtime import _replay
from vtensor.runtime.execution import executor
from vtensor.runtime.execution.processors import Quota

#: Programs that load libgomp as a session does, or with the library alone.
LOADS = {
    "session": "import vtensor, ops\ng = vtensor.Graph('one')\n"
    "g.output(g.add(ops.Relu(), g.input('x', {'N': 4})), 'y')\nvtensor.Session(g)\n",
    "library": "from libdesc.onednn import native\nnative.load()\n",
}
TELLS = f"import os\nprint([os.environ.get(name) for name in {VARIABLES!r}])\n"


@pytest.mark.parametrize(
    ("loads", "variables", "turns"),
    [
        ("session", {}, str(TURNS)),
        ("library", {}, str(TURNS)),
        ("session", {"GOMP_SPINCOUNT": "77"}, "77"),
        ("session", {"OMP_WAIT_POLICY": "passive"}, "0"),
    ],
)
def test_threads_spin_briefly_unless_the_user_says_otherwise(
    loads: str, variables: dict[str, str], turns: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """libgomp prints what it read; the program's environment is the user's afterwards."""
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    environment = variables | {"OMP_DISPLAY_ENV": "verbose"}
    done = run_python("-c", LOADS[loads] + TELLS, environment=environment)
    assert done.returncode == 0, done.stderr
    [line] = [line for line in done.stderr.splitlines() if "GOMP_SPINCOUNT" in line]
    assert line.split("=")[1].strip(" '") == turns
    assert done.stdout.strip() == str([variables.get(name) for name in VARIABLES])


#: Whether a thread had to wait, look by look; nanoseconds of such a wait; judgements look by look.
#: A run may take 100 ms, with one look: two long waits suffice. A task of the system is no reason:
#: it takes a processor from one run, or from two that share a wait of 60 ms.
LOOKS = {
    "single looks": ([True, False] * 20, 0, [False] * 40),
    "some looks": (([True] * 5 + [False]) * 20, 0, [False] * 120),
    "long waits": ([True] * 3, 31_000_000, [False, True, True]),
    "two waits of a task": ([True, True, False] * 20, 30_000_000, [False] * 60),
    "one wait of a task": ([True, False] * 20, 500_000_000, [False] * 40),
    "sooner the second time": ([True] * 72, 0, [False] * 5 + [True] * 64 + [False] * 2 + [True]),
}


@pytest.mark.parametrize(("looks", "waited", "expected"), LOOKS.values(), ids=LOOKS)
def test_looks_in_a_row_say_that_others_are_there(
    looks: list[bool], waited: int, expected: list[bool]
) -> None:
    crowding = _replay.Crowding()
    assert [crowding.observe(look, waited * look) for look in looks] == expected


def crowded() -> _replay.Crowding:
    """Return a judgement that others are there."""
    crowding = _replay.Crowding()
    while not crowding.observe(True):
        pass
    return crowding


def tried_after(idle: float) -> int:
    """Return after how many looks a team that shares a processor is tried apart."""
    crowding, looks = crowded(), 1
    while crowding.observe_together(idle, held_up=False):
        looks += 1
    return looks


def test_a_shared_processor_is_left_sooner_if_the_other_one_is_idle() -> None:
    assert tried_after(0.8) == 1
    assert tried_after(0.5) == tried_after(0.125) == tried_after(-1) == 64
    assert tried_after(0.1) == tried_after(0) == 64 * 16, "there is hardly anything to try"


def test_a_shared_processor_is_kept_if_threads_wait_there_too() -> None:
    crowding = crowded()
    assert crowding.observe_together(0.8, held_up=True)
    assert not crowding.observe_together(0.8, held_up=False)
    assert [crowding.observe(True) for _ in range(6)] == [*[False] * 5, True], "as at first"


def test_looks_in_a_row_end_it() -> None:
    crowding = _replay.Crowding()
    assert [crowding.observe(True) for _ in range(7)] == [*[False] * 5, True, True]
    freed = [crowding.observe(False) for _ in range(12)]
    assert freed.index(False) > 2
    assert freed == sorted(freed, reverse=True)  # once free, it stays so
    assert [crowding.observe(True) for _ in range(6)] == [*[False] * 5, True]


def test_a_team_is_tried_apart_ever_more_seldom() -> None:
    """Threads that sleep may wait for this team alone, which looks like others."""
    crowding = _replay.Crowding()

    def until_tried() -> int:
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
    """A group of processes as the system stops it, whose runs begin one after another."""

    def __init__(self, processors: float, threads: int, run: int, paced: bool) -> None:
        self.pace = _replay.Pace(processors, PERIOD) if paced else None
        self.quota, self.threads, self.run = round(processors * PERIOD), threads, run
        self.now = self.used = self.last = 0
        self.left = self.quota

    def rest(self, time: int) -> None:
        """Run nothing for some time; a period that begins meanwhile has its quota."""
        if self.now // PERIOD != (self.now + time) // PERIOD:
            self.left = self.quota
        self.now += time

    def runs(self, count: int) -> list[int]:
        """Return the time of each of so many runs, with its wait."""
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
RUNS = [(1.5, 2, 1), (1.5, 2, 4), (1.5, 2, 15), (0.5, 1, 7), (0.5, 2, 4), (3.5, 4, 2), (7.5, 8, 3)]
#: Processors and threads.
ENOUGH = [(2.0, 2), (1.0, 1), (64.0, 2)]


@pytest.mark.parametrize(("processors", "threads", "run_ms"), RUNS)
def test_no_run_is_stopped_for_long_under_a_quota(
    processors: float, threads: int, run_ms: int
) -> None:
    """After the first period: about as many runs, and the longest of them is far shorter."""
    run = run_ms * 1_000_000
    plain, paced = (Stopping(processors, threads, run, paced) for paced in (False, True))
    stopped, longest = (max(one.runs(600)[300:]) for one in (plain, paced))
    assert stopped - run > 0.8 * PERIOD * (1 - processors / threads), "there is something to mend"
    assert longest - run < 0.6 * (stopped - run)
    assert paced.now < 1.05 * plain.now


@pytest.mark.parametrize(("processors", "threads", "run_ms"), RUNS)
def test_runs_within_the_quota_do_not_wait(processors: float, threads: int, run_ms: int) -> None:
    """Some runs one after another, as of one request, and then a pause."""
    run = run_ms * 1_000_000
    count = int(0.9 * processors * PERIOD) // (threads * run)
    for paced in (False, True):
        group = Stopping(processors, threads, run, paced)
        for _ in range(5):
            assert {*group.runs(count)} == {run}
            group.rest(3 * PERIOD - group.now % PERIOD)


@pytest.mark.parametrize(
    ("processors", "threads", "run", "end", "step"),
    [
        *((processors, threads, 10, PERIOD, 10**6) for processors, threads in ENOUGH),
        (1.5, 2, PERIOD, 10 * PERIOD, PERIOD),  # stopped anyway
    ],
)
def test_a_run_does_not_wait_where_nothing_is_gained(
    processors: float, threads: int, run: int, end: int, step: int
) -> None:
    pace = _replay.Pace(processors, PERIOD)
    assert not any(pace.wait(now, threads * now, threads, run) for now in range(0, end, step))


@pytest.mark.parametrize(
    ("processors", "period"), [(0.0, 1), (-1.0, 1), (1.0, 0), (math.nan, 1), (-math.inf, 1)]
)
def test_a_quota_of_nothing_is_refused(processors: float, period: int) -> None:
    for take in (_replay.Pace, _replay.limit_processors):
        with pytest.raises(ValueError, match="quota"):
            take(processors, period)


def test_a_run_of_no_time_or_threads_is_refused() -> None:
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
def test_idle_threads_come_and_go_with_others() -> None:
    """Where a team has all processors: one that sleeps, and the one that began it."""
    assert printed("-c", COUNTS).split()[:5] == ["2", "2", "0", "2", "0"]


#: Runs of some milliseconds on two processors, or the first run alone, of a tenth of a second.
#: Another thread sees on which its threads may be, and says so once it is what was asked for. Then
#: all of them are free again. A process that never sleeps is there until they share a processor.
AFFINITIES = """
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
        pinned = sorted(mask for mask in masks() if len(mask) == 1)
        if len(pinned) == 2 and (len(set(pinned)) == 1) == (wanted[0] == "together"):
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
def test_each_of_two_threads_has_a_processor_while_it_runs(wanted: str) -> None:
    """Also in its first run; next to a process that never sleeps they share one."""
    assert printed("-c", AFFINITIES, wanted).split() == ["True", "True"]


def test_answers_are_the_same_beside_others() -> None:
    feeds = {"x": image()}
    with vtensor.Session(network(), threads=2, deterministic=True) as session:
        alone = session.run(None, feeds)
        for shared in (True, False, True, False):
            _replay.share_processors(shared, 2)
            assert all(map(np.array_equal, alone, session.run(None, feeds)))


@pytest.fixture
def without_quota() -> Iterator[None]:
    """Later tests have no quota."""
    yield
    _replay.limit_processors(math.inf, PERIOD)


def relu() -> vtensor.Graph:
    graph = vtensor.Graph("one")
    graph.output(graph.add(Relu(), graph.input("x", {"N": 4})), "y")
    return graph


@pytest.mark.usefixtures("without_quota")
@pytest.mark.parametrize("threads", [1, 2])
def test_runs_under_a_quota_wait_and_answer_the_same(threads: int) -> None:
    feeds = {"x": np.linspace(-1, 1, 4, dtype=np.float32)}
    with vtensor.Session(relu(), threads=threads) as session:
        [free] = session.run(None, feeds)
        _replay.limit_processors(0.02, 10_000_000)
        before = getrusage(RUSAGE_THREAD).ru_nvcsw
        assert all(np.array_equal(free, session.run(None, feeds)[0]) for _ in range(300))
        slept = getrusage(RUSAGE_THREAD).ru_nvcsw - before
    # a run of one thread stays on its caller's, which has no other reason to sleep
    assert threads > 1 or slept > 30


@pytest.mark.usefixtures("without_quota")
def test_a_session_reads_the_quota(monkeypatch: pytest.MonkeyPatch) -> None:
    said = list[tuple[float, int]]()
    monkeypatch.setattr(executor, "binding_quota", lambda: Quota(0.5, 100_000))
    monkeypatch.setattr(_replay, "limit_processors", lambda *about: said.append(about))
    vtensor.Session(relu(), threads=1).close()
    assert said == [(0.5, 100_000_000)]
