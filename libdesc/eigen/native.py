"""Access to the extension modules: the same kernels, compiled once per instruction set."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from libdesc.levels import CAPS, LEVELS, Levels
from libdesc.tracing import pure

if TYPE_CHECKING:
    from libdesc.eigen._eigen import Kernels

__all__ = ["CAPS", "LEVELS", "joined", "limit", "load", "load_baseline", "unavailable", "version"]

_levels: Levels[Kernels] = Levels("eigen")

load = _levels.load
limit = _levels.limit
unavailable = _levels.unavailable
load_baseline = _levels.baseline


def version() -> str:
    """Return Eigen's version; see ``Levels.version``."""
    return _levels.version(load().version)


@pure
def joined(strides: list[int], counts: Sequence[int], steps: Sequence[int]) -> list[int]:
    """Return ``strides``, then for each row its offset from the first row, in elements.

    Args:
        strides: the first part of the result.
        counts, steps: rows are numbered along several axes, the slowest first. For each axis, the
            number of its positions, and the distance in elements from one position to the next.
    """
    begins = [0]
    for count, step in zip(counts, steps, strict=True):
        begins = [begin + place * step for begin in begins for place in range(count)]
    return strides + begins
