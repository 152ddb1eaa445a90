"""How much memory a session may take, checked before it is taken."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from vtensor.errors import BudgetError, InputError
from vtensor.language.interrupts import ignored
from vtensor.storage.cgroups import MEMBERSHIP, MOUNT, folders

#: Where a control group's limit stands, by version.
_FILES = {1: "memory.limit_in_bytes", 2: "memory.max"}

REMEDY = "raise max_bytes= (--max-bytes on the command line), or give smaller inputs"


def max_bytes_of(given: int | None) -> int:
    """A budget; None is three quarters of the memory of the machine, or of its container.

    Raises:
        InputError: it is no integer of at least 1.
    """
    if given is None:
        return max(1, available_memory() * 3 // 4)
    if not isinstance(given, int) or isinstance(given, bool) or given < 1:
        raise InputError(
            f"max_bytes={given!r} (--max-bytes on the command line) must be an integer of at "
            "least 1, or None"
        )
    return given


def available_memory(membership: Path = MEMBERSHIP, mount: Path = MOUNT) -> int:
    """The bytes of memory that this process may use: the machine's, less what its groups forbid."""
    least = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for version, folder in folders("memory", membership, mount):
        with ignored(OSError, ValueError):  # no such file, or "max"
            least = min(least, max(0, int((folder / _FILES[version]).read_text())))
    return least


@contextmanager
def memory_errors() -> Iterator[None]:
    """What runs out of memory inside is a typed error.

    Raises:
        BudgetError: there was less memory than the budget allows.
    """
    try:
        yield
    except MemoryError as error:
        raise ran_out(error) from error


def ran_out(error: MemoryError) -> BudgetError:
    """The typed error."""
    return BudgetError(
        f"memory ran out before the budget did: {error}\n  to fix: give a smaller "
        "max_bytes= (--max-bytes on the command line), which refuses before memory is taken, or "
        "smaller inputs"
    )
