"""Steps that put their work into the queue of a device: here one that waits to be flushed."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.native.stepping import Returns, capsule, held, step_of
from vtensor.runtime._replay import Arena, Program, Team, describe, execute
from vtensor.runtime.execution.executor import Executor

X = np.array([1, 2, 3, 4], np.float32)


class Queue:
    """The fake device's, emptied."""

    def __init__(self, library: Path) -> None:
        self._library = ctypes.CDLL(str(library))
        self._library.fake_queue_of.restype = ctypes.c_void_p
        self._library.fake_flush.argtypes = [ctypes.c_void_p]
        self._pointer = self._library.fake_queue_of()
        ctypes.memset(self._pointer, 0, 2 * ctypes.sizeof(ctypes.c_int))
        self.handle = capsule(self._pointer, b"vtensor.queue")

    def flush(self) -> None:
        """Do what is in it."""
        self._library.fake_flush(self._pointer)


@pytest.fixture
def queue(c_steps: Path) -> Queue:
    return Queue(c_steps)


@pytest.fixture
def team() -> Iterator[Team]:
    one = Team(1, "queue")
    yield one
    one.close()


@pytest.fixture
def twice(c_steps: Path) -> Returns:
    return held(step_of(c_steps, "twice"))


@pytest.fixture
def report(c_steps: Path) -> Returns:
    """Writes whether it was given a queue, and sizes, and room for a reason."""
    return held(step_of(c_steps, "report"))


def test_it_says_its_device(twice: Returns, report: Returns) -> None:
    assert describe(twice)["device"] == "fake"
    assert describe(report)["device"] is None


def test_a_step_returns_before_its_work_is_done(twice: Returns, queue: Queue) -> None:
    execute(twice, [X, dst := np.zeros_like(X)], queue=queue.handle)
    assert not dst.any()
    queue.flush()
    np.testing.assert_array_equal(dst, 2 * X)


def test_a_program_adds_its_work_in_order(
    c_steps: Path, team: Team, twice: Returns, report: Returns, queue: Queue
) -> None:
    """Steps of the CPU among them are given no queue; a transfer waits for it."""
    fetch = held(step_of(c_steps, "fetch"))
    steps = [
        (twice, [(0, 0), (1, 0)]),
        (report, [(2, 0)]),
        (twice, [(1, 0), (1, 16)]),
        (fetch, [(1, 16), (3, 0)]),
        (twice, [(1, 16), (1, 0)]),
    ]
    arena = Arena(32)
    program = Program([16, arena, 24, 16], steps)
    told, dst = np.full(3, -1, np.int64), np.zeros_like(X)
    team.run(program, [X, told, dst], queue=queue.handle)
    np.testing.assert_array_equal(dst, 4 * X)
    assert told.tolist() == [False, False, True]
    queue.flush()
    np.testing.assert_array_equal(arena.memory()[:16].view(np.float32), 8 * X)
    Executor.of(1).replay(program, [X, told, dst], queue=queue.handle)


def test_a_failing_step_of_a_queue_gives_its_reason(twice: Returns, queue: Queue) -> None:
    dst = np.zeros_like(X)
    for _ in range(8):
        execute(twice, [X, dst], queue=queue.handle)
    with pytest.raises(RuntimeError, match="double: the queue is full"):
        execute(twice, [X, dst], queue=queue.handle)


def test_refuses_a_run_without_a_queue(team: Team, twice: Returns, report: Returns) -> None:
    message = "double works in a queue of fake, and none was given"
    with pytest.raises(ValueError, match=message):
        execute(twice, [X, X.copy()])
    told = np.full(3, -1, np.int64)
    program = Program([24, 16, 16], [(report, [(0, 0)]), (twice, [(1, 0), (2, 0)])])
    with pytest.raises(ValueError, match=message):
        team.run(program, [told, X, X.copy()])
    assert told.tolist() == [-1] * 3  # nothing has run


def test_refuses_what_is_no_queue(team: Team, twice: Returns, queue: Queue) -> None:
    for wrong in (3, queue, capsule(id(queue), b"vtensor.step")):
        with pytest.raises(TypeError, match=r"a queue comes as a PyCapsule named .vtensor\.queue"):
            execute(twice, [X, X.copy()], queue=wrong)
        with pytest.raises(TypeError, match=r"a queue comes as a PyCapsule"):
            team.run(Program([], []), [], queue=wrong)


def test_refuses_steps_of_two_devices(c_steps: Path, twice: Returns) -> None:
    other = held(step_of(c_steps, "other_device"))
    places = [(0, 0), (0, 16)]
    with pytest.raises(ValueError, match="step 1: it is for other, a step before it for fake"):
        Program([32], [(twice, places), (other, places)])
