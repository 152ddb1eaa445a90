"""Processes, and what fresh sessions answer to a row's inputs."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import pytest

from tests.planning import cells
from tests.planning.cells import TOLERANCE, Answer, Given, apart_by
from tests.planning.rows import GivenModel
from vtensor.language.graph import same_bytes

T = TypeVar("T")

#: Where pytest says which test runs.
TEST = "PYTEST_CURRENT_TEST"

#: Where two choices differ by more than the tolerance, it is to be at most so many times what the
#: last bits of the inputs change: each layer rounds, too.
ROUNDINGS = 8


def give_away(path: Path) -> None:
    """Make a file another user's."""
    if os.geteuid():
        pytest.skip("only root gives files away")
    os.chown(path, 1, -1)


def use_folder(folder: str) -> None:
    """Keep the timings of this process's sessions in a folder."""
    os.environ["VTENSOR_CACHE_DIR"] = folder


class Process:
    """A process that makes the calls it is given, one after the other; a crash is an error."""

    def __init__(self, pool: ProcessPoolExecutor) -> None:
        self._pool = pool

    def call(self, function: Callable[..., T], *given: Any, **named: Any) -> T:
        """Make a call, and wait for it."""
        return self.begin(function, *given, **named)()

    def begin(self, function: Callable[..., T], *given: Any, **named: Any) -> Callable[[], T]:
        """Begin a call; the function that is returned waits for it."""
        return self._pool.submit(_in_test, os.environ.get(TEST), function, given, named).result


def _in_test(test: str | None, function: Callable[..., T], given: Any, named: Any) -> T:
    """Make a call of a test, whose name the process has meanwhile."""
    if test is not None:
        os.environ[TEST] = test
    return function(*given, **named)


@contextmanager
def process(folder: Path) -> Iterator[Process]:
    """Start a process, in which no test has registered anything; it keeps timings in a folder."""
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, spawn, initializer=use_folder, initargs=(str(folder),)) as pool:
        yield Process(pool)


class Expected:
    """What fresh sessions answer for a row, each to one of its inputs.

    Args:
        name, model: the row, and its model.
        process: makes the sessions.
        count: how many sizes are drawn at random.
        options: of sessions, besides the row's.
    """

    def __init__(
        self, name: str, model: GivenModel, process: Process, count: int = 0, **options: Any
    ) -> None:
        self.name, self.model, self.count, self._process = name, model, count, process
        self.options = options
        self.answers = process.call(cells.fresh, name, model, count, **options)
        self.order = range(len(self.answers))
        self._digests = [cells.digest_of(answer.given) for answer in self.answers]

    def visit(
        self,
        process: Process,
        cache: Path | None,
        cell: str,
        order: Any = None,
        looks: bool = False,
        **named: Any,
    ) -> Answer:
        """Have a session run the inputs, and compare what it answers; return its first answer.

        Args:
            process, cache, named: makes the session; its cache and options.
            cell: says in errors which it is.
            order: numbers of inputs; None is all.
            looks: compare what is said of all plans, also where each bit of the answers is right.
        """
        order = self.order if order is None else order
        named |= self.options
        about = self.name, self.model, cache, order, self.count, () if looks else self._digests
        answers = process.call(cells.visit, *about, **named)
        self.check_all(answers, cell)
        return answers[order[0]]

    def check_all(self, answers: Mapping[int, Answer], cell: str) -> None:
        """Compare what a session answers to each of the inputs."""
        for at, answer in answers.items():
            same = answer.choice is not None and answer.choice == self.answers[at].choice
            self.check(at, answer.given, cell, same)
            self.check(at, answer.again, f"{cell}, again", same)
            assert not same or answer.told == self.answers[at].told, f"{cell}, input {at}"
            if answer.origin is not None:
                assert answer.origin_again is not None
                assert answer.origin_again.way == "in memory", f"{self.name}, {cell}, input {at}"

    def check(self, at: int, given: Given, cell: str, same: bool = False) -> None:
        """Compare what a run gives; to the bit if the same was chosen."""
        wanted, where = self.answers[at].given, f"{self.name}, {cell}, input {at}"
        apart = apart_by(given, wanted)
        if isinstance(given, tuple) or isinstance(wanted, tuple):
            assert given == wanted, where
        elif same:
            assert all(map(same_bytes, given, wanted)), f"{where}: other bits, {apart:.2g} apart"
        elif not apart <= TOLERANCE:
            plain, moved = self._process.call(cells.rounding, self.name, self.model, at, self.count)
            assert apart <= ROUNDINGS * apart_by(moved, plain), f"{where}: {apart:.2g} apart"
