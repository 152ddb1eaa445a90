"""How long the threads of an OpenMP team spin before they sleep.

libgomp's threads spin for 300,000 turns, which are several milliseconds: longer than the system
leaves a thread on a processor. Where another process has work as well, each thread that waits then
takes the time of the one that it waits for, in each parallel loop. A thirtieth lasts from one
kernel to the next.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType

#: What libgomp reads when it is loaded; either says how long threads are to spin.
VARIABLES = ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")

#: About 0.2 milliseconds.
TURNS = 10_000


@contextmanager
def brief_spinning() -> Iterator[None]:
    """Where libgomp is loaded meanwhile, its threads spin briefly, unless the user says how long.

    The environment is the user's again afterwards: programs that this one starts inherit nothing.
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
    """Import an extension module that may load libgomp.

    Raises:
        ImportError: it does not load.
    """
    with brief_spinning():
        return importlib.import_module(name)
