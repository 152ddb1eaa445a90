"""Live steps: the steps of calls that write memory which a later step or an output reads."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from ptensor.buffer import TensorStorage
from vtensor.runtime.execution.steps import RecordedStep


def needed(
    steps: Sequence[RecordedStep], outputs: Iterable[TensorStorage]
) -> tuple[RecordedStep, ...]:
    """Return the steps that outputs need: they write memory that a later needed step or an output
    reads.

    Call-backs and steps that write nothing stay, because their effects are unknown.

    Args:
        steps: the steps, in running order.
        outputs: the memory that is delivered after the last step.
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
    """Return the owners of the memory that a step reads, and of the memory that it writes."""
    rows = [*accesses(step)]
    read, writes = (
        {storage.root for storage, access in rows if kind in access} for kind in ("read", "write")
    )
    return read, writes


def accesses(step: RecordedStep) -> Iterator[tuple[TensorStorage, str]]:
    """Yield each storage of a step with its access: "read", "write", both or "scratch".

    A call back into Python is taken to read all its operands.
    """
    from vtensor.runtime import _replay

    known: Sequence[str] = step.code.access or ["read"] * len(step.slots)
    if step.native is not None and not step.code.access:
        known = [access for _, _, access in _replay.describe(step.native)["slots"]]
    for slot, access in zip(step.slots, known, strict=True):
        if not isinstance(slot, int):
            yield slot, access
