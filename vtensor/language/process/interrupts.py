"""Errors that ``except`` clauses catch, and errors of signal handlers, which they must not catch.

A signal handler may raise any exception between two calls of the code that it interrupts: a
timeout, an exit. The program relies on that exception, so it must not be taken for a failure of the
interrupted code. An ``except`` clause therefore names the kinds of errors that the code in its
block raises by design (``MALFORMED``), or all kinds if that code is foreign, and then calls
``pass_signals`` first.
"""

from __future__ import annotations

from contextlib import suppress
from importlib import import_module
from types import CodeType, TracebackType
from typing import Any

from vtensor.errors import VTensorError

#: The built-in module behind ``signal``. It is always loaded, and its functions have no wrappers.
_signal: Any = import_module("_signal")


class Unfit(Exception):  # it is no error
    """The base of exceptions by which a part of the planner declines something it cannot do.

    The planner then tries another way.
    """


#: The errors that VTensor's code, native code included, raises for malformed data: a damaged entry
#: of the cache, a symbol in place of a number. ``OSError``, and so ``TimeoutError``, is not among
#: them: code that reads files has clauses of its own. Classes that a program derives from
#: ``Exception`` are not either, since the program may raise them in another thread.
MALFORMED: tuple[type[Exception], ...] = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    BufferError,
    EOFError,
    ImportError,
    LookupError,
    NameError,
    RuntimeError,
    StopIteration,
    SyntaxError,
    TypeError,
    Unfit,
    ValueError,
    VTensorError,
)


class ignored(suppress):  # noqa: N801  # as in contextlib
    """Suppress errors of some kinds, as ``contextlib.suppress`` does, but none of a signal's
    handler.
    """

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool:
        return super().__exit__(kind, error, trace) and not (error and _from_handler(error))


def pass_signals(error: BaseException) -> None:
    """Raise a caught error again if a signal's handler had raised it; else return."""
    if _from_handler(error):
        raise error


def _from_handler(error: BaseException) -> bool:
    """Return whether an error came out of a function that handles a signal."""
    handlers = {_code(_signal.getsignal(number)) for number in range(1, _signal.NSIG)} - {None}
    trace = error.__traceback__ if handlers else None
    while trace is not None:
        if trace.tb_frame.f_code in handlers:
            return True
        trace = trace.tb_next
    return False


def _code(function: Any) -> CodeType | None:
    """Return the code of a function, method, partial or callable object; None if it has none."""
    function = getattr(function, "func", function)
    called = getattr(type(function), "__call__", None)  # noqa: B004  # the method itself is needed
    return getattr(function, "__code__", None) or getattr(called, "__code__", None)
