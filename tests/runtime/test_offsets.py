"""Pieces of memory in one arena: those that live at once lie apart, and none lies outside."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ptensor.buffer import ALIGNMENT
from vtensor.runtime import _replay
from vtensor.runtime.recording.offsets import Piece, live_bytes, offsets

LAWS = settings(deadline=None, max_examples=150, derandomize=True, database=None)


@st.composite
def pieces(draw: st.DrawFn) -> Piece:
    """Of any size, none included, at any time."""
    first, steps = draw(st.integers(0, 12)), draw(st.integers(0, 6))
    return Piece(draw(st.sampled_from((0, 1, 63, 64, 65, 128, 500, 4096))), first, first + steps)


def faults(rows: list[Piece], begins: list[int], size: int) -> list[str]:
    """What is wrong with where pieces lie."""
    places = list(zip(rows, begins, strict=True))
    found = [
        f"{piece} at {begin} of {size}"
        for piece, begin in places
        if begin % ALIGNMENT or begin < 0 or begin + piece.nbytes > size
    ]
    for (one, here), (other, there) in combinations(places, 2):
        at_once = one.first <= other.last and other.first <= one.last
        if at_once and here < there + other.nbytes and there < here + one.nbytes:
            found.append(f"{one} at {here} and {other} at {there}")
    return found


@LAWS
@given(st.lists(pieces(), max_size=30))
def test_what_lives_at_once_lies_apart(rows: list[Piece]) -> None:
    begins, size = offsets(rows)
    assert faults(rows, begins, size) == []
    at_each = [sum(p.room for p in rows if p.first <= step <= p.last) for step in range(20)]
    assert live_bytes(rows) == max(at_each)
    assert live_bytes(rows) <= size <= sum(piece.room for piece in rows)


@pytest.mark.parametrize(
    "rows",
    [
        [(256, 3, 5), (192, 2, 4), (256, 0, 1), (128, 1, 2)],
        [(192, 4, 5), (256, 2, 2), (192, 3, 4), (192, 2, 4)],
        [(256, 1, 1), (128, 3, 5), (256, 4, 4), (256, 1, 3)],
    ],
    ids=("in the order of steps", "the longest needed first", "either"),
)
def test_where_the_largest_first_takes_too_much_another_order_takes_less(
    rows: list[tuple[int, int, int]],
) -> None:
    pieces = [Piece(*row) for row in rows]
    assert offsets(pieces)[1] == live_bytes(pieces)


def test_wrong_places_are_found() -> None:
    rows = [Piece(128, 0, 1), Piece(64, 1, 2), Piece(64, 2, 3)]
    assert faults(rows, [0, 128, 0], 192) == []
    for wrong in ([0, 64, 0], [0, 100, 0], [128, 0, 0], [0, -64, 0], [0, 192, 0]):
        assert faults(rows, wrong, 192)


@pytest.mark.parametrize(
    "rows",
    [
        ([64], [0], []),
        ([-1], [0], [0]),
        ([64], [2], [1]),
        ([64], [-1], [1]),
        ([1 << 62] * 2, [0, 0], [1, 1]),
    ],
)
def test_wrong_pieces_are_refused(rows: tuple[list[int], list[int], list[int]]) -> None:
    with pytest.raises(ValueError, match=r"piece"):
        _replay.offsets(*rows)
