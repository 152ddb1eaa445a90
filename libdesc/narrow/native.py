"""Access to the extension modules: the same kernels, compiled once per instruction set."""

from __future__ import annotations

from typing import TYPE_CHECKING

from libdesc.levels import CAPS, LEVELS, Levels
from vtensor.errors import LibraryError

if TYPE_CHECKING:
    from libdesc.narrow._narrow import Kernels

__all__ = ["CAPS", "LEVELS", "instructions", "limit", "load", "load_baseline"]

_levels: Levels[Kernels] = Levels("narrow")

load = _levels.load
load_baseline = _levels.baseline

#: The kinds of instructions that no cap below the named one allows. All other kinds belong to the
#: instruction set of a module.
_FROM = {"amx": ("amx", "max")}


def instructions() -> str:
    """Return the fastest kind of instructions that module, machine and cap allow.

    It is one of ``"plain"``, ``"avx2"``, ``"avx_vnni"``, ``"avx512"``, ``"vnni"`` and ``"amx"``. All
    of them give equal results.
    """
    load()
    kinds = _levels.loaded.instructions() if _levels.loaded is not None else []
    return next(kind for kind in reversed(kinds) if _levels.cap in _FROM.get(kind, CAPS))


def limit(cap: str) -> None:
    """Cap the instructions of the kernels.

    Args:
        cap: the largest instruction set that may be used, a key of ``CAPS``. The cap ``avx2``
            allows AVX-VNNI, and ``avx512`` VNNI, but not AMX.

    Raises:
        LibraryError: kernels with other instructions are in use, or there is no such cap.
    """
    before, used = _levels.cap, instructions() if _levels.loaded is not None else None
    _levels.limit(cap)
    if used is not None and instructions() != used:
        _levels.cap = before
        raise LibraryError(
            f"narrow: the cap {cap} comes too late: {used} is in use; "
            "call limit_isa before the first session"
        )
