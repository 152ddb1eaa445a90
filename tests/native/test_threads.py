"""The threads of a process that runs sessions: its callers', and one team's at a time."""

from __future__ import annotations

import sys

import pytest

from tests.libraries.processes import run_python
from vtensor.runtime.execution.processors import available_threads

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="threads are counted in /proc")

#: Sessions on a convolution of ones, and how many threads there are more than at the beginning.
PREAMBLE = """
import os, signal, sys, threading, time, warnings
os.environ["OPENBLAS_NUM_THREADS"] = "1"  # its threads end with a fork
warnings.filterwarnings("ignore", "This process .* is multi-threaded", DeprecationWarning)
import numpy as np
import vtensor
from libdesc.onednn import native
from ops import Conv2D, Relu
from vtensor.runtime import _replay
from vtensor.runtime.execution import executor
native.load()
def tasks():  # one that has ended is listed for a moment more
    counts = []
    for _ in range(10):
        counts.append(len(os.listdir("/proc/self/task")))
        time.sleep(0.01)
    return min(counts)
def make(threads, library="onednn", channels=64):
    g = vtensor.Graph("one")
    x = g.input("x", {"N": 1, "C": channels, "H": 32, "W": 32})
    w = g.constant(np.ones((64, channels, 3, 3), np.float32), "O I h w")
    g.output(g.add(Relu(), g.add(Conv2D(), x, w)), "y")
    return vtensor.Session(g, libraries=[library], threads=threads)
def run(session, channels=64):
    [y] = session.run(None, {"x": np.ones((1, channels, 32, 32), np.float32)})
    assert (y == 9 * channels).all()
def elsewhere(session, threads):  # an OpenMP region outside of the executor: another team
    for step in (recorded.native for recorded in session.plan.recorded):
        room = [np.zeros(n + 64, np.uint8) for _, n, _ in _replay.describe(step)["slots"]]
        _replay.execute(step, [memory[-memory.ctypes.data % 64 :] for memory in room], threads)
vtensor.Graph  # with a first name NumPy's threads end
before = tasks()
"""

#: Callers that make and run sessions of their own and a common one, all with a budget of two.
CALLERS = """
BUDGET, CALLERS = 2, 8
executor.available_threads = lambda: BUDGET
common, meet, failures = make(BUDGET, "onednn", 16), threading.Barrier(CALLERS + 1), []
def caller(channels):
    try:
        for library in ("onednn", "eigen"):
            mine = make(BUDGET, library, channels)
            for _ in range(3):
                run(mine, channels), run(common, 16)
            EXTRA
    except Exception as failure:
        failures.append(failure)
    meet.wait(), meet.wait()
for index in range(CALLERS):
    threading.Thread(target=caller, args=[8 * index + 8]).start()
meet.wait()
print(tasks() - before - CALLERS, failures)
meet.wait()
"""

ONE_AFTER_ANOTHER = """
for library in ("eigen", "onednn", "eigen"):
    with make(THREADS, library) as session:
        run(session)
    print(tasks() - before)
"""

OFTEN = """
session = make(2)
for _ in range(40):
    run(session)
"""

CHILD = """
if (child := os.fork()) == 0:
    signal.alarm(60)
    elsewhere(session, 2)
    for _ in range(40):
        run(session)
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
for _ in range(40):
    run(session)
"""


def said(code: str) -> str:
    """Return what a process prints.

    Threads spin for as long as is said, so that none come since others use the processors.
    """
    done = run_python("-c", PREAMBLE + code, environment={"GOMP_SPINCOUNT": "1000"})
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.strip()


def test_eight_callers_share_one_team() -> None:
    """Also while primitives are made and compiled; the twin has a team elsewhere."""
    assert said(CALLERS.replace("EXTRA", "pass")) == "2 []"
    threads, failures = said(CALLERS.replace("EXTRA", "elsewhere(mine, BUDGET)")).split(maxsplit=1)
    assert failures == "[]"
    assert int(threads) > 2


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_teams_are_as_many_as_processors_allow_whatever_the_library(threads: int) -> None:
    """An executor's thread and its team; sessions have executors in turn, whose they are."""
    most = max(1, available_threads() // threads)
    expected = [str(threads * min(session, most)) for session in (1, 2, 3)]
    assert said(ONE_AFTER_ANOTHER.replace("THREADS", str(threads))).split() == expected


@pytest.mark.skipif(available_threads() < 2, reason="a team of two needs two processors")
@pytest.mark.parametrize("code", ["", CHILD], ids=["one team", "a child with a team as well"])
def test_there_is_one_team_at_a_time(code: str) -> None:
    """The thread of the session's team, and the one that the caller's has."""
    assert said(f"{OFTEN}{code}print(tasks() - before)") == "2"
