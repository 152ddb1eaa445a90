"""Background work: it sleeps while foreground work runs, and stops once it is not wanted any more.

Foreground work is work whose result a caller waits for (``in_front``). Background work runs in a
block of ``stopping``; mostly nobody waits for its result.

The handler of a signal may raise an exception between any two calls, also between entering a block
and its first line. State that threads share is therefore changed by functions that take the work as
an argument (``in_front``), not by ``with`` statements. A ``with`` statement may only change the
context of the calling thread, in a copy that is dropped afterwards (``BackgroundTask.now``,
``Executor.planning``).
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from time import sleep, thread_time
from typing import TypeVar

T = TypeVar("T")

#: After WORK_S seconds of CPU time, background work sleeps SLEEP_FACTOR times as long as it worked,
#: at most LONGEST_SLEEP_S seconds. Next to back-to-back runs it thus uses a fifth of one processor.
WORK_S, SLEEP_FACTOR, LONGEST_SLEEP_S = 0.005, 4, 0.1

#: Poll interval of sleeping work, in seconds.
POLL_S = 0.002


class _BackgroundWork:
    """State of the background work that runs in one context.

    Args:
        over: returns True once the work is not wanted any more.
        hurries: returns True while the work need not sleep after it has worked; None if it always
            has to.
    """

    def __init__(self, over: Callable[[], bool], hurries: Callable[[], bool] | None) -> None:
        self.over, self.hurries = over, hurries
        self._since = thread_time()

    def yield_to_foreground(self) -> None:
        """Sleep while foreground work runs, at most LONGEST_SLEEP_S seconds.

        The limit is needed: the foreground work may be waiting for a lock that this work holds.
        """
        left = LONGEST_SLEEP_S
        while left > 0 and _threads_in_front() and not self.over():
            sleep(POLL_S)
            left -= POLL_S

    def sleep_after_work(self) -> None:
        """Sleep if this thread has used WORK_S seconds of CPU time since the last sleep."""
        worked = thread_time() - self._since
        if worked < WORK_S:
            return
        left = min(SLEEP_FACTOR * worked, LONGEST_SLEEP_S)
        while left > 0 and not (self.hurries and self.hurries()):
            sleep(min(left, POLL_S))
            left -= POLL_S
        self._since = thread_time()


_work: ContextVar[_BackgroundWork | None] = ContextVar("vtensor_work", default=None)

#: Ids of the threads that do foreground work, by process id, since a forked child has none of the
#: threads of its parent.
_foreground_threads: dict[int, set[int]] = {}


def _threads_in_front() -> set[int]:
    """Return the set of ids of this process's foreground threads: the set itself, not a copy."""
    return _foreground_threads.setdefault(os.getpid(), set())


class Stopped(
    BaseException
):  # no Exception: code that handles a library's refusal must not catch it
    """Raised by ``checkpoint`` if the background work of this context is not wanted any more."""


@contextmanager
def stopping(over: Callable[[], bool], hurries: Callable[[], bool] | None = None) -> Iterator[None]:
    """Run the block as background work, which sleeps often and stops once ``over`` returns True.

    Args:
        over: returns True once the work is not wanted any more.
        hurries: returns True while the work need not sleep after it has worked: no run is in
            progress, or somebody waits for the work's result. None if it always has to sleep.
    """
    token = _work.set(_BackgroundWork(over, hurries))
    try:
        yield
    finally:
        _work.reset(token)


def in_front(work: Callable[[], T]) -> T:
    """Run ``work`` as foreground work and return its result, for which the caller waits.

    Background work sleeps meanwhile, since Python runs one thread at a time. If the caller is
    itself background work, ``work`` stays in the background.
    """
    threads, thread_id = _threads_in_front(), threading.get_ident()
    if _work.get() is not None or thread_id in threads:
        return work()
    try:
        threads.add(thread_id)
        return work()
    finally:
        threads.discard(thread_id)


def behind(work: Callable[[], T]) -> T:
    """Run ``work``, and do not count this thread as foreground work meanwhile.

    ``work`` waits for other threads. These may run background work, which sleeps while any thread
    is in the foreground.

    Returns:
        The result of ``work``.
    """
    threads, thread_id = _threads_in_front(), threading.get_ident()
    if thread_id not in threads:
        return work()
    try:
        threads.discard(thread_id)
        return work()
    finally:
        threads.add(thread_id)


@contextmanager
def giving_way(wanted: Callable[[], object]) -> Iterator[None]:
    """Stop background work inside the block once ``wanted()`` is true, or for its own reason.

    Args:
        wanted: returns a true value if a request waits for something that the background work
            holds, such as a lock.
    """
    work = _work.get()
    if work is None:
        yield
        return
    with stopping(lambda: work.over() or bool(wanted()), work.hurries):
        yield


@contextmanager
def in_no_hurry() -> Iterator[None]:
    """Ignore ``hurries`` of background work inside the block: the work sleeps after it has worked,
    even if it is urgent.
    """
    work = _work.get()
    if work is None:
        yield
        return
    with stopping(work.over):
        yield


def checkpoint() -> None:
    """Let background work pause, or stop it. Called often by code that may be background work.

    Sleep while foreground work runs, and after some CPU time has been used. Outside background work
    the call returns at once.

    Raises:
        Stopped: the background work of this context is not wanted any more.
    """
    work = _work.get()
    if work is not None:
        work.yield_to_foreground()
        if work.over():
            raise Stopped
        work.sleep_after_work()


def nobody_waits() -> bool:
    """Return whether this context runs background work.

    Background work goes to the executor in small parts, so that runs pass in between. A caller may
    wait for its result all the same (``hurries`` of ``stopping``).
    """
    return _work.get() is not None
