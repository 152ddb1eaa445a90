"""Memory that ends, or begins, at an unmapped page."""

from __future__ import annotations

import ctypes
import mmap

import numpy as np

from tests.native.packing import Array

PAGE = mmap.PAGESIZE
#: Alignment of scratch memory, in bytes.
LINE = 64

libc = ctypes.CDLL(None, use_errno=True)


def guarded(values: Array, behind: bool = True) -> Array:
    """Copy bytes to memory that ends at an unmapped page, or begins at one if not ``behind``."""
    pages = -(-values.nbytes // PAGE)
    room = mmap.mmap(-1, (pages + 1) * PAGE)
    address = ctypes.addressof(ctypes.c_char.from_buffer(room))
    if libc.mprotect(ctypes.c_void_p(address + pages * PAGE * behind), PAGE, 0) != 0:
        raise OSError(ctypes.get_errno(), "mprotect")
    begin = pages * PAGE - values.nbytes if behind else PAGE
    copy = np.frombuffer(room, np.uint8, values.nbytes, begin)
    copy[:] = values
    return copy


def filled(size: int, behind: bool = True) -> Array:
    """Return guarded memory of so many bytes, all of whose bits are set."""
    return guarded(np.full(size, 0xFF, np.uint8), behind)
