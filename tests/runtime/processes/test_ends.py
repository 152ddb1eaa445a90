"""Sessions that are used while a program ends, or with fewer threads than they want."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable

import pytest

from tests.libraries.processes import ROOT

#: A graph of open sizes, and functions that run sessions of it.
SETUP = """
import asyncio, atexit, os, signal, sys, threading, time, warnings
import numpy as np
from ops import Conv2D, Relu
from vtensor import Graph, Session
from vtensor.errors import SessionClosedError, VTensorError
warnings.filterwarnings("ignore", "This process .* is multi-threaded", DeprecationWarning)

def network():
    g = Graph("open")
    value = g.input("x", {"N": None, "C": 16, "H": 9, "W": 9})
    for layer in range(3):
        w = g.constant(np.full((16, 16, 3, 3), 1 / 144, np.float32), "O I h w", f"w{layer}")
        value = g.add(Relu(), g.add(Conv2D(pads=(1, 1, 1, 1)), value, w))
    g.output(value, "y")
    return g

def feeds(size):
    return {"x": np.ones((size, 16, 9, 9), np.float32)}

def check(y, size):
    assert y.shape == (size, 16, 9, 9) and abs(y.max() - 1) < 1e-5

def run(s, *sizes):
    for size in sizes:
        check(s.run(None, feeds(size))[0], size)

def await_run(s):
    check(asyncio.run(s.run_async(None, feeds(8)))[0], 8)

def tries(work):
    try:
        work()
        print("done", flush=True)
    except VTensorError as error:
        print(type(error).__name__, flush=True)

def outlives_main(work):
    def waits():
        threading.main_thread().join()
        tries(work)
    threading.Thread(target=waits).start()

often = [size for size in range(8, 12) for _ in range(20)]
"""

#: Programs by what they do at their end. They print "done", or what the second table says.
ENDS = {
    "a thread that outlives the main one": """
s = Session(network(), threads=2, cache_dir=None)
outlives_main(lambda: run(s, 8, 8, 9, 9, 10, 10, 11, 11, 12, 12, 13, 13))
""",
    "a session of such a thread": """
def work():
    with Session(network(), threads=2, tune=True, cache_dir=None) as s:
        run(s, 8, 8)
        s.bind(feeds(8)).run()
outlives_main(work)
""",
    "run_async of such a thread": """
s = Session(network(), threads=2)
outlives_main(lambda: await_run(s))
""",
    "streams": """
s = Session(network(), threads=2, streams=2)
tries(lambda: run(s, 8))
""",
    "streams that are awaited, also in a child": """
s = Session(network(), threads=2, streams=2)
await_run(s)
if (child := os.fork()) == 0:
    signal.alarm(60)
    await_run(s)
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
tries(lambda: await_run(s))
""",
    "the first session in a handler": """
@atexit.register
def work():
    s = Session(network(), threads=2)
    tries(lambda: run(s, 8, 8, 9))
""",
    "a session that a handler closes, and others that it leaves": """
kept = []
@atexit.register
def work():
    with Session(network(), threads=2) as s:
        run(s, 8)
        s.bind(feeds(8)).run()
    for tune in (False, True, "background"):
        kept.append(Session(network(), threads=2, tune=tune))
        run(kept[-1], 8, 8)
    print("done")
""",
    "a generator that holds one open": """
def work():
    with Session(network(), threads=2) as s:
        while True:
            run(s, 8)
            yield
alive = work()
next(alive)
print("done")
""",
    "objects that use one in the end": """
class Late:
    def __del__(self):
        tries(lambda: run(s, 8))
        tries(lambda: run(s, 9))
        tries(bound.run)
        tries(lambda: s.bind(feeds(8)))
        tries(lambda: Session(graph))
        tries(s.close)
graph = network()
s = Session(graph, threads=2)
run(s, 8)
bound = s.bind(feeds(8))
late = Late()
""",
    "a daemon thread that runs and plans": """
def work():
    size = 8
    while True:
        size = 8 + (size - 7) % 9
        try:
            run(Session(network(), threads=2, cache_dir=None), size)
        except SessionClosedError:  # the program ends
            return
threading.Thread(target=work, daemon=True).start()
time.sleep(0.5)
print("done")
""",
    "background work that a daemon thread began": """
s = Session(network(), threads=2)
started = threading.Thread(target=run, args=[s, *often], daemon=True)
started.start()
started.join()
print("done")
""",
    "background work that a daemon thread begins as the main thread ends": """
s = Session(network(), threads=2)
starts = threading.Event()

def delay(frame, event, about):  # the start of the thread for such work, until ``atexit`` runs
    if event == "call" and frame.f_code is threading.Thread.start.__code__:
        if frame.f_locals["self"].name == "vtensor-background":
            starts.set()
            time.sleep(0.5)

def work():
    sys.setprofile(delay)
    run(s, *often)

@atexit.register
def last():
    until, seen = time.monotonic() + 1, set()
    while time.monotonic() < until:
        seen |= {thread.name for thread in threading.enumerate()}
        time.sleep(0.001)
    print("vtensor-background" in seen)

threading.Thread(target=work, daemon=True).start()
starts.wait()
""",
}
PRINTED = {
    "run_async of such a thread": "SessionClosedError",
    "objects that use one in the end": "SessionClosedError " * 5 + "done",
    "background work that a daemon thread begins as the main thread ends": "False",
}


def ended(code: str, before: Callable[[], None] | None = None) -> str:
    """Run a program with warnings as errors, and return what it prints."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", SETUP + code],
        check=False,
        capture_output=True,
        text=True,
        timeout=120,
        cwd=ROOT,
        preexec_fn=before,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return " ".join(done.stdout.split())


@pytest.mark.parametrize("name", ENDS)
def test_a_program_ends(name: str) -> None:
    if "fork" in ENDS[name] and not hasattr(os, "fork"):
        pytest.skip("needs fork")
    assert ended(ENDS[name]) == PRINTED.get(name, "done")


#: Bytes of a thread's stack where few threads are to fit into the memory of a process.
STACK = 1 << 34


def few_threads(count: int) -> Callable[[], None]:
    """Return a function that limits a process to so many threads next to its first."""
    resource = pytest.importorskip("resource")

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_STACK, (STACK, STACK))
        resource.setrlimit(resource.RLIMIT_AS, ((count * STACK) + STACK // 2,) * 2)

    return limit


THREADS = """
threads = {threads}
try:
    with Session(network(), threads=threads, cache_dir=None) as s:
        run(s, *[8] * 20, 9, 10)
        print(s.threads)
except VTensorError as error:
    print(str(error).partition(chr(10))[0])
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs limits of memory")
@pytest.mark.parametrize(
    ("threads", "count", "printed"),
    [
        (1, 1, "1"),
        (2, 3, "2"),
        (None, 1, "1"),
        (1, 0, "threads=1 is too many: "),
        (2, 0, "threads=2 is too many: "),
        (2, 2, "threads=2 is too many: "),
        (8, 14, "threads=8 is too many: "),
        (None, 0, "threads=1 is too many: "),
    ],
)
def test_a_session_says_that_there_are_too_few_threads(
    threads: int | None, count: int, printed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "1")  # NumPy's own
    said = ended(THREADS.format(threads=threads), few_threads(count))
    assert said.startswith(printed)
    if not printed.isdigit():
        assert said.endswith(f"the system lets this process start {count}")
