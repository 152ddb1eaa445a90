"""Files that a user names: read whole, if they are plain and not too large."""

from __future__ import annotations

import errno
import os
import stat
from typing import Any, BinaryIO

#: The most bytes of a file that is text: a description, a lock file, labels, a module.
MOST_TEXT = 1 << 24

#: One more than the largest integer of TOML; the smallest is its negative.
_TOO_LARGE = 1 << 63


def open_plain_file(file: str | os.PathLike[str]) -> BinaryIO:
    """Open a plain file to be read; links are followed.

    Raises:
        OSError: it is missing, a folder, a pipe or a device, or its path has a NUL.
    """
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC  # a pipe without a writer would block
    try:
        descriptor = os.open(file, flags)
    except ValueError as error:  # a NUL, or a lone surrogate
        raise OSError(errno.EINVAL, str(error)) from error
    if not stat.S_ISREG(mode := os.fstat(descriptor).st_mode):
        os.close(descriptor)
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), os.fspath(file))
        raise OSError(errno.EINVAL, "it is no plain file")
    return os.fdopen(descriptor, "rb")


def read_plain_file(file: str | os.PathLike[str], most: int = MOST_TEXT) -> bytes:
    """Return the bytes of a plain file that has no more than ``most``.

    Raises:
        OSError: it has more, or as ``open_plain_file``.
    """
    with open_plain_file(file) as stream:
        size = os.fstat(stream.fileno()).st_size
        data = stream.read(most + 1) if size <= most else b""
    if max(size, len(data)) > most:
        raise OSError(errno.EFBIG, f"it has more than {most} bytes")
    return data


def read_text(file: str | os.PathLike[str], most: int = MOST_TEXT) -> str:
    """Return the text of a plain file in UTF-8, with line ends as ``\\n``.

    Raises:
        OSError: as ``read_plain_file``.
        UnicodeDecodeError: it is no UTF-8.
    """
    text = read_plain_file(file, most).decode()
    return text.replace("\r\n", "\n").replace("\r", "\n")


def parse_toml(text: str) -> dict[str, Any]:
    """Return a text of TOML as data.

    Raises:
        ValueError: it is no TOML, is nested too deeply, or has an integer of more than 64 bits.
    """
    import tomllib  # a session that takes a plan as it was kept reads no TOML

    try:
        table = tomllib.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    except ValueError as error:
        if isinstance(error, tomllib.TOMLDecodeError):
            raise
        raise ValueError("it has an integer of more than 64 bits") from None  # of 4,300 digits
    waiting: list[Any] = [table]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            waiting.extend(value.values())
        elif isinstance(value, list):
            waiting.extend(value)
        elif isinstance(value, int) and not -_TOO_LARGE <= value < _TOO_LARGE:
            raise ValueError("it has an integer of more than 64 bits")
    return table
