"""What another thread does while a plan is recorded: it reads and packs constants, and compiles.

To read a network's weights, to pack them, to have the system clear the pages that they go to, and
to compile kernels takes as long as all else of a first plan, and no Python. So a thread of native
code does it, with the processor that recording does not use; who makes the plan helps in the end,
and waits.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ptensor.buffer import Buffer, TensorStorage
from ptensor.pages import passing
from vtensor.frontends.open_file import OpenFile, Stretch
from vtensor.language.interrupts import pass_signals
from vtensor.runtime.evaluations import step_error
from vtensor.runtime.unread import Unread

if TYPE_CHECKING:
    from ptensor.evaluation import Step
    from resolver.values import Value
    from vtensor.runtime import _replay
    from vtensor.runtime.steps import RecordedStep

    #: Called with what was packed, its memory, and whether it has lost subnormals.
    Done = Callable[[Value, TensorStorage, bool], None]

Array = np.ndarray[Any, Any]

#: Of fewer bytes no pages are expected: a few faults take less than a thread.
LEAST = 4 << 20

#: So many bytes are expected at most: those behind them are not there in time.
MOST = 1 << 29


class Expected:
    """Memory for weights whose number is known before their layouts; its pages come meanwhile.

    Args:
        nbytes: of the weights as they are in their file.
    """

    def __init__(self, nbytes: int) -> None:
        from vtensor.runtime import _replay

        self._process = os.getpid()
        self.thread = _replay.Aside()
        self._arena = _replay.Arena(min(nbytes, MOST))
        self.thread.bring(self._arena.memory())

    @property
    def lost(self) -> bool:
        """This process was forked: the thread is its parent's."""
        return os.getpid() != self._process

    def room(self, nbytes: int) -> Array:
        """So much memory, of which pages are there; the others go back to the system."""
        self.thread.leave_pages()
        self._arena.grow(nbytes)
        self._arena.leave(nbytes)
        return self._arena.memory()[:nbytes]


class _Waiting(NamedTuple):
    """A constant that is being packed: what it becomes, where, who asks, and the file that it is
    read of. The step would keep what it is made of.
    """

    value: Value
    storage: TensorStorage
    room: Buffer
    node: str
    told: Callable[[str], str]
    file: OpenFile | None


class Aside:
    """What is packed and compiled while its maker goes on.

    Args:
        thread: does it.
        done: called for each constant by whoever waits.
    """

    def __init__(self, thread: _replay.Aside, done: Done) -> None:
        self._running: _replay.Aside | None = thread
        self._done = done
        self._waiting: list[_Waiting | None] = []
        self._files = set[OpenFile]()  # of which something is read
        self._failed: BaseException | None = None

    @property
    def _thread(self) -> _replay.Aside:
        assert self._running is not None, "nothing is recorded any more"
        return self._running

    def close(self) -> None:
        """Nothing is to be done any more: the thread ends."""
        self._running, self._waiting = None, []

    def compile(self, step: Step) -> None:
        """Have a kernel compiled, where its library can do so apart from Python; who asks for it
        meanwhile waits.
        """
        compiling = getattr(type(step), "compiling", None)  # not of what notes a step's calls
        if compiling is not None:
            self._thread.run([(compiling(step), ())])
            self._waiting.append(None)

    def pack(
        self,
        steps: Sequence[RecordedStep],
        source: TensorStorage,
        unread: Unread | None,
        value: Value,
        made: TensorStorage,
        room: Buffer,
        factor: bool,
    ) -> bool:
        """Have a constant packed; whoever looks at it waits for that. False where steps need more
        than its memory and another's.

        Args:
            steps: pack it.
            source: what they read.
            unread: where that is, if it is still in a file.
            value, made, room: what is packed, without memory, and the memory for it.
            factor: it loses subnormals.
        """
        if any(step.callback is not None for step in steps):
            return False
        pieces: list[tuple[object, list[Array | None]]] = []
        for step in steps:
            slots: list[Array | None] = []
            for one in step.slots:
                if isinstance(one, int):
                    slots.append(Buffer.allocate(one).memory)
                elif one.root is made:
                    slots.append(room.memory[one.begin : one.begin + one.nbytes])
                elif unread is None or one.root is not source:
                    slots.append(one.memory)
                elif one.nbytes == unread.nbytes:
                    slots.append(None)
                else:
                    return False
            pieces.append((step.native, slots))
        file = place = factors = None
        if unread is not None:
            file, place, factors = unread.stretch.file, unread.place, unread.factors
        self._thread.run(pieces, room.memory if factor else None, place, factors)
        made.constant = True
        made.bind_later(lambda: self._filled(room))
        self._waiting.append(_Waiting(value, made, room, steps[-1].node, steps[-1].told, file))
        return True

    def read(self, stretch: Stretch) -> Array:
        """Have bytes of a file read, which are there after ``wait``."""
        into = passing((stretch.nbytes,), np.dtype(np.uint8))
        self._thread.read(stretch.file, stretch.offset, into)
        self._files.add(stretch.file)
        return into

    def _filled(self, room: Buffer) -> Buffer:
        self.wait()
        return room

    def wait(self) -> None:
        """See that all constants are packed; where one was not, that is said each time.

        Raises:
            ModelError: a file was changed, or cannot be read.
            NativeError: a step failed.
        """
        if self._failed is not None:
            raise self._failed
        try:
            self._wait()
        except BaseException as error:
            self._failed = error
            raise

    def _wait(self) -> None:
        waiting, self._waiting = self._waiting, []
        files, self._files = self._files, set()
        files |= {one.file for one in waiting if one is not None and one.file is not None}
        if not waiting and not files:
            return
        try:
            lost = self._thread.wait()
        except (OSError, EOFError) as error:
            pass_signals(error)
            for file in files:
                file.check()
            why = error if isinstance(error, OSError) else None
            raise next(iter(files)).unread(why) from error
        except (RuntimeError, ValueError, TypeError) as error:
            failed = waiting[getattr(error, "index", 0)]
            node, told = (failed.node, failed.told) if failed else ("", str)
            raise step_error(error, node, told) from error
        for file in files:
            file.check()
        for one, has_lost in zip(waiting, lost, strict=True):
            if one is None:
                continue
            one.storage.forget()
            one.storage.bind(one.room)
            self._done(one.value, one.storage, has_lost)
