"""Sessions at the edges of their lives: memory after ``close()``, forks, the interpreter's end."""

from __future__ import annotations

import gc
import os
import subprocess
import weakref
from collections.abc import Iterator

import numpy as np
import pytest

from ops import Add, Conv2D, Relu, Reshape
from ptensor.buffer import TensorStorage
from tests.libraries.processes import printed, run_python
from vtensor import Graph, Session
from vtensor.runtime.execution.deadlocks import Place

#: A session ``s`` on a small network, and what it is fed.
SETUP = """
import numpy as np
from ops import Conv2D
from vtensor import Graph, Session
from vtensor.runtime.execution.deadlocks import Place
g = Graph()
x = g.input("x", {"N": 1, "C": 16, "H": 8, "W": 8})
w = g.constant(np.ones((16, 16, 3, 3), np.float32), "O I h w")
g.output(g.add(Conv2D(), x, w), "y")
s = Session(g)
feeds = {"x": np.ones((1, 16, 8, 8), np.float32)}
want = float(s.run(None, feeds)[0].sum())
"""


def ended(code: str, before: str = "") -> subprocess.CompletedProcess[str]:
    """Run this code in a fresh interpreter, with warnings as errors; a hang fails the test."""
    return run_python("-W", "error", "-c", before + SETUP + code)


@pytest.fixture
def no_collector() -> Iterator[None]:
    """Free nothing by garbage collection inside the test."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def storages() -> int:
    """Return the number of live tensors' memories."""
    return sum(type(each) is TensorStorage for each in gc.get_objects())


def test_deadlock_check_keeps_no_frame(no_collector: None) -> None:
    def looks() -> weakref.ref[Graph]:
        graph = Graph("held by this frame")
        assert not Place().waits_for_caller()
        return weakref.ref(graph)

    assert looks()() is None


@pytest.mark.parametrize("libraries", [None, ["numpy"]])
def test_runs_leave_nothing_and_closing_frees_memory_at_once(
    no_collector: None, libraries: list[str] | None
) -> None:
    """Circles of references would keep the weights until some later garbage collection."""
    graph = Graph()
    x = graph.input("x", {"N": 1, "C": 16, "H": 8, "W": 8})
    w = graph.constant(np.ones((16, 16, 1, 1), np.float32), "O I h w")
    y = graph.add(Add(), graph.add(Relu(), graph.add(Conv2D(), x, w)), x)
    graph.output(graph.add(Reshape((("F", 1024),)), y), "y")
    feeds = {"x": np.ones((1, 16, 8, 8), np.float32)}
    before = storages()
    session = Session(graph, libraries=libraries)
    for _ in range(3):
        session.run(None, feeds)
    assert storages() >= before + 6
    objects = len(gc.get_objects())
    for _ in range(50):
        session.run(None, feeds)
    assert len(gc.get_objects()) < objects + 50
    session.close()
    assert storages() == before


#: The first session of a process imports everything that takes part.
FIRST = """
import gc, sys, weakref
from eval.networks import build
from vtensor import Session
assert "pulp" not in sys.modules
with Session(build("resnet50", size=32), threads=1) as session:
    plan, packed = weakref.ref(session.plan), weakref.ref(session.plan.packed)
    assert session.memory.arena > 0
gc.collect()
print("pulp" in sys.modules, plan(), packed(), session._runner.workspace.arena.nbytes)
"""


def test_first_session_of_a_process_is_freed() -> None:
    """A solver's library that it imports must not refer to the importing frames."""
    assert printed("-c", FIRST) == "True None None 0\n"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_forked_child_uses_its_parents_session() -> None:
    code = """
import os, warnings
warnings.simplefilter("ignore", DeprecationWarning)  # of fork beside threads
child = os.fork()
if child == 0:
    ok = float(s.run(None, feeds)[0].sum()) == want
    with Session(g) as own:
        ok = ok and float(own.run(None, feeds)[0].sum()) == want
    os._exit(0 if ok else 1)
assert os.waitpid(child, 0)[1] == 0
assert float(s.run(None, feeds)[0].sum()) == want
"""
    done = ended(code)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "code",
    [
        "",
        "import threading\n"
        "def work():\n    for _ in range(20): s.run(None, feeds)\n"
        "threading.Thread(target=work, daemon=True).start()",
    ],
)
def test_interpreter_ends_with_an_open_session(code: str) -> None:
    done = ended(code)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("SessionClosedError") <= 1  # of the daemon thread


#: A function for the interpreter's end, to be registered before the session is there or after it.
LATE = """
import atexit
from vtensor.errors import SessionClosedError
def late():
    try:
        print(float(s.run(None, feeds)[0].sum()) == want)
    except SessionClosedError as error:
        print(error)
atexit.register(late)
"""


def test_function_at_exit_may_use_a_session_that_is_older() -> None:
    done = ended(LATE)
    assert (done.returncode, done.stdout) == (0, "True\n"), done.stderr
    done = ended("", before=LATE)  # so that it is called when everything else has ended
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("nothing runs any more: ")
