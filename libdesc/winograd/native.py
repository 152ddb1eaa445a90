"""Access to the extension modules: the same kernels, compiled once per instruction set."""

from __future__ import annotations

from typing import TYPE_CHECKING

from libdesc.levels import CAPS, LEVELS, Levels
from vtensor import __version__

if TYPE_CHECKING:
    from libdesc.winograd._winograd import Kernels

__all__ = ["CAPS", "LEVELS", "available", "limit", "load", "load_baseline", "version"]

_levels: Levels[Kernels] = Levels("winograd")

load = _levels.load
load_baseline = _levels.baseline


def available() -> str | None:
    """Return None if the kernels can be used in this process, else the reason why not."""
    return _levels.unavailable()


def limit(cap: str) -> None:
    """Cap the instruction set; see ``Levels.limit``."""
    _levels.limit(cap)


def version() -> str:
    """Return VTensor's version, of which the kernels are a part; see ``Levels.version``."""
    return _levels.version(__version__)
