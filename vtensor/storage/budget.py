"""The memory budget of a session: the most bytes that it may use, checked before an allocation."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from vtensor.errors import BudgetError, InputError
from vtensor.language.process.interrupts import ignored
from vtensor.storage.cgroups import MEMBERSHIP, MOUNT, folders

#: The file of a control group's memory limit, by version of the control groups.
_FILES = {1: "memory.limit_in_bytes", 2: "memory.max"}

REMEDY = "raise max_bytes= (--max-bytes on the command line), or give smaller inputs"


def max_bytes_of(max_bytes: int | None) -> int:
    """Return a session's memory budget in bytes; for None, three quarters of available memory.

    Raises:
        InputError: ``max_bytes`` is neither None nor an integer of at least 1.
    """
    if max_bytes is None:
        return max(1, available_memory() * 3 // 4)
    if not isinstance(max_bytes, int) or isinstance(max_bytes, bool) or max_bytes < 1:
        raise InputError(
            f"max_bytes={max_bytes!r} (--max-bytes on the command line) must be an integer of at "
            "least 1, or None"
        )
    return max_bytes


def available_memory(membership: Path = MEMBERSHIP, mount: Path = MOUNT) -> int:
    """Return the bytes of memory that this process may use.

    That is the machine's memory, or the limit of a control group of this process if it is less.

    Args:
        membership: ``MEMBERSHIP``, or a file in the same format.
        mount: ``MOUNT``, or a folder of the same structure.
    """
    available = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for version, folder in folders("memory", membership, mount):
        with ignored(OSError, ValueError):  # no such file, or its text is "max"
            available = min(available, max(0, int((folder / _FILES[version]).read_text())))
    return available


@contextmanager
def memory_errors() -> Iterator[None]:
    """Convert a ``MemoryError`` inside a ``with`` block into a ``BudgetError``.

    Raises:
        BudgetError: the block ran out of memory.
    """
    try:
        yield
    except MemoryError as error:
        raise ran_out(error) from error


def ran_out(error: MemoryError) -> BudgetError:
    """Return a ``BudgetError`` that says that memory ran out, and what to change."""
    return BudgetError(
        f"memory ran out before the budget did: {error}\n  to fix: give a smaller "
        "max_bytes= (--max-bytes on the command line), which refuses before memory is allocated, "
        "or smaller inputs"
    )
