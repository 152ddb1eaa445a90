"""Locks for which a fork waits, so that they are free in the forked child process."""

from __future__ import annotations

import _imp
import os
import sys
import threading
from collections.abc import Callable
from functools import cache
from importlib import import_module
from operator import methodcaller
from time import monotonic, sleep
from typing import Any, TypeVar

T = TypeVar("T")

#: The longest wait of a fork for a lock, in seconds: as long as guarded imports may take.
PATIENCE_S = 30.0

#: The top packages whose imports a fork waits for: this project's, and those that it imports. A
#: module that another thread is importing at the fork could never be imported in the child. Other
#: packages are left out, since a whole program may run inside one import.
PACKAGES = sys.stdlib_module_names | {
    *("vtensor", "ptensor", "libdesc", "resolver", "optimizer", "ops"),
    *("google", "highspy", "ml_dtypes", "networkx", "numpy", "onnx", "pulp"),
}

#: Poll interval of a fork that waits for imports, in seconds.
POLL_S = 0.001

#: The part of Python's import system that knows which thread imports which module.
_bootstrap: Any = import_module("importlib._bootstrap")

_locks: list[tuple[int, threading.RLock]] = []
_acquired: list[threading.RLock] = []
_forking: list[bool] = []  # not empty from before a fork until the child's locks are free
_RELEASE = methodcaller("release")


def process_lock(order: int = 1) -> threading.RLock:
    """Return a new lock for which forks wait until no other thread holds it.

    A forked child has only the thread that forked, so a lock that another thread held at the fork
    would never be released there. With this lock, the child finds it free, and the data that it
    guards is consistent.

    Args:
        order: a thread that holds the lock may acquire locks of a higher order only.
    """
    lock = threading.RLock()
    _locks.append((order, lock))
    _locks.sort(key=lambda row: row[0])
    return lock


class OwnLock:
    """A lock for which no fork waits; a forked child gets a new lock instead.

    It is for locks that are held for long. In the child, the data that the lock guards may be
    inconsistent, since a fork may come in the middle of a change.
    """

    def __init__(self) -> None:
        self._locks: dict[int, threading.RLock] = {}

    @property
    def here(self) -> threading.RLock:
        """The lock of this process."""
        return self._locks.setdefault(os.getpid(), threading.RLock())


def locked(lock: threading.RLock, acquire: Callable[[], bool], work: Callable[[], T]) -> T | None:
    """Run ``work`` with a lock held and return its result; None if ``acquire`` returns False.

    The handler of a signal may raise an exception after any call, also right after the call that
    acquires the lock. Only the lock itself then knows whether this thread holds it. So however this
    function ends, it first tries to release the lock. ``with lock:`` is as safe, but can only wait
    without a limit.

    Args:
        lock: must not be held by the calling thread, unless ``acquire`` is a function in C.
        acquire: acquires the lock and returns True, or returns False without acquiring it.
        work: runs with the lock held.
    """
    try:
        return work() if acquire() else None
    finally:
        try:  # noqa: SIM105  # an exception may also come after the call of ``suppress``
            lock.release()
        except RuntimeError:  # this thread does not hold it
            pass


def _another_thread_imports() -> bool:
    """Return whether another thread is importing a module of ``PACKAGES``."""
    this_thread = threading.get_ident()
    for name, reference in [*_bootstrap._module_locks.items()]:
        if name.partition(".")[0] in PACKAGES:
            owner = getattr(reference(), "owner", None)
            if owner is not None and owner != this_thread:
                return True
    return False


def _before_fork() -> None:
    """Acquire all locks of ``process_lock``, in their order, and Python's import lock, until a fork
    is over.

    If another thread is importing a module of ``PACKAGES``, the locks are released and acquired
    again later, until it is done, but for at most ``PATIENCE_S`` seconds. While Python's import
    lock is held, no other thread begins an import.
    """
    _forking.append(True)
    until = monotonic() + PATIENCE_S
    while True:
        acquire = methodcaller("acquire", timeout=PATIENCE_S)
        # a single C call acquires and records each lock, so that no exception can come in between
        _acquired.extend(filter(acquire, [lock for _, lock in _locks]))
        _imp.acquire_lock()
        if not _another_thread_imports() or monotonic() >= until:
            return
        _release_all()
        sleep(POLL_S)


def _release_all() -> None:
    """Release those locks of ``_before_fork`` that this thread still holds."""
    try:  # noqa: SIM105  # an exception may also come after the call of ``suppress``
        # a single C call removes and releases each lock, so that no exception can come in between
        any(map(_RELEASE, iter(_acquired.pop, None)))
    except IndexError:  # that was the last lock
        pass
    try:
        while True:
            _imp.release_lock()
    except RuntimeError:  # it is not held any more
        pass


def _after_fork_in_child() -> None:
    if _forking:
        for _, lock in _locks:
            if lock not in _acquired:
                lock._at_fork_reinit()  # type: ignore[attr-defined]  # as in the standard library
    _forking.clear()
    _release_all()


def _hold_logging() -> None:
    """Acquire the lock of ``logging`` if that module was imported while this fork waited.

    On import, ``logging`` registers functions that acquire its lock before a fork and release it
    after a fork. For the fork that is in progress, the first comes too late, but the second runs.
    """
    lock: Any = getattr(sys.modules.get("logging"), "_lock", None)
    if lock is not None and not lock._is_owned():
        lock.acquire()


def _make_forks_wait() -> None:
    """Register functions that acquire all locks of ``process_lock`` before a fork and release them
    after.

    ``os.fork`` calls the functions that run before it in the reverse order of registration, so the
    locks are acquired before functions run that were registered earlier. The handler of a signal
    that arrives during the fork may raise an exception in any of the functions; ``os.fork`` then
    goes on without the rest of that function. The functions that run after a fork are therefore
    registered twice: the second call does what the first one left undone.
    """
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(before=_before_fork)
        for _ in range(2):
            os.register_at_fork(after_in_parent=_release_all, after_in_child=_after_fork_in_child)


@cache
def ahead_of_logging() -> None:
    """Import ``logging``, then call ``_make_forks_wait`` again, once in a process.

    Of the functions that run before a fork, the one that was registered last runs first. After this
    call a fork acquires the locks of this module first, then the lock of ``logging``, which another
    thread may need to finish an import under one of these locks.
    """
    import_module("logging")
    _make_forks_wait()


if hasattr(os, "register_at_fork") and "logging" not in sys.modules:
    # Of the functions that run before a fork, the first one registered runs last, so after that of
    # ``logging``.
    os.register_at_fork(before=_hold_logging)
_make_forks_wait()
