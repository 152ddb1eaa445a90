"""Steps whose operands have several planes: each at an address of its own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.native.pages import guarded
from tests.native.stepping import Returns, copied, held, step_of
from vtensor.runtime._replay import Arena, Program, Team, describe, execute

Array = np.ndarray[Any, Any]

HIGH = np.array([1, 2, 300, 4], np.int16)
LOW = np.array([128, 64, 0, 255], np.uint8)
JOINED = HIGH + LOW / np.float32(256)


@pytest.fixture
def team() -> Iterator[Team]:
    one = Team(1, "planes")
    yield one
    one.close()


@pytest.fixture
def join(c_steps: Path) -> Returns:
    return held(step_of(c_steps, "join"))


@pytest.fixture
def split(c_steps: Path) -> Returns:
    return held(step_of(c_steps, "split"))


def test_each_plane_is_described(join: Returns, split: Returns) -> None:
    assert describe(join)["slots"] == [("src", 12, "read"), ("dst", 16, "write")]
    assert describe(join)["planes"] == [[8, 4], [16]]
    assert describe(split)["planes"] == [[16], [8, 4], [16, 16]]


def test_a_buffer_for_each_plane(join: Returns, split: Returns) -> None:
    dst = np.zeros(4, np.float32)
    execute(join, [HIGH, LOW, dst])
    np.testing.assert_array_equal(dst, JOINED)
    high, low, rest = np.zeros(4, np.int16), np.zeros(4, np.uint8), np.zeros((2, 4), np.float32)
    execute(split, [dst, high, low, rest[0], rest[1]])
    np.testing.assert_array_equal(high + low / np.float32(256), JOINED)


def test_planes_are_all_that_is_touched(join: Returns) -> None:
    memory = [guarded(one.view(np.uint8)) for one in (HIGH, LOW, np.zeros(4, np.float32))]
    execute(join, memory)
    np.testing.assert_array_equal(memory[2].view(np.float32), JOINED)


def test_planes_lie_where_the_program_says(team: Team, join: Returns, split: Returns) -> None:
    """Both planes in an arena, not side by side, and behind one another in what is bound."""
    arena = Arena(128)
    places = [(0, 0), (1, 64), (1, 4), (1, 96), (1, 112)]
    steps = [(split, places), (join, [(1, 64), (1, 4), (2, 0)]), (join, [(3, 0), (3, 8), (2, 16)])]
    program = Program([16, arena, 32, 12], steps)
    joined = HIGH.tobytes() + LOW.tobytes()
    team.run(program, [JOINED, dst := np.zeros(8, np.float32), joined])
    np.testing.assert_array_equal(dst, [*JOINED, *JOINED])
    np.testing.assert_array_equal(arena.memory()[64:72].view(np.int16)[1:], [2, 300, 4])


X = np.zeros(4, np.float32)
WRONG: dict[str, tuple[list[Array], str]] = {
    "one short": ([HIGH, X], "2 slots with 3 planes in all, 2 buffers were given"),
    "one more": ([HIGH, LOW, X, X], "2 slots with 3 planes in all, 4 buffers"),
    "small": ([HIGH, LOW[:3], X], r"slot 0 \(src\), plane 1 needs 4 bytes, its buffer has 3"),
    "odd": ([np.zeros(9, np.uint8)[1:], LOW, X], r"plane 0 must start at a multiple of 2"),
}


@pytest.mark.parametrize("case", WRONG)
def test_refuses_buffers(case: str, join: Returns) -> None:
    buffers, message = WRONG[case]
    with pytest.raises(ValueError, match=message):
        execute(join, buffers)


def test_every_written_plane_must_be_writable(split: Returns) -> None:
    with pytest.raises(ValueError, match=r"slot 1 \(dst\), plane 1 must be writable"):
        execute(split, [X, HIGH.copy(), LOW.tobytes(), X.copy(), X.copy()])


#: Places of ``split`` in a region of 64 bytes, or in a constant, and what is wrong with them.
MISPLACED: dict[str, tuple[Sequence[tuple[int, int]], str]] = {
    "one short": ([(0, 0)] * 4, "step 0: the step has 3 slots with 5 planes in all, 4 buffers"),
    "behind": ([(0, 0), (0, 16), (0, 61), (0, 24), (0, 40)], r"dst\), plane 1 needs 4 bytes at 61"),
    "odd": ([(0, 0), (0, 17), (0, 60), (0, 24), (0, 40)], r"plane 0 must start at a multiple of 2"),
    "scratch on itself": (
        [(0, 0), (0, 16), (0, 60), (0, 24), (0, 36)],
        r"slot 2 \(rest\), plane 0 is scratch and overlaps slot 2 \(rest\), plane 1",
    ),
    "scratch on the other": (
        [(0, 0), (0, 16), (0, 44), (0, 24), (0, 40)],
        r"slot 2 \(rest\), plane 1 is scratch and overlaps slot 1 \(dst\), plane 1",
    ),
    "a constant": (
        [(0, 0), (0, 16), (1, 0), (0, 24), (0, 40)],
        r"slot 1 \(dst\), plane 1 is written, and region 1 is a constant",
    ),
}


@pytest.mark.parametrize("case", MISPLACED)
def test_refuses_places(case: str, split: Returns) -> None:
    places, message = MISPLACED[case]
    with pytest.raises(ValueError, match=message):
        Program([64, LOW], [(split, places)])


def test_a_plane_without_bytes_is_nowhere(c_steps: Path) -> None:
    step, slots = copied(c_steps, "join")
    slots[0].bytes = 0
    with pytest.raises(ValueError, match="plane 1 needs 4 bytes at 1, region 0 has 4"):
        Program([4, 16], [(held(step), [(0, 1), (0, 1), (1, 0)])])
    assert len(Program([4, 16], [(held(step), [(0, 1), (0, 0), (1, 0)])])) == 1
