"""Locks of the whole process, which a forked child finds free."""

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

#: How long a fork waits for a lock, in seconds: as long as imports may take that it guards.
PATIENCE = 30.0

#: The top packages whose imports a fork waits for: this project's, and those that it imports. In
#: the child, a module that another thread is importing is locked for good. Not every module is
#: among them, since a program may consist of one long import.
PACKAGES = sys.stdlib_module_names | {
    *("vtensor", "ptensor", "libdesc", "resolver", "optimizer", "ops"),
    *("google", "highspy", "ml_dtypes", "networkx", "numpy", "onnx", "pulp"),
}

#: Poll interval of a fork that waits for imports, in seconds.
POLL_S = 0.001

#: The part of Python's import system that knows which thread imports which module.
_bootstrap: Any = import_module("importlib._bootstrap")

_locks: list[tuple[int, threading.RLock]] = []
_taken: list[threading.RLock] = []
_forking: list[bool] = []  # not empty from before a fork until the child's locks are free
_RELEASE = methodcaller("release")


def process_lock(order: int = 1) -> threading.RLock:
    """A lock for which a fork waits, so that what it guards is whole in the child.

    Args:
        order: whoever holds it may take those of a higher order.

    Only the thread that forks is in the child: a lock that another one held would never be free.
    """
    lock = threading.RLock()
    _locks.append((order, lock))
    _locks.sort(key=lambda row: row[0])
    return lock


class OwnLock:
    """A lock for which no fork waits: a forked child has one of its own.

    For what may be held long; in the child, what it guards may be as half of the work left it.
    """

    def __init__(self) -> None:
        self._locks: dict[int, threading.RLock] = {}

    @property
    def here(self) -> threading.RLock:
        """This process's."""
        return self._locks.setdefault(os.getpid(), threading.RLock())


def locked(lock: threading.RLock, acquire: Callable[[], bool], work: Callable[[], T]) -> T | None:
    """Run ``work`` with a lock held and return its result; None if ``acquire`` returns False.

    The handler of a signal may raise an exception after any call, the one that acquires the lock
    included. Only the lock itself then knows whether this thread holds it, so every way out begins
    with an attempt to release it. ``with lock:`` is as safe, for a wait without a limit.

    Args:
        lock: not held by the calling thread, unless ``acquire`` is a function in C.
        acquire: acquires the lock and returns True, or returns False.
        work: runs with the lock held.
    """
    try:
        return work() if acquire() else None
    finally:
        try:  # noqa: SIM105  # ``suppress`` is a call, too
            lock.release()
        except RuntimeError:  # this thread does not hold it
            pass


def _imports_elsewhere() -> bool:
    """Return whether another thread imports a module that a child may need."""
    own = threading.get_ident()
    for name, reference in [*_bootstrap._module_locks.items()]:
        if name.partition(".")[0] in PACKAGES:
            owner = getattr(reference(), "owner", None)
            if owner is not None and owner != own:
                return True
    return False


def _before() -> None:
    """Acquire all locks, in order, at a moment when no other thread imports.

    Python's import lock is held until the fork is over: no other thread begins an import meanwhile.
    """
    _forking.append(True)
    until = monotonic() + PATIENCE
    while True:
        acquire = methodcaller("acquire", timeout=PATIENCE)
        _taken.extend(filter(acquire, [lock for _, lock in _locks]))  # recorded in the same call
        _imp.acquire_lock()
        if not _imports_elsewhere() or monotonic() >= until:
            return
        _release()
        sleep(POLL_S)


def _release() -> None:
    """Release all that ``_before`` acquired and that is not released yet."""
    try:  # noqa: SIM105  # ``suppress`` is a call, too
        any(map(_RELEASE, iter(_taken.pop, None)))  # taken away and released in the same call
    except IndexError:  # that was the last one
        pass
    try:
        while True:
            _imp.release_lock()
    except RuntimeError:  # it is not held any more
        pass


def _in_child() -> None:
    if _forking:
        for _, lock in _locks:
            if lock not in _taken:
                lock._at_fork_reinit()  # type: ignore[attr-defined]  # as the standard library does
    _forking.clear()
    _release()


def _hold_logging() -> None:
    """Acquire the lock of ``logging`` if another thread imported it while this fork waited.

    The callback that ``logging`` registers for this came too late; those after the fork release it.
    """
    lock: Any = getattr(sys.modules.get("logging"), "_lock", None)
    if lock is not None and not lock._is_owned():
        lock.acquire()


def _wait_at_forks() -> None:
    """Have forks wait for locks, before whatever others have asked for so far.

    The handler of a signal that arrives during the fork may raise an exception in any of these
    functions; ``os.fork`` then goes on without the rest of it. What comes after a fork is therefore
    done twice: the second call does what is left of the first.
    """
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(before=_before)
        for _ in range(2):
            os.register_at_fork(after_in_parent=_release, after_in_child=_in_child)


@cache
def ahead_of_logging() -> None:
    """Have forks wait for locks before they take that of ``logging``, which imports need.

    What was asked for last is done first, and ``logging``, which is slow to import, comes late.
    """
    import_module("logging")
    _wait_at_forks()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_hold_logging)  # the first to be registered is called last
_wait_at_forks()
