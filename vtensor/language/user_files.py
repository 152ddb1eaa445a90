"""Files that a user names: read whole, if they are plain and not too large."""

from __future__ import annotations

import errno
import os
import stat
from typing import Any, BinaryIO

#: The most bytes of a text file: a description, a lock file, labels, a module.
MAX_TEXT_BYTES = 1 << 24

#: TOML's integers have 64 bits: they are less than this number, and not less than its negative.
_INTEGER_END = 1 << 63


def open_plain_file(file: str | os.PathLike[str]) -> BinaryIO:
    """Open a plain file for reading its bytes; links are followed.

    Raises:
        OSError: the file is missing, a folder, a pipe or a device, or its path has a NUL.
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


def read_plain_file(file: str | os.PathLike[str], max_bytes: int = MAX_TEXT_BYTES) -> bytes:
    """Return the bytes of a plain file, at most ``max_bytes``.

    Raises:
        OSError: the file has more bytes, or ``open_plain_file`` cannot open it.
    """
    with open_plain_file(file) as stream:
        size = os.fstat(stream.fileno()).st_size
        data = stream.read(max_bytes + 1) if size <= max_bytes else b""
    if max(size, len(data)) > max_bytes:
        raise OSError(errno.EFBIG, f"it has more than {max_bytes} bytes")
    return data


def read_text(file: str | os.PathLike[str], max_bytes: int = MAX_TEXT_BYTES) -> str:
    """Return the text of a plain file in UTF-8, with line ends as ``\\n``.

    Raises:
        OSError: ``read_plain_file`` cannot read the file.
        UnicodeDecodeError: the text is no UTF-8.
    """
    text = read_plain_file(file, max_bytes).decode()
    return text.replace("\r\n", "\n").replace("\r", "\n")


def parse_toml(text: str) -> dict[str, Any]:
    """Return the top table of a TOML text.

    Raises:
        ValueError: the text is no TOML, is nested too deeply, or has an integer of more than 64
            bits.
    """
    import tomllib  # only here: a session with a plan from the cache reads no TOML

    try:
        table = tomllib.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    except ValueError as error:
        if isinstance(error, tomllib.TOMLDecodeError):
            raise
        raise ValueError(
            "it has an integer of more than 64 bits"
        ) from None  # Python's limit: 4,300 digits
    waiting: list[Any] = [table]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            waiting.extend(value.values())
        elif isinstance(value, list):
            waiting.extend(value)
        elif isinstance(value, int) and not -_INTEGER_END <= value < _INTEGER_END:
            raise ValueError("it has an integer of more than 64 bits")
    return table
