"""The time for which the threads of an OpenMP team spin before they sleep.

A thread that spins waits in a busy loop. By default libgomp's threads spin for 300,000 turns,
several milliseconds, which is longer than a time slice of the scheduler. If another process has
work as well, a thread that spins in a parallel loop then
keeps the thread that it waits for off the processor. A thirtieth of that time is long enough to
spin from one kernel to the next.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType

#: Environment variables that set the spin time; libgomp reads them when it is loaded.
VARIABLES = ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")

#: Spin time in turns of libgomp's loop; about 0.2 milliseconds.
TURNS = 10_000


@contextmanager
def brief_spinning() -> Iterator[None]:
    """Make the threads of a libgomp that is loaded inside a ``with`` block spin for ``TURNS``
    turns.

    A spin time that the user has set is left as it is. The environment is restored afterwards, so
    that child processes inherit nothing.
    """
    if any(name in os.environ for name in VARIABLES):
        yield
        return
    name = VARIABLES[0]
    os.environ[name] = str(TURNS)
    try:
        yield
    finally:
        os.environ.pop(name, None)


def import_native(name: str) -> ModuleType:
    """Import and return an extension module that may load libgomp; see ``brief_spinning``.

    Raises:
        ImportError: the module cannot be loaded.
    """
    with brief_spinning():
        return importlib.import_module(name)
