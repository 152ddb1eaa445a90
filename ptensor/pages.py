"""Memory on pages of its own, which goes back to the system as soon as it is released."""

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

from vtensor.language.process.interrupts import ignored, pass_signals

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: A function that returns memory of a given number of bytes.
Room = Callable[[int], "NDArray[np.uint8]"]

#: Size of a huge page, in bytes.
HUGE_PAGE_BYTES = 1 << 21

#: Arrays of at least this many bytes get pages of their own. The allocator would keep their memory
#: after its release, as holes between blocks in use.
OWN_PAGES_BYTES = 1 << 16

#: The allocator returns blocks of at least this many bytes to the system as soon as they are
#: released: no later allocation reuses them.
RETURNED_AT_ONCE_BYTES = 1 << 25


def passing(shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Allocate an array for short-lived values on pages of its own; large arrays on huge pages.

    The allocator would keep such memory after its release: as holes between blocks that are still
    in use.
    """
    count = prod(shape)
    nbytes = max(count * dtype.itemsize, 1)
    huge = 0
    if 2 * nbytes >= HUGE_PAGE_BYTES:
        huge = -(-nbytes // HUGE_PAGE_BYTES) * HUGE_PAGE_BYTES
    return np.frombuffer(_mapped(max(nbytes, huge), huge), dtype, count).reshape(shape)


def lasting(nbytes: int) -> NDArray[np.uint8]:
    """Allocate bytes for long-lived values on ordinary pages.

    NumPy would request huge pages (of 2 MB). The system provides them faster than ordinary pages
    when its free memory is contiguous, but several times more slowly when that is fragmented.
    """
    if nbytes < OWN_PAGES_BYTES:
        return np.empty(nbytes, np.uint8)
    return np.frombuffer(_mapped(nbytes), np.uint8)


def reused(nbytes: int) -> NDArray[np.uint8]:
    """Allocate bytes that later allocations may reuse after their release.

    They come from NumPy, whose allocator reuses memory; if they are too many for that, they are
    allocated as in ``lasting``.
    """
    return np.empty(nbytes, np.uint8) if nbytes < RETURNED_AT_ONCE_BYTES else lasting(nbytes)


def one_after_the_other() -> Room:
    """Return a function that returns memory of a given number of bytes, for one value at a time.

    Each call returns the same memory again, so that a value lasts only until the next call. New
    memory is allocated when a call asks for more bytes than all calls before.
    """
    memory = np.empty(0, np.uint8)

    def room(nbytes: int) -> NDArray[np.uint8]:
        nonlocal memory
        if memory.nbytes < nbytes:
            memory = reused(nbytes)
        return memory[:nbytes]

    return room


def empty(shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Allocate an array for long-lived values, in memory from ``lasting``."""
    return lasting(prod(shape) * dtype.itemsize).view(dtype).reshape(shape)


def contiguous(array: NDArray[Any]) -> NDArray[Any]:
    """Return a C-contiguous array with the same elements: the array itself if it is one, else a
    copy.
    """
    if array.flags.c_contiguous or array.nbytes < OWN_PAGES_BYTES:
        return np.asarray(array, order="C")
    copy = empty(array.shape, array.dtype)
    copy[...] = array
    return copy


def give_back() -> None:
    """Return to the system the free memory that the allocator keeps between blocks in use.

    This takes much longer than to release a block. It pays only after much memory was released.
    """
    if sys.platform == "linux":
        with suppress(AttributeError):  # an allocator other than glibc's
            ctypes.CDLL(None).malloc_trim(0)


def give_back_code(parts: Collection[str]) -> None:
    """Return to the system the code pages of native libraries whose paths contain one of ``parts``.

    The pages are unmodified parts of files: code that runs again is read from its file again.
    """
    if sys.platform != "linux":
        return
    with ignored(OSError, AttributeError):  # no /proc, or another C library
        advise = ctypes.CDLL(None).madvise
        for line in Path("/proc/self/maps").read_text("utf-8", "replace").splitlines():
            place, flags, *_ = line.split(maxsplit=2)
            if flags == "r-xp" and any(part in line for part in parts):
                begin, end = (int(text, 16) for text in place.split("-"))
                advise(ctypes.c_void_p(begin), ctypes.c_size_t(end - begin), mmap.MADV_DONTNEED)


def _mapped(nbytes: int, huge: int = 0) -> mmap.mmap:
    """Map private pages, of which the first ``huge`` bytes may be huge pages.

    Args:
        nbytes: how many bytes to map.
        huge: a multiple of HUGE_PAGE_BYTES, so that the mapping begins at such a multiple; or 0.

    Raises:
        MemoryError: there is not enough memory.
    """
    try:
        # shared memory, which is the default, has no huge pages
        pages = mmap.mmap(-1, nbytes, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except OSError as error:
        pass_signals(error)
        raise MemoryError(f"there is no room for {nbytes} bytes") from error
    if huge:
        with ignored(OSError):  # a system without huge pages
            pages.madvise(mmap.MADV_HUGEPAGE, 0, huge)
    return pages
