"""What a run is given besides memory: sizes that its steps read, and the queue of a device.

The device is one that waits to be flushed.
"""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.native.guarded.pages import guarded
from tests.native.stepping import (
    Array,
    NamedSteps,
    Returns,
    capsule,
    counter,
    floats,
    held,
    step_of,
)
from vtensor.runtime._replay import Arena, Program, Team, describe, execute
from vtensor.runtime.execution.executor import Executor

X = floats(1, 2, 3, 4)


@pytest.fixture
def sums(step: NamedSteps) -> Returns:
    """Return the sums of rows, of any rows and columns up to 64 numbers."""
    return step("sums")


def numbers(rows: int, columns: int) -> Array:
    return np.arange(rows * columns, dtype=np.float32).reshape(rows, columns) + 1


@pytest.mark.parametrize(("rows", "columns"), [(3, 5), (64, 1), (1, 64), (0, 5), (5, 0)])
def test_a_run_touches_what_its_sizes_need(rows: int, columns: int, sums: Returns) -> None:
    assert describe(sums)["sizes"] == 2
    assert describe(sums)["slots"] == [("src", 256, "read"), ("dst", 256, "write")]
    src = guarded(numbers(rows, columns).reshape(-1).view(np.uint8)) if rows * columns else b""
    dst = guarded(np.full(4 * rows, 0xFF, np.uint8)) if rows else bytearray()
    execute(sums, [src, dst], sizes=(rows, columns))
    expected = numbers(rows, columns).sum(1)
    np.testing.assert_array_equal(np.frombuffer(dst, np.float32), expected)


def total(sums: Returns) -> Program:
    """Make a program of the sum of all: of each row into an arena, then of these."""
    steps = [(sums, [(0, 0), (1, 256)]), (sums, [(1, 256), (2, 0)])]
    return Program([256, Arena(512), 256], steps, 3, {0: [1, 2], 1: [0, 1]})


def test_one_program_runs_with_any_sizes(c_steps: Path, alone: Team, sums: Returns) -> None:
    program, owners = total(sums), counter(c_steps, "owners")
    before = owners.value
    for rows, columns in ((3, 5), (3, 5), (8, 8), (2, 1), (8, 8)):
        src, dst = numbers(rows, columns), np.zeros(1, np.float32)
        alone.run(program, [src, dst], sizes=[1, rows, columns])
        assert dst[0] == src.sum()
    assert owners.value == before  # the same steps
    inner = Executor.of(2)
    Executor.of(1).replay(program, [src, dst], sizes=(1, 4, 4))
    assert dst[0] == src.reshape(-1)[:16].sum()
    Executor.of(1).run(lambda: inner.replay(program, [src[:2], dst], sizes=(1, 2, 4)))
    assert dst[0] == src.reshape(-1)[:8].sum()


REFUSED: dict[str, tuple[tuple[Any, ...], type[Exception], str]] = {
    "negative": ((1, -1), ValueError, r"sums with sizes \(1, -1\): none may be negative"),
    "too large": ((9, 9), ValueError, r"sums with sizes \(9, 9\): more than 64 numbers"),
    "without a reason": ((1, 13), ValueError, "status 7, without a reason"),
    "more than it said": ((1, 17), ValueError, r"\(src\) needs 257 bytes, and said 256 at most"),
    "says nothing": ((1, 19), ValueError, r"\(dst\) needs \d+ bytes, and said 256 at most"),
    "no integer": ((1, 1.5), TypeError, "incompatible"),
    "no int64": ((1, 1 << 63), TypeError, "incompatible"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_sizes_are_refused(case: str, alone: Team, sums: Returns) -> None:
    sizes, error, message = REFUSED[case]
    src, dst = numbers(8, 8), np.zeros(64, np.float32)
    with pytest.raises(error, match=message):
        execute(sums, [src, dst], sizes=sizes)
    program = Program([256, 256], [(sums, [(0, 0), (1, 0)])], 2, {0: [0, 1]})
    for _ in range(2):
        with pytest.raises(error, match=message):
            alone.run(program, [src, dst], sizes=sizes)
        assert not dst.any()
    alone.run(program, [src, dst], sizes=[8, 8])
    np.testing.assert_array_equal(dst[:8], src.sum(1))


@pytest.mark.parametrize("sizes", [(), (1,), (1, 2, 3)])
def test_another_number_of_sizes_is_refused(
    sizes: tuple[int, ...], alone: Team, sums: Returns
) -> None:
    src, dst = numbers(8, 8), np.zeros(64, np.float32)
    with pytest.raises(ValueError, match=f"takes 2 sizes, {len(sizes)} were given"):
        execute(sums, [src, dst], sizes=sizes)
    program = Program([256, 256], [(sums, [(0, 0), (1, 0)])], 2, {0: [0, 1]})
    with pytest.raises(ValueError, match=f"a run is given 2 sizes, not {len(sizes)}"):
        alone.run(program, [src, dst], sizes=sizes)


def test_sizes_are_refused_where_none_are_taken(alone: Team, step: NamedSteps) -> None:
    with pytest.raises(ValueError, match="a run is given 0 sizes, not 1"):
        alone.run(Program([], []), [], sizes=[1])
    with pytest.raises(ValueError, match="takes 0 sizes, 1 were given"):
        execute(step("report"), [np.zeros(3, np.int64)], sizes=[1])


def test_a_function_of_sizes_that_throws_has_refused(cpp_steps: Path) -> None:
    with pytest.raises(ValueError, match="threw an exception: thrown at sizes"):
        execute(held(step_of(cpp_steps, "throws_at_sizes")), [], sizes=[1])


def test_bindings_must_have_what_the_sizes_need(alone: Team, sums: Returns) -> None:
    program, dst = total(sums), np.zeros(1, np.float32)
    alone.run(program, [numbers(3, 5), dst], sizes=[1, 3, 5])
    for _ in range(2):
        with pytest.raises(ValueError, match="region 0 needs 64 bytes, its buffer has 60"):
            alone.run(program, [numbers(3, 5), dst], sizes=[1, 4, 4])
    with pytest.raises(ValueError, match="region 2 is written and overlaps region 0"):
        alone.run(program, [both := numbers(4, 4).reshape(-1), both[15:]], sizes=[1, 4, 4])
    alone.run(program, [both, both[15:]], sizes=[1, 3, 5])
    assert both[15] == np.arange(16).sum()


def test_steps_without_sizes_need_as_much_as_ever(alone: Team, step: NamedSteps) -> None:
    """``scale`` reads 16 bytes of what ``sums`` reads as its sizes say."""
    steps = [(step("sums"), [(0, 0), (1, 0)]), (step("scale"), [(0, 0), (2, 0)])]
    program = Program([256, 256, 16], steps, 2, {0: [0, 1]})
    dst, scaled = np.zeros(1, np.float32), np.zeros(4, np.float32)
    with pytest.raises(ValueError, match="region 0 needs 16 bytes, its buffer has 8"):
        alone.run(program, [numbers(1, 2), dst, scaled], sizes=[1, 2])
    alone.run(program, [numbers(1, 4), dst, scaled], sizes=[1, 2])
    assert (dst[0], scaled.tolist()) == (3, [3, 6, 9, 12])


@pytest.mark.parametrize(
    ("regions", "count", "taken", "message"),
    [
        ([256, 256], 2, {}, "step 0: the step takes 2 sizes, 0 were given"),
        ([256, 256], 2, {0: [0]}, "step 0: the step takes 2 sizes, 1 were given"),
        ([256, 256], 2, {0: [0, 2]}, "step 0: it takes size 2, of 2"),
        ([256, 256], 2, {0: [0, 1], 1: []}, "sizes are for step 1, of 1"),
        ([256, 64], 2, {0: [0, 1]}, r"\(dst\) needs 256 bytes at 0, region 1 has 64"),
    ],
)
def test_programs_are_refused_whose_sizes_do_not_fit(
    regions: list[int], count: int, taken: dict[int, list[int]], message: str, sums: Returns
) -> None:
    with pytest.raises(ValueError, match=message):
        Program(regions, [(sums, [(0, 0), (1, 0)])], count, taken)


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


def test_a_step_of_a_queue_returns_before_its_work_is_done(step: NamedSteps, queue: Queue) -> None:
    twice, dst = step("twice"), np.zeros_like(X)
    assert describe(twice)["device"] == "fake"
    execute(twice, [X, dst], queue=queue.handle)
    assert not dst.any()
    queue.flush()
    np.testing.assert_array_equal(dst, 2 * X)


def test_a_program_adds_its_work_in_order(alone: Team, step: NamedSteps, queue: Queue) -> None:
    """Steps of the CPU among them are given no queue; a transfer waits for it."""
    twice, arena = step("twice"), Arena(32)
    steps = [
        (twice, [(0, 0), (1, 0)]),
        (step("report"), [(2, 0)]),  # whether it has a queue, sizes, room for a reason
        (twice, [(1, 0), (1, 16)]),
        (step("fetch"), [(1, 16), (3, 0)]),
        (twice, [(1, 16), (1, 0)]),
    ]
    program = Program([16, arena, 24, 16], steps)
    told, dst = np.full(3, -1, np.int64), np.zeros_like(X)
    alone.run(program, [X, told, dst], queue=queue.handle)
    np.testing.assert_array_equal(dst, 4 * X)
    assert told.tolist() == [False, False, True]
    queue.flush()
    np.testing.assert_array_equal(arena.memory()[:16].view(np.float32), 8 * X)
    Executor.of(1).replay(program, [X, told, dst], queue=queue.handle)


def test_a_failing_step_of_a_queue_gives_its_reason(step: NamedSteps, queue: Queue) -> None:
    twice, dst = step("twice"), np.zeros_like(X)
    for _ in range(8):
        execute(twice, [X, dst], queue=queue.handle)
    with pytest.raises(RuntimeError, match="double: the queue is full"):
        execute(twice, [X, dst], queue=queue.handle)


def test_a_run_without_its_queue_is_refused(alone: Team, step: NamedSteps, queue: Queue) -> None:
    twice, told = step("twice"), np.full(3, -1, np.int64)
    message = "double works in a queue of fake, and none was given"
    with pytest.raises(ValueError, match=message):
        execute(twice, [X, X.copy()])
    program = Program([24, 16, 16], [(step("report"), [(0, 0)]), (twice, [(1, 0), (2, 0)])])
    with pytest.raises(ValueError, match=message):
        alone.run(program, [told, X, X.copy()])
    assert told.tolist() == [-1] * 3  # nothing has run
    for wrong in (3, queue, capsule(id(queue), b"vtensor.step")):
        with pytest.raises(TypeError, match=r"a queue comes as a PyCapsule named .vtensor\.queue"):
            execute(twice, [X, X.copy()], queue=wrong)
        with pytest.raises(TypeError, match="a queue comes as a PyCapsule"):
            alone.run(Program([], []), [], queue=wrong)


def test_steps_of_two_devices_are_refused(step: NamedSteps) -> None:
    places = [(0, 0), (0, 16)]
    with pytest.raises(ValueError, match="step 1: it is for other, a step before it for fake"):
        Program([32], [(step("twice"), places), (step("other_device"), places)])
