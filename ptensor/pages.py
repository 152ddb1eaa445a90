"""Memory by the page, which goes back to the system at once: a mapped file's, and our own."""

from __future__ import annotations

import mmap
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray


class Pages(mmap.mmap):
    """A mapped file that nobody writes to through its mapping.

    So a page that was given back is the same when it is read again. Of a copy-on-write mapping
    (``np.memmap(mode="c")``) it would not be, which is why this is a type of its own.
    """


def mapped(descriptor: int, nbytes: int) -> NDArray[np.uint8]:
    """The first bytes of an open file, mapped."""
    if nbytes == 0:  # which cannot be mapped
        return np.zeros(0, np.uint8)
    return np.frombuffer(Pages(descriptor, nbytes, access=mmap.ACCESS_READ), np.uint8)


def passing(shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
    """An array for values that are soon let go, on pages of its own.

    The allocator's memory would stay with the process, as holes between what is kept.
    """
    count = prod(shape)
    pages = mmap.mmap(-1, max(count * dtype.itemsize, 1))
    return np.frombuffer(pages, dtype, count).reshape(shape)


def give_back(array: NDArray[np.generic]) -> None:
    """Take no memory for an array's elements until they are read again, where they are ``Pages``.

    Other memory stays as it is; so does that of a view with gaps.

    Source: madvise(2), MADV_DONTNEED.
    """
    owner: object = array
    while isinstance(owner, np.ndarray):
        owner = owner.base
    if isinstance(owner, memoryview):
        owner = owner.obj
    if not isinstance(owner, Pages) or not array.flags.c_contiguous or not array.nbytes:
        return
    first = array.ctypes.data - np.frombuffer(owner, np.uint8).ctypes.data
    begin = first - first % mmap.PAGESIZE  # neighbours on these pages are read again as well
    owner.madvise(mmap.MADV_DONTNEED, begin, first + array.nbytes - begin)
