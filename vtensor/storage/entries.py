"""Entries on disk: files in a folder of the user's own, which processes may use at once.

It is a cache: what cannot be read, is damaged, of another format or somebody else's is no entry,
and is made anew. An entry is written beside its place and then put there, whole or not at all.
Where nothing can be written there is no cache; that is said once a process.
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
from vtensor.language.imported import blake2b, logger
from vtensor.language.interrupts import ignored, pass_signals
from vtensor.language.wording import reason
from vtensor.storage.cache_folder import cache_folder

#: Whether sessions that are not told otherwise use the user's own cache: ``on`` or ``off``.
VARIABLE = "VTENSOR_CACHE"

#: The folder of entries in a cache.
FOLDER = "plans"

#: What an entry begins with: its format, then the digest of what follows.
FORMAT = b"vtensor entry 3"

#: The most bytes of an entry, and of all of them; the oldest go first.
MOST_BYTES, MOST_IN_ALL = 1 << 23, 1 << 26

#: Nobody else may write to entries, or to their folder.
_OTHERS = stat.S_IWGRP | stat.S_IWOTH

#: The packages whose code makes entries.
_PACKAGES = ("vtensor", "ptensor", "libdesc", "resolver", "optimizer", "ops")

_log = logger(__name__)


class Entries:
    """The entries of one cache.

    Args:
        folder: the cache; None is the user's own.

    Raises:
        InputError: a folder was named that cannot be used at all.
    """

    def __init__(self, folder: str | os.PathLike[str] | None = None) -> None:
        self._folder = (cache_folder() if folder is None else Path(folder)) / FOLDER
        #: A folder that was there and is removed stays away.
        self._was_there = folder is None and self._folder.is_dir()
        if folder is not None:
            try:
                self._make()
            except (OSError, ValueError) as error:  # a NUL in the name
                pass_signals(error)
                raise InputError(
                    f"cache_dir={os.fspath(folder)!r} cannot be used: {reason(error)}\n  to fix: "
                    "name a folder of your own, which nobody else may write to, or cache_dir=None "
                    "for no cache"
                ) from error

    def read(self, name: str) -> bytes | None:
        """What an entry holds; None where there is no sound one.

        An entry that is used counts as a young one.
        """
        try:  # most names have no entry: first see that
            with open_entry(f"{self._folder}/{name}") as file:
                check_folder(self._folder)
                status = os.fstat(file.fileno())
                if not stat.S_ISREG(status.st_mode) or foreign(status):
                    return None
                found = file.read(MOST_BYTES + 1)
                with ignored(OSError):  # on a disk that is read only
                    os.utime(file.fileno())
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            pass_signals(error)
            _say(str(self._folder), reason(error))
            return None
        return payload_of(found)

    def names(self, prefix: str) -> list[str]:
        """The names of entries with a prefix, the youngest first."""
        try:
            rows = sorted(self._rows(), reverse=True)
        except OSError as error:  # which a reader meets as well, and says
            pass_signals(error)
            return []
        return [name for _, name, _ in rows if name.startswith(prefix)]

    def write(self, name: str, payload: bytes) -> None:
        """Put an entry in its place; those that are too many go.

        Nothing is written, and nothing said, once the folder was removed.
        """
        entry = _head(payload) + b"\n" + payload
        if len(entry) > MOST_BYTES:
            return
        temporary = self._folder / f"{name}.{os.getpid()}.{threading.get_ident()}"
        try:
            self._make()
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
            _say(str(self._folder), reason(error))

    def _make(self) -> None:
        """Make the folder, unless it was there before.

        Raises:
            OSError: as ``check_folder``; or there is no folder, or there can be none.
        """
        if not self._was_there:
            self._folder.parent.mkdir(0o700, parents=True, exist_ok=True)
            self._folder.mkdir(0o700, exist_ok=True)
            self._was_there = True
        check_folder(self._folder)

    def _rows(self) -> Iterator[tuple[int, str, int]]:
        """Of each entry when it was last used, its name, and its size."""
        with os.scandir(self._folder) as found:
            for one in found:
                with ignored(FileNotFoundError):  # another process has removed it
                    status = one.stat(follow_symlinks=False)
                    yield status.st_mtime_ns, one.name, status.st_size

    def _shrink(self) -> None:
        """Remove the oldest entries where all of them are too large."""
        total = 0
        for _, name, size in sorted(self._rows(), reverse=True):
            total += size
            if total > MOST_IN_ALL:
                (self._folder / name).unlink(missing_ok=True)


def entries_of(cache_dir: str | os.PathLike[str] | bool | None) -> Entries | None:
    """What a session is told of its cache; the user's own is there unless ``VTENSOR_CACHE=off``.

    Raises:
        InputError: it is no path, no bool and not None, or a folder that cannot be used at all; or
            the variable is neither ``on`` nor ``off``.
    """
    if cache_dir is None or isinstance(cache_dir, bool):
        return Entries() if cache_dir and is_on() else None
    if not isinstance(cache_dir, str | os.PathLike) or not os.fspath(cache_dir):
        raise InputError(f"cache_dir={cache_dir!r} is no folder; True is the user's, None is none")
    return Entries(cache_dir)


def is_on() -> bool:
    """Return whether sessions use the user's own cache.

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
    """Open an entry's file for reading; a link is not followed, and a pipe is not waited for.

    Raises:
        OSError: the file is not there, is a link, or cannot be read.
    """
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    return open(os.open(path, flags), "rb")  # noqa: PTH123


def payload_of(found: bytes) -> bytes | None:
    """Return what the bytes of an entry's file hold; None if its head or its digest is wrong."""
    head, _, payload = found.partition(b"\n")
    return payload if head == _head(payload) and len(found) <= MOST_BYTES else None


def check_folder(folder: Path) -> None:
    """Check that a folder of entries is the user's alone.

    Raises:
        OSError: it is another user's, others may write to it, or it is gone.
    """
    status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode) or foreign(status):
        raise PermissionError(f"{folder} is not the user's alone")


def foreign(status: os.stat_result) -> bool:
    """Return whether another user owns a file or folder, or may write to it."""
    return status.st_uid != os.geteuid() or bool(status.st_mode & _OTHERS)


@cache
def _say(folder: str, why: str) -> None:
    """Say once a process that there is no cache."""
    _log.warning("%s: %s; plans are made without a cache on disk", folder, why)


@cache
def code_state() -> tuple[int, int]:
    """How many files of code there are, and when the last one was changed.

    A version says enough of what is installed for good; not of a checkout that is worked on.
    """
    root, times = Path(__file__).parents[2], list[int]()
    folders = [str(root / package) for package in _PACKAGES]
    while folders:
        with os.scandir(folders.pop()) as found:
            for one in found:
                if one.name.endswith((".py", ".toml", ".so")):
                    times.append(one.stat().st_mtime_ns)
                elif one.name != "__pycache__" and one.is_dir(follow_symlinks=False):
                    folders.append(one.path)
    return len(times), max(times)
