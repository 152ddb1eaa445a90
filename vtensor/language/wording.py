"""Phrases of messages: a number with its noun, the reason of an error."""

from __future__ import annotations


def counted(number: int, noun: str) -> str:
    """Return a number and its noun, in the plural unless the number is 1.

    >>> counted(1, "step"), counted(0, "step"), counted(1234, "step")
    ('1 step', '0 steps', '1,234 steps')
    """
    return f"{number:,} {noun}{'s' * (number != 1)}"


def reason(error: BaseException) -> str:
    """Return an error's message; of an ``OSError`` without the file's name.

    >>> reason(FileNotFoundError(2, "No such file or directory", "x.onnx"))
    'No such file or directory'
    """
    return error.strerror if isinstance(error, OSError) and error.strerror else str(error)
