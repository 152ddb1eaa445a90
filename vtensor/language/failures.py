"""Where a stranger's Python stands, and where in it an error came from."""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Callable
from typing import Any


def place_of(function: Callable[..., Any]) -> str:
    """File and line of a function; its module where it is not written in Python.

    ``__place__`` is that of one that is made, not written: where its maker is called.
    """
    inner = inspect.unwrap(function) if hasattr(function, "__wrapped__") else function
    if place := getattr(inner, "__place__", ""):
        return str(place)
    code = getattr(inner, "__code__", None) or getattr(
        getattr(inner, "__init__", None), "__code__", None
    )
    if code is None:
        return str(getattr(inner, "__module__", None) or type(inner).__name__)
    return f"{code.co_filename}:{code.co_firstlineno}"


def raised(error: BaseException, place: str, kind: bool = True) -> str:
    """An error in a line, with the last line of an author's file that led to it.

    Args:
        place: the author's function, as ``place_of`` has it; its file is meant.
        kind: begin with the error's type.

    >>> raised(KeyError("O"), "handlers.py:3")
    "KeyError: 'O'"
    """
    text = f"{type(error).__name__}: {error}" if kind else str(error)
    file = place.rpartition(":")[0]
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if frame.filename == file]
    return f"{text} (at {file}:{lines[-1]})" if lines else text


def pass_exit(error: BaseException) -> None:
    """Raise an exit that a signal handler asked for; any other error is the caller's to report.

    A module that calls ``sys.exit`` as it is imported is broken, and ends no process. A signal may
    arrive meanwhile, and its handler's exit is for the process.
    """
    if not isinstance(error, SystemExit):
        return
    import signal  # only this needs it

    given = (signal.getsignal(number) for number in signal.valid_signals())
    handlers = {_code(one) for one in given if not isinstance(one, signal.Handlers)} - {None}
    if any(frame.f_code in handlers for frame, _ in traceback.walk_tb(error.__traceback__)):
        raise error


def _code(function: Any) -> Any:
    """Return the code of a function, a method, a partial of one or a callable object, else None."""
    function = getattr(function, "func", function)
    called = getattr(type(function), "__call__", None)  # noqa: B004  # not whether there is one
    return getattr(function, "__code__", None) or getattr(called, "__code__", None)
