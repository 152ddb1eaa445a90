"""Program: what is checked when it is made, what when it runs, and what a run does."""

from __future__ import annotations

import ctypes
import gc
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.native.stepping import Returns, copied, held, step_of
from vtensor.runtime._replay import Arena, Program, StepFailed, Team, empty_step

Array = np.ndarray[Any, Any]
Places = Sequence[tuple[int, int]]


def floats(*values: float) -> Array:
    """On a 64-byte boundary."""
    room = np.zeros(64 + 4 * len(values), np.uint8)
    start = -room.ctypes.data % 64
    array = room[start : start + 4 * len(values)].view(np.float32)
    array[:] = values
    return array


@pytest.fixture(scope="module")
def team() -> Iterator[Team]:
    one = Team(2, "test")
    yield one
    one.close()


@pytest.fixture
def scale(c_steps: Path) -> Returns:
    return held(step_of(c_steps, "scale"))


@pytest.fixture
def add(c_steps: Path) -> Returns:
    return held(step_of(c_steps, "sum"))


X = floats(1, 2, 3, 4)


def test_a_chain_over_all_kinds_of_regions(team: Team, scale: Returns, add: Returns) -> None:
    """y = 3 * x + constant, and again in place."""
    arena, bias = Arena(96), floats(10, 20, 30, 40)
    regions = [16, bias, arena, 16]
    program = Program(
        regions,
        [
            (scale, [(0, 0), (2, 0)]),
            (add, [(2, 0), (1, 0), (2, 32), (2, 64)]),
            (scale, [(2, 32), (2, 32)]),
            (add, [(2, 32), (2, 32), (3, 0), (2, 0)]),
        ],
    )
    assert len(program) == 4
    expected = (X * 3 + bias) * 6
    weak = weakref.ref(bias)
    del regions, bias
    gc.collect()
    assert weak() is not None  # the program needs it
    for _ in range(3):  # the second time nothing has moved, the third time everything
        for x, y in ((X, first := floats(*[0] * 4)), (X, first), (X.copy(), floats(*[0] * 4))):
            y[:] = np.nan
            team.run(program, [x, y])
            np.testing.assert_array_equal(y, expected)
        arena.grow(arena.nbytes + 4096)


def test_larger_and_shared_inputs_are_taken(team: Team, add: Returns) -> None:
    y = floats(*[0] * 8)
    program = Program([16, 16, 16, Arena(16)], [(add, [(0, 0), (1, 0), (2, 0), (3, 0)])])
    team.run(program, [X, X.tobytes(), y.data])
    np.testing.assert_array_equal(y[:4], X * 2)
    team.run(program, (X, X, y))


def test_an_empty_program_runs(team: Team) -> None:
    team.run(Program([], []), [])
    team.run(Program([0, Arena()], []), [b""])


def frozen() -> Array:
    array = floats(0, 0, 0, 0)
    array.flags.writeable = False
    return array


#: Regions, the places of a step on (a, b, dst, scratch), and what is wrong with them.
MISPLACED: dict[str, tuple[list[object], Places, type[Exception], str]] = {
    "too few": ([64], [(0, 0)] * 3, ValueError, "step 0: the step has 4 slots, 3 "),
    "no such region": ([64], [(0, 0), (1, 0), (0, 16), (0, 32)], ValueError, "region 1, of 1"),
    "behind": ([64], [(0, 65), (0, 0), (0, 0), (0, 0)], ValueError, "at 65, region 0 has 64"),
    "partly behind": (
        [64],
        [(0, 0), (0, 52), (0, 16), (0, 32)],
        ValueError,
        r"slot 1 \(b\) needs 16 bytes at 52, region 0 has 64",
    ),
    "far": ([64], [(0, (1 << 64) - 4), *[(0, 0)] * 3], ValueError, "region 0 has 64"),
    "misaligned": (
        [128],
        [(0, 0), (0, 0), (0, 20), (0, 48)],
        ValueError,
        r"dst\) must start at a multiple of 16 bytes",
    ),
    "scratch in an input": (
        [64],
        [(0, 0), (0, 20), (0, 48), (0, 16)],
        ValueError,
        r"scratch\) is scratch and overlaps slot 1 \(b\)",
    ),
    "constant is written": (
        [X, 64],
        [(1, 0), (1, 0), (0, 0), (1, 16)],
        ValueError,
        r"dst\) is written, and region 0 is a constant",
    ),
    "read-only constant is scratch": (
        [frozen(), 64],
        [(1, 0), (1, 0), (1, 16), (0, 0)],
        ValueError,
        "region 0 is a constant",
    ),
    "negative offset": ([64], [(0, -4), *[(0, 0)] * 3], TypeError, "incompatible"),
    "no number of bytes": ([-1], [(0, 0)] * 4, ValueError, "region 0 has no number of bytes"),
    "no buffer": ([None], [(0, 0)] * 4, TypeError, "region 0: NoneType has no buffer"),
    "gaps": ([np.zeros((4, 4)).T], [(0, 0)] * 4, ValueError, "region 0 must be contiguous"),
}


@pytest.mark.parametrize("case", MISPLACED)
def test_refuses_places(case: str, add: Returns) -> None:
    regions, places, error, message = MISPLACED[case]
    with pytest.raises(error, match=message):
        Program(regions, [(add, places)])


@pytest.mark.parametrize("step", [None, 3, Returns(None), Returns(3)])
def test_refuses_what_is_neither_step_nor_callable(step: object) -> None:
    with pytest.raises(TypeError, match="step"):
        Program([], [(empty_step(), []), (step, [])])


def test_refuses_slots_of_a_callable() -> None:
    with pytest.raises(ValueError, match="step 0: what is called has no slots"):
        Program([8], [(print, [(0, 0)])])


def test_refuses_a_malformed_step(c_steps: Path) -> None:
    step, _ = copied(c_steps, "scale")
    step.abi = 1
    with pytest.raises(ValueError, match="version 1, this build takes version 2: rebuild"):
        Program([64], [(held(step), [(0, 0), (0, 16)])])


#: Bindings of a run of ``y = 3 * x`` in regions (16 bytes, a constant, an arena, 16 bytes).
ROOM = floats(*range(16))
MISBOUND: dict[str, tuple[Any, type[Exception], str]] = {
    "too few": ([X], ValueError, "binds 2 regions, 1 buffers"),
    "too many": ([X, floats(*[0] * 4), X], ValueError, "binds 2 regions, 3 buffers"),
    "too small": ([X[:3], floats(*[0] * 4)], ValueError, "region 0 needs 16 bytes, .* has 12"),
    "read-only output": ([X, frozen()], ValueError, "region 3 must be writable"),
    "gaps": ([ROOM[::2], floats(*[0] * 4)], ValueError, "region 0 must be contiguous"),
    "misaligned": ([ROOM.view(np.uint8)[1:], X.copy()], ValueError, "region 0 .* multiple of 4"),
    "into its input": (
        [ROOM[:4], ROOM[3:]],
        ValueError,
        "region 3 is written and overlaps region 0",
    ),
    "into a constant": ([X, ROOM[8:]], ValueError, "region 3 is written and overlaps region 1"),
    "no buffer": ([X, None], TypeError, "region 3: NoneType has no buffer"),
    "no sequence": (3, TypeError, "incompatible"),
}


@pytest.mark.parametrize("case", MISBOUND)
def test_refuses_bindings(case: str, team: Team, scale: Returns) -> None:
    bindings, error, message = MISBOUND[case]
    program = Program([16, ROOM[8:12], Arena(16), 16], [(scale, [(0, 0), (3, 0)])])
    before = ROOM.copy()
    with pytest.raises(error, match=message):
        team.run(program, bindings)
    np.testing.assert_array_equal(ROOM, before)
    y = floats(0, 0, 0, 0)
    team.run(program, [X, y])
    np.testing.assert_array_equal(y, X * 3)


def test_refuses_an_arena_that_is_bound_as_well(team: Team, scale: Returns) -> None:
    arena = Arena(64)
    into = Program([arena, 16], [(scale, [(1, 0), (0, 0)])])
    with pytest.raises(ValueError, match="region 0 is written and overlaps region 1"):
        team.run(into, [arena.memory()])
    reads = Program([arena, 16, 16], [(scale, [(1, 0), (2, 0)])])
    arena.memory()[:16] = X.view(np.uint8)
    team.run(reads, [arena.memory(), y := floats(0, 0, 0, 0)])  # nobody writes there
    np.testing.assert_array_equal(y, X * 3)


def owners(library: Path) -> ctypes.c_int:
    return ctypes.c_int.in_dll(ctypes.CDLL(str(library)), "owners")


def test_steps_live_as_long_as_their_program(c_steps: Path, scale: Returns) -> None:
    before = owners(c_steps).value
    program = Program([64], [(scale, [(0, 0), (0, 16)])] * 3)
    assert owners(c_steps).value == before + 3
    with pytest.raises(ValueError, match="step 1"):
        Program([64], [(scale, [(0, 0), (0, 16)]), (scale, [])])
    assert owners(c_steps).value == before + 3
    del program
    assert owners(c_steps).value == before


@pytest.mark.parametrize(
    ("first", "message"), [(-1, "scale by three: negative: -1"), (0, "status 7, without a reason")]
)
def test_a_failing_step_ends_the_run(team: Team, scale: Returns, first: int, message: str) -> None:
    later: list[int] = []
    steps = [(empty_step(), []), (scale, [(0, 0), (1, 0)]), (lambda: later.append(1), [])]
    program = Program([16, 16], steps)
    with pytest.raises(StepFailed, match=message) as caught:
        team.run(program, [X * first, X.copy()])
    assert caught.value.index == 1
    assert isinstance(caught.value, RuntimeError)
    assert not later
    team.run(program, [X, X.copy()])
    assert later == [1]


@pytest.mark.parametrize("name", ["throws_error", "throws_number"])
def test_a_step_that_throws_ends_the_run(team: Team, cpp_steps: Path, name: str) -> None:
    program = Program([], [(empty_step(), [])] * 2 + [(held(step_of(cpp_steps, name)), [])])
    with pytest.raises(StepFailed, match="throwing: threw ") as caught:
        team.run(program, [])
    assert caught.value.index == 2


def test_what_a_callable_raises_is_what_the_caller_gets(team: Team) -> None:
    mine = KeyError("mine")

    def fails() -> None:
        raise mine

    with pytest.raises(KeyError) as caught:
        team.run(Program([], [(fails, [])]), [])
    assert caught.value is mine


def test_a_callable_sees_what_steps_before_it_wrote(team: Team, scale: Returns) -> None:
    arena, seen = Arena(32), []

    def double() -> None:
        values = arena.memory()[:16].view(np.float32)
        seen.append(values.copy())
        values *= 2

    steps = [(scale, [(0, 0), (1, 0)]), (double, []), (scale, [(1, 0), (2, 0)])]
    team.run(Program([16, arena, 16], steps), [X, y := floats(*[0] * 4)])
    np.testing.assert_array_equal(seen[0], X * 3)
    np.testing.assert_array_equal(y, X * 18)


def test_times_are_those_of_each_step(team: Team) -> None:
    program = Program([], [(empty_step(), []), (lambda: time.sleep(0.01), []), (empty_step(), [])])
    times = np.zeros(6, np.int64)
    before = time.monotonic_ns()
    team.run(program, [], times)
    moments = [before, *times.tolist(), time.monotonic_ns()]
    assert moments == sorted(moments)
    assert times[3] - times[2] >= 10_000_000 > times[1] - times[0]


@pytest.mark.parametrize(
    ("times", "message"),
    [
        (np.zeros(3, np.int64), "times has 24 bytes, not two int64 for each of 2 steps"),
        (np.zeros(5, np.int64), "times has 40 bytes"),
        (bytes(32), "times must be writable"),
        (np.zeros(40, np.uint8)[1:33], "times must start at a multiple of 8"),
        (np.zeros(8, np.int64)[::2], "times must be writable and contiguous"),
    ],
)
def test_refuses_times(team: Team, times: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        team.run(Program([], [(empty_step(), [])] * 2), [], times)


def nested(program: Callable[[], Program]) -> Program:
    """A program with a step that runs another on a team of its own, which could go on forever."""

    def inner() -> None:
        team = Team(1, "inner")
        try:
            team.run(program(), [])
        finally:
            team.close()

    return Program([], [(inner, [])])


def test_a_program_does_not_run_inside_of_itself(team: Team) -> None:
    program: Program = Program([], [(lambda: team.run(program, []), [])])
    with pytest.raises(RuntimeError, match="the program is running"):
        team.run(program, [])
    other: Program = nested(lambda: other)
    with pytest.raises(RuntimeError, match="the program is running"):
        team.run(other, [])


def test_an_arena_is_one_runs_at_a_time(team: Team) -> None:
    arena = Arena(64)
    inner = Program([arena], [(empty_step(), [])])
    outer = Program([arena], [(lambda: team.run(inner, []), [])])
    for _ in range(2):
        with pytest.raises(RuntimeError, match="the arena is in use"):
            team.run(outer, [])
        team.run(inner, [])


def test_a_circle_through_a_callable_is_collected() -> None:
    class Plan:
        def __init__(self) -> None:
            self.program = Program([np.zeros(3)], [(self.step, [])])

        def step(self) -> None: ...

    weak = weakref.ref(Plan())
    gc.collect()
    assert weak() is None


def test_slots_without_bytes_may_lie_anywhere(c_steps: Path, team: Team) -> None:
    step, slots = copied(c_steps, "waiting")
    slots[0].bytes = 0
    program = Program([b"", b"constant"], [(held(step), [(0, 0)]), (held(step), [(1, 3)])])
    with pytest.raises(ValueError, match="at 9, region 1 has 8"):
        Program([b"", b"constant"], [(held(step), [(1, 9)])])
    assert len(program) == 2


def times_run(library: Path) -> tuple[int, int]:
    """How often the step ``root`` has run: leaving a check to the run, and checking by itself."""
    loaded = ctypes.CDLL(str(library))
    counts = (ctypes.c_int.in_dll(loaded, n) for n in ("with_doubt", "without_doubt"))
    optimistic, careful = (one.value for one in counts)
    return optimistic, careful


def test_a_run_whose_doubt_was_justified_is_made_again(c_steps: Path, team: Team) -> None:
    """And the next ones check step by step: one, then two, then four."""
    root, y = held(step_of(c_steps, "root")), floats(*[0] * 4)
    program = Program([16, 16], [(root, [(0, 0), (1, 0)])], repeatable=True)
    good, bad = floats(1, 4, 9, 16), floats(1, -4, 9, 16)
    steps = list[tuple[int, int]]()

    def run(x: Array) -> None:
        before = times_run(c_steps)
        team.run(program, [x, y])
        np.testing.assert_array_equal(y, np.sqrt(np.maximum(x, 0)))
        after = times_run(c_steps)
        steps.append((after[0] - before[0], after[1] - before[1]))

    for x in (good, good, bad, good, good, bad, good, good, good):
        run(x)
    optimistic, careful, again = (1, 0), (0, 1), (1, 1)
    assert steps[:4] == [optimistic, optimistic, again, careful]
    assert steps[4:] == [optimistic, again, careful, careful, optimistic]


@pytest.mark.parametrize("runs", [1, 2])
def test_programs_of_one_arena_are_in_doubt_together(runs: int, c_steps: Path, team: Team) -> None:
    """Plans of a network for other sizes have one: the first run of each need not be made twice."""
    root, arena = held(step_of(c_steps, "root")), Arena(64)
    first, other = (
        Program([arena, 16, 16], [(root, [(1, 0), (0, 0)]), (root, [(1, 0), (2, 0)])], 0, {}, True)
        for _ in range(2)
    )
    bad, y = floats(1, -4, 9, 16), floats(*[0] * 4)
    for _ in range(runs):  # behind the second, the first program's next one is tried again
        team.run(first, [bad, y])
    before = times_run(c_steps)
    team.run(other, [bad, y])
    np.testing.assert_array_equal(y, [1, 0, 3, 4])
    after = times_run(c_steps)
    assert (after[0] - before[0], after[1] - before[1]) == (0, 2)


def test_what_may_not_run_twice_checks_by_itself(c_steps: Path, team: Team) -> None:
    root, y, called = held(step_of(c_steps, "root")), floats(*[0] * 4), []
    step = (root, [(0, 0), (1, 0)])
    plain = Program([16, 16], [step])
    calling = Program([16, 16], [step, (lambda: called.append(1), [])], repeatable=True)
    for program in (plain, calling):
        before = times_run(c_steps)
        team.run(program, [floats(1, -4, 9, 16), y])
        np.testing.assert_array_equal(y, [1, 0, 3, 4])
        after = times_run(c_steps)
        assert (after[0] - before[0], after[1] - before[1]) == (0, 1)
    assert called == [1]
