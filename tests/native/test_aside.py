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
from tests.native.stepping import Array
from tests.native.test_arena import ACCOUNT, entries
from vtensor.runtime._replay import Arena, Aside, StepFailed, Stopped

NUMBERS = np.random.default_rng(1).standard_normal((64, 48), np.float32)

told = pytest.mark.skipif(not ACCOUNT.exists(), reason="the system does not say it")


@pytest.fixture
def aside() -> Aside:
    return Aside()


def copying(size: int = 48, plus: float = 0.0) -> FloatStep:
    """Make a step that copies numbers, and adds something."""

    def run(arrays: list[Array]) -> None:
        arrays[1][:] = arrays[0] + np.float32(plus)

    return FloatStep("copy", [(size, READ), (size, WRITE)], run)


def room(size: int = 48) -> Array:
    return np.empty(size, np.float32)


class Held(FloatStep):
    """A step that says that it has begun, and waits until it may go on."""

    def __init__(self) -> None:
        self.begun, self.go = threading.Event(), threading.Event()
        super().__init__("hold", [(1, WRITE)], self._hold)

    def _hold(self, arrays: list[Array]) -> str | None:
        self.begun.set()
        return None if self.go.wait(30) else "held"


@pytest.fixture
def descriptor(tmp_path: Path) -> Iterator[int]:
    """Open a file of a few bytes, and the numbers."""
    (tmp_path / "data").write_bytes(b"head" + NUMBERS.tobytes())
    opened = os.open(tmp_path / "data", os.O_RDONLY)
    yield opened
    os.close(opened)


def test_steps_are_run_each_once_and_memory_lives_until_then(aside: Aside) -> None:
    steps, results = [copying(plus=i) for i in range(200)], [room() for _ in range(200)]
    for i, step in enumerate(steps):
        aside.run([(step, [NUMBERS[i % 64].copy(), results[i]])])  # nothing else has the copy
    gc.collect()
    assert aside.wait() == [False] * 200
    for i, result in enumerate(results):
        np.testing.assert_array_equal(result, NUMBERS[i % 64] + np.float32(i))
    assert [step.runs for step in steps] == [1] * 200
    assert aside.wait() == []


def test_the_steps_of_a_run_go_one_after_the_other(aside: Aside) -> None:
    between, result = room(), room()
    aside.run([(copying(plus=1), [NUMBERS[0], between]), (copying(plus=2), [between, result])])
    aside.wait()
    np.testing.assert_array_equal(result, NUMBERS[0] + np.float32(1) + np.float32(2))


def test_the_caller_goes_on_meanwhile(aside: Aside) -> None:
    step = Held()
    aside.run([(step, [room(1)])])
    step.go.set()  # not reached if the caller had to wait
    assert aside.wait() == [False]
    assert step.runs == 1


def test_a_thread_that_waits_runs_what_has_not_begun(aside: Aside) -> None:
    """The other thread is held up by the first, which ends once the second was run."""
    first = Held()
    second = FloatStep("second", [(1, WRITE)], lambda arrays: first.go.set())
    for step in (first, second):
        aside.run([(step, [room(1)])])
    assert first.begun.wait(30)
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
    descriptor: int, rows: tuple[int, ...], wanted: Array, factors: Any, aside: Aside
) -> None:
    wanted = wanted.reshape(-1)
    if factors is not None:
        with np.errstate(over="ignore"):
            along = np.repeat(factors[0], factors[1])
            wanted = (wanted.astype(np.float64) * np.resize(along, wanted.size)).astype(np.float32)
    result, source = room(wanted.size), (descriptor, *rows)
    aside.run([(copying(wanted.size), [None, result])], None, source, factors)  # type: ignore[arg-type]
    assert aside.wait() == [False]
    assert result.tobytes() == wanted.tobytes()


class File:
    """A file that is open as long as this lives."""

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_RDONLY)

    def fileno(self) -> int:
        return self._descriptor

    def __del__(self) -> None:
        os.close(self._descriptor)


@pytest.mark.parametrize("nbytes", [1, 4096, (8 << 20) - 1, 8 << 20, (20 << 20) + 3])
def test_what_is_read_at_once_is_whole(tmp_path: Path, nbytes: int, aside: Aside) -> None:
    data = np.random.default_rng(2).integers(0, 256, nbytes + 7, np.uint8)
    data.tofile(tmp_path / "data")
    into = np.zeros(nbytes, np.uint8)
    aside.read(File(tmp_path / "data"), 7, into)
    gc.collect()  # nothing else has the file
    assert aside.wait() == []
    assert (into == data[7:]).all()


def test_runs_whose_factors_had_subnormals_are_told(aside: Aside) -> None:
    results = [room(256) for _ in range(3)]
    small = np.full(256, 1e-40, np.float32)
    for source, into in zip((NUMBERS.reshape(-1)[:256], small, small), results, strict=True):
        aside.run([(copying(256), [source, into])], into if into is not results[2] else None)
    assert aside.wait() == [False, True, False]
    assert not results[1].any()
    assert (results[2] == small).all()


def test_a_step_that_fails_is_named_by_its_place_and_the_others_are_run(aside: Aside) -> None:
    steps = [copying() for _ in range(5)]
    for i, step in enumerate(steps):
        if i == 2:
            fails = FloatStep("fail", [(1, WRITE)], lambda arrays: "it says no")
            aside.run([(fails, [room(1)])])
        aside.run([(step, [NUMBERS[0], room()])])
    with pytest.raises(StepFailed, match="it says no") as caught:
        aside.wait()
    assert caught.value.index == 2
    assert [step.runs for step in steps] == [1] * 5
    assert aside.wait() == []


def test_what_cannot_be_read_is_told_by_waiting(
    descriptor: int, tmp_path: Path, aside: Aside
) -> None:
    folder, end = os.open(tmp_path, os.O_RDONLY), 4 + NUMBERS.nbytes - 10
    step, result = copying(), room()
    aside.run([(step, [None, result])], None, (descriptor, end, 1, result.nbytes, 0))
    with pytest.raises(EOFError):
        aside.wait()
    for file, begin, error, text in (
        (descriptor, end, EOFError, None),
        (folder, 0, IsADirectoryError, None),
        (99999, 0, OSError, "Bad file descriptor"),
    ):
        aside.read(file, begin, result)
        with pytest.raises(error, match=text):
            aside.wait()
    os.close(folder)
    aside.run([(step, [None, result])], None, (descriptor, 0, 1 << 30, 1 << 31, 0))
    with pytest.raises(MemoryError):
        aside.wait()
    assert step.runs == 0


FLOATS = room()
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
    slots: list[Any], source: Any, factors: Any, kind: type[Exception], why: str, aside: Aside
) -> None:
    step = copying()
    with pytest.raises(kind, match=why):
        aside.run([(step, slots)], None, source, factors)
    assert aside.wait() == []
    assert step.runs == 0


def test_memory_that_is_too_small_is_told_by_waiting(aside: Aside) -> None:
    step = copying()
    for size in (48, 47):
        aside.run([(step, [NUMBERS, room(size)])])
    with pytest.raises(ValueError, match="needs 192 bytes, its buffer has 188") as caught:
        aside.wait()
    assert vars(caught.value) == {"index": 1}  # which run it was
    assert step.runs == 1


def test_what_has_not_begun_never_does() -> None:
    aside, first, later = Aside(), Held(), copying()
    aside.run([(first, [memory := room()])])
    aside.run([(later, [NUMBERS[0], memory])])
    assert first.begun.wait(30)
    threading.Timer(0.05, first.go.set).start()
    del aside
    gc.collect()
    assert first.go.is_set()  # it waited for what had begun
    assert later.runs == 0


def test_sources_do_not_pile_up(aside: Aside) -> None:
    """Beyond some memory, a thread that brings more runs what is there."""
    size = 4 << 20
    step, into, alive = copying(size), room(size), list[Any]()
    for _ in range(12):
        source = np.ones(size, np.float32)
        alive.append(ref(source))
        aside.run([(step, [source, into])])
        del source
        gc.collect()
        assert sum(weak() is not None for weak in alive) <= 3
    assert aside.wait() == [False] * 12


def touched(arena: Arena) -> int:
    """Return how many bytes of an arena are in memory."""
    return sum(1024 * int(words[0]) for head, *words in entries(arena.memory()) if head == "Rss:")


@told
def test_pages_come_before_their_first_use_and_go_back(aside: Aside) -> None:
    arena = Arena(32 << 20)
    memory = arena.memory()
    assert touched(arena) == 0
    aside.bring(memory)
    end = time.monotonic() + 30
    while touched(arena) < memory.nbytes and time.monotonic() < end:
        time.sleep(0.01)
    aside.leave_pages()
    assert touched(arena) == memory.nbytes
    assert not memory.any()
    memory[:] = 5
    arena.leave(8 << 20)
    assert touched(arena) == 8 << 20
    assert (memory[: 8 << 20] == 5).all()
    assert not memory[8 << 20 :].any()


@told
def test_all_together_bring_half_a_gibibyte_until_pages_are_left() -> None:
    most, each = 512 << 20, 320 << 20
    asides, arenas = [Aside() for _ in range(3)], [Arena(each) for _ in range(3)]

    def brought(wanted: list[int]) -> bool:
        """Wait until so many bytes of each are there; return whether no more come afterwards."""
        end = time.monotonic() + 30
        while [*map(touched, arenas)] != wanted and time.monotonic() < end:
            time.sleep(0.02)
        time.sleep(0.5)
        return [*map(touched, arenas)] == wanted

    for aside, arena in zip(asides, arenas, strict=True):
        aside.bring(arena.memory())
    assert brought([each, most - each, 0])
    asides[0].leave_pages()
    asides[2].bring(arenas[2].memory())
    assert brought([each, most - each, each])


def test_steps_go_before_pages_and_pages_that_are_left_do_not_come(aside: Aside) -> None:
    arena = Arena(1 << 30)
    aside.bring(arena.memory())
    aside.run([(copying(), [NUMBERS[0], room()])])
    assert aside.wait() == [False]
    aside.leave_pages()
    before = touched(arena)
    time.sleep(0.05)
    assert touched(arena) == before < 1 << 30


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_a_forked_process_has_none_of_it() -> None:
    aside, step = Aside(), Held()
    aside.run([(step, [room()])])
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
    step.go.set()
    assert aside.wait() == [False]
