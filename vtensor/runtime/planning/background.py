"""The background worker: one thread of the process, and its tasks.

A plan that may be off has a ``BackgroundTask``: a function that makes the plan that would take its
place.
It begins when the plan's runs have taken as long as a plan took to make in full, and no other plan
was made between them: a shape that comes a few times gains nothing, and while sizes grow with every
run, the work would only take time from runs. It runs on the process's one thread for such work.
Whoever keeps plans then exchanges the two: runs that are under way end on the plan that they have.
Where nothing better comes of it, for whatever reason, the plan stays, and says why.

What is for other processes is done by the same thread, once there is nothing else to do. It goes on
for a moment where nobody wants it here any more: behind the end of the process, since Python waits
for its threads, and by whoever closes a session.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from contextvars import copy_context
from math import inf
from time import monotonic, sleep
from typing import Any, Generic, NoReturn, TypeVar

from ptensor.background_work import Stopped, checkpoint, stopping
from vtensor.language.forks import OwnLock, process_lock
from vtensor.language.interrupts import pass_signals
from vtensor.runtime.execution.trim import let_go

T = TypeVar("T")

#: How much nicer than others the thread is: not by more, since others wait for Python's lock while
#: it is kept from running with that in hand.
NICE = 5


#: Seconds in which nothing new is to be done and nothing runs, until what is for other processes
#: begins; and in which nothing new is to be done, whatever runs. A new size may be next, and is not
#: to find the thread at that; and what is measured by then need not be written before it is.
REST_S, BUSY_S = 0.2, 5.0

#: Seconds until it is looked at whether that is so.
LOOKS_S = 0.01

#: What a plan says of itself that was chosen for other sizes.
UNPROVEN = "it is not proven the best for its sizes"


class PlanStays(Exception):  # it is no error: the plan stays
    """Nothing better was found, for a reason."""


class BackgroundTask(Generic[T]):
    """A plan that may take another one's place, once.

    Args:
        make: makes it; raises PlanStays where there is none.
        why: what the present plan lacks.
        hurries: as for ``stopping``.
        before_start: imports the modules that ``make`` needs, under the lock that forks wait for.
        for_other_processes: the work is for other processes; it begins when the thread is idle.
        grace_s: seconds for which such work may go on where nobody wants it any more here.

    Attributes:
        for_other_processes: the same.
        note: where it stands, in words.
        stays: the present plan keeps its place for good.
        done: nothing more comes of it.
    """

    def __init__(
        self,
        make: Callable[[], T],
        why: str,
        hurries: Callable[[], bool] | None = None,
        before_start: Callable[[], None] | None = None,
        *,
        for_other_processes: bool = False,
        grace_s: float = 0.0,
    ) -> None:
        self.for_other_processes, self._grace_s, self._until = for_other_processes, grace_s, inf
        self._make, self._why, self._hurries = make, why, hurries
        self._before_start = before_start or _nothing_else
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
            self._process, self._exchange = os.getpid(), exchange
            self.note = f"{self._why}; a better one is being made"
            _background.add(self)

    def now(self, exchange: Callable[[T], None]) -> None:
        """Make it on this thread, without a rest; or wait for the thread that is at it."""
        self._awaited = True
        if not self._process and not self._over:
            self._exchange = exchange
        copy_context().run(self.work)

    def stop(self) -> None:
        """Nobody wants it any more here; it goes on for as long as it lingers."""
        self._until = min(self._until, monotonic() + self._grace_s)
        self._over = self._over or not (self._process and self._grace_s)
        if not self._process:
            self._make = _nothing  # what makes it may hold much

    def finish(self) -> None:
        """Nobody wants it any more here: what lingers is done now, on this thread."""
        self.stop()
        if not self._over and self._process == os.getpid():
            self._awaited = True
            copy_context().run(self.work)

    def work(self) -> None:
        """Make it and hand it over, once; whatever goes wrong is noted."""
        with self._at_it.here:
            if not self.done:  # two threads may want it at the same time
                self._work()

    def _work(self) -> None:
        try:
            with stopping(self.is_over, self._hurries and self.hurries):
                checkpoint()
                self._before_start()
                made = self._make()
            self._exchange(made)
        except Stopped:
            self._stay("the session was closed before there was a better one")
        except PlanStays as why:
            self._stay(f"it stays: {why}")
        except Exception as error:  # of whatever a library raises: the plan that is there is right
            pass_signals(error)
            self._stay(f"it stays: {type(error).__name__}: {error}")
        self._end()

    def hurries(self) -> bool:
        """It need not rest just now."""
        return self._awaited or self._hurries is None or self._hurries()

    @property
    def ends(self) -> bool:
        """Nobody wants it any more here, whether it lingers or not."""
        return self._over or self._until < inf or _background.ended_s() is not None

    def is_over(self) -> bool:
        """It is not to go on."""
        ended_s = _background.ended_s()
        if ended_s is not None and ended_s >= self._grace_s:
            return True
        return self._over or monotonic() >= self._until

    def _stay(self, why: str) -> None:
        self.note, self.stays = f"{self._why}; {why}", True

    def _end(self) -> None:
        """Mark this work as done and release what it holds."""
        self._over = self.done = True
        self._make, self._exchange = _nothing, _ignored


def _nothing_else() -> None:
    """It is ready."""


def _nothing() -> NoReturn:
    raise PlanStays("it was made already")


def _ignored(made: object) -> None:
    """Nobody waits for it."""


class _Background:
    """One thread of the process at a time; it ends when there is nothing more to do."""

    def __init__(self) -> None:
        self._lock = process_lock()
        self._waiting: deque[BackgroundTask[Any]] = deque()
        self._thread: threading.Thread | None = None
        self._added = self._busy = 0.0  # when something was, and when runs were seen, the last time
        self._ended: float | None = None  # when the interpreter began to end
        try:
            threading._register_atexit(self._end)  # type: ignore[attr-defined]  # as pools do
        except RuntimeError:  # it ends already
            self._end()

    def _end(self) -> None:
        """Have no more work begin; called before the interpreter's end waits for threads.

        Under the lock: a thread that ``add`` starts meanwhile is waited for.
        """
        with self._lock:
            self._ended = monotonic()

    def ended_s(self) -> float | None:
        """Seconds since the interpreter began to end; None before."""
        return None if self._ended is None else monotonic() - self._ended

    def add(self, work: BackgroundTask[Any]) -> None:
        """Have it done after what waits already."""
        with self._lock:
            if self._thread is None or not self._thread.is_alive():  # or it is a parent's
                self._waiting.clear()
                thread = threading.Thread(target=self._work, name="vtensor-better", daemon=False)
                self._thread = thread
                with suppress(RuntimeError):  # no thread is available
                    if self._ended is None or _is_awaited(threading.current_thread()):
                        thread.start()
            self._waiting.append(work)
            self._added = monotonic()

    def _work(self) -> None:
        with suppress(OSError, AttributeError):  # where threads have no priority of their own
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICE)
        while self._waits():
            while (work := self._next()) is None:
                sleep(LOOKS_S)
            work.work()
            del work  # and what it was made of
            if not self._waiting:
                let_go()

    def _waits(self) -> bool:
        """Whether there is something to do; the thread ends where there is not."""
        with self._lock:
            if not self._waiting:
                self._thread = None
            return bool(self._waiting)

    def _next(self) -> BackgroundTask[Any] | None:
        """What is done next; None as long as that is only for others, and the process in use."""
        with self._lock:
            found = next((one for one in self._waiting if one.is_over()), None)
            found = found or next(
                (one for one in self._waiting if not one.for_other_processes), None
            )
            if found is None and self._rests(self._waiting[0]):
                found = self._waiting[0]
            if found is not None:
                self._waiting.remove(found)
            return found

    def _rests(self, work: BackgroundTask[Any]) -> bool:
        """Whether what is for others may begin."""
        now = monotonic()
        if not work.hurries():
            self._busy = now
        rests = min(now - self._added, now - self._busy) >= REST_S
        return work.ends or rests or now - self._added >= BUSY_S


def _is_awaited(caller: threading.Thread) -> bool:
    """Return whether the interpreter's end waits for a thread, and so for those that it starts.

    Handlers of ``atexit`` come afterwards, on the main thread.
    """
    return not (caller.daemon or caller is threading.main_thread())


_background = _Background()
