"""From which step to which each piece of memory is needed, and who may take over whose.

The memory of a value is needed from the step that first touches it to the last; scratch by its own
step alone. Where an invoker allows it, a step writes its output over an operand whose last reader
it is: both are then one piece, from the first step of the one to the last of the other.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import field

from ptensor.buffer import TensorStorage
from vtensor.language.records import dataclass
from vtensor.runtime.execution.steps import RecordedStep
from vtensor.runtime.recording.offsets import Piece


@dataclass(eq=False)
class Lifetime:
    """How long a piece of memory is needed, and by which storages, one after the other.

    Attributes:
        storages: whose own memory it is, in order; none for scratch.
        piece: how much, and when.
    """

    storages: list[TensorStorage] = field(default_factory=list)
    piece: Piece = field(default_factory=lambda: Piece(0, 0, 0))

    def until(self, step: int) -> None:
        """It is needed for this step too."""
        self.piece = Piece(self.piece.nbytes, self.piece.first, max(self.piece.last, step))


@dataclass(frozen=True)
class Lifetimes:
    """All of a plan.

    Attributes:
        of: by the storage that owns the memory.
        scratch: by step and slot.
    """

    of: dict[TensorStorage, Lifetime]
    scratch: dict[tuple[int, int], Lifetime]

    def distinct(self) -> list[Lifetime]:
        """Each once, in the order of their first steps."""
        return list(dict.fromkeys([*self.of.values(), *self.scratch.values()]))


def lifetimes(
    steps: Sequence[RecordedStep],
    lent: Collection[TensorStorage],
    lasting: Collection[TensorStorage],
) -> Lifetimes:
    """Who needs memory when.

    Args:
        steps: in the order in which they run.
        lent: owners of memory that is not ours to give: inputs, constants.
        lasting: owners whose memory is needed after the last step: outputs.
    """
    last = _last_steps(steps)
    found = Lifetimes({}, {})
    for index, step in enumerate(steps):
        for slot, storage in enumerate(step.slots):
            if isinstance(storage, int):
                found.scratch[index, slot] = Lifetime([], Piece(storage, index, index))
                continue
            root = storage.root
            if root in lent:
                continue
            if root not in found.of:
                donor = next(_donors(step, storage, index, last, found, lasting), None)
                lifetime = found.of[root] = donor or Lifetime(
                    piece=Piece(root.nbytes, index, index)
                )
                lifetime.storages.append(root)
            if last[root] == index:
                found.of[root].until(index)
    return found


def _last_steps(steps: Sequence[RecordedStep]) -> dict[TensorStorage, int]:
    """The last step that touches each storage's own memory."""
    return {
        slot.root: index
        for index, step in enumerate(steps)
        for slot in step.slots
        if not isinstance(slot, int)
    }


def _donors(
    step: RecordedStep,
    target: TensorStorage,
    index: int,
    last: dict[TensorStorage, int],
    found: Lifetimes,
    lasting: Collection[TensorStorage],
) -> Iterator[Lifetime]:
    """Lifetimes that a step's output may take over: of an operand that lies as the output does, in
    memory of our own that nobody reads after this step, nor in another order in it.
    """
    if target not in step.replaces:
        return
    slots = [slot for slot in step.slots if not isinstance(slot, int)]
    for operand in step.replaces[target]:
        root = operand.root
        if (
            root in found.of
            and root not in lasting
            and last[root] == index
            and all(slot is operand for slot in slots if slot.root is root)
            and operand.nbytes == root.nbytes == target.root.nbytes
            and operand.extents == target.extents
            and operand.layout.same(target.layout, target.extents)
        ):
            yield found.of[root]
