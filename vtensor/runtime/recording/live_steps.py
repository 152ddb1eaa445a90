"""Steps that somebody needs: of a call's several steps, some may write only what nobody reads."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from ptensor.buffer import TensorStorage
from vtensor.runtime.execution.steps import RecordedStep


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
    live: list[RecordedStep] = []
    for step in reversed(steps):
        read, writes = touched(step)
        if step.callback is not None or not writes or not writes.isdisjoint(wanted):
            wanted |= read
            live.append(step)
    return tuple(reversed(live))


def touched(step: RecordedStep) -> tuple[set[TensorStorage], set[TensorStorage]]:
    """The owners of the memory that a step reads, and of that which it writes."""
    rows = [*accesses(step)]
    read, writes = (
        {one.root for one, access in rows if kind in access} for kind in ("read", "write")
    )
    return read, writes


def accesses(step: RecordedStep) -> Iterator[tuple[TensorStorage, str]]:
    """What a step touches, and how: "read", "write", both or "scratch"; a call-back reads all."""
    from vtensor.runtime import _replay

    known: Sequence[str] = step.code.access or ["read"] * len(step.slots)
    if step.native is not None and not step.code.access:
        known = [access for _, _, access in _replay.describe(step.native)["slots"]]
    for slot, access in zip(step.slots, known, strict=True):
        if not isinstance(slot, int):
            yield slot, access
