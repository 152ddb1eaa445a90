"""Threads that make plans beside others that run: each plan once, and runs wait for runs only."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from ops import Conv2D, Relu
from vtensor import Graph, Session
from vtensor.errors import SessionClosedError
from vtensor.runtime import _replay

Array = np.ndarray[Any, Any]

#: What a test waits for at most, in seconds, where a fault would have it wait for ever.
LIMIT = 60


def of_any_batch(progress: Callable[[str], None] | None = None) -> Session:
    """A session of two kernel threads, of a network with weights and an open size: each plan is
    made node by node.
    """
    graph = Graph("convolution")
    x = graph.input("x", {"N": None, "C": 8, "H": 6, "W": 6})
    w = graph.constant(np.ones((16, 8, 3, 3), np.float32), "O I h w")
    graph.output(graph.add(Relu(), graph.add(Conv2D(), x, w)), "y")
    return Session(graph, threads=2, progress=progress, deterministic=True)


def right(session: Session, batch: int) -> None:
    """Run on numbers whose answer is known: every kernel sums 72 elements."""
    x = np.zeros((batch, 8, 6, 6), np.float32) + np.arange(batch, dtype=np.float32).reshape(
        -1, 1, 1, 1
    )
    [y] = session.run(None, {"x": x})
    np.testing.assert_array_equal(y, 72 * x[:, :1, :4, :4].repeat(16, 1))


class Held:
    """A progress call-back that waits until it is told to go on, once it is to hold."""

    def __init__(self) -> None:
        self.begun, self.checkpoint = threading.Event(), threading.Event()
        self.holds = True
        self.seen: list[str] = []

    def __call__(self, node: str) -> None:
        self.seen.append(node)
        if self.holds:
            self.begun.set()
            assert self.checkpoint.wait(LIMIT)


@pytest.fixture
def held() -> Iterator[Held]:
    """What a test leaves waiting goes on."""
    one = Held()
    yield one
    one.checkpoint.set()


def test_a_run_does_not_wait_for_another_sessions_plan(held: Held) -> None:
    other = of_any_batch()
    right(other, 2)
    with ThreadPoolExecutor(1) as pool, of_any_batch(held) as planned:
        planning = pool.submit(right, planned, 3)
        assert held.begun.wait(LIMIT)
        right(other, 2)
        right(other, 4)  # needs a plan of its own
        assert not planning.done()
        held.checkpoint.set()
        planning.result()


def test_a_run_does_not_wait_for_another_plan_of_its_session(held: Held) -> None:
    held.holds = False
    with ThreadPoolExecutor(1) as pool, of_any_batch(held) as session:
        right(session, 2)
        held.holds = True
        planning = pool.submit(right, session, 3)
        assert held.begun.wait(LIMIT)
        right(session, 2)
        assert not planning.done()
        held.checkpoint.set()
        planning.result()


def test_eight_threads_with_eight_shapes() -> None:
    held = Held()
    held.holds = False
    with ThreadPoolExecutor(8) as pool, of_any_batch(held) as session:
        meet = threading.Barrier(8)

        def runs(batch: int) -> None:
            meet.wait(LIMIT)
            for _ in range(3):
                right(session, batch)

        list(pool.map(runs, range(1, 9)))
        assert len(session._runner.open()) == 8
        for batch in range(1, 9):
            right(session, batch)
    assert len(held.seen) == 8 * len(set(held.seen))


def test_what_two_threads_want_is_planned_once(held: Held) -> None:
    with ThreadPoolExecutor(2) as pool, of_any_batch(held) as session:
        first = pool.submit(right, session, 3)
        assert held.begun.wait(LIMIT)
        second = pool.submit(right, session, 3)
        held.checkpoint.set()
        first.result(), second.result()
        assert len(held.seen) == len(set(held.seen))


def test_a_session_closed_while_it_is_planned_does_not_run(held: Held) -> None:
    with ThreadPoolExecutor(1) as pool:
        session = of_any_batch(held)
        planning = pool.submit(right, session, 3)
        assert held.begun.wait(LIMIT)
        session.close()
        held.checkpoint.set()
        with pytest.raises(SessionClosedError):
            planning.result()


def test_a_plan_that_fails_leaves_its_turn_to_the_next() -> None:
    def fails(_: str) -> None:
        raise KeyError("mine")

    with ThreadPoolExecutor(4) as pool, of_any_batch(fails) as session:
        for run in [pool.submit(right, session, 3) for _ in range(4)]:
            with pytest.raises(KeyError, match="mine"):
                run.result()


def test_who_plans_keeps_the_number_of_threads_that_it_had() -> None:
    """The budget is the plan's, and the caller has an OpenMP of its own."""
    before = _replay.threads()
    _replay.set_threads(5)
    try:
        with of_any_batch() as session:
            right(session, 2)
        assert _replay.threads() == 5
    finally:
        _replay.set_threads(before)
