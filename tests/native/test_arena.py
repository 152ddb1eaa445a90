"""Arena: pages that begin at 2 MiB, make way for more of them, and live with their views.

And pages that Python has.
"""

from __future__ import annotations

import gc
import mmap
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ptensor.pages import contiguous, lasting, passing
from tests.libraries.processes import printed
from vtensor.runtime._replay import Arena

HUGE = 2 << 20
#: Linux's ``MADV_POPULATE_WRITE``.
POPULATE_WRITE = 23
#: The system's account of this process's memory.
ACCOUNT = Path("/proc/self/smaps")

counted = pytest.mark.skipif(sys.platform != "linux", reason="pages are counted in /proc")


def counts() -> tuple[int, int]:
    """Return the bytes of this process's address space, and of those that are in memory."""
    mapped, resident, *_ = Path("/proc/self/statm").read_text().split()
    return int(mapped) * 4096, int(resident) * 4096


def entries(array: np.ndarray[Any, Any]) -> Iterator[list[str]]:
    """Yield what the system says of the pages on which an array lies, a line each, as words."""
    begin, end = array.ctypes.data, array.ctypes.data + array.nbytes
    inside = False
    for line in ACCOUNT.read_text().splitlines():
        head, *rest = line.split()
        if "-" in head and not head.endswith(":"):
            first, last = (int(address, 16) for address in head.split("-"))
            inside = first < end and begin < last
        elif inside:
            yield [head, *rest]


@pytest.mark.parametrize("nbytes", [1, 4096, HUGE, 3 * HUGE + 5])
def test_pages_are_zero_and_begin_at_a_huge_page(nbytes: int) -> None:
    memory = Arena(nbytes).memory()
    assert memory.dtype == np.uint8
    assert memory.shape == (nbytes,)
    assert memory.ctypes.data % HUGE == 0
    assert not memory.any()
    memory[-1] = 1
    assert Arena().nbytes == Arena(0).memory().nbytes == 0


def test_growing_takes_new_pages_and_leaves_the_old_ones_to_their_views() -> None:
    arena = Arena(8)
    old = arena.memory()
    old[:] = 7
    arena.grow(8)
    assert arena.memory().ctypes.data == old.ctypes.data
    arena.grow(HUGE)
    assert (arena.nbytes, arena.memory().nbytes) == (HUGE, HUGE)
    assert arena.memory().ctypes.data != old.ctypes.data
    arena.grow(1)
    assert arena.nbytes == HUGE
    del arena
    gc.collect()
    assert (old == 7).all()


@pytest.mark.skipif(sys.platform != "linux", reason="pages can be moved there")
@pytest.mark.parametrize("further", [1, HUGE - 5, 3 * HUGE])
def test_growing_keeps_whole_huge_pages_without_views(further: int) -> None:
    """They are not cleared again; what follows them is new, and can be written."""
    arena = Arena(2 * HUGE + 5)
    arena.memory()[:] = 7
    arena.grow(arena.nbytes + further)
    memory = arena.memory()
    assert memory.ctypes.data % HUGE == 0
    assert (memory[: 2 * HUGE] == 7).all()
    assert not memory[2 * HUGE :].any()
    memory[:] = 8
    del memory
    arena.grow(9 * HUGE)
    assert (arena.memory()[: 2 * HUGE] == 8).all()


def test_pages_are_there_before_their_first_use() -> None:
    try:
        mmap.mmap(-1, HUGE).madvise(POPULATE_WRITE)
    except OSError:
        pytest.skip("the system takes no such advice")
    arena = Arena(9 * HUGE + 5)
    _, before = counts()
    arena.bring(3 * HUGE, HUGE)
    assert HUGE <= counts()[1] - before < 3 * HUGE
    for begin in range(0, 12 * HUGE, HUGE):  # past the end, there are none
        arena.bring(begin, HUGE)
    assert 9 * HUGE <= counts()[1] - before < 11 * HUGE
    assert not arena.memory().any()


@counted
def test_pages_go_with_their_last_view() -> None:
    size = 1 << 30
    before, _ = counts()
    arena = Arena(size)
    view = arena.memory()
    del arena
    assert counts()[0] > before + size // 2
    del view
    assert counts()[0] < before + size // 2


def test_more_than_there_is_is_an_error_that_changes_nothing() -> None:
    arena = Arena(8)
    for nbytes in (1 << 60, (1 << 64) - 1):
        with pytest.raises(MemoryError):
            arena.grow(nbytes)
        with pytest.raises(MemoryError):
            Arena(nbytes)
    assert arena.nbytes == 8
    with pytest.raises(TypeError):
        arena.grow(-1)
    with pytest.raises(MemoryError, match="no room for"):
        lasting(1 << 60)


@pytest.mark.skipif(
    not Path("/sys/kernel/mm/transparent_hugepage").exists(), reason="no large pages here"
)
@pytest.mark.parametrize("nbytes", [HUGE, HUGE + 4, 3 * HUGE - 4])
def test_much_memory_of_python_is_private_and_on_such_pages_as_it_wants(nbytes: int) -> None:
    for array, large in ((passing((nbytes // 4,), np.dtype("f4")), True), (lasting(nbytes), False)):
        assert array.nbytes == nbytes
        flags = next(words for head, *words in entries(array) if head == "VmFlags:")
        assert ("hg" in flags) is large
        assert "sh" not in flags
        array[-1] = 1


@pytest.mark.parametrize("shape", [(), (0, 3), (2, 5), (HUGE // 8 + 1,)])
def test_passing_memory_has_any_shape(shape: tuple[int, ...]) -> None:
    array = passing(shape, np.dtype("f4"))
    assert array.shape == shape
    assert array.dtype == np.float32
    assert not array.any()
    array[...] = 1


@pytest.mark.parametrize("size", [10, 400])
def test_elements_are_copied_only_if_they_are_not_in_the_order_of_axes(size: int) -> None:
    array = np.arange(size * size, dtype="f4").reshape(size, size)
    assert contiguous(array) is array
    copy = contiguous(array.T)
    assert copy.flags.c_contiguous
    np.testing.assert_array_equal(copy, array.T)


#: In a process of its own, nothing else has memory of the allocator.
PREAMBLE = """
import numpy as np, sqlite3
from pathlib import Path
from ptensor.buffer import fresh_pages
from ptensor.pages import give_back, give_back_code
def pages(): return int(Path("/proc/self/statm").read_text().split()[1])
"""


@counted
def test_memory_between_what_is_in_use_goes_back() -> None:
    code = """
empty = pages()
kept = [np.ones(1 << 12) for _ in range(1000)]
full = pages()
del kept[:-1]
held = pages()
give_back()
print(full - empty, held - empty, pages() - empty)
"""
    full, held, left = map(int, printed("-c", PREAMBLE + code).split())
    assert left < full / 4 <= held


@counted
def test_much_fresh_memory_goes_back_at_once() -> None:
    """Whatever the allocator keeps: as it has learned by then, as much as this."""
    code = """
np.ones(1 << 24, np.uint8)
empty = pages()
memory = fresh_pages(1 << 22)
memory.fill(1)
full, last = pages(), np.ones(1 << 10)
del memory
print(full - empty, pages() - empty)
"""
    full, left = map(int, printed("-c", PREAMBLE + code).split())
    assert left < full / 4


@counted
def test_code_of_the_named_libraries_goes_back_and_comes_again() -> None:
    code = """
def there(name):
    found, of = 0, False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        first, *rest = line.split()
        if "-" in first:
            of = rest[0] == "r-xp" and name in line
        elif first == "Rss:" and of:
            found += int(rest[0])
    return found
def asked():
    with sqlite3.connect(":memory:") as base:
        return base.execute("select 6 * 7").fetchone()[0]
print(asked(), there("sqlite"), there("numpy"))
give_back_code(["sqlite"])
print(there("sqlite"), there("numpy"))
print(asked(), there("sqlite"))
"""
    lines = printed("-c", PREAMBLE + code).splitlines()
    first, then, last = ([*map(int, line.split())] for line in lines)
    assert (first[0], last[0]) == (42, 42)
    assert then[0] == 0 < min(first[1], last[1])
    assert then[1] > first[2] / 2
