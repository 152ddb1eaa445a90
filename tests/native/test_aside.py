"""Aside: steps that another thread runs, on memory or on what it reads of a file."""

from __future__ import annotations

import gc
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from weakref import ref

import numpy as np
import pytest

from tests.libraries.steps import READ, WRITE, FloatStep
from vtensor.runtime._replay import Arena, Aside, StepFailed, Stopped

Array = np.ndarray[Any, Any]

NUMBERS = np.random.default_rng(1).standard_normal((64, 48), np.float32)


def copying(size: int, plus: float = 0.0) -> FloatStep:
    """Copies numbers, and adds something."""

    def run(arrays: list[Array]) -> None:
        arrays[1][:] = arrays[0] + np.float32(plus)

    return FloatStep("copy", [(size, READ), (size, WRITE)], run)


def failing(text: str) -> FloatStep:
    return FloatStep("fail", [(1, WRITE)], lambda arrays: text)


@pytest.fixture
def descriptor(tmp_path: Path) -> Iterator[int]:
    """A file of a few bytes, and the numbers."""
    (tmp_path / "data").write_bytes(b"head" + NUMBERS.tobytes())
    opened = os.open(tmp_path / "data", os.O_RDONLY)
    yield opened
    os.close(opened)


def test_steps_are_run_each_once_and_memory_lives_until_then() -> None:
    aside, steps, made = Aside(), [copying(48, i) for i in range(200)], list[Array]()
    for i, step in enumerate(steps):
        made.append(np.empty(48, np.float32))
        aside.run([(step, [NUMBERS[i % 64].copy(), made[i]])])  # nobody else has the copy
    gc.collect()
    assert aside.wait() == [False] * 200
    for i, one in enumerate(made):
        np.testing.assert_array_equal(one, NUMBERS[i % 64] + np.float32(i))
    assert [step.runs for step in steps] == [1] * 200
    assert aside.wait() == []


def test_the_steps_of_one_go_one_after_the_other() -> None:
    aside, between, made = Aside(), np.empty(48, np.float32), np.empty(48, np.float32)
    first, second = copying(48, 1), copying(48, 2)
    aside.run([(first, [NUMBERS[0], between]), (second, [between, made])])
    aside.wait()
    np.testing.assert_array_equal(made, NUMBERS[0] + np.float32(1) + np.float32(2))


def test_its_maker_goes_on_meanwhile() -> None:
    aside, go, ran_on = Aside(), threading.Event(), list[int]()

    def run(arrays: list[Array]) -> None:
        assert go.wait(30)
        ran_on.append(threading.get_ident())

    step, memory = FloatStep("wait", [(1, WRITE)], run), np.empty(1, np.float32)
    aside.run([(step, [memory])])
    go.set()  # not reached where the maker had to wait
    aside.wait()
    assert len(ran_on) == 1


def test_who_waits_runs_what_nobody_has_begun() -> None:
    """The thread is held up by the first, which ends once the second was run."""
    aside, first_begun, second_ran = Aside(), threading.Event(), threading.Event()

    def first(arrays: list[Array]) -> str | None:
        first_begun.set()
        return None if second_ran.wait(30) else "nobody runs the second"

    def second(arrays: list[Array]) -> None:
        second_ran.set()

    memory = np.empty(1, np.float32)
    steps = [FloatStep("one", [(1, WRITE)], one) for one in (first, second)]
    for step in steps:
        aside.run([(step, [memory])])
    assert first_begun.wait(30)
    assert aside.wait() == [False, False]


@pytest.mark.parametrize(
    ("rows", "wanted"),
    [
        ((4, 1, NUMBERS.nbytes, 0), NUMBERS),
        ((4 + 48 * 4, 2, 48 * 4, 48 * 4), NUMBERS[1:3]),
        ((4 + 8 * 4, 64, 5 * 4, 48 * 4), NUMBERS[:, 8:13]),
        ((4, 3, 48 * 4, 0), NUMBERS[[0, 0, 0]]),
    ],
)
@pytest.mark.parametrize("factors", [None, ([0.1], 1), ([3.0, 1e300], 4)])
def test_rows_of_a_file_are_read_and_multiplied(
    descriptor: int,
    rows: tuple[int, int, int, int],
    wanted: Array,
    factors: tuple[list[float], int] | None,
) -> None:
    wanted = wanted.reshape(-1)
    if factors is not None:
        with np.errstate(over="ignore"):
            along = np.repeat(factors[0], factors[1])
            wanted = (wanted.astype(np.float64) * np.resize(along, wanted.size)).astype(np.float32)
    aside, made = Aside(), np.empty(wanted.size, np.float32)
    aside.run([(copying(wanted.size), [None, made])], None, (descriptor, *rows), factors)
    assert aside.wait() == [False]
    assert made.tobytes() == wanted.tobytes()


class File:
    """Is open as long as somebody has it."""

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_RDONLY)

    def fileno(self) -> int:
        return self._descriptor

    def __del__(self) -> None:
        os.close(self._descriptor)


@pytest.mark.parametrize("nbytes", [1, 4096, (8 << 20) - 1, 8 << 20, (20 << 20) + 3])
def test_what_is_read_at_once_is_whole(tmp_path: Path, nbytes: int) -> None:
    data = np.random.default_rng(2).integers(0, 256, nbytes + 7, np.uint8)
    data.tofile(tmp_path / "data")
    aside, into = Aside(), np.zeros(nbytes, np.uint8)
    aside.read(File(tmp_path / "data"), 7, into)
    gc.collect()  # nobody else has the file
    assert aside.wait() == []
    assert (into == data[7:]).all()


def test_it_says_which_factors_had_subnormals() -> None:
    aside, made = Aside(), [np.empty(256, np.float32) for _ in range(3)]
    small = np.full(256, 1e-40, np.float32)
    for source, into in zip((NUMBERS.reshape(-1)[:256], small, small), made, strict=True):
        aside.run([(copying(256), [source, into])], into if into is not made[2] else None)
    assert aside.wait() == [False, True, False]
    assert not made[1].any()
    assert (made[2] == small).all()


def test_a_step_that_fails_is_named_by_its_place_and_the_others_are_run() -> None:
    aside, steps = Aside(), [copying(48) for _ in range(5)]
    made = np.empty(48, np.float32)
    for i, step in enumerate(steps):
        if i == 2:
            aside.run([(failing("it says no"), [np.empty(1, np.float32)])])
        aside.run([(step, [NUMBERS[0], made])])
    with pytest.raises(StepFailed, match="it says no") as caught:
        aside.wait()
    assert caught.value.index == 2
    assert [step.runs for step in steps] == [1] * 5
    assert aside.wait() == []


def test_a_file_that_ends_too_soon_is_told(descriptor: int) -> None:
    aside, made = Aside(), np.empty(48, np.float32)
    begin = 4 + NUMBERS.nbytes - 10
    aside.run([(copying(48), [None, made])], None, (descriptor, begin, 1, made.nbytes, 0))
    with pytest.raises(EOFError):
        aside.wait()
    aside.read(descriptor, begin, made)
    with pytest.raises(EOFError):
        aside.wait()


def test_a_folder_cannot_be_read(tmp_path: Path) -> None:
    aside, folder = Aside(), os.open(tmp_path, os.O_RDONLY)
    aside.read(folder, 0, np.empty(1, np.uint8))
    with pytest.raises(IsADirectoryError):
        aside.wait()
    os.close(folder)
    aside.read(99999, 0, np.empty(1, np.uint8))
    with pytest.raises(OSError, match="Bad file descriptor"):
        aside.wait()


FLOATS = np.empty(48, np.float32)
#: What is refused at once: the memory, the source, its factors, and why.
REFUSED: list[tuple[list[Any], Any, Any, type[Exception], str]] = [
    ([None, FLOATS], None, None, ValueError, "is no memory"),
    ([FLOATS, None], (0, 0, 1, 192, 0), None, ValueError, "is no memory"),
    ([FLOATS], None, None, ValueError, "has 2 slots, 1 buffers"),
    ([FLOATS, b"12"], None, None, ValueError, "writable"),
    ([FLOATS, 3], None, None, TypeError, "no buffer"),
    ([None, FLOATS], (0, -1, 1, 192, 0), None, ValueError, "no such bytes"),
    ([None, FLOATS], (0, 0, 0, 192, 0), None, ValueError, "no such bytes"),
    ([None, FLOATS], (0, 0, 1, 0, 0), None, ValueError, "no such bytes"),
    ([None, FLOATS], (0, 0, 2, 96, -1), None, ValueError, "no such bytes"),
    ([None, FLOATS], (0, 0, 1 << 62, 192, 8), None, ValueError, "no such bytes"),
    ([None, FLOATS], (0, 1 << 62, 1 << 31, 1 << 31, 0), None, ValueError, "no such bytes"),
    ([None, FLOATS], ("file", 0, 1, 192, 0), None, TypeError, "fileno"),
    ([None, FLOATS], (-1, 0, 1, 192, 0), None, ValueError, "negative"),
    ([FLOATS, FLOATS], None, ([1.0], 1), ValueError, "factors are of what is read"),
    ([None, FLOATS], (0, 0, 1, 192, 0), ([], 1), ValueError, "no such factors"),
    ([None, FLOATS], (0, 0, 1, 192, 0), ([1.0], 0), ValueError, "no such factors"),
    ([None, FLOATS], (0, 0, 1, 192, 0), ([1.0], 49), ValueError, "no such factors"),
    ([None, FLOATS], (0, 0, 1, 192, 0), ([1.0] * 5, 1), ValueError, "no such factors"),
    ([None, FLOATS], (0, 0, 1, 192, 0), ([1.0] * 2, 1 << 62), ValueError, "no such factors"),
]


@pytest.mark.parametrize(("slots", "source", "factors", "kind", "why"), REFUSED)
def test_what_is_wrong_is_refused_and_nothing_runs(
    slots: list[Any], source: Any, factors: Any, kind: type[Exception], why: str
) -> None:
    aside, step = Aside(), copying(48)
    with pytest.raises(kind, match=why):
        aside.run([(step, slots)], None, source, factors)
    assert aside.wait() == []
    assert step.runs == 0


def test_what_no_memory_is_there_for_is_told(descriptor: int) -> None:
    aside, step = Aside(), copying(48)
    aside.run([(step, [None, FLOATS])], None, (descriptor, 0, 1 << 30, 1 << 31, 0))
    with pytest.raises(MemoryError):
        aside.wait()
    assert step.runs == 0


def test_memory_that_is_too_small_is_told_by_who_waits() -> None:
    aside, step = Aside(), copying(48)
    aside.run([(step, [NUMBERS, np.empty(48, np.float32)])])
    aside.run([(step, [NUMBERS, np.empty(47, np.float32)])])
    with pytest.raises(ValueError, match="needs 192 bytes, its buffer has 188") as caught:
        aside.wait()
    assert vars(caught.value) == {"index": 1}  # which run it was
    assert step.runs == 1


def test_what_has_not_begun_never_does() -> None:
    aside, begun, go = Aside(), threading.Event(), threading.Event()

    def hold(arrays: list[Array]) -> None:
        begun.set()
        assert go.wait(30)

    memory, later = np.empty(48, np.float32), copying(48)
    aside.run([(FloatStep("hold", [(1, WRITE)], hold), [memory])])
    aside.run([(later, [NUMBERS[0], memory])])
    assert begun.wait(30)
    threading.Timer(0.05, go.set).start()
    del aside
    gc.collect()
    assert go.is_set()  # it waited for what had begun
    assert later.runs == 0


def test_sources_do_not_pile_up() -> None:
    """Beyond some memory, whoever brings more runs what is there."""
    aside, size = Aside(), 4 << 20
    step, into, alive = copying(size), np.empty(size, np.float32), list[Any]()
    for _ in range(12):
        source = np.ones(size, np.float32)
        alive.append(ref(source))
        aside.run([(step, [source, into])])
        del source
        gc.collect()
        assert sum(one() is not None for one in alive) <= 3
    assert aside.wait() == [False] * 12


def touched(memory: Array) -> int:
    """How many bytes of some memory the process has."""
    begin, behind = memory.ctypes.data, memory.ctypes.data + memory.nbytes
    found = inside = 0
    for line in Path("/proc/self/smaps").read_text().splitlines():
        head, *rest = line.split()
        if "-" in head and not head.endswith(":"):
            first, last = (int(one, 16) for one in head.split("-"))
            inside = first <= begin < last or begin <= first < behind
        elif head == "Rss:" and inside:
            found += 1024 * int(rest[0])
    return found


@pytest.mark.skipif(not Path("/proc/self/smaps").exists(), reason="the system does not say it")
def test_pages_come_before_somebody_touches_them_and_go_back() -> None:
    aside, arena = Aside(), Arena(32 << 20)
    memory = arena.memory()
    assert touched(memory) == 0
    aside.bring(memory)
    end = time.monotonic() + 30
    while touched(memory) < memory.nbytes and time.monotonic() < end:
        time.sleep(0.01)
    aside.leave_pages()
    assert touched(memory) == memory.nbytes
    assert not memory.any()
    memory[:] = 5
    arena.leave(8 << 20)
    assert touched(memory) == 8 << 20
    assert (memory[: 8 << 20] == 5).all()
    assert not memory[8 << 20 :].any()


@pytest.mark.skipif(not Path("/proc/self/smaps").exists(), reason="the system does not say it")
def test_all_together_bring_half_a_gibibyte_until_pages_are_left() -> None:
    most, each = 512 << 20, 320 << 20
    asides, arenas = [Aside() for _ in range(3)], [Arena(each) for _ in range(3)]

    def brought(wanted: list[int]) -> bool:
        """Wait until so many bytes of each are there; return whether no more come afterwards."""
        end = time.monotonic() + 30
        while [touched(arena.memory()) for arena in arenas] != wanted and time.monotonic() < end:
            time.sleep(0.02)
        time.sleep(0.5)
        return [touched(arena.memory()) for arena in arenas] == wanted

    for aside, arena in zip(asides, arenas, strict=True):
        aside.bring(arena.memory())
    assert brought([each, most - each, 0])
    asides[0].leave_pages()
    asides[2].bring(arenas[2].memory())
    assert brought([each, most - each, each])


def test_steps_go_before_pages_and_pages_that_are_left_do_not_come() -> None:
    aside, arena = Aside(), Arena(1 << 30)
    aside.bring(arena.memory())
    made = np.empty(48, np.float32)
    aside.run([(copying(48), [NUMBERS[0], made])])
    assert aside.wait() == [False]
    aside.leave_pages()
    before = touched(arena.memory())
    time.sleep(0.05)
    assert touched(arena.memory()) == before < 1 << 30


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_a_forked_process_has_none_of_it() -> None:
    aside, go = Aside(), threading.Event()
    step = FloatStep("hold", [(1, WRITE)], lambda arrays: None if go.wait(30) else "held")
    memory = np.empty(48, np.float32)
    aside.run([(step, [memory])])
    if (pid := os.fork()) == 0:
        code = 1
        try:
            for refused in (aside.wait, aside.leave_pages):
                with pytest.raises(Stopped, match="forked"):
                    refused()
            del aside, refused
            gc.collect()  # waits for no thread, which the child does not have
            code = 0
        finally:
            os._exit(code)
    assert os.waitpid(pid, 0)[1] == 0
    go.set()
    assert aside.wait() == [False]
