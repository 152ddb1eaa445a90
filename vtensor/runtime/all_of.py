"""Asking many things of libraries, on several threads where that takes long."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf
from operator import length_hint
from threading import main_thread
from time import perf_counter
from typing import TypeVar

from vtensor.runtime.executor import Executor

T = TypeVar("T")

#: What takes no longer is worth no further threads: they take processors from a team that runs.
ALONE_S = 0.003


def all_of(
    does: Callable[[T], bool],
    rows: Sequence[T],
    executor: Executor,
    threads: int,
    takes: float = 0.0,
) -> bool:
    """Whether a function says yes to all rows: on several threads where that takes long, until it
    says no.

    Args:
        does: the function.
        rows: what it is asked of.
        executor: for which the primitives are that it makes.
        threads: how many ask.
        takes: how many seconds that is likely to take; 0 where nobody knows, infinity where one of
            the first is likely to say no.
    """
    if not main_thread().is_alive():
        threads = 1  # the interpreter is shutting down: no pool begins any more
    left, failed = iter(rows), list[T]()

    def work(until: float = inf) -> None:
        with executor.planning():
            for row in left:
                if failed or not does(row):
                    failed.append(row)
                if perf_counter() > until:
                    return

    if not ALONE_S < takes < inf or threads == 1:
        work(perf_counter() + ALONE_S if threads > 1 else inf)
    if threads > 1 and not failed and length_hint(left):
        from concurrent.futures import ThreadPoolExecutor

        with ThreadPoolExecutor(threads - 1) as pool:
            others = [pool.submit(work) for _ in range(threads - 1)]
            work()
            for one in others:
                one.result()
    return not failed
