"""Handlers: the functions that a description names, and the error when one fails.

A handler is called with what ``ARGUMENTS`` says. One that takes something else is refused when its
library is registered; what one raises becomes an error that names description, key and handler.
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
from vtensor.language.interrupts import pass_signals
from vtensor.language.records import dataclass

#: What a handler may raise that says enough as it is.
PASSED = (VTensorError, Decline, MemoryError)


@dataclass(frozen=True, eq=False)
class Handler:
    """A handler, as it is called: its function, and where the description names it."""

    file: Path
    key: str
    text: str
    function: Callable[..., Any]

    @property
    def label(self) -> str:
        """Description, key and function: ``direct.toml: library.guideline = 'm:f' (m.py:3)``."""
        return f"{self.file}: library.{self.key} = {self.text!r} ({place_of(self.function)})"

    @property
    def called_with(self) -> str:
        """The arguments in parentheses."""
        return f"({', '.join(ARGUMENTS[self.key])})"

    def __call__(self, *args: Any) -> Any:
        """Call the function.

        Raises:
            InvokerError: it failed within a call; names node and operands, too.
            LibraryError: it failed elsewhere.
        """
        try:
            return self.function(*args)
        except PASSED:
            raise
        except Exception as error:  # whatever a stranger's function raises
            pass_signals(error)
            raise self.failure(raised(error, place_of(self.function))) from error

    def each(self, *args: Any) -> Iterator[Any]:
        """What a handler that is a generator yields; it fails as a call of it does."""
        try:
            yield from self.function(*args)
        except PASSED:
            raise
        except Exception as error:
            pass_signals(error)
            raise self.failure(raised(error, place_of(self.function))) from error

    def failure(self, what: str) -> VTensorError:
        """The error of a handler that went wrong, with the call that is under way, if any."""
        text = f"{self.label}, called with {self.called_with}: {what}"
        call = current_call()
        if call is None:
            return LibraryError(text)
        return InvokerError(call.failure(text, who=f"a handler of {call.library}"))


def find_handler(description: Description, key: str) -> Handler | None:
    """The handler that a description names for a key, or None where it names none.

    Raises:
        DescriptionError: its module does not import, has no such function, or one that takes
            something else than it is called with.
    """
    text = description.handlers.get(key)
    if text is None:
        return None
    module_name, _, function = text.partition(":")
    try:
        module = import_module(module_name, description.file)
        found = getattr(module, function)
    except (Exception, SystemExit) as error:  # whatever a module raises while it is imported
        pass_signals(error)
        why = str(error).removeprefix(f"{description.file}: ")
        why = why if isinstance(error, DescriptionError) else f"{type(error).__name__}: {why}"
        raise DescriptionError(
            f"{description.file}: library.{key} = {text!r} does not import: {why}"
        ) from error
    if not callable(found):
        raise DescriptionError(f"{description.file}: library.{key} = {text!r} is no function")
    made = Handler(description.file, key, text, found)
    _check_signature(made)
    return made


def _check_signature(handler: Handler) -> None:
    try:
        signature = inspect.signature(handler.function)
    except (TypeError, ValueError):  # a function in C need not say what it takes
        return
    try:
        signature.bind(*ARGUMENTS[handler.key])
    except TypeError as error:
        raise DescriptionError(
            f"{handler.label} takes {signature.replace(return_annotation=signature.empty)}, "
            f"and is called with {handler.called_with}: {error}"
        ) from None
