"""Where pieces of memory lie in one arena: those that are never needed at once may overlap."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import TYPE_CHECKING

import numpy as np

from ptensor.buffer import ALIGNMENT
from vtensor.language.records import dataclass

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[np.int64]


@dataclass(frozen=True)
class Piece:
    """Memory that is needed from one step to another.

    Attributes:
        nbytes: its size.
        first, last: indices of steps, both included.
    """

    nbytes: int
    first: int
    last: int

    @property
    def room(self) -> int:
        """The bytes that it takes in an arena, where every piece begins at a cache line."""
        return -(-self.nbytes // ALIGNMENT) * ALIGNMENT


def live_bytes(pieces: Sequence[Piece]) -> int:
    """What is needed at once at most: no arena can be smaller.

    >>> live_bytes([Piece(64, 0, 1), Piece(128, 1, 2), Piece(64, 2, 3)])
    192
    """
    if not pieces:
        return 0
    change = [0] * (max(piece.last for piece in pieces) + 2)
    for piece in pieces:
        room = piece.room
        change[piece.first] += room
        change[piece.last + 1] -= room
    return max(accumulate(change))


def offsets(pieces: Sequence[Piece]) -> tuple[list[int], int]:
    """An offset for each piece, and the size of the arena.

    The largest piece first, each into the smallest gap that it fits into between those that live
    when it does: within a few percent of ``live_bytes`` on networks, and quick.

    >>> offsets([Piece(64, 0, 1), Piece(128, 1, 2), Piece(64, 2, 3)])
    ([128, 0, 128], 192)
    """
    count = len(pieces)
    first, last = (np.array([getattr(p, at) for p in pieces]) for at in ("first", "last"))
    begin, end = np.zeros(count, np.int64), np.zeros(count, np.int64)
    done = np.zeros(count, np.bool_)
    for index in sorted(range(count), key=lambda i: (-pieces[i].room, pieces[i].first)):
        piece = pieces[index]
        beside = done & (first <= piece.last) & (last >= piece.first)
        begin[index] = _gap(begin[beside], end[beside], piece.room)
        end[index] = begin[index] + piece.room
        done[index] = True
    return begin.tolist(), int(end.max(initial=0))


def _gap(begin: Array, end: Array, room: int) -> int:
    """Where the smallest gap starts that is large enough; the last one has no end."""
    order = np.argsort(begin, kind="stable")
    reached = np.maximum.accumulate(np.concatenate([[0], end[order]]))
    gaps = begin[order] - reached[:-1]
    fitting = np.flatnonzero(gaps >= room)
    return int(reached[fitting[gaps[fitting].argmin()]] if fitting.size else reached[-1])
