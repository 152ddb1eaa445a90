"""Locks of the whole process, which a forked child finds free."""

from __future__ import annotations

import os
import threading
from functools import cache
from importlib import import_module

#: How long a fork waits for a lock, in seconds: as long as imports may take that it guards.
PATIENCE = 30.0

_locks: list[tuple[int, threading.RLock]] = []
_taken: list[threading.RLock] = []


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
        self._locks: dict[int, threading.Lock] = {}

    @property
    def here(self) -> threading.Lock:
        """This process's."""
        return self._locks.setdefault(os.getpid(), threading.Lock())


def _before() -> None:
    for _, lock in _locks:
        if lock.acquire(timeout=PATIENCE):
            _taken.append(lock)


def _in_parent() -> None:
    while _taken:
        _taken.pop().release()


def _in_child() -> None:
    for _, lock in _locks:
        if lock not in _taken:
            lock._at_fork_reinit()  # type: ignore[attr-defined]  # as the standard library does
    _in_parent()


def _wait_at_forks() -> None:
    """Have forks wait for locks, before whatever others have asked for so far."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(before=_before, after_in_parent=_in_parent, after_in_child=_in_child)


@cache
def ahead_of_logging() -> None:
    """Have forks wait for locks before they take that of ``logging``, which imports need.

    What was asked for last is done first, and ``logging``, which is slow to import, comes late.
    """
    import_module("logging")
    _wait_at_forks()


_wait_at_forks()
