"""The thread that owns the kernels' threads.

The OpenMP run-time keeps one team a calling thread, so a run from every Python thread would make a
team for each. An executor's thread owns the team, and runs queue there. Plans are made on
their callers' threads, so that runs wait for runs only: a number of threads is all that primitives
need to know of the team, and what a plan has to execute meanwhile queues as short runs do.
"""

from __future__ import annotations

import contextvars
import os
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from vtensor.errors import InputError, SessionClosedError
from vtensor.language.forks import process_lock
from vtensor.runtime.execution.deadlocks import Place
from vtensor.runtime.execution.processors import available_threads, binding_quota

if TYPE_CHECKING:
    import numpy as np

    from ptensor.evaluation import Step
    from vtensor.runtime._replay import Program

    Array = np.ndarray[Any, Any]

T = TypeVar("T")

#: The largest budget: what the step runner takes.
LIMIT = 1024


#: ``executor``: the one whose thread this is; ``planned``: the one that it makes plans for. Neither
#: is there on other threads.
_own = threading.local()


class Executor:
    """One thread with a budget of kernel threads.

    A call-back step may run sessions of other budgets: then its thread waits for theirs. Where that
    would close a circle of threads that wait for one another, a spare thread runs the work. So it
    does for a thread that a call-back waits for.

    Attributes:
        team: the thread; for programs, which need no Python around them.
        place: which thread that is.
        stands_for: the executor whose thread waits for the one whose work this spare one has.
    """

    _lock = process_lock()
    _by_budget: dict[tuple[int, int], Executor] = {}  # noqa: RUF012  # shared on purpose
    _known: dict[tuple[int, int], list[Executor]] = {}  # noqa: RUF012  # of sessions, by the same
    _turns: dict[tuple[int, int], int] = {}  # noqa: RUF012  # whose the next session's is
    _spare: dict[tuple[int, int], list[Executor]] = {}  # noqa: RUF012  # idle, by the same key
    _awaited: dict[Executor, Executor] = {}  # noqa: RUF012  # whose thread waits for whose

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
        """The first executor of a budget.

        Raises:
            InputError: as ``budget_of``; or the system does not let this process start so many.
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
        """The executors of a session that has so many runs side by side: each has its share.

        There are as many of a budget as processors allow, and sessions have them in turn, so that
        those of a small budget do not queue behind one another. All keep to the quota that this
        process has now.

        Raises:
            InputError: the budget, or the number of streams, is no integer of at least 1; or the
                system does not let this process start so many threads.
            SessionClosedError: the interpreter is shutting down.
        """
        if not isinstance(streams, int) or isinstance(streams, bool) or not 1 <= streams <= LIMIT:
            raise InputError(f"streams={streams!r} must be an integer from 1 to {LIMIT}")
        available = available_threads()
        share = max(1, budget_of(available if threads is None else threads) // streams)
        check_running()
        from vtensor.runtime import _replay

        processors, period_us = binding_quota()
        _replay.limit_processors(processors, period_us * 1000)
        while True:
            try:
                return cls._turn(share, streams, available)
            except InputError:  # the system does not let this process start so many
                if threads is not None or share == 1:
                    raise
                share //= 2

    @classmethod
    def _turn(cls, share: int, streams: int, available: int) -> list[Executor]:
        """Return the next ``streams`` executors of ``share`` threads each, in rotation.

        Raises:
            InputError: the system does not let this process start so many threads.
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
        """Run a function on the executor's thread, in the caller's context, and wait for it.

        Raises:
            SessionClosedError: the interpreter is shutting down.
        """
        if os.getpid() != self._process:  # forked: this one's thread stayed in the parent
            return Executor.of(self.threads).run(function)
        if (here := getattr(_own, "executor", None)) is None:
            return self._call(function)
        with self._from(here) as server:
            return server._call(function)

    def planning(self, work: Callable[[], T]) -> T:
        """Run ``work`` on the calling thread, which makes plans for this executor's, and return its
        result.

        Primitives are made for as many threads. Afterwards the calling thread and its context are
        as before, whatever was entered meanwhile and not left.
        """
        from vtensor.runtime import _replay

        threads, outer = min(_replay.threads(), LIMIT), getattr(_own, "planned", None)
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
        """The calling thread runs steps itself, each on no other thread: a team is not worth it.

        Between short steps the threads of a team would wait for the next one, and take a processor
        each meanwhile.
        """
        from vtensor.runtime import _replay

        threads, outer = _replay.threads(), getattr(_own, "planned", None)
        _replay.set_threads(1)
        _own.planned = None
        try:
            yield
        finally:
            _own.planned = outer
            _replay.set_threads(min(threads, LIMIT))

    @staticmethod
    def run_step(step: Step, memory: Sequence[Array]) -> None:
        """Run a native step: on the thread that a plan is made for, where one is made; else here.

        Raises:
            StepFailed: it failed.
            TypeError, ValueError: the memory is not what it takes.
        """
        from vtensor.runtime import _replay

        planned: Executor | None = getattr(_own, "planned", None)
        if planned is None:
            _replay.execute(step, memory)
        else:
            planned.run(lambda: _replay.execute(step, memory))

    def _call(self, function: Callable[[], T]) -> T:
        context, server = contextvars.copy_context(), self  # a name that deadlocks.py looks for

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
        """Who runs work instead of this one, whose thread waits for the thread whose work it is."""
        key = (os.getpid(), self.threads)
        with Executor._lock:
            spare = Executor._other(key)
        spare.stands_for = self
        try:
            yield spare
        finally:
            spare.stands_for = None
            with Executor._lock:
                Executor._spare.setdefault(key, []).append(spare)

    @classmethod
    def _other(cls, key: tuple[int, int]) -> Executor:
        """A spare executor that is idle; to be called under the lock."""
        spare = cls._spare.get(key)
        return spare.pop() if spare else cls(key[1])

    @contextmanager
    def _from(self, here: Executor) -> Iterator[Executor]:
        """Who runs work that the thread of an executor wants from this one, while it waits."""
        key = (os.getpid(), self.threads)
        with Executor._lock:
            server = self._able(here, key)
            if server is not here:
                Executor._awaited[here] = server
        try:
            yield server
        finally:
            with Executor._lock:
                Executor._awaited.pop(here, None)
                if server is not here and server is not self:
                    Executor._spare.setdefault(key, []).append(server)

    def _able(self, here: Executor, key: tuple[int, int]) -> Executor:
        """This executor where ``here`` can wait for it; else one of the same budget that is free.

        Two executors are in a circle if one waits for the other, whoever stands between them.
        """
        if here.stands_for is self:
            return here
        one: Executor | None = self
        while one is not None and one is not here:
            one = Executor._awaited.get(one)
        if one is None:
            return self
        if here.threads == self.threads:
            return here
        return Executor._other(key)

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
            bindings: what each run of it binds.
            times: gets the begin and the end of each step, in nanoseconds of the steady clock.
            sizes: as many as the program is made for; no plan makes such a program yet.
            queue: the queue of a device, for steps that work there; no plan has such steps yet.
            exponents: of the elements of what is bound, where somebody asks whether all are finite.

        Returns:
            Whether they are.

        Raises:
            StepFailed: a native step failed.
            SessionClosedError: the interpreter is shutting down.
        """
        if os.getpid() != self._process:  # forked, as in ``run``
            mine = Executor.of(self.threads)
            return mine.replay(program, bindings, times, sizes, queue, exponents)
        here, server = getattr(_own, "executor", None), self
        try:
            if here is None or here is self:
                return server.team.run(program, bindings, times, sizes, queue, exponents)
            with self._from(here) as server:
                return server.team.run(program, bindings, times, sizes, queue, exponents)
        except self._stopped as error:
            raise _over(error) from error
        except self._circular:
            with self._spared() as spare:
                return spare.replay(program, bindings, times, sizes, queue, exponents)


def is_planning() -> bool:
    """Return whether the calling thread is inside ``Executor.planning``."""
    return getattr(_own, "planned", None) is not None


def budget_of(threads: int | None) -> int:
    """A number of kernel threads; None is every processor that this process may use.

    Raises:
        InputError: it is no integer of at least 1.
    """
    budget = available_threads() if threads is None else threads
    if not isinstance(budget, int) or isinstance(budget, bool) or not 1 <= budget <= LIMIT:
        raise InputError(f"threads={threads!r} must be an integer from 1 to {LIMIT}, or None")
    return budget


def check_running() -> None:
    """Check that the interpreter is not shutting down, when nothing can be imported.

    Raises:
        SessionClosedError: it is.
    """
    if sys.is_finalizing():
        raise SessionClosedError("nothing runs any more: the interpreter is shutting down")


def _over(error: Exception) -> SessionClosedError:
    return SessionClosedError(f"nothing runs any more: {error}")
