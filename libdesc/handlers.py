"""Handlers: the functions that a description names, and the error when one fails.

``ARGUMENTS`` says with which arguments each handler is called. When a library is registered, a
handler that takes other arguments is an error. An exception that a handler raises becomes an error
that names the description file, the key and the handler.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from libdesc.load import import_module
from libdesc.schema import ARGUMENTS, Description
from ptensor.evaluation import Decline, current_call
from vtensor.errors import DescriptionError, InvokerError, LibraryError, VTensorError
from vtensor.language.failures import place_of, raised
from vtensor.language.process.interrupts import pass_signals
from vtensor.language.records import dataclass

#: Exceptions of handlers that reach the caller unchanged, because their messages say enough.
PASSED_ON = (VTensorError, Decline, MemoryError)


@dataclass(frozen=True, eq=False)
class Handler:
    """A function that a library's description names.

    Attributes:
        file: the description file.
        key: the description's key, such as ``guideline``.
        text: the key's value, ``"module:function"``.
        function: the function.
    """

    file: Path
    key: str
    text: str
    function: Callable[..., Any]

    @property
    def label(self) -> str:
        """The handler's names for messages: ``direct.toml: library.guideline = 'm:f' (m.py:3)``."""
        return f"{self.file}: library.{self.key} = {self.text!r} ({place_of(self.function)})"

    @property
    def called_with(self) -> str:
        """The names of the arguments with which the function is called, in parentheses."""
        return f"({', '.join(ARGUMENTS[self.key])})"

    def __call__(self, *args: Any) -> Any:
        """Call the function and return its result.

        Raises:
            InvokerError: the function failed during a call of an invoker; the message names the
                node and its operands, too.
            LibraryError: the function failed without such a call.
        """
        try:
            return self.function(*args)
        except PASSED_ON:
            raise
        except Exception as error:  # whatever a third-party function raises
            pass_signals(error)
            raise self.failure(raised(error, place_of(self.function))) from error

    def each(self, *args: Any) -> Iterator[Any]:
        """Call the function, a generator function, and yield its values.

        Raises:
            InvokerError, LibraryError: as ``__call__``.
        """
        try:
            yield from self.function(*args)
        except PASSED_ON:
            raise
        except Exception as error:
            pass_signals(error)
            raise self.failure(raised(error, place_of(self.function))) from error

    def failure(self, what: str) -> VTensorError:
        """Return the error for a handler that failed.

        It is an InvokerError during a call of an invoker, otherwise a LibraryError.

        Args:
            what: the fault, as a text.
        """
        text = f"{self.label}, called with {self.called_with}: {what}"
        call = current_call()
        if call is None:
            return LibraryError(text)
        return InvokerError(call.failure(text, component=f"a handler of {call.library}"))


def find_handler(description: Description, key: str) -> Handler | None:
    """Return the handler that a description names for a key; None if it names none.

    Raises:
        DescriptionError: the handler's module does not import or has no such function, or the
            function does not take the arguments that it is called with.
    """
    text = description.handlers.get(key)
    if text is None:
        return None
    module_name, _, function_name = text.partition(":")
    try:
        module = import_module(module_name, description.file)
        function = getattr(module, function_name)
    except (Exception, SystemExit) as error:  # whatever importing a module raises
        pass_signals(error)
        why = str(error).removeprefix(f"{description.file}: ")
        why = why if isinstance(error, DescriptionError) else f"{type(error).__name__}: {why}"
        raise DescriptionError(
            f"{description.file}: library.{key} = {text!r} does not import: {why}"
        ) from error
    if not callable(function):
        raise DescriptionError(f"{description.file}: library.{key} = {text!r} is no function")
    handler = Handler(description.file, key, text, function)
    _check_signature(handler)
    return handler


def _check_signature(handler: Handler) -> None:
    try:
        signature = inspect.signature(handler.function)
    except (TypeError, ValueError):  # a function in C may have no signature
        return
    try:
        signature.bind(*ARGUMENTS[handler.key])
    except TypeError as error:
        raise DescriptionError(
            f"{handler.label} takes {signature.replace(return_annotation=signature.empty)}, "
            f"and is called with {handler.called_with}: {error}"
        ) from None
