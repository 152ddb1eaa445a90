"""Who makes a plan of a session: one thread at a time."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

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


class Turn:
    """A lock of threads that make plans.

    Attributes:
        place: the thread that has it.
    """

    def __init__(self) -> None:
        self.place = Place()
        self._lock = OwnLock()

    @contextmanager
    def taken(self) -> Iterator[None]:
        """Have it, after whoever else wants it.

        Raises:
            NestedRunError: the thread that has it is this one, or waits for it.
        """
        server, lock = self, self._lock.here  # a name that deadlocks.py looks for
        held, circles = lock.acquire(blocking=False), 0
        while not held:
            circles = circles + 1 if server.place.waits_for_caller() else 0
            if self.place.ident == threading.get_ident() or circles == LOOKS:
                raise NestedRunError(NESTED)
            held = lock.acquire(timeout=PATIENCE)
        try:
            self.place.ident = threading.get_ident()
            yield
        finally:
            self.place.ident = 0
            lock.release()
