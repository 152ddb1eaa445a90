"""Memory by the page, which goes back to the system at once."""

from __future__ import annotations

import mmap
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray


def passing(shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
    """An array for values that are soon let go, on pages of its own.

    The allocator's memory would stay with the process, as holes between what is kept.
    """
    count = prod(shape)
    pages = mmap.mmap(-1, max(count * dtype.itemsize, 1))
    return np.frombuffer(pages, dtype, count).reshape(shape)
