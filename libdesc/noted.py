"""The way into native code: past whoever notes the calls that are made there.

Whoever enters it takes the module from ``noted``. While a call is recorded on traced sizes that is
something which notes what it is asked (``libdesc/calls.py``); else it is the module itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache, wraps
from importlib import import_module
from typing import Any, ParamSpec, Protocol, TypeVar, cast

T = TypeVar("T")
P = ParamSpec("P")


class Noting(Protocol):
    """What notes native calls."""

    def foreign(self, native: Any) -> Any:
        """What notes the calls of a native thing."""

    def remembered(
        self,
        function: Callable[..., Any],
        aside: Callable[..., Any],
        given: tuple[Any, ...],
        named: Mapping[str, Any],
    ) -> Any:
        """What a function gives that is remembered by its arguments: ``aside`` is, off the tape."""


#: The tape of the call that is recorded, if it is on one.
NOTING: ContextVar[Noting | None] = ContextVar("NOTING", default=None)


#: Functions that calls may be noted of by name, beside native ones: plain arguments decide what
#: they give, and they change nothing.
NAMEABLE: dict[str, Callable[..., Any]] = {}


#: Those of them that tapes may call.
TAPED: set[Callable[..., Any]] = set()


def nameable(function: Callable[P, T], name: str = "") -> Callable[P, T]:
    """A function of Python's that may be noted and named in what is kept for other processes.

    Args:
        function: the function.
        name: a module and a name in it, of what tapes do not call; empty is where it is defined.
    """
    if not name:
        TAPED.add(function)
    NAMEABLE[name or f"{function.__module__}:{function.__qualname__}"] = function
    return function


def name_of(thing: object) -> str | None:
    """The name of what is nameable."""
    return next((name for name, one in NAMEABLE.items() if one is thing), None)


def named(name: str, taped: bool = False) -> Callable[..., Any]:
    """What is nameable.

    Args:
        name: its name.
        taped: tapes call it.

    Raises:
        ValueError: there is none of such a name, or tapes may not call it.
    """
    module = name.partition(":")[0]
    if name not in NAMEABLE and module.partition(".")[0] in ("libdesc", "ops"):
        import_module(module)
    if name not in NAMEABLE or (taped and NAMEABLE[name] not in TAPED):
        raise ValueError(f"{name} cannot be named")
    return NAMEABLE[name]


@contextmanager
def noting(tape: Noting) -> Iterator[None]:
    """Native calls are noted there."""
    token = NOTING.set(tape)
    try:
        yield
    finally:
        NOTING.reset(token)


def noted(native: T) -> T:
    """A native thing, or what notes its calls."""
    tape = NOTING.get()
    return native if tape is None else cast("T", tape.foreign(native))


def remembered(function: Callable[P, T]) -> Callable[P, T]:
    """A function that is remembered by its arguments, which makes or reads native things.

    On a tape its own calls are noted where an argument depends on sizes: what is remembered must
    hold no traced size.
    """

    @wraps(function)
    def call(*given: P.args, **named: P.kwargs) -> T:
        tape = NOTING.get()
        if tape is None:
            return cached(*given, **named)
        return cast("T", tape.remembered(function, aside, given, named))

    def aside(*given: P.args, **named: P.kwargs) -> T:
        token = NOTING.set(None)
        try:
            return cached(*given, **named)
        finally:
            NOTING.reset(token)

    cached = cast("Callable[P, T]", lru_cache(maxsize=2048)(function))
    return call
