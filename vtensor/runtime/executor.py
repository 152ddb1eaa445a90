"""The thread that owns the kernels' threads.

The OpenMP run-time keeps one team a calling thread, so a run from every Python thread would make a
team for each. One executor thread a budget owns the team: primitives are created there and runs
queue there.
"""

from __future__ import annotations

import contextvars
import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from vtensor.errors import InputError, SessionClosedError

T = TypeVar("T")

#: The largest budget: what the step runner takes.
LIMIT = 1024


def available_threads() -> int:
    """How many processors this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class Executor:
    """One thread with a budget of kernel threads; one object a budget and process."""

    _lock = threading.Lock()
    _by_budget: dict[tuple[int, int], Executor] = {}  # noqa: RUF012  # shared on purpose

    def __init__(self, threads: int) -> None:
        self.threads = threads
        self._pool = ThreadPoolExecutor(1, f"vtensor-{threads}", initializer=self._begin)
        self._process = os.getpid()
        self._ident = 0

    def _begin(self) -> None:
        from vtensor.runtime import _replay

        self._ident = threading.get_ident()
        _replay.set_threads(self.threads)

    @classmethod
    def of(cls, threads: int | None) -> Executor:
        """The executor of a budget; None is every processor that this process may use.

        Raises:
            InputError: the budget is no integer of at least 1.
        """
        budget = available_threads() if threads is None else threads
        if not isinstance(budget, int) or isinstance(budget, bool) or not 1 <= budget <= LIMIT:
            raise InputError(f"threads={threads!r} must be an integer from 1 to {LIMIT}, or None")
        with cls._lock:
            key = (os.getpid(), budget)  # a forked child has none of its parent's threads
            if key not in cls._by_budget:
                cls._by_budget[key] = cls(budget)
            return cls._by_budget[key]

    def run(self, function: Callable[[], T]) -> T:
        """Run a function on the executor's thread, in the caller's context, and wait for it.

        Raises:
            SessionClosedError: the interpreter is shutting down, and its threads have ended.
        """
        if os.getpid() != self._process:  # forked: this one's thread stayed in the parent
            return Executor.of(self.threads).run(function)
        if threading.get_ident() == self._ident:
            return function()  # a call-back step that runs a session of its own
        try:
            future = self._pool.submit(contextvars.copy_context().run, function)
        except RuntimeError as error:
            raise SessionClosedError(f"nothing runs any more: {error}") from error
        return future.result()
