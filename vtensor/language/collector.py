"""Python's garbage collector waits while a model is read, while a plan is made, and while one is
drawn beside runs.

A graph or a plan is many small objects that stay, and hardly a cycle among them. The collector
counts what is made, not what is garbage, and goes through all objects of the process again and
again meanwhile: beside a large network one such round takes longer than a plan for other sizes.
What it misses it finds later.
"""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from vtensor.language.forks import process_lock

_lock = process_lock(3)  # whoever has it takes no other
_depths: dict[int, int] = {}  # by thread: how often it is in here
_enabled = False  # before the first of them


@contextmanager
def later() -> Iterator[None]:
    """No collection begins by itself, in any thread, until the last that is in here leaves.

    Whoever asks for one (``gc.collect``) has it; where they are off already, they stay off.
    """
    global _enabled
    own = threading.get_ident()
    with _lock:
        if not _depths:
            _enabled = gc.isenabled()
            gc.disable()
        _depths[own] = _depths.get(own, 0) + 1
    try:
        yield
    finally:
        with _lock:
            _depths[own] -= 1
            if not _depths[own]:
                del _depths[own]
                _go_on()


def _go_on() -> None:
    """What was made meanwhile stays, so it is old at once, and never gone through as young."""
    if not _depths and _enabled:
        if not gc.get_freeze_count():  # else somebody has objects there
            gc.freeze()
            gc.unfreeze()
        gc.enable()


def _in_child() -> None:
    """Only the thread that forked is in a child."""
    if _depths:
        own = threading.get_ident()
        for one in [*_depths]:
            if one != own:
                del _depths[one]
        _go_on()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)
