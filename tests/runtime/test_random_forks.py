"""Forks at random moments, while other threads open sessions and make plans: children answer."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.libraries.processes import run_python
from tests.libraries.slow import ALL

#: Processes, each of which forks a few times from its very beginning on.
PROCESSES = 67 if ALL else 7

PROGRAM = """
import faulthandler, os, random, sys, threading, time, warnings
warnings.filterwarnings("ignore", "This process .* is multi-threaded", DeprecationWarning)
import numpy as np
import vtensor
from tests.runtime.exact_net import answer, feeds, model

seed, folder, FORKS = int(sys.argv[1]), sys.argv[2], 3
moments, over = random.Random(seed), threading.Event()
model = model().SerializeToString()
expected = {size: answer(size) for size in range(1, 8)}
shared = []

def check(session, size):
    [found] = session.run(None, feeds(size))
    assert np.array_equal(found, expected[size])

def opens():
    while not over.is_set():
        session = vtensor.Session(model, threads=2, cache_dir=folder if seed % 2 else None)
        shared.append(session)
        for size in random.sample(range(1, 8), 4):
            check(session, size)

def works(session):
    "What a child does: runs a session of its parent, in an old and a new size, and its own."
    faulthandler.dump_traceback_later(30, exit=True)
    if session is not None:
        check(session, 2)
        check(session, 5)
    with vtensor.Session(model, threads=1, cache_dir=None) as own:
        check(own, 3)
        check(own, 4)
    os._exit(0)

threads = [threading.Thread(target=opens) for _ in range(2)]
for thread in threads: thread.start()
failed = 0
for _ in range(FORKS):
    time.sleep(moments.uniform(0, 0.4))
    session = shared[-1] if shared else None
    child = os.fork()
    if child == 0:
        works(session)
    failed += os.waitpid(child, 0)[1] != 0
over.set()
for thread in threads: thread.join()
print("failed", failed)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.parametrize("seed", range(PROCESSES))
def test_children_of_random_moments_answer(seed: int, tmp_path: Path) -> None:
    done = run_python("-c", PROGRAM, seed, tmp_path)
    assert (done.returncode, done.stderr, done.stdout) == (0, "", "failed 0\n")
