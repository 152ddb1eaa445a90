"""Detection of deadlocks: a thread is about to wait for an executor whose own thread waits for it.

A call-back from a step into Python may start threads and join them, or wait for a future. If such a
thread then calls the executor that runs the call-back, both threads would wait forever. The frames
of Python's threads tell which thread waits for which.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from types import CodeType, FrameType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from concurrent.futures import Future

_JOIN = threading.Thread.join.__code__


def _futures() -> tuple[CodeType | None, CodeType | None]:
    """Return the code objects of ``Future.result`` and of a pool's ``_WorkItem.run``.

    Each is None if its module is not imported: then no thread uses it. An import here could wait
    for a thread whose frame is being examined.
    """
    future = getattr(sys.modules.get("concurrent.futures._base"), "Future", None)
    item = getattr(sys.modules.get("concurrent.futures.thread"), "_WorkItem", None)
    return future and future.result.__code__, item and item.run.__code__


class Place:
    """A thread that other threads wait for: the thread of an executor, or the holder of a planning
    lock.

    Attributes:
        ident: the thread's identifier in Python. It is 0 if the executor's thread has not called a
            Python function yet, or if no thread holds the lock.
    """

    def __init__(self) -> None:
        self.ident = 0

    def waits_for_caller(self) -> bool:
        """Return whether this thread waits for the calling thread, without a timeout.

        It may wait indirectly: for a thread that waits for the calling thread.
        """
        frames, caller, current = sys._current_frames(), threading.get_ident(), self.ident
        visited = {0}
        try:
            while current not in visited and current in frames:
                visited.add(current)
                current = _awaited(frames[current], frames)
                if current == caller:
                    return True
            return False
        finally:
            frames.clear()  # contains this frame: a reference cycle would keep all callers alive


def _awaited(frame: FrameType, frames: dict[int, FrameType]) -> int:
    """Return the identifier of the thread that a frame's thread waits for; 0 for none.

    Args:
        frame: the innermost frame of the thread.
        frames: the innermost frames of all threads, by thread identifier.
    """
    result, _ = _futures()
    for caller in _outwards(frame):
        if caller.f_code in (_JOIN, result):
            local = caller.f_locals
            if local["timeout"] is not None:
                return 0
            awaited = local["self"]
            return (awaited.ident if caller.f_code is _JOIN else _worker(awaited, frames)) or 0
        if "server" in caller.f_code.co_varnames:  # a local of methods that wait for a ``Place``
            place = getattr(caller.f_locals.get("server"), "place", None)
            if isinstance(place, Place):
                return place.ident
    return 0


def _worker(future: Future[Any], frames: dict[int, FrameType]) -> int:
    """Return the identifier of the pool thread that computes a future; 0 if none does.

    Args:
        future: the future.
        frames: the innermost frames of all threads, by thread identifier.
    """
    _, work = _futures()
    for ident, frame in frames.items():
        for caller in _outwards(frame):
            if caller.f_code is work and getattr(caller.f_locals["self"], "future", None) is future:
                return ident
    return 0


def _outwards(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back
