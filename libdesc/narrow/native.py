"""Access to the extension modules: the same kernels, compiled once per instruction set."""

from __future__ import annotations

from typing import TYPE_CHECKING

from libdesc.levels import CAPS, LEVELS, Levels
from libdesc.schema import Speed
from vtensor import __version__
from vtensor.errors import LibraryError

if TYPE_CHECKING:
    from libdesc.narrow._narrow import Kernels

__all__ = [
    "CAPS",
    "LEVELS",
    "PRODUCTS",
    "available",
    "instructions",
    "limit",
    "load",
    "load_baseline",
    "speeds",
    "version",
]

_levels: Levels[Kernels] = Levels("narrow")

load = _levels.load
load_baseline = _levels.baseline


def available() -> str | None:
    """Return None if the kernels can be used in this process, else the reason why not."""
    return _levels.unavailable()


#: The kinds of instructions that no cap below the named one allows. All other kinds belong to the
#: instruction set of a module.
_FROM = {"amx": ("amx", "max")}

#: How many times as fast products of bytes are as those of f32, by kind of instructions.
PRODUCTS = {
    "plain": 1.0,
    "avx2": 1.2,
    "avx_vnni": 2.5,
    "avx512": 1.5,
    "vnni": 3.0,
    "amx": 6.0,
}

#: How many times as many bytes as of f32 are read and written in a second, sums in s32 counted, if
#: memory limits both. Kernels with few terms for each sum, such as depthwise ones, widen each byte.
NBYTES = 0.5


def instructions() -> str:
    """Return the fastest kind of instructions that module, machine and cap allow.

    It is one of ``"plain"``, ``"avx2"``, ``"avx_vnni"``, ``"avx512"``, ``"vnni"`` and ``"amx"``;
    all of them give equal results.
    """
    load()
    kinds = _levels.loaded.instructions() if _levels.loaded is not None else []
    return next(kind for kind in reversed(kinds) if _levels.cap in _FROM.get(kind, CAPS))


def version() -> str:
    """Return VTensor's version, of which the kernels are a part; see ``Levels.version``."""
    return _levels.version(__version__, instructions())


def speeds() -> dict[str, Speed]:
    """Return how fast products of bytes are with the present instructions.

    They name no instructions: ``vtensor libs`` shows those of oneDNN.
    """
    speed = Speed("", PRODUCTS[instructions()], NBYTES)
    return {"u8": speed, "s8": speed}


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
