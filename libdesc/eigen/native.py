"""The extension module for the machine: the same kernels are compiled once an instruction set."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, cast

from vtensor.errors import LibraryError

if TYPE_CHECKING:
    from libdesc.eigen._eigen import Kernels

#: Instruction sets, from the least; and the best of them that a cap of VTensor leaves.
LEVELS = ("baseline", "avx2", "avx512")
CAPS = {"sse41": "baseline", "avx2": "avx2", "avx512": "avx512", "amx": "avx512", "max": "avx512"}

#: Of the process, whose kernels are of one instruction set: results do not depend on the session.
_cap = "max"
_loaded: Kernels | None = None


def load() -> Kernels:
    """The module for the best instruction set of the machine that the cap leaves.

    After the first call the choice stands.

    Raises:
        LibraryError: the extension is not there, or does not load; says why.

    >>> load().level in LEVELS
    True
    """
    global _loaded
    if _loaded is None:
        _loaded = _module(_best(_cap))
    return _loaded


def limit(cap: str) -> None:
    """Cap the instruction set.

    Raises:
        LibraryError: another one is in use already, or there is no such cap.
    """
    global _cap
    if cap not in CAPS:
        raise LibraryError(f"eigen: there is no cap {cap!r}; one of {', '.join(CAPS)}")
    if _loaded is not None and _loaded.level != _best(cap):
        raise LibraryError(
            f"eigen: the cap {cap} comes too late: {_loaded.level} is in use; "
            "call limit_isa before the first session"
        )
    _cap = cap


def load_baseline() -> Kernels:
    """The module that every machine runs; loading it decides nothing.

    Raises:
        LibraryError: as ``load``.
    """
    return _module("baseline")


def _best(cap: str) -> str:
    return min(load_baseline().machine_level(), CAPS[cap], key=LEVELS.index)


def _module(level: str) -> Kernels:
    try:
        return cast("Kernels", importlib.import_module(f"libdesc.eigen._eigen_{level}"))
    except ImportError as error:
        raise LibraryError(f"eigen: the extension module does not load: {error}") from error
