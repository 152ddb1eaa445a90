"""Executors: each is a thread that owns a team of kernel threads, and runs queue for it.

OpenMP keeps one thread team per calling thread, so runs from every Python thread would make a team
for each. An executor's thread therefore owns the team, and runs queue there. Plans are made on
their callers' threads, so that runs wait for runs only: compiling a primitive needs the number of
threads alone, and a step that planning executes queues like a short run.
"""

from __future__ import annotations

import contextvars
import os
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from vtensor.errors import InputError, SessionClosedError
from vtensor.language.process.forks import process_lock
from vtensor.runtime.execution.deadlocks import Place
from vtensor.runtime.execution.processors import available_threads, binding_quota

if TYPE_CHECKING:
    import numpy as np

    from ptensor.evaluation import Step
    from vtensor.runtime._replay import Program

    Array = np.ndarray[Any, Any]

T = TypeVar("T")

#: The most kernel threads of an executor, and the most streams of a session: the limit of the
#: native step runner.
MAX_THREADS = 1024


#: Values of each thread. ``executor`` is the executor whose own thread it is; ``planned`` is the
#: executor for which the thread makes plans. Other threads have neither.
_own = threading.local()


class Executor:
    """One thread that runs steps with a fixed number of kernel threads, its budget.

    A call-back step may run sessions with other budgets. The executor's thread then waits for the
    executors of these sessions. If that would close a cycle of waiting threads, a spare executor of
    the same budget does the work instead. A spare executor also serves a thread for which a
    call-back waits.

    Attributes:
        threads: the budget: the number of kernel threads.
        team: the native thread and its OpenMP team, which programs run on without Python.
        place: the identity of the executor's thread in Python, for the detection of deadlocks.
        stands_for: the executor in place of which this spare works, because that one's thread
            waits for the thread that asks for the work; else None.
    """

    _lock = process_lock()
    # Tables by (process id, number of kernel threads). ``_by_budget``: the first executor.
    # ``_known``: the executors that sessions share. ``_turns``: the index among these at which the
    # next session begins. ``_spare``: spare executors that are idle.
    _by_budget: dict[tuple[int, int], Executor] = {}  # noqa: RUF012  # shared on purpose
    _known: dict[tuple[int, int], list[Executor]] = {}  # noqa: RUF012
    _turns: dict[tuple[int, int], int] = {}  # noqa: RUF012
    _spare: dict[tuple[int, int], list[Executor]] = {}  # noqa: RUF012
    _awaited: dict[Executor, Executor] = {}  # noqa: RUF012  # the executor that each waits for

    def __init__(self, threads: int) -> None:
        from vtensor.runtime import _replay

        self.threads = threads
        self.place = Place()
        self.stands_for: Executor | None = None
        self._stopped, self._circular = _replay.Stopped, _replay.Circular
        try:
            self.team = _replay.Team(threads, f"vtensor-{threads}", self.place.waits_for_caller)
        except _replay.Stopped as error:
            raise _over(error) from error
        except _replay.NoThreads as error:
            raise InputError(
                f"threads={threads} is too many: {error}\n  to fix: give the session fewer "
                "threads=, or raise the limit (ulimit -u, the pids limit of a container)"
            ) from error
        self._process = os.getpid()

    @classmethod
    def of(cls, threads: int | None) -> Executor:
        """Return this process's first executor for a number of kernel threads.

        Args:
            threads: the number of kernel threads; None is every processor that the process may use.

        Raises:
            InputError: ``threads`` is out of range, or the system refuses that many threads.
            SessionClosedError: the interpreter is shutting down.
        """
        check_running()
        budget = budget_of(threads)
        with cls._lock:
            key = (os.getpid(), budget)  # a forked child has none of its parent's threads
            if key not in cls._by_budget:
                cls._by_budget[key] = cls(budget)
            return cls._by_budget[key]

    @classmethod
    def for_streams(cls, threads: int | None, streams: int) -> list[Executor]:
        """Return executors for a session's concurrent runs; they divide its threads equally.

        For each number of threads there are as many executors as processors allow, and sessions
        take these in rotation, so that sessions with few threads do not queue after one another.
        All executors obey the CPU quota that the process has now.

        Args:
            threads: the threads of all streams; None is every processor that the process may use.
            streams: the number of concurrent runs.

        Raises:
            InputError: ``threads`` or ``streams`` is out of range, or the system refuses that many
                threads.
            SessionClosedError: the interpreter is shutting down.
        """
        if (
            not isinstance(streams, int)
            or isinstance(streams, bool)
            or not 1 <= streams <= MAX_THREADS
        ):
            raise InputError(f"streams={streams!r} must be an integer from 1 to {MAX_THREADS}")
        available = available_threads()
        share = max(1, budget_of(available if threads is None else threads) // streams)
        check_running()
        from vtensor.runtime import _replay

        processors, period_us = binding_quota()
        _replay.limit_processors(processors, period_us * 1000)
        while True:
            try:
                return cls._turn(share, streams, available)
            except InputError:  # the system refuses that many threads
                if threads is not None or share == 1:
                    raise
                share //= 2

    @classmethod
    def _turn(cls, share: int, streams: int, available: int) -> list[Executor]:
        """Return ``streams`` executors of ``share`` threads each.

        Successive calls take the executors in rotation.

        Args:
            share, streams: the number of threads of each executor, and the number of executors.
            available: the number of threads that can run at once in this process.

        Raises:
            InputError: the system refuses that many threads.
        """
        first, key = cls.of(share), (os.getpid(), share)
        with cls._lock:
            known = cls._known.setdefault(key, [first])
            most = max(len(known), streams, available // share)
            begin = cls._turns.get(key, 0)
            places = [(begin + stream) % most for stream in range(streams)]
            while len(known) <= max(places):
                known.append(cls(share))
            cls._turns[key] = (begin + streams) % most
            return [known[place] for place in places]

    def run(self, function: Callable[[], T]) -> T:
        """Call a function on the executor's thread, in the caller's context; return its result.

        Raises:
            SessionClosedError: the interpreter is shutting down.
        """
        if os.getpid() != self._process:  # forked: the thread stayed in the parent
            return Executor.of(self.threads).run(function)
        if (here := getattr(_own, "executor", None)) is None:
            return self._call(function)
        with self._server_for(here) as server:
            return server._call(function)

    def planning(self, work: Callable[[], T]) -> T:
        """Run ``work`` on the calling thread as planning for this executor and return its result.

        Primitives are compiled for this executor's number of threads. Afterwards the number of
        threads and the context of the calling thread are what they were before.
        """
        from vtensor.runtime import _replay

        threads, outer = min(_replay.threads(), MAX_THREADS), getattr(_own, "planned", None)
        try:
            _replay.set_threads(self.threads)
            _own.planned = self
            return contextvars.copy_context().run(work)
        finally:
            _own.planned = outer
            _replay.set_threads(threads)

    @staticmethod
    @contextmanager
    def alone() -> Iterator[None]:
        """Let the calling thread run each step itself inside the block, on no other thread.

        Short steps are not worth a team: its threads would spin between them and occupy a processor
        each.
        """
        from vtensor.runtime import _replay

        threads, outer = _replay.threads(), getattr(_own, "planned", None)
        _replay.set_threads(1)
        _own.planned = None
        try:
            yield
        finally:
            _own.planned = outer
            _replay.set_threads(min(threads, MAX_THREADS))

    @staticmethod
    def run_step(step: Step, memory: Sequence[Array]) -> None:
        """Run a native step on the executor that the calling thread plans for.

        A thread that plans for none runs the step itself.

        Args:
            step: the step.
            memory: the memory of each slot.

        Raises:
            StepFailed: the step failed.
            TypeError, ValueError: the memory does not fit the step's slots.
        """
        from vtensor.runtime import _replay

        planned: Executor | None = getattr(_own, "planned", None)
        if planned is None:
            _replay.execute(step, memory)
        else:
            planned.run(lambda: _replay.execute(step, memory))

    def _call(self, function: Callable[[], T]) -> T:
        # ``server`` is a name that deadlocks.py searches for.
        context, server = contextvars.copy_context(), self

        def work() -> T:
            _own.executor, self.place.ident = self, threading.get_ident()
            return context.run(function)

        try:
            return server.team.call(work)
        except self._stopped as error:
            raise _over(error) from error
        except self._circular:
            with self._spared() as spare:
                return spare._call(function)

    @contextmanager
    def _spared(self) -> Iterator[Executor]:
        """Yield a spare executor with as many threads as this one.

        It does the work of this executor, whose own thread waits for the calling thread.
        """
        key = (os.getpid(), self.threads)
        with Executor._lock:
            spare = Executor._take_spare(key)
        spare.stands_for = self
        try:
            yield spare
        finally:
            spare.stands_for = None
            with Executor._lock:
                Executor._spare.setdefault(key, []).append(spare)

    @classmethod
    def _take_spare(cls, key: tuple[int, int]) -> Executor:
        """Return an idle spare executor or a new one; the caller holds the lock.

        Args:
            key: (process id, number of kernel threads of the spare executor).
        """
        spare = cls._spare.get(key)
        return spare.pop() if spare else cls(key[1])

    @contextmanager
    def _server_for(self, here: Executor) -> Iterator[Executor]:
        """Yield the executor that does the work given to this one while the thread of the executor
        ``here`` waits for the result.
        """
        key = (os.getpid(), self.threads)
        with Executor._lock:
            server = self._choose_server(here, key)
            if server is not here:
                Executor._awaited[here] = server
        try:
            yield server
        finally:
            with Executor._lock:
                Executor._awaited.pop(here, None)
                if server is not here and server is not self:
                    Executor._spare.setdefault(key, []).append(server)

    def _choose_server(self, here: Executor, key: tuple[int, int]) -> Executor:
        """Return the executor that does work given to this one by the thread of ``here``.

        It is this executor, unless this executor itself waits for ``here``, directly or through
        others. Then it is ``here`` if that has equally many threads, else a spare executor.

        Args:
            here: the executor whose thread calls.
            key: (process id, number of kernel threads of this executor).
        """
        if here.stands_for is self:
            return here
        awaiting: Executor | None = self
        while awaiting is not None and awaiting is not here:
            awaiting = Executor._awaited.get(awaiting)
        if awaiting is None:
            return self
        if here.threads == self.threads:
            return here
        return Executor._take_spare(key)

    def replay(
        self,
        program: Program,
        bindings: Sequence[object],
        times: object | None = None,
        sizes: Sequence[int] = (),
        queue: object | None = None,
        exponents: Sequence[tuple[int, int]] = (),
    ) -> bool:
        """Run a program on the executor's thread, without Python, and wait for it.

        Args:
            program: recorded steps.
            bindings: the memory of the run's inputs and outputs.
            times: receives the begin and the end of each step, in nanoseconds of the steady clock;
                None measures nothing.
            sizes: the program's run-time sizes; no plan makes a program with such sizes yet.
            queue: the queue of a device for the steps that work there; no plan has such steps yet.
            exponents: (bytes of an element, mask of its exponent bits) for each of ``bindings``, by
                which the run checks that all elements are finite; empty for no check.

        Returns:
            False if a checked element is not finite.

        Raises:
            StepFailed: a native step failed.
            SessionClosedError: the interpreter is shutting down.
        """
        return bool(self.served("run", program, bindings, times, sizes, queue, exponents))

    def served(self, method: Literal["run", "repeat"], *arguments: Any) -> Any:
        """Call a method of the team that does this executor's work; return its result.

        Raises:
            StepFailed: a native step failed.
            SessionClosedError: the interpreter is shutting down.
        """
        if os.getpid() != self._process:  # forked, as in ``run``
            return Executor.of(self.threads).served(method, *arguments)
        here, server = getattr(_own, "executor", None), self
        try:
            if here is None or here is self:
                return getattr(server.team, method)(*arguments)
            with self._server_for(here) as server:
                return getattr(server.team, method)(*arguments)
        except self._stopped as error:
            raise _over(error) from error
        except self._circular:
            with self._spared() as spare:
                return spare.served(method, *arguments)


def is_planning() -> bool:
    """Return whether the calling thread is inside ``Executor.planning``."""
    return getattr(_own, "planned", None) is not None


def budget_of(threads: int | None) -> int:
    """Check a number of kernel threads and return it; None becomes the number of processors that
    the process may use.

    Args:
        threads: the number; None is every processor that the process may use.

    Raises:
        InputError: ``threads`` is no integer from 1 to MAX_THREADS.
    """
    budget = available_threads() if threads is None else threads
    if not isinstance(budget, int) or isinstance(budget, bool) or not 1 <= budget <= MAX_THREADS:
        raise InputError(f"threads={threads!r} must be an integer from 1 to {MAX_THREADS}, or None")
    return budget


def check_running() -> None:
    """Check that the interpreter is not shutting down; during shutdown no import works.

    Raises:
        SessionClosedError: the interpreter is shutting down.
    """
    if sys.is_finalizing():
        raise SessionClosedError("nothing runs any more: the interpreter is shutting down")


def _over(error: Exception) -> SessionClosedError:
    return SessionClosedError(f"nothing runs any more: {error}")
