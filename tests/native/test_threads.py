"""The threads of a process in which many run sessions: theirs, and one team's."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

#: Callers that make and run sessions of their own and a common one, all with a budget of two.
CALLERS = """
import os, sys, threading
import numpy as np
import vtensor
from libdesc.onednn import native
from ops import Conv2D, Relu
from vtensor.runtime.execution import executor
native.load()
BUDGET, CALLERS = 2, 8
executor.available_threads = lambda: BUDGET
def tasks():
    return len(os.listdir("/proc/self/task"))
def session(channels, libraries):
    g = vtensor.Graph("one")
    x = g.input("x", {"N": 1, "C": channels, "H": 32, "W": 32})
    w = g.constant(np.ones((64, channels, 3, 3), np.float32), "O I h w")
    g.output(g.add(Relu(), g.add(Conv2D(), x, w)), "y")
    return vtensor.Session(g, libraries=[libraries], threads=BUDGET)
def feeds(channels):
    return {"x": np.ones((1, channels, 32, 32), np.float32)}
vtensor.Graph  # with a first name NumPy's threads end
before = tasks()
common, meet, failures = session(16, "onednn"), threading.Barrier(CALLERS + 1), []
def caller(index):
    try:
        for libraries in ("onednn", "eigen"):
            mine = session(8 * index + 8, libraries)
            for _ in range(3):
                mine.run(None, feeds(8 * index + 8)), common.run(None, feeds(16))
            EXTRA
    except Exception as failure:
        failures.append(failure)
    meet.wait(), meet.wait()
for index in range(CALLERS):
    threading.Thread(target=caller, args=[index]).start()
meet.wait()
print(tasks() - before - CALLERS, failures)
meet.wait()
"""

#: An OpenMP region outside of the executor: another team.
ELSEWHERE = """from vtensor.runtime import _replay
            step = mine.plan.recorded[0].native
            room = [np.zeros(n, np.uint8) for _, n, _ in _replay.describe(step)["slots"]]
            _replay.execute(step, room, BUDGET)"""


def beside(extra: str) -> str:
    """How many threads there are beside the callers and the first, and what went wrong.

    Threads spin for as long as is said, so that none come since others use the processors.
    """
    command = [sys.executable, "-c", CALLERS.replace("EXTRA", extra)]
    return subprocess.run(
        command,
        check=True,
        capture_output=True,
        text=True,
        timeout=120,
        env=os.environ | {"GOMP_SPINCOUNT": "1000"},
    ).stdout.strip()


@pytest.mark.skipif(sys.platform != "linux", reason="threads are counted in /proc")
def test_eight_callers_share_one_team() -> None:
    """Also while primitives are made and compiled."""
    assert beside("pass") == "2 []"


@pytest.mark.skipif(sys.platform != "linux", reason="threads are counted in /proc")
def test_a_team_elsewhere_is_seen() -> None:
    threads, failures = beside(ELSEWHERE).split(maxsplit=1)
    assert failures == "[]"
    assert int(threads) > 2
