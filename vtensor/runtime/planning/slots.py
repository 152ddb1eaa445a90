"""The places of steps' operands in memory, for a plan with symbolic sizes.

An operand is in a piece of the arena or in a region outside of it. A region is memory that a run or
a plan binds: an input, an output or a constant. Region 0 is the arena itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ptensor.buffer import ALIGNMENT, TensorStorage
from vtensor.language.records import dataclass
from vtensor.language.symbolic.trace import SymbolicSize

if TYPE_CHECKING:
    from vtensor.runtime.execution.plan import Ends, Placed
    from vtensor.runtime.execution.steps import RecordedStep
    from vtensor.runtime.recording.offsets import Piece

Array = np.ndarray[Any, Any]


class PlanNumbers:
    """The numbers of a symbolic plan: byte counts, offsets and sizes.

    Each number has a place, by which the plan refers to it. A number that depends on sizes is a
    value of the memory trace; its place is its index on that trace. A fixed number depends on no
    size; the fixed numbers have the places -1, -2, ...

    Args:
        fixed: the fixed numbers to begin with, in the order of the places -1, -2, ...
    """

    def __init__(self, fixed: Sequence[int] = ()) -> None:
        self._fixed = {int(number): place for place, number in enumerate(fixed)}

    @property
    def fixed(self) -> Sequence[int]:
        """The fixed numbers, in the order of the places -1, -2, ..."""
        return [*self._fixed]

    def place(self, number: int) -> int:
        """Return the place of a number: of a value of the memory trace, or of a fixed number. A new
        fixed number gets the next negative place.
        """
        if type(number) is SymbolicSize:
            return number.place
        return -1 - self._fixed.setdefault(number, len(self._fixed))

    def places(self, numbers: Sequence[int]) -> Array:
        """Return the place of each number."""
        return np.array([*map(self.place, numbers)], np.int64)

    def at(self, values: Sequence[int]) -> Array:
        """Return the values of all numbers for some sizes, as an array in which a number's place is
        its index.

        Args:
            values: the values of the memory trace for these sizes.
        """
        return np.array([*values, *reversed(self._fixed)], np.int64)


@dataclass(frozen=True, eq=False)
class Pieces:
    """Pieces of an arena, one per index.

    Attributes:
        nbytes: for each piece, the place of its byte count among the plan's numbers.
        first, last: the indices of the first and last step that use each piece.
    """

    nbytes: Array
    first: Sequence[int]
    last: Sequence[int]

    @classmethod
    def of(cls, sized_pieces: Sequence[Piece], numbers: PlanNumbers) -> Pieces:
        """Return pieces whose byte counts, which may be symbolic, have places in ``numbers``."""
        first, last = (
            [piece.first for piece in sized_pieces],
            [piece.last for piece in sized_pieces],
        )
        return cls(numbers.places([piece.nbytes for piece in sized_pieces]), first, last)

    def _rooms(self, numbers: Array) -> Array:
        """Return the bytes of each piece in the arena, rounded up to whole cache lines.

        Args:
            numbers: the values of the plan's numbers (``PlanNumbers``) for some sizes; a number's
                place is its index.
        """
        rooms: Array = -(-numbers[self.nbytes] // ALIGNMENT) * ALIGNMENT
        return rooms

    def live(self, numbers: Array) -> int:
        """Return the most bytes that are live at one step: no arena can be smaller.

        Args:
            numbers: the values of the plan's numbers (``PlanNumbers``) for some sizes; a number's
                place is its index.
        """
        rooms, change = self._rooms(numbers), np.zeros(max(self.last, default=0) + 2, np.int64)
        np.add.at(change, self.first, rooms)
        np.subtract.at(change, np.array(self.last, np.int64) + 1, rooms)
        return int(change.cumsum().max())

    def offsets(self, numbers: Array) -> tuple[list[int], int]:
        """Return the offset of each piece in the arena, in bytes, and the arena's bytes.

        Args:
            numbers: the values of the plan's numbers (``PlanNumbers``) for some sizes; a number's
                place is its index.
        """
        from vtensor.runtime import _replay

        return _replay.offsets(self._rooms(numbers).tolist(), self.first, self.last)


@dataclass(frozen=True, eq=False)
class Slots:
    """The slots of a symbolic plan's steps: the memory of each operand. Slots are numbered through
    all steps.

    Attributes:
        natives: the native steps.
        counts: the number of slots of each step.
        pieces: the pieces of the arena.
        piece: for each slot the index of its piece; -1 if it is outside the arena.
        region: for each slot the index of its region; 0 if it has a piece.
        begin: for each slot, the place among the plan's numbers of a byte offset: that of the slot
            in its piece or region.
        constants: the constants, in the order of their regions. These regions follow the regions of
            inputs and of the memory that a run allocates for outputs.
    """

    natives: Sequence[Any]
    counts: Sequence[int]
    pieces: Pieces
    piece: Array
    region: Sequence[int]
    begin: Array
    constants: Sequence[TensorStorage]

    @classmethod
    def of(cls, steps: Sequence[RecordedStep], ends: Ends, numbers: PlanNumbers) -> Slots:
        """Return the slots of traced steps, each assigned to a piece of the arena or a region.

        Args:
            steps: the recorded steps.
            ends: the memory of the plan's inputs and outputs.
            numbers: the plan's numbers. The byte counts of pieces and the offsets of slots are
                added to them.
        """
        # Imported here: a cached plan is arranged already.
        from vtensor.runtime.recording.placement import arranged

        arrangement = arranged(steps, ends.inputs, ends.own)
        lifetime_of, scratch = arrangement.lifetimes.of, arrangement.lifetimes.scratch
        pieces = {lifetime: place for place, lifetime in enumerate(arrangement.ours)}
        regions = {storage: place for place, storage in enumerate([*ends.inputs, *ends.own], 1)}
        brought = len(regions)
        piece, region, begin = list[int](), list[int](), list[int]()
        for index, step in enumerate(steps):
            for slot, operand in enumerate(step.slots):
                root = (
                    None
                    if isinstance(operand, int)
                    else arrangement.hosts.get(operand.root, operand.root)
                )
                lifetime = scratch[index, slot] if root is None else lifetime_of.get(root)
                piece.append(pieces.get(lifetime, -1) if lifetime else -1)
                if piece[-1] >= 0 or root is None:
                    region.append(0)
                else:
                    region.append(regions.setdefault(root, len(regions) + 1))
                begin.append(numbers.place(0 if isinstance(operand, int) else operand.begin))
        return cls(
            [step.native for step in steps],
            [len(step.slots) for step in steps],
            Pieces.of([lifetime.piece for lifetime in arrangement.ours], numbers),
            np.array(piece, np.int64),
            region,
            np.array(begin, np.int64),
            [*regions][brought:],
        )

    def check(self) -> None:
        """Check that each piece is live at all steps that use it.

        Raises:
            ValueError: a piece is not live at a step, or a slot has a piece that does not exist.
        """
        if not len(self.piece) == len(self.region) == len(self.begin) == sum(self.counts):
            raise ValueError("a slot has no place")
        pieces, used = self.pieces, self.piece >= 0
        step, piece = np.repeat(np.arange(len(self.counts)), self.counts)[used], self.piece[used]
        first, last = np.array(pieces.first, np.int64), np.array(pieces.last, np.int64)
        if not len(pieces.nbytes) == len(first) == len(last) or self.piece.min(initial=0) < -1:
            raise ValueError("a piece does not exist")
        if (step < first[piece]).any() or (step > last[piece]).any():
            raise ValueError("a piece is used by a step at which it is not live")

    def check_room(self, natives: Sequence[object], numbers: Array) -> None:
        """Check that each slot is inside its piece.

        Args:
            natives: the native steps, which say how many bytes each slot needs.
            numbers: the values of the plan's numbers (``PlanNumbers``) for some sizes; a number's
                place is its index.

        Raises:
            ValueError: a slot is not inside its piece.
        """
        from vtensor.runtime import _replay

        sizes = {
            id(native): [row[1] for row in _replay.describe(native)["slots"]] for native in natives
        }
        needed = np.array([size for native in natives for size in sizes[id(native)]], np.int64)
        begin, used = numbers[self.begin], self.piece >= 0
        room = numbers[self.pieces.nbytes][self.piece[used]]
        if (begin < 0).any() or (begin[used] + needed[used] > room).any():
            raise ValueError("a slot is larger than its piece")

    def placed(self, natives: Sequence[object], numbers: Array) -> tuple[Placed, int]:
        """Return the steps with the memory of their slots for some sizes, and the size of the arena
        in bytes.

        Args:
            natives: the native steps.
            numbers: the values of the plan's numbers (``PlanNumbers``) for some sizes; a number's
                place is its index.

        Returns:
            A list with a pair for each step: the step, and for each of its slots (region, byte
            offset in the region). And the size of the arena in bytes.
        """
        begins, nbytes = self.pieces.offsets(numbers)
        base = np.array([*begins, 0], np.int64)[self.piece]
        places = [*zip(self.region, (numbers[self.begin] + base).tolist(), strict=True)]
        steps, end = list[tuple[object, Sequence[tuple[int, int]]]](), 0
        for native, count in zip(natives, self.counts, strict=True):
            steps.append((native, places[end : end + count]))
            end += count
        return steps, nbytes
