"""The background worker: one thread of the process, and its tasks.

A plan that may not be the best has a ``BackgroundTask``: a function that makes a better plan. The
task begins when two conditions hold: the plan's runs have taken as long as planning takes in full,
and no other plan was made between them. A shape that comes only a few times gains nothing from the
task; and while sizes grow with every run, the task would only take time from runs. When the task
has made the new plan, the plan store replaces the old plan by it, and current runs end on the old
plan. If the task fails for any reason, the old plan stays, and the note of the task says why.

Other tasks save choices for other processes. They begin when the worker is idle. They keep running
for a grace period after the session is closed or the process ends, since Python waits for its
threads.
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
from vtensor.language.process.forks import OwnLock, process_lock
from vtensor.language.process.interrupts import pass_signals
from vtensor.runtime.execution.trim import trim_memory

T = TypeVar("T")

#: Nice value (lower priority) of the worker thread. A larger one would delay other threads: they
#: wait for Python's lock while the worker holds it but is not scheduled.
NICE = 5

#: Delays, in seconds, before tasks for other processes begin: since the last run and the last new
#: task; and, if runs go on, since the last new task alone. If a new shape comes within the delay,
#: the worker is idle, and choices that are measured meanwhile are saved only once.
IDLE_DELAY_S, MAX_DELAY_S = 0.2, 5.0

#: Interval, in seconds, at which the worker checks whether tasks for other processes may begin.
IDLE_POLL_S = 0.01

#: The note of a plan whose choice was made for other sizes.
UNPROVEN = "it is not proven the best for its sizes"


class PlanStays(Exception):  # no error: the plan stays
    """No better plan was found; the message says why."""


class BackgroundTask(Generic[T]):
    """A function that runs once in the background. Its result, such as a better plan, is passed to
    an exchange function.

    Args:
        make: returns the result; raises PlanStays if there is no better plan.
        why: what the present plan lacks. Each note of the task begins with this text.
        hurries: returns True if the task need not sleep now to let runs go first; None if it always
            has to sleep.
        before_start: imports the modules that ``make`` needs, while it holds the lock for which a
            fork of the process waits.
        for_other_processes: True if only other processes use the result; the task begins when the
            worker is idle.
        grace_s: seconds for which the task may keep running after ``stop``.

    Attributes:
        for_other_processes: the argument of that name.
        note: the state of the task, in words.
        stays: True if the task has ended without a better plan, so that the present plan is not
            replaced.
        done: True if the task has ended.
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
        self._before_start = before_start or _no_imports
        self.note = f"{why}; a better one is made when it is used again"
        self.stays = False
        self._wait_s = self._ran_s = 0.0
        self._others = 0
        self._process = 0
        self._over = self.done = self._awaited = False
        self._work_lock = OwnLock()
        self._exchange: Callable[[T], None] = _drop_result

    def wait(self, seconds: float) -> None:
        """Delay the task. ``wanted`` then queues it only after the plan's runs have taken a certain
        time together.

        Args:
            seconds: that time. The sum of the runs' times begins again at 0 whenever another plan
                is made.
        """
        self._wait_s = seconds
        self.note = f"{self._why}; a better one is made when it has run for {seconds:.3f} s"

    def ran(self, seconds: float) -> None:
        """Add the seconds of a run to the total time of the plan's runs, which ends the delay of
        the task.
        """
        self._ran_s += seconds

    def wanted(self, exchange: Callable[[T], None], others: int = 0) -> None:
        """Note that the plan is used again, and queue the task.

        Does nothing if the task is queued, done or still delayed.

        Args:
            exchange: called with the result of the task, on the thread that made the result.
            others: the number of plans made so far. If it has grown since the last use, the delay
                begins again.
        """
        if others != self._others:
            self._others, self._ran_s = others, 0.0
        if self._ran_s < self._wait_s:
            return
        if self._process != os.getpid() and not self._over:  # a forked child has no worker thread
            self._process, self._exchange = os.getpid(), exchange
            self.note = f"{self._why}; a better one is being made"
            _background.add(self)

    def now(self, exchange: Callable[[T], None]) -> None:
        """Run the task on this thread without sleeping, or wait for the thread that runs it.

        Args:
            exchange: called with the result. If the task was queued before, the function given then
                is called instead.
        """
        self._awaited = True
        if not self._process and not self._over:
            self._exchange = exchange
        copy_context().run(self.work)

    def stop(self) -> None:
        """Stop the task at its next checkpoint.

        If the task was queued and has a grace period, it may run to the end of that period.
        """
        self._until = min(self._until, monotonic() + self._grace_s)
        self._over = self._over or not (self._process and self._grace_s)
        if not self._process:
            self._make = _made_already  # the function may hold large objects

    def finish(self) -> None:
        """Stop the task.

        If it was queued and has a grace period, it is run now, on the calling thread.
        """
        self.stop()
        if not self._over and self._process == os.getpid():
            self._awaited = True
            copy_context().run(self.work)

    def work(self) -> None:
        """Call ``make`` and pass its result to the exchange function, unless the task is done.

        An error ends the task and becomes the note.
        """
        with self._work_lock.here:
            if not self.done:  # another thread may have run it meanwhile
                self._work()

    def _work(self) -> None:
        try:
            with stopping(self.is_over, self._hurries and self.hurries):
                checkpoint()
                self._before_start()
                result = self._make()
            self._exchange(result)
        except Stopped:
            self._stay("the session was closed before there was a better one")
        except PlanStays as why:
            self._stay(f"it stays: {why}")
        except Exception as error:  # libraries raise any kind; the present plan is right
            pass_signals(error)
            self._stay(f"it stays: {type(error).__name__}: {error}")
        self._end()

    def hurries(self) -> bool:
        """Return whether the task need not sleep now to let runs go first.

        That holds if a caller waits for the task, or if the constructor's ``hurries`` returns True
        or is None.
        """
        return self._awaited or self._hurries is None or self._hurries()

    @property
    def ends(self) -> bool:
        """True if the task was stopped or the process ends; it may be in its grace period."""
        return self._over or self._until < inf or _background.ended_s() is not None

    def is_over(self) -> bool:
        """Return whether the task must not continue: it is done, or its grace period is over."""
        ended_s = _background.ended_s()
        if ended_s is not None and ended_s >= self._grace_s:
            return True
        return self._over or monotonic() >= self._until

    def _stay(self, why: str) -> None:
        self.note, self.stays = f"{self._why}; {why}", True

    def _end(self) -> None:
        """Mark the task as done and release the objects that it holds."""
        self._over = self.done = True
        self._make, self._exchange = _made_already, _drop_result


def _no_imports() -> None:
    """Do nothing: the task needs no imports."""


def _made_already() -> NoReturn:
    raise PlanStays("it was made already")


def _drop_result(result: object) -> None:
    """Drop the result of a task that has no exchange."""


class _Background:
    """The worker thread of the process; it ends when no task is left."""

    def __init__(self) -> None:
        self._lock = process_lock()
        self._waiting: deque[BackgroundTask[Any]] = deque()
        self._thread: threading.Thread | None = None
        self._added = self._busy = 0.0  # times of the last new task and of the last observed run
        self._ended: float | None = None  # when the interpreter began to end
        try:
            threading._register_atexit(self._end)  # type: ignore[attr-defined]  # as thread pools do
        except RuntimeError:  # the interpreter ends already
            self._end()

    def _end(self) -> None:
        """Note that the interpreter begins to end, before it waits for threads. From now on a task
        runs only in its grace period.

        The lock is held: the interpreter waits for a thread that a concurrent call of ``add`` has
        started. Later calls start a thread only if the interpreter waits for the calling thread.
        """
        with self._lock:
            self._ended = monotonic()

    def ended_s(self) -> float | None:
        """Return the seconds since the interpreter began to end; None before."""
        return None if self._ended is None else monotonic() - self._ended

    def add(self, work: BackgroundTask[Any]) -> None:
        """Queue a task, and start the thread if there is none."""
        with self._lock:
            if self._thread is None or not self._thread.is_alive():  # it stayed in the parent
                self._waiting.clear()
                name = "vtensor-background"
                thread = threading.Thread(target=self._work, name=name, daemon=False)
                self._thread = thread
                with suppress(RuntimeError):  # no thread is available
                    if self._ended is None or _is_awaited(threading.current_thread()):
                        thread.start()
            self._waiting.append(work)
            self._added = monotonic()

    def _work(self) -> None:
        with suppress(OSError, AttributeError):  # if threads have no priority of their own
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICE)
        while self._has_tasks():
            while (work := self._next()) is None:
                sleep(IDLE_POLL_S)
            work.work()
            del work  # releases the objects that the task holds
            if not self._waiting:
                trim_memory()

    def _has_tasks(self) -> bool:
        """Return whether a task is queued; the thread ends if not."""
        with self._lock:
            if not self._waiting:
                self._thread = None
            return bool(self._waiting)

    def _next(self) -> BackgroundTask[Any] | None:
        """Remove the next task that may begin now from the queue and return it; None without one.

        Stopped tasks come first, then tasks for this process.
        """
        with self._lock:
            task = next((queued for queued in self._waiting if queued.is_over()), None)
            task = task or next(
                (queued for queued in self._waiting if not queued.for_other_processes), None
            )
            if task is None and self._may_begin(self._waiting[0]):
                task = self._waiting[0]
            if task is not None:
                self._waiting.remove(task)
            return task

    def _may_begin(self, work: BackgroundTask[Any]) -> bool:
        """Return whether a task whose result only other processes use may begin now.

        It may begin in three cases:

        - it was stopped, or the process ends;
        - for ``IDLE_DELAY_S`` there was neither a run nor a new task;
        - for ``MAX_DELAY_S`` there was no new task.
        """
        now = monotonic()
        if not work.hurries():
            self._busy = now
        rests = min(now - self._added, now - self._busy) >= IDLE_DELAY_S
        return work.ends or rests or now - self._added >= MAX_DELAY_S


def _is_awaited(caller: threading.Thread) -> bool:
    """Return whether the interpreter's end waits for the thread ``caller`` and for threads that it
    starts.

    False for the main thread: if it starts a thread in an ``atexit`` handler, the interpreter no
    longer waits for that thread.
    """
    return not (caller.daemon or caller is threading.main_thread())


_background = _Background()
