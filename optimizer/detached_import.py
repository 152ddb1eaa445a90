"""Importing modules that keep the frames of the thread that imports them."""

from __future__ import annotations

import importlib
import sys
import threading
from contextlib import suppress
from typing import Any

from vtensor.language.index import importing
from vtensor.language.process.forks import ahead_of_logging


def import_on_thread(name: str) -> Any:
    """Return the module ``name``, imported on a thread of its own if it is not imported yet.

    PuLP keeps the errors of solvers that are not installed, with their tracebacks. These keep every
    frame of the importing thread alive, and with it the first caller's plan and weights.

    Raises:
        ImportError: there is no such module.
    """
    if name not in sys.modules:
        ahead_of_logging()  # the caller may hold a lock that forks wait for
        thread = threading.Thread(target=_import, args=[name], name=f"import {name}")
        with importing, suppress(RuntimeError):  # if no thread can start, this one imports it below
            thread.start()
            thread.join()
    return importlib.import_module(name)


def _import(name: str) -> None:
    """Import a module; ignore a failure, which the caller sees when it imports the module again."""
    try:
        importlib.import_module(name)
    except ImportError:
        return
