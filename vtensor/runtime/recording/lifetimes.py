"""Lifetimes of memory: the first and last step that need each piece, and pieces that several values
use in turn.

The memory of a value is needed from the first step that touches it to the last such step. Scratch
is needed by its own step only. A step that is the last reader of an operand may write its output
over the operand, if the invoker declares so. Operand and output are then one piece, needed from the
operand's first step to the output's last.
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
    """The lifetime of a piece of memory, which several storages may use one after another.

    Attributes:
        storages: the storages that use it, in order; empty for scratch.
        piece: the bytes of the memory, and its first and last step.
    """

    storages: list[TensorStorage] = field(default_factory=list)
    piece: Piece = field(default_factory=lambda: Piece(0, 0, 0))

    def until(self, step: int) -> None:
        """Extend the lifetime to the step of this index."""
        self.piece = Piece(self.piece.nbytes, self.piece.first, max(self.piece.last, step))


@dataclass(frozen=True)
class Lifetimes:
    """The lifetimes of all memory of a plan.

    Attributes:
        of: the lifetime of each memory, by the storage that owns it.
        scratch: the lifetime of each scratch slot, by (index of the step, index of the slot).
    """

    of: dict[TensorStorage, Lifetime]
    scratch: dict[tuple[int, int], Lifetime]

    def distinct(self) -> list[Lifetime]:
        """Return each lifetime once, in the order of their first steps."""
        return list(dict.fromkeys([*self.of.values(), *self.scratch.values()]))


def lifetimes(
    steps: Sequence[RecordedStep],
    lent: Collection[TensorStorage],
    lasting: Collection[TensorStorage],
) -> Lifetimes:
    """Return the lifetimes of all memory that steps touch.

    Args:
        steps: the steps, in running order.
        lent: the storages that own memory outside the arena: inputs and constants.
        lasting: the storages whose memory is needed after the last step: outputs.
    """
    last = _last_steps(steps)
    times = Lifetimes({}, {})
    for index, step in enumerate(steps):
        for slot, storage in enumerate(step.slots):
            if isinstance(storage, int):
                times.scratch[index, slot] = Lifetime([], Piece(storage, index, index))
                continue
            root = storage.root
            if root in lent:
                continue
            if root not in times.of:
                donor = next(_donors(step, storage, index, last, times, lasting), None)
                lifetime = times.of[root] = donor or Lifetime(
                    piece=Piece(root.nbytes, index, index)
                )
                lifetime.storages.append(root)
            if last[root] == index:
                times.of[root].until(index)
    return times


def _last_steps(steps: Sequence[RecordedStep]) -> dict[TensorStorage, int]:
    """Return the index of the last step that touches memory, by the storage that owns it."""
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
    times: Lifetimes,
    lasting: Collection[TensorStorage],
) -> Iterator[Lifetime]:
    """Yield the lifetimes of the operands whose memory a step may overwrite with its output.

    Such an operand has the layout of the output and is in the arena. No later step reads it, and
    this step reads it in no other layout.

    Args:
        step, index: the step and its index.
        target: the output.
        last: the index of the last step that touches memory, by the storage that owns it.
        times: the lifetimes so far.
        lasting: owners of memory that is needed after the last step.
    """
    if target not in step.replaces:
        return
    slots = [slot for slot in step.slots if not isinstance(slot, int)]
    for operand in step.replaces[target]:
        root = operand.root
        if (
            root in times.of
            and root not in lasting
            and last[root] == index
            and all(slot is operand for slot in slots if slot.root is root)
            and operand.nbytes == root.nbytes == target.root.nbytes
            and operand.extents == target.extents
            and operand.layout.same(target.layout, target.extents)
        ):
            yield times.of[root]
