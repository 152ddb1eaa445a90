"""Whether an executor's thread waits for the thread that is about to wait for it.

A call-back may start threads and join them, or wait for a future. Where such a thread wants the
executor whose call-back this is, neither would ever go on. Who waits for whom is in their frames.
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
    """The code that waits for a future, and the code that works for one.

    None where nobody has imported that: then no thread does, and no import waits for a thread whose
    frame is looked at.
    """
    future = getattr(sys.modules.get("concurrent.futures._base"), "Future", None)
    item = getattr(sys.modules.get("concurrent.futures.thread"), "_WorkItem", None)
    return future and future.result.__code__, item and item.run.__code__


class Place:
    """The thread of an executor.

    Attributes:
        ident: Python's number for it; 0 as long as it has called nothing.
    """

    def __init__(self) -> None:
        self.ident = 0

    def waits_for_caller(self) -> bool:
        """The thread waits, without a limit, for the calling one, or for one that waits for it."""
        frames, caller, here = sys._current_frames(), threading.get_ident(), self.ident
        seen = {0}
        try:
            while here not in seen and here in frames:
                seen.add(here)
                here = _awaited(frames[here], frames)
                if here == caller:
                    return True
            return False
        finally:
            frames.clear()  # this frame is among them: a circle, which would keep all that called


def _awaited(frame: FrameType, frames: dict[int, FrameType]) -> int:
    """The number of the thread that a frame's thread waits for; 0 if it waits for none."""
    result, _ = _futures()
    for one in _outwards(frame):
        if one.f_code in (_JOIN, result):
            given = one.f_locals
            if given["timeout"] is not None:
                return 0
            awaited = given["self"]
            return (awaited.ident if one.f_code is _JOIN else _worker(awaited, frames)) or 0
        if "server" in one.f_code.co_varnames:  # as in an executor's methods
            place = getattr(one.f_locals.get("server"), "place", None)
            if isinstance(place, Place):
                return place.ident
    return 0


def _worker(future: Future[Any], frames: dict[int, FrameType]) -> int:
    """The number of the thread of a pool that works for a future."""
    _, work = _futures()
    for ident, frame in frames.items():
        for one in _outwards(frame):
            if one.f_code is work and getattr(one.f_locals["self"], "future", None) is future:
                return ident
    return 0


def _outwards(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back
