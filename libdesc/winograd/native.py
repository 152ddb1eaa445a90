"""Access to the extension modules: the same kernels, compiled once per instruction set."""

from __future__ import annotations

from typing import TYPE_CHECKING

from libdesc.levels import CAPS, LEVELS, Levels

if TYPE_CHECKING:
    from libdesc.winograd._winograd import Kernels

__all__ = ["CAPS", "LEVELS", "limit", "load", "load_baseline"]

_levels: Levels[Kernels] = Levels("winograd")

load = _levels.load
limit = _levels.limit
load_baseline = _levels.baseline
