"""The way into native code, by way of the tracer that writes down the calls made there.

A native entry takes its module from ``traced``: the module, or a proxy of it while a tracer is
current (``libdesc/native_trace.py``).
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

#: The packages that are searched for pure functions which data names.
PACKAGES = ("libdesc", "ops")


class Tracer(Protocol):
    """A trace that writes down native calls."""

    def traced(self, native: Any) -> Any:
        """Return a proxy of a native module, or of a function."""

    def cached(
        self, function: Callable[..., Any], arguments: tuple[Any, ...], named: Mapping[str, Any]
    ) -> Any:
        """Return the result of a cached function, whose own calls are traced."""


#: The tracer of this thread's calls.
TRACER: ContextVar[Tracer | None] = ContextVar("TRACER", default=None)

#: Functions that data may name, by name.
_PURE: dict[str, Callable[..., Any]] = {}

#: Those of them that rows may call.
_CALLED: set[Callable[..., Any]] = set()


@contextmanager
def tracing(trace: Tracer | None) -> Iterator[None]:
    """Trace native calls inside the block; None traces none."""
    token = TRACER.set(trace)
    try:
        yield
    finally:
        TRACER.reset(token)


def traced(native: T) -> T:
    """Return a native module or a pure function, or the current tracer's proxy of it."""
    tracer = TRACER.get()
    return native if tracer is None else cast("T", tracer.traced(native))


def pure(function: Callable[P, T], name: str = "") -> Callable[P, T]:
    """Let data name a function of Python's: its arguments decide its result, and it changes
    nothing.

    Args:
        function: the function.
        name: a module and a name in it, for a function that computes a node's output
            (``Computes``); empty for one that rows may call.
    """
    if not name:
        _CALLED.add(function)
    _PURE[name or f"{function.__module__}:{function.__qualname__}"] = function
    return function


def pure_name(function: object) -> str | None:
    """Return the name of a pure function; None of anything else."""
    return next((name for name, known in _PURE.items() if known is function), None)


def pure_function(name: str, called: bool = False) -> Callable[..., Any]:
    """Return a pure function by its name.

    Args:
        name: as ``pure_name`` gives it.
        called: rows are to call it.

    Raises:
        ValueError: there is no such function, or rows may not call it.
    """
    module = name.partition(":")[0]
    if name not in _PURE and module.startswith(tuple(f"{package}." for package in PACKAGES)):
        import_module(module)
    if name not in _PURE or (called and _PURE[name] not in _CALLED):
        raise ValueError(f"{name} is no function that data may name")
    return _PURE[name]


def cached(function: Callable[P, T]) -> Callable[P, T]:
    """Cache a function by its arguments, which makes or reads native things.

    While calls are traced, those inside of the function are, too, if an argument depends on
    symbolic sizes; and once a trace for each choice of arguments, if none does.
    """

    @wraps(function)
    def call(*arguments: P.args, **named: P.kwargs) -> T:
        tracer = TRACER.get()
        if tracer is None:
            return stored(*arguments, **named)
        return cast("T", tracer.cached(function, arguments, named))

    stored = cast("Callable[P, T]", lru_cache(maxsize=2048)(function))
    return call
