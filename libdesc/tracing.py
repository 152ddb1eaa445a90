"""Access to native code, so that a tracer can record the calls.

Python code that calls a native module gets it from ``traced``. This function returns the module
itself, or, while a tracer is current, a proxy of the module that records calls
(``libdesc/native_trace.py``).
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

#: The packages from which pure functions may be imported by name.
PACKAGES = ("libdesc", "ops")


class Tracer(Protocol):
    """An object that records native calls, such as a ``NativeTrace``."""

    def traced(self, native: Any) -> Any:
        """Return a proxy of a native module, or of a function."""

    def cached(
        self, function: Callable[..., Any], arguments: tuple[Any, ...], named: Mapping[str, Any]
    ) -> Any:
        """Return the result of a cached function and trace the calls inside it."""


#: The tracer that records native calls in this context; None if they are not recorded.
TRACER: ContextVar[Tracer | None] = ContextVar("TRACER", default=None)

#: Pure functions by the name, ``module:name``, under which saved traces refer to them.
_PURE: dict[str, Callable[..., Any]] = {}

#: The pure functions that rows of a saved trace may call.
_CALLED: set[Callable[..., Any]] = set()


@contextmanager
def tracing(trace: Tracer | None) -> Iterator[None]:
    """Make a tracer the current one inside the block; with None, native calls are not traced."""
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
    """Register a Python function under a name by which saved traces may refer to it, and return the
    function.

    The function must be pure: its result depends on its arguments only, and it changes nothing.

    Args:
        function: the function.
        name: ``"module:name"``, for a function that computes a node's output (``Computes``). If
            empty, the name is made of the function's own module and name, and rows of a trace may
            call the function.
    """
    if not name:
        _CALLED.add(function)
    _PURE[name or f"{function.__module__}:{function.__qualname__}"] = function
    return function


def pure_name(function: object) -> str | None:
    """Return the name under which a function is registered as pure; None if it is not."""
    return next((name for name, registered in _PURE.items() if registered is function), None)


def pure_function(name: str, called: bool = False) -> Callable[..., Any]:
    """Return the pure function that is registered under a name.

    Args:
        name: as ``pure_name`` gives it.
        called: True if rows of a trace will call it.

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
    """Return a function that caches the results of ``function`` by its arguments.

    ``function`` makes or reads native objects. While a tracer is current, the native calls inside
    it are recorded. If an argument depends on a symbolic size, they are recorded in each call,
    otherwise once for each trace and combination of arguments.
    """

    @wraps(function)
    def call(*arguments: P.args, **named: P.kwargs) -> T:
        tracer = TRACER.get()
        if tracer is None:
            return stored(*arguments, **named)
        return cast("T", tracer.cached(function, arguments, named))

    stored = cast("Callable[P, T]", lru_cache(maxsize=2048)(function))
    return call
