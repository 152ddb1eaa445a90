"""Files that stay open after they were read."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, NamedTuple
from weakref import finalize

import numpy as np

from ptensor.pages import Room, reused
from vtensor.errors import ModelError
from vtensor.language.records import dataclass
from vtensor.language.wording import reason

Bytes = np.ndarray[Any, np.dtype[np.uint8]]

#: Data of so many bytes of a file is read when somebody asks for it.
LATER = 1 << 16


def state_of(facts: os.stat_result) -> tuple[int, ...]:
    """What differs once a file was written to, or is another."""
    return facts.st_dev, facts.st_ino, facts.st_size, facts.st_mtime_ns


@dataclass(frozen=True, eq=False)
class Stretch:
    """Bytes of a file that stays open; called, it reads them, as ``OpenFile.read``."""

    file: OpenFile
    offset: int
    nbytes: int

    def __call__(self, room: Room) -> Bytes:
        return self.file.read(self.offset, self.nbytes, room)


class Data(NamedTuple):
    """Raw data of a tensor.

    Attributes:
        bytes: the data; None where it is still to be read.
        nbytes: how much it is.
        read: reads it, as often as it is asked for; None where that cannot be.
    """

    bytes: Bytes | None
    nbytes: int
    read: Callable[[Room], Bytes] | None = None

    @property
    def reader(self) -> Callable[[Room], Bytes]:
        """What reads it, where it is still to be read."""
        assert self.read is not None, "what is to be read later can be read"
        return self.read

    def now(self, room: Room = reused) -> Bytes:
        """The data, read where it is not yet, into room that is made for it."""
        if self.bytes is not None:
            return self.bytes
        return self.reader(room)


class OpenFile:
    """A file that stays open, so that what was read of it can be read again: also where its name
    goes or is another file's, and not where its bytes are others.

    Args:
        descriptor: of the file.
        facts: the state that it is to stay in.
        label: what errors call it.
    """

    def __init__(self, descriptor: int, facts: os.stat_result, label: str) -> None:
        self._descriptor, self._label = os.dup(descriptor), label
        self.size, self._state = facts.st_size, state_of(facts)
        finalize(self, os.close, self._descriptor)

    def stretch(self, offset: int, nbytes: int) -> Stretch:
        """Some bytes, which are read later."""
        return Stretch(self, offset, nbytes)

    def fileno(self) -> int:
        """The descriptor, which is open as long as this is there."""
        return self._descriptor

    def fill(self, offset: int, into: Bytes) -> bool:
        """As ``Fill``."""
        view, done = into.data, 0
        while done < len(view):
            more = os.preadv(self._descriptor, [view[done:]], offset + done)
            if not more:
                return False
            done += more
        return True

    @property
    def changed(self) -> bool:
        """Somebody wrote to it since it was opened."""
        return state_of(os.fstat(self._descriptor)) != self._state

    def check(self) -> None:
        """See that nobody wrote to it since it was opened.

        Raises:
            ModelError: somebody did.
        """
        if self.changed:
            raise ModelError(f"{self._label} was changed since it was opened; load it again")

    def read(self, offset: int, nbytes: int, room: Room) -> Bytes:
        """Some bytes, in room that is made for them.

        Raises:
            ModelError: the file was changed, or cannot be read.
        """
        made = room(nbytes)
        try:
            whole = self.fill(offset, made)
        except OSError as error:
            raise self.unread(error) from error
        self.check()
        if not whole:
            raise self.unread()
        made.flags.writeable = False
        return made

    def unread(self, error: OSError | None = None) -> ModelError:
        """Why it cannot be read: it ends too soon, where the system does not say."""
        if error is None:
            return ModelError(f"{self._label} is shorter than it was; load it again")
        return ModelError(f"{self._label} cannot be read again: {reason(error)}")
