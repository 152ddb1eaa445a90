"""Work that nobody waits for: it leaves room to runs, and ends where it is not wanted any more."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_over: ContextVar[Callable[[], bool] | None] = ContextVar("vtensor_over", default=None)


class Stopped(BaseException):  # past whoever goes on where a library refuses a call
    """The work in this context is not wanted any more."""


@contextmanager
def stopping(over: Callable[[], bool]) -> Iterator[None]:
    """Inside the block, work ends as soon as a function says that it is over."""
    token = _over.set(over)
    try:
        yield
    finally:
        _over.reset(token)


def go_on() -> None:
    """Return where the work is still wanted.

    Raises:
        Stopped: it is not.
    """
    over = _over.get()
    if over is not None and over():
        raise Stopped


def nobody_waits() -> bool:
    """Whether the work in this context is such: then it queues in small parts, between runs."""
    return _over.get() is not None
