"""Who makes a plan of a session: one thread at a time."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from time import sleep

from ptensor.stopping import Stopped, behind, giving_way, go_on
from vtensor.errors import NestedRunError
from vtensor.language.forks import OwnLock
from vtensor.runtime.deadlocks import Place

NESTED = (
    "a session makes a plan, and its progress callback runs it with what needs another plan\n"
    "  to fix: give the callback a Session of its own, or run this one after the plan is made"
)

#: Seconds until who waits looks whether it waits for itself, and how many looks have to agree: a
#: thread whose work queues where nobody comes to it looks, too, and goes elsewhere.
PATIENCE, LOOKS = 0.05, 10

#: Seconds until who gives way looks whether others have had their turn.
SOON = 0.001


class Turn:
    """A lock of threads that make plans.

    Attributes:
        place: the thread that has it.
    """

    def __init__(self) -> None:
        self.place = Place()
        self._waiting: dict[int, list[int]] = {}
        self._lock = OwnLock()

    @property
    def waiting(self) -> list[int]:
        """Threads of this process that want it: a forked child has none of the others."""
        return self._waiting.setdefault(os.getpid(), [])

    @contextmanager
    def taken(self) -> Iterator[None]:
        """Have it, after whoever else wants it.

        Raises:
            NestedRunError: the thread that has it is this one, or waits for it.
        """
        server, lock = self, self._lock.here  # a name that deadlocks.py looks for
        own, circles = threading.get_ident(), 0
        if not lock.acquire(blocking=False):
            waiting = self.waiting
            waiting.append(own)
            try:
                with behind():
                    while not lock.acquire(timeout=PATIENCE):
                        circles = circles + 1 if server.place.waits_for_caller() else 0
                        if self.place.ident == own or circles == LOOKS:
                            raise NestedRunError(NESTED)
            finally:
                waiting.remove(own)
        try:
            self.place.ident = threading.get_ident()
            yield
        finally:
            self.place.ident = 0
            lock.release()

    def ahead(self, work: Callable[[], None], times: int = 1) -> None:
        """Do what nobody waits for, in a turn. Who wants a plan meanwhile has it first, so often:
        once, since one plan is made sooner than what many are made of.

        Raises:
            Stopped: the work is not wanted any more.
        """
        for _ in range(times):
            with suppress(Stopped):
                with self.taken(), giving_way(self.waiting.copy):
                    work()
                return
            while self.waiting:  # who lets go of a lock and wants it again has it before others
                go_on()
                sleep(SOON)
        with self.taken():
            work()
