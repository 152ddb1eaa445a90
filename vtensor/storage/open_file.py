"""Files that stay open after a first reading; they can be read again as long as they are
unchanged.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any, NamedTuple
from weakref import finalize

import numpy as np

from ptensor.pages import Room, reused
from vtensor.errors import ModelError
from vtensor.language.process.interrupts import pass_signals
from vtensor.language.records import dataclass
from vtensor.language.wording import reason

Bytes = np.ndarray[Any, np.dtype[np.uint8]]

#: The fewest bytes of an array whose reading from a file is deferred.
LATER = 1 << 16


#: Linux's clock of file times, ``CLOCK_REALTIME_COARSE``. It moves in ticks of 1 to 10 ms.
_FILE_CLOCK = 5

#: In ns: the longest tick of a clock of file times, and the unit of file systems that store whole
#: seconds.
_TICK, _SECOND = 20_000_000, 1_000_000_000

#: Poll interval of the wait for the next tick, in seconds.
_POLL_S = 0.001

#: The number of samples by which a file's bytes are compared, and the bytes of each sample.
_SAMPLES, _SAMPLE = 16, 64


class State(NamedTuple):
    """Facts about a file that differ if its bytes were changed.

    ``changed_ns`` is the only time that a program cannot set back: tools that restore
    ``modified_ns`` (``cp -p``, ``rsync -t``, ``tar``) still advance it. A new name or mode advances
    it, too.

    Attributes:
        device, inode: the identity of the file.
        size: its size in bytes.
        modified_ns: the time of the last write, or the time that a program has set.
        names: the number of its names (hard links); 0 once it is removed or replaced.
        changed_ns: the time of the last change of bytes, names, mode, owner or ``modified_ns``.
    """

    device: int
    inode: int
    size: int
    modified_ns: int
    names: int
    changed_ns: int

    @classmethod
    def of(cls, facts: os.stat_result) -> State:
        """Return the state of a file, given the facts that ``os.fstat`` reports."""
        times = facts.st_mtime_ns, facts.st_nlink, facts.st_ctime_ns
        return cls(facts.st_dev, facts.st_ino, facts.st_size, *times)


def settled(descriptor: int) -> os.stat_result:
    """Wait until any later write will change a file's state, and return the file's facts.

    If a file is written twice in one tick of the clock, the second write leaves its times as they
    are (git calls such a file racily clean). So the function waits until the tick of the last
    change is over. Bytes that are read afterwards include a write in that tick; a later write
    changes ``st_ctime_ns``. A time that is more than a tick in the future comes from another
    machine's clock, and is not waited for.

    Args:
        descriptor: the descriptor of the open file.
    """
    facts = os.fstat(descriptor)
    unit = 1 if facts.st_ctime_ns % _SECOND else _SECOND
    over = facts.st_ctime_ns + unit
    while 0 < over - time.clock_gettime_ns(_FILE_CLOCK) <= max(unit, _TICK):
        time.sleep(_POLL_S)
    return facts


@dataclass(frozen=True, eq=False)
class Stretch:
    """A range of bytes in a file that stays open; calling it reads and returns the bytes.

    Attributes:
        file: the file.
        offset: the offset of the first byte.
        nbytes: the number of bytes.
    """

    file: OpenFile
    offset: int
    nbytes: int

    def __call__(self, room: Room) -> Bytes:
        return self.file.read(self.offset, self.nbytes, room)


class Data(NamedTuple):
    """Raw data of a tensor.

    Attributes:
        bytes: the data; None if they were not read yet.
        nbytes: the number of bytes.
        read: reads and returns the data, any number of times, given a function that allocates
            memory; None if the data are in memory only.
    """

    bytes: Bytes | None
    nbytes: int
    read: Callable[[Room], Bytes] | None = None

    @property
    def reader(self) -> Callable[[Room], Bytes]:
        """The function ``read`` of data that were not read yet."""
        assert self.read is not None, "data that are not in memory have a reader"
        return self.read

    def now(self, room: Room = reused) -> Bytes:
        """Return the data, which are read if necessary.

        Args:
            room: allocates the memory for data that are read.
        """
        if self.bytes is not None:
            return self.bytes
        return self.reader(room)


class OpenFile:
    """A file that stays open, so that it can be read again while its bytes are unchanged.

    The file can be read even after its name is removed or given to another file.

    Not only a write changes ``State.changed_ns``; so does a new or a removed name (hard link).
    Therefore, if the number of names has changed, samples of the bytes decide whether the file was
    written to. Any other difference of the state counts as a write.

    Args:
        descriptor: the descriptor of the open file; it is duplicated.
        facts: the file's facts, as ``settled`` returns them.
        label: the file's name in error messages.
    """

    def __init__(self, descriptor: int, facts: os.stat_result, label: str) -> None:
        self._descriptor, self._label = os.dup(descriptor), label
        finalize(self, os.close, self._descriptor)
        self.size, self._state = facts.st_size, State.of(facts)
        self._samples = self._read_samples()

    def _read_samples(self) -> bytes:
        places = range(0, self.size, max(self.size // _SAMPLES, 1))
        return b"".join([os.pread(self._descriptor, _SAMPLE, place) for place in places])

    def stretch(self, offset: int, nbytes: int) -> Stretch:
        """Return ``nbytes`` bytes from ``offset`` on as a ``Stretch``, without reading them."""
        return Stretch(self, offset, nbytes)

    def fileno(self) -> int:
        """Return the file's descriptor, which is open as long as this object lives."""
        return self._descriptor

    def fill(self, offset: int, into: Bytes) -> bool:
        """Read bytes from ``offset`` on until ``into`` is full; return True.

        False if the file ends before.
        """
        view, done = into.data, 0
        while done < len(view):
            more = os.preadv(self._descriptor, [view[done:]], offset + done)
            if not more:
                return False
            done += more
        return True

    def is_same(self, facts: os.stat_result) -> bool:
        """Return whether facts from ``os.stat`` are about this file, whether it was changed or
        not.
        """
        return (facts.st_dev, facts.st_ino) == self._state[:2]

    @property
    def changed(self) -> bool:
        """True if the file's bytes may differ from those at opening."""
        if State.of(os.fstat(self._descriptor)) == self._state:
            return False
        state = State.of(settled(self._descriptor))
        renamed = self._state._replace(names=state.names, changed_ns=state.changed_ns) == state
        if not renamed or state.names == self._state.names or self._read_samples() != self._samples:
            return True
        self._state = state
        return False

    def check(self) -> None:
        """Check that the file's bytes are those at opening; must be called after each read.

        Raises:
            ModelError: the file's bytes may differ from those at opening.
        """
        if self.changed:
            raise ModelError(f"{self._label} was changed since it was opened; load it again")

    def read(self, offset: int, nbytes: int, room: Room) -> Bytes:
        """Read bytes into new memory and return them as a read-only array.

        Args:
            offset: the offset of the first byte.
            nbytes: the number of bytes.
            room: allocates the memory.

        Raises:
            ModelError: the file was changed, or cannot be read.
        """
        memory = room(nbytes)
        try:
            whole = self.fill(offset, memory)
        except OSError as error:
            pass_signals(error)
            raise self.read_error(error) from error
        self.check()
        if not whole:
            raise self.read_error()
        memory.flags.writeable = False
        return memory

    def read_error(self, error: OSError | None = None) -> ModelError:
        """Return the error of a failed read; ``error`` is None if the file ended too soon."""
        if error is None:
            return ModelError(f"{self._label} is shorter than it was; load it again")
        return ModelError(f"{self._label} cannot be read again: {reason(error)}")
