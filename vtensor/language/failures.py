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
