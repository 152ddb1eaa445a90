"""Entries of the cache: files in a folder of the user, shared by processes.

An entry counts as missing if it is unreadable, damaged or of another format, or if another user may
have written it. The caller then makes its content from scratch. An entry is written to a
temporary file and then renamed, so that it is whole or missing. Without a writable folder there is
no cache; a warning says so once a process.
"""

from __future__ import annotations

import os
import stat
import threading
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import BinaryIO

from vtensor.errors import InputError
from vtensor.language.process.imported import blake2b, logger
from vtensor.language.process.interrupts import ignored, pass_signals
from vtensor.language.wording import reason
from vtensor.storage.cache_folder import cache_folder

#: Environment variable: whether sessions use the user's cache by default, ``on`` or ``off``.
VARIABLE = "VTENSOR_CACHE"

#: The name of the folder of entries, inside the cache's folder.
FOLDER = "plans"

#: The first bytes of an entry: the format's name. The digest of the payload comes after it.
FORMAT = b"vtensor entry 3"

#: The most bytes of one entry and of all entries; the entries used longest ago are removed first.
MOST_BYTES, MOST_BYTES_IN_ALL = 1 << 23, 1 << 26

#: Mode bits that make an entry or a folder foreign: other users may write to it.
_OTHERS = stat.S_IWGRP | stat.S_IWOTH

#: The packages whose code makes entries.
_PACKAGES = ("vtensor", "ptensor", "libdesc", "resolver", "optimizer", "ops")

_log = logger(__name__)


class Entries:
    """The entries of one cache.

    Args:
        folder: the cache's folder; None is that of the user's cache.

    Raises:
        InputError: ``folder`` is not None and cannot be used.
    """

    def __init__(self, folder: str | os.PathLike[str] | None = None) -> None:
        self._folder = (cache_folder() if folder is None else Path(folder)) / FOLDER
        #: Whether the user's folder existed: a removed folder is not created again.
        self._was_there = folder is None and self._folder.is_dir()
        if folder is not None:
            try:
                self._make_folder()
            except (OSError, ValueError) as error:  # a NUL in the name
                pass_signals(error)
                raise InputError(
                    f"cache_dir={os.fspath(folder)!r} cannot be used: {reason(error)}\n  to fix: "
                    "name a folder of your own, which no other user may write to, or "
                    "cache_dir=None for no cache"
                ) from error

    def read(self, name: str) -> bytes | None:
        """Return the payload of the entry with this name; None if it counts as missing.

        Reading sets the time of the entry's last use.
        """
        try:  # opened before the check of the folder: most names have no entry
            with open_entry(f"{self._folder}/{name}") as file:
                check_folder(self._folder)
                status = os.fstat(file.fileno())
                if not stat.S_ISREG(status.st_mode) or foreign(status):
                    return None
                content = file.read(MOST_BYTES + 1)
                with ignored(OSError):  # on a disk that is read only
                    os.utime(file.fileno())
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            pass_signals(error)
            _warn(str(self._folder), reason(error))
            return None
        return payload_of(content)

    def names(self, prefix: str) -> list[str]:
        """Return the names that begin with ``prefix``, the most recently used entry first."""
        try:
            rows = sorted(self._rows(), reverse=True)
        except OSError as error:  # ``read`` meets the error as well, and warns
            pass_signals(error)
            return []
        return [name for _, name, _ in rows if name.startswith(prefix)]

    def write(self, name: str, payload: bytes) -> None:
        """Write an entry, then remove entries until all together take at most
        ``MOST_BYTES_IN_ALL``.

        Those used longest ago are removed first. Nothing is written if the entry has more than
        ``MOST_BYTES``, or if the folder was removed since; there is no warning then.
        """
        entry = _head(payload) + b"\n" + payload
        if len(entry) > MOST_BYTES:
            return
        temporary = self._folder / f"{name}.{os.getpid()}.{threading.get_ident()}"
        try:
            self._make_folder()
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            try:
                with open(os.open(temporary, flags, 0o600), "wb") as file:  # noqa: PTH123
                    file.write(entry)
                temporary.replace(self._folder / name)
            except BaseException:
                temporary.unlink(missing_ok=True)
                raise
            self._shrink()
        except OSError as error:
            pass_signals(error)
            if not self._folder.exists() and self._was_there:
                return
            _warn(str(self._folder), reason(error))

    def _make_folder(self) -> None:
        """Make the folder of entries if it never existed, and check it.

        Raises:
            OSError: the folder was removed, cannot be made, or is not the user's alone.
        """
        if not self._was_there:
            self._folder.parent.mkdir(0o700, parents=True, exist_ok=True)
            self._folder.mkdir(0o700, exist_ok=True)
            self._was_there = True
        check_folder(self._folder)

    def _rows(self) -> Iterator[tuple[int, str, int]]:
        """Yield the time of the last use in ns, the name and the size in bytes of each entry."""
        with os.scandir(self._folder) as files:
            for file in files:
                with ignored(FileNotFoundError):  # another process has removed it
                    status = file.stat(follow_symlinks=False)
                    yield status.st_mtime_ns, file.name, status.st_size

    def _shrink(self) -> None:
        """Remove the entries used longest ago, until all take at most ``MOST_BYTES_IN_ALL``."""
        total = 0
        for _, name, size in sorted(self._rows(), reverse=True):
            total += size
            if total > MOST_BYTES_IN_ALL:
                (self._folder / name).unlink(missing_ok=True)


def entries_of(cache_dir: str | os.PathLike[str] | bool | None) -> Entries | None:
    """Return the entries of a session's cache; None if it has no cache.

    Args:
        cache_dir: the cache's folder. True is the user's cache, unless the variable
            ``VTENSOR_CACHE`` is ``off``; False and None are no cache.

    Raises:
        InputError: ``cache_dir`` is of another type, or is a folder that cannot be used; or
            ``VTENSOR_CACHE`` is neither ``on`` nor ``off``.
    """
    if cache_dir is None or isinstance(cache_dir, bool):
        return Entries() if cache_dir and is_on() else None
    if not isinstance(cache_dir, str | os.PathLike) or not os.fspath(cache_dir):
        raise InputError(f"cache_dir={cache_dir!r} is no folder; True is the user's, None is none")
    return Entries(cache_dir)


def is_on() -> bool:
    """Return whether sessions use the user's cache by default: ``VTENSOR_CACHE`` is not ``off``.

    Raises:
        InputError: the variable is neither ``on`` nor ``off``.
    """
    word = os.environ.get(VARIABLE) or "on"
    if word not in ("on", "off"):
        raise InputError(f"{VARIABLE}={word!r} must be on or off")
    return word == "on"


def _head(payload: bytes) -> bytes:
    return FORMAT + b" " + blake2b(payload, digest_size=16).hexdigest().encode()


def open_entry(path: str) -> BinaryIO:
    """Open an entry's file for reading its bytes; no link is followed, no pipe waited for.

    Raises:
        OSError: the file is not there, is a link, or cannot be read.
    """
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    return open(os.open(path, flags), "rb")  # noqa: PTH123


def payload_of(content: bytes) -> bytes | None:
    """Return the payload in the bytes of an entry; None if the format or the digest is wrong."""
    head, _, payload = content.partition(b"\n")
    return payload if head == _head(payload) and len(content) <= MOST_BYTES else None


def check_folder(folder: Path) -> None:
    """Check that a folder of entries belongs to the user alone.

    Raises:
        OSError: the folder belongs to another user, others may write to it, or it is missing.
    """
    status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode) or foreign(status):
        raise PermissionError(f"{folder} is not the user's alone")


def foreign(status: os.stat_result) -> bool:
    """Return whether another user owns a file or folder, or may write to it.

    Args:
        status: the facts about the file or folder, from ``os.stat``.
    """
    return status.st_uid != os.geteuid() or bool(status.st_mode & _OTHERS)


@cache
def _warn(folder: str, why: str) -> None:
    """Warn that there is no cache; once in a process for each folder and reason."""
    _log.warning("%s: %s; plans are made without a cache on disk", folder, why)


@cache
def code_state() -> tuple[int, int]:
    """Return the number of VTensor's code files, and the time of their last change in ns.

    Both numbers identify the code of a checkout, whose version does not change with each edit.
    """
    root, times = Path(__file__).parents[2], list[int]()
    folders = [str(root / package) for package in _PACKAGES]
    while folders:
        with os.scandir(folders.pop()) as files:
            for file in files:
                if file.name.endswith((".py", ".toml", ".so")):
                    times.append(file.stat().st_mtime_ns)
                elif file.name != "__pycache__" and file.is_dir(follow_symlinks=False):
                    folders.append(file.path)
    return len(times), max(times)
