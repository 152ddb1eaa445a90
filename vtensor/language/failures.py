"""For messages: file and line of a function, or of an error in the file of an operator's author."""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Callable
from typing import Any


def place_of(function: Callable[..., Any]) -> str:
    """Return a function's place, ``"FILE:LINE"``.

    If the function is not written in Python, return its module or the name of its type. A generated
    function has an attribute ``__place__``: the file and line of the call that generated it.
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
    """Return an error's message, with the line of the author's file at which the error was raised.

    The line is the last one of that file in the traceback; if there is none, it is left out.

    Args:
        error: the error.
        place: ``"FILE:LINE"`` of the author's function, from ``place_of``; only the file is used.
        kind: True begins the message with the name of the error's type.

    >>> raised(KeyError("O"), "handlers.py:3")
    "KeyError: 'O'"
    """
    text = f"{type(error).__name__}: {error}" if kind else str(error)
    file = place.rpartition(":")[0]
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if frame.filename == file]
    return f"{text} (at {file}:{lines[-1]})" if lines else text
