"""The end of a session: memory after ``close()``, the interpreter's exit."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import numpy as np
import pytest

from ops import Add, Conv2D, Relu, Reshape
from ptensor.buffer import TensorStorage
from tests.libraries.processes import printed
from vtensor import Graph, Session
from vtensor.runtime.execution.deadlocks import Place


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


#: A function at exit uses a session, which is younger or older than its registration.
AT_EXIT = """
import atexit
def late():
    try:
        print(*s.run(None, feeds)[0])
    except SessionClosedError as error:
        print(error)
{early}
import numpy as np
from ops import Relu
from vtensor import Graph, Session
from vtensor.errors import SessionClosedError
g = Graph()
g.output(g.add(Relu(), g.input("x", {{"N": 1}})), "y")
s = Session(g)
feeds = {{"x": np.ones(1, np.float32)}}
s.run(None, feeds)
{late}
"""


@pytest.mark.parametrize(
    ("names", "text"),
    [
        ({"early": "", "late": "atexit.register(late)"}, "1.0\n"),
        ({"early": "atexit.register(late)", "late": ""}, "nothing runs any more: "),
    ],
    ids=["older session", "younger session"],
)
def test_function_at_exit_may_use_an_older_session(names: dict[str, str], text: str) -> None:
    assert printed("-W", "error", "-c", AT_EXIT.format(**names)).startswith(text)
