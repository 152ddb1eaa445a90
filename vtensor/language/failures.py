"""The place of a function in its file, and of an error in an author's file, for messages."""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Callable
from typing import Any


def place_of(function: Callable[..., Any]) -> str:
    """Return a function's file and line; its module or type if it is not written in Python.

    A generated function has an attribute ``__place__``: the place of the call that generated it.
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
    """Return an error in one line, with the last line of an author's file in its traceback.

    Args:
        error: the error.
        place: the place of the author's function, from ``place_of``; only its file is used.
        kind: begin with the error's type.

    >>> raised(KeyError("O"), "handlers.py:3")
    "KeyError: 'O'"
    """
    text = f"{type(error).__name__}: {error}" if kind else str(error)
    file = place.rpartition(":")[0]
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if frame.filename == file]
    return f"{text} (at {file}:{lines[-1]})" if lines else text
