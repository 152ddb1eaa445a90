"""Work that nobody waits for: it leaves room to runs, and ends where it is not wanted any more.

The handler of a signal may raise an exception between any two calls, also between entering a block
and its first line. So what threads share is changed by functions that get the work of the block
(``in_front``). A ``with`` statement may only change the context of the calling thread, in a copy
that nobody has afterwards (``BackgroundTask.now``, ``Executor.planning``).
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

#: Behind so many seconds of a processor's time work rests for so many times as long, though not for
#: longer than some: next to runs one after another it takes a fifth of one processor.
WORKS_S, RESTS, LONGEST_S = 0.005, 4, 0.1

#: The same of work that may be in a hurry: somebody may soon wait for it, so it takes half of one.
HURRIED_RESTS = 1

#: Seconds until work that may be in a hurry looks whether it is.
LOOKS_S = 0.002


class _Work:
    """Work that nobody waits for.

    Args:
        over: whether it is not wanted any more.
        hurries: whether it need not rest just now, if that is ever so.
    """

    def __init__(self, over: Callable[[], bool], hurries: Callable[[], bool] | None) -> None:
        self.over, self.hurries = over, hurries
        self._since = thread_time()

    def let_pass(self) -> None:
        """Rest while somebody waits for what is done in front, though not for ever: that may need
        what this work has.
        """
        left = LONGEST_S
        while left > 0 and _threads_in_front() and not self.over():
            sleep(LOOKS_S)
            left -= LOOKS_S

    def leave_room(self) -> None:
        """Rest, where there was enough work since the last rest."""
        worked = thread_time() - self._since
        if worked < WORKS_S:
            return
        if self.hurries is None:
            sleep(min(RESTS * worked, LONGEST_S))
        else:
            left = min(HURRIED_RESTS * worked, LONGEST_S)
            while left > 0 and not self.hurries():
                sleep(min(left, LOOKS_S))
                left -= LOOKS_S
        self._since = thread_time()


_work: ContextVar[_Work | None] = ContextVar("vtensor_work", default=None)

#: The threads that are in front, by process: a forked child has none of its parent's.
_front: dict[int, set[int]] = {}


def _threads_in_front() -> set[int]:
    return _front.setdefault(os.getpid(), set())


class Stopped(BaseException):  # past whoever goes on where a library refuses a call
    """The work in this context is not wanted any more."""


@contextmanager
def stopping(over: Callable[[], bool], hurries: Callable[[], bool] | None = None) -> Iterator[None]:
    """Inside the block, work ends as soon as a function says that it is over, and rests often.

    Args:
        over: whether it is not wanted any more.
        hurries: whether it need not rest just now: nobody is in its way, or somebody waits for it.
    """
    token = _work.set(_Work(over, hurries))
    try:
        yield
    finally:
        _work.reset(token)


def in_front(work: Callable[[], T]) -> T:
    """Run ``work``, for which somebody waits, and return its result.

    Python runs one thread at a time, so that background work rests meanwhile.
    """
    threads, own = _threads_in_front(), threading.get_ident()
    if _work.get() is not None or own in threads:
        return work()
    try:
        threads.add(own)
        return work()
    finally:
        threads.discard(own)


def behind(work: Callable[[], T]) -> T:
    """Run ``work``, which waits for other threads, perhaps for background work, and return its
    result.
    """
    threads, own = _threads_in_front(), threading.get_ident()
    if own not in threads:
        return work()
    try:
        threads.discard(own)
        return work()
    finally:
        threads.add(own)


@contextmanager
def giving_way(wanted: Callable[[], object]) -> Iterator[None]:
    """Inside the block, work that nobody waits for ends, too, as soon as somebody wants its place.

    Args:
        wanted: whether somebody does.
    """
    work = _work.get()
    if work is None:
        yield
        return
    with stopping(lambda: work.over() or bool(wanted()), work.hurries):
        yield


@contextmanager
def in_no_hurry() -> Iterator[None]:
    """Inside the block, work that may be in a hurry is not: it rests as long as other work."""
    work = _work.get()
    if work is None:
        yield
        return
    with stopping(work.over):
        yield


def checkpoint() -> None:
    """Return where the work is still wanted, and others have had their turn.

    Raises:
        Stopped: it is not.
    """
    work = _work.get()
    if work is not None:
        work.let_pass()
        if work.over():
            raise Stopped
        work.leave_room()


def nobody_waits() -> bool:
    """Whether the work in this context is such: then it queues in small parts, between runs."""
    return _work.get() is not None
