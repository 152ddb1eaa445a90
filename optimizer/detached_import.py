"""Importing what keeps the frames that import it."""

from __future__ import annotations

import importlib
import sys
import threading
from contextlib import suppress
from typing import Any

from vtensor.language.forks import ahead_of_logging
from vtensor.language.index import importing


def import_on_thread(name: str) -> Any:
    """A module, imported on a thread of its own if it has not been yet.

    PuLP keeps the errors of solvers that are not installed, with their tracebacks; those keep every
    frame of the thread alive, and so the plan and the weights of whoever needed a solver first.

    Raises:
        ImportError: there is no such module.
    """
    if name not in sys.modules:
        ahead_of_logging()  # the caller may hold what a fork waits for
        thread = threading.Thread(target=_import, args=[name], name=f"import {name}")
        with importing, suppress(RuntimeError):  # without a thread, this one imports it
            thread.start()
            thread.join()
    return importlib.import_module(name)


def _import(name: str) -> None:
    """Leave a failure to the caller, who imports again."""
    try:
        importlib.import_module(name)
    except ImportError:
        return
