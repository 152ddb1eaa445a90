"""Who makes a plan of a session: one thread at a time."""

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
from vtensor.language.forks import OwnLock, locked
from vtensor.runtime.execution.deadlocks import Place

T = TypeVar("T")

NESTED = (
    "a session makes a plan, and its progress callback runs it with what needs another plan\n"
    "  to fix: give the callback a Session of its own, or run this one after the plan is made"
)

#: Seconds until who waits looks whether it waits for itself, and how many looks have to agree: a
#: thread whose work queues where nobody comes to it looks, too, and goes elsewhere.
PATIENCE, LOOKS = 0.05, 10

#: Seconds until who gives way looks whether others have had their turn.
SOON = 0.001


class PlanningLock:
    """A lock of threads that make plans.

    Attributes:
        place: the thread that has it.
    """

    def __init__(self) -> None:
        self.place = Place()
        self._waiting: dict[int, set[int]] = {}
        self._lock = OwnLock()

    @property
    def waiting(self) -> set[int]:
        """Threads of this process that want it: a forked child has none of the others."""
        return self._waiting.setdefault(os.getpid(), set())

    def take(self, work: Callable[[], T]) -> T:
        """Run ``work`` in a turn, after the turns of other threads, and return its result.

        Raises:
            NestedRunError: the thread whose turn it is is this one, or waits for it.
        """
        lock, own = self._lock.here, threading.get_ident()
        if lock._is_owned():  # type: ignore[attr-defined]  # as the standard library asks
            raise NestedRunError(NESTED)

        def taken() -> T:
            try:
                self.place.ident = own
                return work()
            finally:
                self.place.ident = 0

        return cast("T", locked(lock, partial(self._acquire, lock), taken))

    def _acquire(self, lock: threading.RLock) -> bool:
        """Acquire the lock, however long that takes, and return True."""
        if lock.acquire(blocking=False):
            return True
        waiting, own = self.waiting, threading.get_ident()
        try:
            waiting.add(own)
            return behind(partial(self._wait, lock))
        finally:
            waiting.discard(own)

    def _wait(self, lock: threading.RLock) -> bool:
        server, circles = self, 0  # a name that deadlocks.py looks for
        while not lock.acquire(timeout=PATIENCE):
            circles = circles + 1 if server.place.waits_for_caller() else 0
            if circles == LOOKS:
                raise NestedRunError(NESTED)
        return True

    def ahead(self, work: Callable[[], None], times: int = 1) -> None:
        """Do what nobody waits for, in a turn. Who wants a plan meanwhile has it first, so often:
        once, since one plan is made sooner than what many are made of.

        Raises:
            Stopped: the work is not wanted any more.
        """

        def give_way() -> None:
            with giving_way(self.waiting.copy):
                work()

        for _ in range(times):
            with suppress(Stopped):
                return self.take(give_way)
            while self.waiting:  # who lets go of a lock and wants it again has it before others
                checkpoint()
                sleep(SOON)
        return self.take(work)
