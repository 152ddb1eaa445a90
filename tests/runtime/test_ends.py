"""Sessions that are used while a program ends, or with fewer threads than they want."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

#: A session ``s`` with open sizes, the function ``run`` for a size, and one that tries something.
SETUP = """
import asyncio, atexit, sys, threading, time
import numpy as np
from ops import Conv2D, Relu
from vtensor import Graph, Session
from vtensor.errors import SessionClosedError, VTensorError

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

def run(s, size):
    [y] = s.run(None, feeds(size))
    assert y.shape == (size, 16, 9, 9) and abs(y.max() - 1) < 1e-5

def tries(work):
    try:
        work()
        print("done", flush=True)
    except VTensorError as error:
        print(type(error).__name__, flush=True)
"""

#: Programs by what they do at their end, and what they print.
ENDS = {
    "a thread that outlives the main one": (
        """
s = Session(network(), threads=2, cache_dir=None)
def work():
    threading.main_thread().join()
    for size in range(8, 14):
        run(s, size)
        run(s, size)
    print("done")
threading.Thread(target=work).start()
""",
        "done",
    ),
    "a session of such a thread": (
        """
def work():
    threading.main_thread().join()
    with Session(network(), threads=2, tune=True, cache_dir=None) as s:
        run(s, 8)
        run(s, 8)
        s.bind(feeds(8)).run()
    print("done")
threading.Thread(target=work).start()
""",
        "done",
    ),
    "run_async of such a thread": (
        """
s = Session(network(), threads=2)
def work():
    threading.main_thread().join()
    tries(lambda: asyncio.run(s.run_async(None, feeds(8))))
threading.Thread(target=work).start()
""",
        "SessionClosedError",
    ),
    "the first session in a handler": (
        """
def work():
    s = Session(network(), threads=2)
    for size in (8, 8, 9):
        run(s, size)
    print("done")
atexit.register(work)
""",
        "done",
    ),
    "a session that a handler closes, and others that it leaves": (
        """
def work():
    with Session(network(), threads=2) as s:
        run(s, 8)
        s.bind(feeds(8)).run()
    for tune in (False, True, "background"):
        kept.append(Session(network(), threads=2, tune=tune))
        run(kept[-1], 8)
        run(kept[-1], 8)
    print("done")
kept = []
atexit.register(work)
""",
        "done",
    ),
    "a generator that holds one open": (
        """
def work():
    with Session(network(), threads=2) as s:
        while True:
            run(s, 8)
            yield
alive = work()
next(alive)
print("done")
""",
        "done",
    ),
    "objects that use one in the end": (
        """
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
        "SessionClosedError " * 5 + "done",
    ),
    "a daemon thread that runs and plans": (
        """
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
        "done",
    ),
    "background work that a daemon thread began": (
        """
s = Session(network(), threads=2)
def work():
    for size in range(8, 12):
        for _ in range(20):
            run(s, size)
started = threading.Thread(target=work, daemon=True)
started.start()
started.join()
print("done")
""",
        "done",
    ),
    "background work that a daemon thread begins as the main thread ends": (
        """
s = Session(network(), threads=2)
starts = threading.Event()

def delay(frame, event, about):  # the start of the thread for such work, until ``atexit`` runs
    if event == "call" and frame.f_code is threading.Thread.start.__code__:
        if frame.f_locals["self"].name == "vtensor-background":
            starts.set()
            time.sleep(0.5)

def work():
    sys.setprofile(delay)
    for size in range(8, 12):
        for _ in range(20):
            run(s, size)

@atexit.register
def last():
    until, seen = time.monotonic() + 1, set()
    while time.monotonic() < until:
        seen |= {one.name for one in threading.enumerate()}
        time.sleep(0.001)
    print("vtensor-background" in seen)

threading.Thread(target=work, daemon=True).start()
starts.wait()
""",
        "False",
    ),
}


def ended(code: str, before: Callable[[], None] | None = None) -> str:
    """Run a program with warnings as errors, and return what it prints."""
    command = [sys.executable, "-W", "error", "-c", SETUP + code]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        cwd=ROOT,
        preexec_fn=before,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return " ".join(done.stdout.split())


@pytest.mark.parametrize("code", ENDS)
def test_a_program_ends(code: str) -> None:
    program, printed = ENDS[code]
    assert ended(program) == printed


#: Bytes of a thread's stack where few threads are to fit into the memory of a process.
STACK = 1 << 34


def few_threads(count: int) -> Callable[[], None]:
    """Return what limits a process to so many threads beside its first."""
    resource = pytest.importorskip("resource")

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_STACK, (STACK, STACK))
        resource.setrlimit(resource.RLIMIT_AS, ((count * STACK) + STACK // 2,) * 2)

    return limit


THREADS = """
threads = {threads}
def work():
    with Session(network(), threads=threads, cache_dir=None) as s:
        for size in (*[8] * 20, 9, 10):
            run(s, size)
        print(s.threads)
try:
    work()
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
def test_fewer_threads_than_a_session_wants(
    threads: int | None, count: int, printed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "1")  # NumPy's own
    said = ended(THREADS.format(threads=threads), few_threads(count))
    assert said.startswith(printed)
    if not printed.isdigit():
        assert said.endswith(f"the system lets this process start {count}")
