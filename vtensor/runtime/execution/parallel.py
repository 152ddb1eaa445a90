"""Parallel work: a function is applied to many items, on several threads if that takes long."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from math import inf
from operator import length_hint
from time import perf_counter
from typing import TypeVar

from vtensor.runtime.execution.executor import Executor

T = TypeVar("T")

#: Seconds for which work stays on one thread. A further thread would take a processor from a team
#: that runs.
ALONE_S = 0.003


def all_of(
    predicate: Callable[[T], bool],
    rows: Sequence[T],
    executor: Executor,
    threads: int,
    expected_s: float = 0.0,
) -> bool:
    """Return whether ``predicate`` is True for all of ``rows``; stop at the first False.

    The calling thread begins alone. Other threads join after ``ALONE_S`` seconds. If ``expected_s``
    is longer than that and finite, they join at once.

    Args:
        predicate: the function.
        rows: its arguments, one for each call.
        executor: the executor for whose number of threads primitives are compiled in the calls.
        threads: the most threads.
        expected_s: the estimated seconds of all calls together; 0 if unknown, infinity if one of
            the first calls is likely to return False.
    """
    left, failed = iter(rows), list[T]()

    def work(until: float = inf) -> None:
        for row in left:
            if failed or not predicate(row):
                failed.append(row)
            if perf_counter() > until:
                return

    if not ALONE_S < expected_s < inf or threads == 1:
        until = perf_counter() + ALONE_S if threads > 1 else inf
        executor.planning(partial(work, until))
    if threads > 1 and not failed and length_hint(left):
        side_by_side(lambda _: executor.planning(work), range(threads), threads)
    return not failed


def side_by_side(work: Callable[[T], object], items: Sequence[T], threads: int) -> None:
    """Call ``work`` with each item, on this thread and up to ``threads - 1`` others.

    No pool of the standard library is used: its module cannot be imported once the main thread has
    ended.

    Raises:
        BaseException: the first exception that a call raised. After it no thread takes another
            item.
    """
    waiting, failed = iter(items), list[BaseException]()

    def process_items() -> None:
        try:
            for item in waiting:  # an iterator: each item goes to one thread
                work(item)
                if failed:
                    return
        except BaseException as error:  # raised again on the calling thread
            failed.append(error)

    others = [threading.Thread(target=process_items) for _ in range(threads - 1)]
    begun = list[threading.Thread]()
    with suppress(RuntimeError):  # the system refuses more threads: the started ones do the work
        for thread in others:
            thread.start()
            begun.append(thread)
    process_items()
    for thread in begun:
        thread.join()
    for error in failed:
        raise error
