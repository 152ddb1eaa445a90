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

#: Seconds until who waits looks whether it waits for itself.
PATIENCE = 0.05


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
        held = lock.acquire(blocking=False)
        while not held:
            if self.place.ident == threading.get_ident() or server.place.waits_for_caller():
                raise NestedRunError(NESTED)
            held = lock.acquire(timeout=PATIENCE)
        try:
            self.place.ident = threading.get_ident()
            yield
        finally:
            self.place.ident = 0
            lock.release()
