"""The planning lock of a session: one thread at a time makes a plan."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from time import sleep
from typing import TypeVar, cast

from ptensor.background_work import Stopped, behind, checkpoint, giving_way
from vtensor.errors import NestedRunError
from vtensor.language.process.forks import OwnLock, locked
from vtensor.runtime.execution.deadlocks import Place

T = TypeVar("T")

NESTED_PLANNING = (
    "a session makes a plan, and its progress callback runs it with what needs another plan\n"
    "  to fix: give the callback a Session of its own, or run this one after the plan is made"
)

#: Interval, in seconds, at which a waiting thread checks for a deadlock; and the number of
#: successive checks that have to find one.
POLL_S, DEADLOCK_CHECKS = 0.05, 10

#: Interval, in seconds, at which background work that let requests for plans go first checks
#: whether they are done.
YIELD_POLL_S = 0.001


class PlanningLock:
    """A lock for threads that make plans.

    Attributes:
        place: the thread that holds the lock.
    """

    def __init__(self) -> None:
        self.place = Place()
        self._waiting: dict[int, set[int]] = {}
        self._lock = OwnLock()

    @property
    def waiting(self) -> set[int]:
        """Identifiers of the threads of this process that wait for the lock."""
        return self._waiting.setdefault(os.getpid(), set())

    def take(self, work: Callable[[], T]) -> T:
        """Run ``work`` under the lock and return its result.

        Raises:
            NestedRunError: this thread holds the lock, or the holder waits for this thread.
        """
        lock, ident = self._lock.here, threading.get_ident()
        if lock._is_owned():  # type: ignore[attr-defined]  # as ``Condition`` does
            raise NestedRunError(NESTED_PLANNING)

        def taken() -> T:
            try:
                self.place.ident = ident
                return work()
            finally:
                self.place.ident = 0

        return cast("T", locked(lock, partial(self._acquire, lock), taken))

    def _acquire(self, lock: threading.RLock) -> bool:
        """Acquire the lock, however long that takes, and return True.

        Raises:
            NestedRunError: the holder waits for this thread.
        """
        if lock.acquire(blocking=False):
            return True
        waiting, ident = self.waiting, threading.get_ident()
        try:
            waiting.add(ident)
            return behind(partial(self._wait, lock))
        finally:
            waiting.discard(ident)

    def _wait(self, lock: threading.RLock) -> bool:
        server, circles = self, 0  # ``server`` is a name that deadlocks.py searches for
        while not lock.acquire(timeout=POLL_S):
            circles = circles + 1 if server.place.waits_for_caller() else 0
            if circles == DEADLOCK_CHECKS:
                raise NestedRunError(NESTED_PLANNING)
        return True

    def run_background(self, work: Callable[[], None], times: int = 1) -> None:
        """Run background work under the lock, but let threads that request a plan take the lock
        first.

        Args:
            work: the work. It stops at its next checkpoint if another thread waits for the lock,
                and is called again afterwards.
            times: the number of times that the work may be stopped so. The call after that runs to
                its end.

        Raises:
            Stopped: the background task was stopped.
        """

        def yielding() -> None:
            with giving_way(self.waiting.copy):
                work()

        for _ in range(times):
            with suppress(Stopped):
                return self.take(yielding)
            while self.waiting:  # a thread that takes the lock again at once would overtake them
                checkpoint()
                sleep(YIELD_POLL_S)
        return self.take(work)
