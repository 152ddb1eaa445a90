"""Runs the steps of native/include/vtensor/step.h."""

from collections.abc import Sequence
from typing import Any

def execute(step: object, slots: Sequence[object], threads: int = 0) -> None:
    """
    Run a step once.

    ``step`` has a method ``__vtensor_step__`` (or is the capsule that it returns); ``slots``
    holds one object with a buffer for each slot, in order. ``threads`` is the number of OpenMP
    threads that the step finds (0: what this thread has). The interpreter's lock is released
    meanwhile.

    Raises:
        TypeError: not a step, or not a buffer.
        ValueError: the step is of another ABI version or malformed; a buffer is missing, too
            small, not contiguous in C order, read-only where the step writes, misaligned, or is
            scratch that overlaps another; ``threads`` is out of range (1 to 1024).
        RuntimeError: the step failed; its own reason.
    """

def describe(step: object) -> dict[str, Any]:
    """
    What a step says of itself.

    ``kernel``: its name; ``slots``: (name, bytes, access) each, access being "read", "write",
    "read write" or "scratch"; ``alignment``: in bytes, enough for every slot's address. Raises as
    ``execute``.
    """

def set_threads(threads: int) -> None:
    """
    Set the number of OpenMP threads of the calling thread. ValueError outside 1 to 1024.
    """

def threads() -> int:
    """The number of OpenMP threads of the calling thread."""
