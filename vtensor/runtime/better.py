"""Better plans for later runs: made in the background, and exchanged between two runs.

A plan that may be off has a ``Better``: a function that makes the plan that would take its place.
It begins when the plan's runs have taken as long as a plan took to make in full, and no other plan
was made between them: a shape that comes a few times gains nothing, and while sizes grow with every
run, the work would only take time from runs. It runs on the process's one thread for such work.
Whoever keeps plans then exchanges the two: runs that are under way end on the plan that they have.
Where nothing better comes of it, for whatever reason, the plan stays, and says why.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from math import inf
from time import monotonic
from typing import Any, Generic, NoReturn, TypeVar

from ptensor.stopping import Stopped, go_on, stopping
from vtensor.language.forks import OwnLock, process_lock
from vtensor.runtime.leftovers import let_go

T = TypeVar("T")

#: How much nicer than others the thread is: not by more, since others wait for Python's lock while
#: it is kept from running with that in hand.
NICE = 5


#: What a plan says of itself that was chosen for other sizes.
UNPROVEN = "it is not proven the best for its sizes"


class NotBetter(Exception):  # it is no error: the plan stays
    """Nothing better was found, for a reason."""


class Better(Generic[T]):
    """A plan that may take another one's place, once.

    Args:
        make: makes it; raises NotBetter where there is none.
        why: what the present plan lacks.
        hurries: as for ``stopping``.
        ready: called where it is first wanted: imports what it needs, for a fork in the midst of
            that would leave it locked in the child.
        lingers_s: seconds for which it may go on where nobody wants it any more in this process,
            for others do.

    Attributes:
        note: where it stands, in words.
        stays: the present plan keeps its place for good.
        done: nothing more comes of it.
    """

    def __init__(
        self,
        make: Callable[[], T],
        why: str,
        hurries: Callable[[], bool] | None = None,
        ready: Callable[[], None] | None = None,
        lingers_s: float = 0.0,
    ) -> None:
        self.lingers_s, self._until = lingers_s, inf
        self._make, self._why, self._hurries = make, why, hurries
        self._ready = ready or _nothing_else
        self.note = f"{why}; a better one is made when it is used again"
        self.stays = False
        self._wait_s = self._ran_s = 0.0
        self._others = 0
        self._process = 0
        self._over = self.done = self._awaited = False
        self._at_it = OwnLock()
        self._exchange: Callable[[T], None] = _ignored

    def wait(self, seconds: float) -> None:
        """Begin when the plan's runs have taken so long, and no other was made meanwhile."""
        self._wait_s = seconds
        self.note = f"{self._why}; a better one is made when it has run for {seconds:.3f} s"

    def ran(self, seconds: float) -> None:
        """A run of the plan took so long."""
        self._ran_s += seconds

    def wanted(self, exchange: Callable[[T], None], others: int = 0) -> None:
        """The plan is asked for again: make the better one, unless that is under way or done, or
        is to wait.

        Args:
            exchange: gets it, on the thread that made it.
            others: how many plans were made so far; where there are more than at the last use,
                waiting begins anew.
        """
        if others != self._others:
            self._others, self._ran_s = others, 0.0
        if self._ran_s < self._wait_s:
            return
        if self._process != os.getpid() and not self._over:  # a fork has none of its threads
            self._ready()
            self._process, self._exchange = os.getpid(), exchange
            self.note = f"{self._why}; a better one is being made"
            _background.add(self)

    def now(self, exchange: Callable[[T], None]) -> None:
        """Make it on this thread, without a rest; or wait for the thread that is at it."""
        self._awaited = True
        if not self._process and not self._over:
            self._exchange = exchange
        self.work()

    def stop(self) -> None:
        """Nobody wants it any more here."""
        self._end()
        self._over = not self._process or not self.lingers_s
        if not self._process:
            self._make = _nothing  # what makes it may hold much

    def work(self) -> None:
        """Make it and hand it over, once; whatever goes wrong is noted."""
        with self._at_it.here:
            if not self.done:  # two threads may want it at the same time
                self._work()

    def _work(self) -> None:
        try:
            with stopping(self._is_over, self._hurries and self._in_hurry):
                go_on()
                made = self._make()
            self._exchange(made)
        except Stopped:
            self._stay("the session was closed before there was a better one")
        except NotBetter as why:
            self._stay(f"it stays: {why}")
        except Exception as error:  # of whatever a library raises: the plan that is there is right
            self._stay(f"it stays: {type(error).__name__}: {error}")
        finally:
            self._over = self.done = True
            self._make, self._exchange = _nothing, _ignored

    def _in_hurry(self) -> bool:
        return self._awaited or self._hurries is None or self._hurries()

    def _is_over(self) -> bool:
        if not threading.main_thread().is_alive():
            self._end()
        return self._over or monotonic() >= self._until

    def _end(self) -> None:
        self._until = min(self._until, monotonic() + self.lingers_s)

    def _stay(self, why: str) -> None:
        self.note, self.stays = f"{self._why}; {why}", True


def _nothing_else() -> None:
    """It is ready."""


def _nothing() -> NoReturn:
    raise NotBetter("it was made already")


def _ignored(made: object) -> None:
    """Nobody waits for it."""


class _Background:
    """One thread of the process at a time; it ends when there is nothing more to do."""

    def __init__(self) -> None:
        self._lock = process_lock()
        self._waiting: deque[Better[Any]] = deque()
        self._process = 0

    def add(self, work: Better[Any]) -> None:
        """Have it done after what waits already."""
        with self._lock:
            if self._process != os.getpid():  # it has ended, or is a parent's
                self._waiting.clear()
                thread = threading.Thread(target=self._work, name="vtensor-better")
                with suppress(RuntimeError):  # the interpreter is shutting down
                    thread.start()
                    self._process = os.getpid()
            self._waiting.append(work)

    def _work(self) -> None:
        with suppress(OSError, AttributeError):  # where threads have no priority of their own
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICE)
        while (work := self._next()) is not None:
            work.work()
            del work  # and what it was made of
            if not self._waiting:
                let_go()

    def _next(self) -> Better[Any] | None:
        with self._lock:
            if self._waiting:
                here = (one for one in self._waiting if not one.lingers_s)
                found = next(here, self._waiting[0])
                self._waiting.remove(found)
                return found
            self._process = 0
            return None


_background = _Background()
