"""A bounded queue of runs that an event loop awaits, and the threads that execute them."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from vtensor.errors import InputError, QueueFullError, SessionClosedError

if TYPE_CHECKING:
    from concurrent.futures import Future, ThreadPoolExecutor

T = TypeVar("T")


class Backlog:
    """A bounded queue of work for a pool of threads.

    Args:
        threads: the number of pool threads.
        most: how many calls of ``run`` may wait while all threads are busy.

    Raises:
        InputError: ``most`` is no integer of at least 0.
    """

    def __init__(self, threads: int, most: int) -> None:
        if not isinstance(most, int) or isinstance(most, bool) or most < 0:
            raise InputError(f"max_queued={most!r} must be an integer of at least 0")
        self._threads, self._most = threads, most
        #: The pool of each process, by process id: a forked child has none of its parent's threads.
        self._pools: dict[int, ThreadPoolExecutor] = {}
        self._unfinished: set[Future[Any]] = set()

    async def run(self, work: Callable[[], T]) -> T:
        """Run ``work`` on the pool and return its result.

        Raises:
            QueueFullError: ``most`` calls wait already, or the system does not let a thread start.
            SessionClosedError: no thread can be started because the main thread has ended.
        """
        import asyncio  # at the first use, not when VTensor is imported

        if len(self._unfinished) >= self._threads + self._most:
            raise QueueFullError(
                f"{self._most} runs wait already\n  to fix: wait for some of them, or give the "
                "session a larger max_queued="
            )
        from concurrent.futures import Future

        future = Future[T]()

        def serve() -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
                answer = work()
            except BaseException as error:
                future.set_exception(error)
            else:
                future.set_result(answer)

        try:
            self._pool().submit(serve)
        except RuntimeError as error:  # the main thread has ended, or the system gives no thread
            if future.cancel():  # the pool may have queued it nevertheless
                kind = QueueFullError if threading.main_thread().is_alive() else SessionClosedError
                raise kind(
                    f"no thread can be started: {error}\n  to fix: call Session.run, which needs "
                    "none"
                ) from error
        self._unfinished.add(future)
        future.add_done_callback(self._unfinished.discard)
        return await asyncio.wrap_future(future)

    def close(self) -> None:
        """Let the pool's threads end after all queued work."""
        while self._pools:
            process, pool = self._pools.popitem()
            if process == os.getpid():
                pool.shutdown(wait=False)

    def _pool(self) -> ThreadPoolExecutor:
        from concurrent.futures import ThreadPoolExecutor

        process = os.getpid()
        if process not in self._pools:
            self._unfinished.clear()
            self._pools[process] = ThreadPoolExecutor(self._threads, "vtensor-run")
        return self._pools[process]
