"""Steps that read their sizes in each run: one step and one program for all of them."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.native.pages import guarded
from tests.native.stepping import Returns, held, step_of
from vtensor.runtime._replay import Arena, Program, Team, describe, execute
from vtensor.runtime.execution.executor import Executor

Array = np.ndarray[Any, Any]


@pytest.fixture
def team() -> Iterator[Team]:
    one = Team(1, "sizes")
    yield one
    one.close()


@pytest.fixture
def sums(c_steps: Path) -> Returns:
    """Sums of rows, of any rows and columns up to 64 numbers."""
    return held(step_of(c_steps, "sums"))


def numbers(rows: int, columns: int) -> Array:
    return np.arange(rows * columns, dtype=np.float32).reshape(rows, columns) + 1


def test_it_is_described(sums: Returns) -> None:
    assert describe(sums)["sizes"] == 2
    assert describe(sums)["slots"] == [("src", 256, "read"), ("dst", 256, "write")]


@pytest.mark.parametrize(("rows", "columns"), [(3, 5), (64, 1), (1, 64), (0, 5), (5, 0)])
def test_a_run_touches_what_its_sizes_need(rows: int, columns: int, sums: Returns) -> None:
    src = guarded(numbers(rows, columns).reshape(-1).view(np.uint8)) if rows * columns else b""
    dst = guarded(np.full(4 * rows, 0xFF, np.uint8)) if rows else bytearray()
    execute(sums, [src, dst], sizes=(rows, columns))
    expected = numbers(rows, columns).sum(1)
    np.testing.assert_array_equal(np.frombuffer(dst, np.float32), expected)


def program_of(sums: Returns, arena: Arena) -> Program:
    """The sum of all: of each row into the arena, then of these."""
    steps = [(sums, [(0, 0), (1, 256)]), (sums, [(1, 256), (2, 0)])]
    return Program([256, arena, 256], steps, 3, {0: [1, 2], 1: [0, 1]})


def test_one_program_runs_with_any_sizes(c_steps: Path, team: Team, sums: Returns) -> None:
    owners = ctypes.c_int.in_dll(ctypes.CDLL(str(c_steps)), "owners")
    program = program_of(sums, Arena(512))
    before = owners.value
    for rows, columns in ((3, 5), (3, 5), (8, 8), (2, 1), (8, 8)):
        src, dst = numbers(rows, columns), np.zeros(1, np.float32)
        team.run(program, [src, dst], sizes=[1, rows, columns])
        assert dst[0] == src.sum()
    assert owners.value == before  # the same steps


def test_the_executor_hands_sizes_on(sums: Returns) -> None:
    program, inner = program_of(sums, Arena(512)), Executor.of(2)
    src, dst = numbers(4, 4), np.zeros(1, np.float32)
    Executor.of(1).replay(program, [src, dst], sizes=(1, 4, 4))
    assert dst[0] == src.sum()
    Executor.of(1).run(lambda: inner.replay(program, [src[:2], dst], sizes=(1, 2, 4)))
    assert dst[0] == src[:2].sum()


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
def test_refuses_sizes(case: str, team: Team, sums: Returns) -> None:
    sizes, error, message = REFUSED[case]
    src, dst = numbers(8, 8), np.zeros(64, np.float32)
    with pytest.raises(error, match=message):
        execute(sums, [src, dst], sizes=sizes)
    program = Program([256, 256], [(sums, [(0, 0), (1, 0)])], 2, {0: [0, 1]})
    for _ in range(2):
        with pytest.raises(error, match=message):
            team.run(program, [src, dst], sizes=sizes)
        assert not dst.any()
    team.run(program, [src, dst], sizes=[8, 8])
    np.testing.assert_array_equal(dst[:8], src.sum(1))


@pytest.mark.parametrize("sizes", [(), (1,), (1, 2, 3)])
def test_refuses_another_number_of_sizes(sizes: tuple[int], team: Team, sums: Returns) -> None:
    src, dst = numbers(8, 8), np.zeros(64, np.float32)
    with pytest.raises(ValueError, match=f"takes 2 sizes, {len(sizes)} were given"):
        execute(sums, [src, dst], sizes=sizes)
    program = Program([256, 256], [(sums, [(0, 0), (1, 0)])], 2, {0: [0, 1]})
    with pytest.raises(ValueError, match=f"a run is given 2 sizes, not {len(sizes)}"):
        team.run(program, [src, dst], sizes=sizes)


def test_refuses_sizes_where_none_are_taken(c_steps: Path, team: Team) -> None:
    with pytest.raises(ValueError, match="a run is given 0 sizes, not 1"):
        team.run(Program([], []), [], sizes=[1])
    with pytest.raises(ValueError, match="takes 0 sizes, 1 were given"):
        execute(held(step_of(c_steps, "report")), [np.zeros(3, np.int64)], sizes=[1])


def test_a_function_that_throws_has_refused(cpp_steps: Path) -> None:
    step = held(step_of(cpp_steps, "throws_at_sizes"))
    with pytest.raises(ValueError, match="threw an exception: thrown at sizes"):
        execute(step, [], sizes=[1])


def test_bindings_must_have_what_the_sizes_need(team: Team, sums: Returns) -> None:
    program = program_of(sums, Arena(512))
    dst = np.zeros(1, np.float32)
    team.run(program, [numbers(3, 5), dst], sizes=[1, 3, 5])
    for _ in range(2):
        with pytest.raises(ValueError, match="region 0 needs 64 bytes, its buffer has 60"):
            team.run(program, [numbers(3, 5), dst], sizes=[1, 4, 4])
    with pytest.raises(ValueError, match="region 2 is written and overlaps region 0"):
        team.run(program, [both := numbers(4, 4).reshape(-1), both[15:]], sizes=[1, 4, 4])
    team.run(program, [both, both[15:]], sizes=[1, 3, 5])
    assert both[15] == np.arange(16).sum() - 15 + 15


def test_steps_without_sizes_need_as_much_as_ever(c_steps: Path, team: Team, sums: Returns) -> None:
    """``scale`` reads 16 bytes of what ``sums`` reads as its sizes say."""
    scale = held(step_of(c_steps, "scale"))
    steps = [(sums, [(0, 0), (1, 0)]), (scale, [(0, 0), (2, 0)])]
    program = Program([256, 256, 16], steps, 2, {0: [0, 1]})
    dst, scaled = np.zeros(1, np.float32), np.zeros(4, np.float32)
    with pytest.raises(ValueError, match="region 0 needs 16 bytes, its buffer has 8"):
        team.run(program, [numbers(1, 2), dst, scaled], sizes=[1, 2])
    team.run(program, [numbers(1, 4), dst, scaled], sizes=[1, 2])
    assert (dst[0], scaled.tolist()) == (3, [3, 6, 9, 12])


@pytest.mark.parametrize(
    ("count", "taken", "message"),
    [
        (2, {}, "step 0: the step takes 2 sizes, 0 were given"),
        (2, {0: [0]}, "step 0: the step takes 2 sizes, 1 were given"),
        (2, {0: [0, 2]}, "step 0: it takes size 2, of 2"),
        (2, {0: [0, 1], 1: []}, "sizes are for step 1, of 1"),
    ],
)
def test_refuses_programs(
    count: int, taken: dict[int, list[int]], message: str, sums: Returns
) -> None:
    with pytest.raises(ValueError, match=message):
        Program([256, 256], [(sums, [(0, 0), (1, 0)])], count, taken)


def test_refuses_sizes_of_a_callable() -> None:
    with pytest.raises(ValueError, match="step 0: what is called takes no sizes"):
        Program([], [(print, [])], 1, {0: [0]})


def test_places_are_for_the_largest(sums: Returns) -> None:
    with pytest.raises(ValueError, match=r"\(dst\) needs 256 bytes at 0, region 1 has 64"):
        Program([256, 64], [(sums, [(0, 0), (1, 0)])], 2, {0: [0, 1]})
