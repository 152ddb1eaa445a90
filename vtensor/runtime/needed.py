"""Steps that somebody needs: of a call's several steps, some may write only what nobody reads."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ptensor.buffer import TensorStorage
from vtensor.runtime.record import RecordedStep


def needed(
    steps: Sequence[RecordedStep], outputs: Iterable[TensorStorage]
) -> tuple[RecordedStep, ...]:
    """The steps without those of which no later step, and no output, needs what they write.

    A call-back stays, and so does a step that writes nothing: what those do is not known here.

    Args:
        steps: in the order in which they run.
        outputs: what is delivered after the last step.
    """
    wanted = {storage.root for storage in outputs}
    kept: list[RecordedStep] = []
    for step in reversed(steps):
        read, written = touched(step)
        if step.callback is not None or not written or not written.isdisjoint(wanted):
            wanted |= read
            kept.append(step)
    return tuple(reversed(kept))


def touched(step: RecordedStep) -> tuple[set[TensorStorage], set[TensorStorage]]:
    """The owners of the memory that a step reads, and of that which it writes."""
    from vtensor.runtime import _replay

    if step.native is None:
        return {slot.root for slot in step.slots if not isinstance(slot, int)}, set()
    read, written = set[TensorStorage](), set[TensorStorage]()
    rows = _replay.describe(step.native)["slots"]
    for (_, _, access), storage in zip(rows, step.slots, strict=True):
        if not isinstance(storage, int):
            read |= {storage.root} if "read" in access else set()
            written |= {storage.root} if "write" in access else set()
    return read, written
