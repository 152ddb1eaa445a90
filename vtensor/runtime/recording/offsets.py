"""Offsets of pieces of memory in one arena: pieces that are never live at once may overlap."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

from ptensor.buffer import ALIGNMENT
from vtensor.language.records import dataclass


@dataclass(frozen=True)
class Piece:
    """A piece of memory that is needed from one step to another.

    Attributes:
        nbytes: its size in bytes.
        first, last: the indices of the first and last step that need it.
    """

    nbytes: int
    first: int
    last: int

    @property
    def room(self) -> int:
        """The bytes of the piece in an arena, rounded up: every piece begins at a cache line."""
        return -(-self.nbytes // ALIGNMENT) * ALIGNMENT


def live_bytes(pieces: Sequence[Piece]) -> int:
    """Return the most bytes that pieces need at one step: no arena can be smaller.

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
    """Return the byte offset of each piece in an arena, and the arena's bytes.

    Pieces are placed in order of size, the largest first, each into the smallest gap between pieces
    that are live with it. If the arena then exceeds ``live_bytes``, other orders are tried.

    >>> offsets([Piece(64, 0, 1), Piece(128, 1, 2), Piece(64, 2, 3)])
    ([128, 0, 128], 192)
    """
    from vtensor.runtime import _replay

    first, last = ([getattr(piece, at) for piece in pieces] for at in ("first", "last"))
    return _replay.offsets([piece.room for piece in pieces], first, last)
