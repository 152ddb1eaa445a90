"""Memory by the page, which goes back to the system at once."""

from __future__ import annotations

import ctypes
import mmap
import sys
from collections.abc import Callable, Collection
from contextlib import suppress
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from vtensor.language.interrupts import ignored, pass_signals

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: Makes room for so many bytes.
Room = Callable[[int], "NDArray[np.uint8]"]

#: The bytes of a large page.
LARGE = 1 << 21

#: So many bytes get pages of their own: the allocator keeps what is let go of between others.
LEAST = 1 << 16

#: So many bytes the allocator gives back to the system at once.
MOST = 1 << 25


def passing(shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
    """An array for values that are soon let go, on pages of its own.

    The allocator's memory would stay with the process, as holes between what is kept.
    """
    count = prod(shape)
    nbytes = max(count * dtype.itemsize, 1)
    large = -(-nbytes // LARGE) * LARGE if 2 * nbytes >= LARGE else 0
    return np.frombuffer(_mapped(max(nbytes, large), large), dtype, count).reshape(shape)


def lasting(nbytes: int) -> NDArray[np.uint8]:
    """Bytes for values that stay, on pages as the system has them.

    NumPy would ask for large ones. They are sooner there where much memory is free in one piece;
    where another process has just let go of small ones, it may take several times as long.
    """
    if nbytes < LEAST:
        return np.empty(nbytes, np.uint8)
    return np.frombuffer(_mapped(nbytes), np.uint8)


def reused(nbytes: int) -> NDArray[np.uint8]:
    """Bytes for values after which others get the same memory: NumPy's, as far as that is so."""
    return np.empty(nbytes, np.uint8) if nbytes < MOST else lasting(nbytes)


def one_after_the_other() -> Room:
    """What makes room for values of which each is let go of before the next: the same memory."""
    memory = np.empty(0, np.uint8)

    def room(nbytes: int) -> NDArray[np.uint8]:
        nonlocal memory
        if memory.nbytes < nbytes:
            memory = reused(nbytes)
        return memory[:nbytes]

    return room


def empty(shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
    """An array for values that stay, as ``lasting``."""
    return lasting(prod(shape) * dtype.itemsize).view(dtype).reshape(shape)


def contiguous(array: NDArray[Any]) -> NDArray[Any]:
    """An array whose elements lie in the order of its axes: the same one, or a copy."""
    if array.flags.c_contiguous or array.nbytes < LEAST:
        return np.asarray(array, order="C")
    made = empty(array.shape, array.dtype)
    made[...] = array
    return made


def give_back() -> None:
    """Let the system have the memory that the allocator keeps for later, between what is in use.

    It is done where much was just let go of: it takes a millisecond or two.
    """
    if sys.platform == "linux":
        with suppress(AttributeError):  # an allocator other than glibc's
            ctypes.CDLL(None).malloc_trim(0)


def give_back_code(parts: Collection[str]) -> None:
    """Let the system have the code of native libraries whose paths have one of these parts.

    Its pages are the files' own, which nobody writes to: those that are needed again come back.
    """
    if sys.platform != "linux":
        return
    with ignored(OSError, AttributeError):  # where there is no /proc, or another C library
        advise = ctypes.CDLL(None).madvise
        for line in Path("/proc/self/maps").read_text("utf-8", "replace").splitlines():
            place, flags, *_ = line.split(maxsplit=2)
            if flags == "r-xp" and any(part in line for part in parts):
                begin, end = (int(one, 16) for one in place.split("-"))
                advise(ctypes.c_void_p(begin), ctypes.c_size_t(end - begin), mmap.MADV_DONTNEED)


def _mapped(nbytes: int, large: int = 0) -> mmap.mmap:
    """Pages, the first so many bytes of them large: a whole number, or they would begin anywhere.

    They are private: those of shared memory, which is the default, are small.

    Raises:
        MemoryError: there are not as many.
    """
    try:
        pages = mmap.mmap(-1, nbytes, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except OSError as error:
        pass_signals(error)
        raise MemoryError(f"there is no room for {nbytes} bytes") from error
    if large:
        with ignored(OSError):  # a system without large pages
            pages.madvise(mmap.MADV_HUGEPAGE, 0, large)
    return pages
