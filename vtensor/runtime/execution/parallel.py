"""Asking many things of libraries, on several threads where that takes long."""

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
    left, failed = iter(rows), list[T]()

    def work(until: float = inf) -> None:
        for row in left:
            if failed or not does(row):
                failed.append(row)
            if perf_counter() > until:
                return

    if not ALONE_S < takes < inf or threads == 1:
        until = perf_counter() + ALONE_S if threads > 1 else inf
        executor.planning(partial(work, until))
    if threads > 1 and not failed and length_hint(left):
        side_by_side(lambda _: executor.planning(work), range(threads), threads)
    return not failed


def side_by_side(work: Callable[[T], object], items: Sequence[T], threads: int) -> None:
    """Do the work on each item, on this thread and up to ``threads - 1`` others.

    A pool of the standard library cannot be imported once the main thread has ended.

    Raises:
        BaseException: the first that ``work`` raised; no thread then takes another item.
    """
    waiting, failed = iter(items), list[BaseException]()

    def go() -> None:
        try:
            for item in waiting:  # of a sequence: each is one thread's
                work(item)
                if failed:
                    return
        except BaseException as error:  # the caller gets it
            failed.append(error)

    others = [threading.Thread(target=go) for _ in range(threads - 1)]
    begun = list[threading.Thread]()
    with suppress(RuntimeError):  # no more threads are to be had: these do it all
        for one in others:
            one.start()
            begun.append(one)
    go()
    for one in begun:
        one.join()
    for error in failed:
        raise error
