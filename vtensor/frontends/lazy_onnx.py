"""ONNX's package, as far as a session needs it: its modules, without what else it imports at once.

``import onnx`` imports command-line tools, mail and zip archives, which takes as long as half of
NumPy. Reading a model needs four of its modules and the classes of its protocol buffers. So where
nobody has imported it yet, the package is there without its own lines having been run; the first
look at any other name of it runs them, and what is there then is the package as it always is.
"""

from __future__ import annotations

import importlib
import sys
from contextlib import suppress
from importlib.util import find_spec, module_from_spec
from types import ModuleType
from typing import Any

from vtensor.language.forks import process_lock

PACKAGE = "onnx"

#: A module of protocol buffers that those in C++ import, with a reader and a writer of text, and
#: never use.
_UNUSED = "google.protobuf.internal.python_message"

#: The module with the classes that the package has under the same names.
_CLASSES = f"{PACKAGE}.onnx_ml_pb2"

#: Names of a module that somebody may look for in any; those of a package that has run are there.
_OWN = ("__all__", "__version__")


class Deferred(ModuleType):
    """A package whose lines run when a name is asked for that its modules do not have."""

    #: One thread runs them; while it does, names that are not there yet are missing only for it.
    _lock = process_lock()
    _running: bool

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name not in _OWN:
            raise AttributeError(f"module {PACKAGE!r} has no attribute {name!r}")
        if (found := getattr(importlib.import_module(_CLASSES), name, None)) is not None:
            vars(self)[name] = found  # as the package's own lines do
            return found
        if name not in _OWN and find_spec(f"{PACKAGE}.{name}") is not None:
            return importlib.import_module(f"{PACKAGE}.{name}")
        self._run(name)
        return getattr(self, name)

    def __dir__(self) -> list[str]:
        self._run("__dir__")
        return dir(self)

    def _run(self, name: str) -> None:
        with Deferred._lock:
            if type(self) is ModuleType:  # another thread was here meanwhile
                return
            if "_running" in vars(self):
                raise AttributeError(f"module {PACKAGE!r} has no attribute {name!r} yet")
            self._running = True
            try:
                assert self.__spec__ is not None, "it was made of one"
                assert self.__spec__.loader is not None, "a package's lines can be run"
                self.__spec__.loader.exec_module(self)
            finally:
                del self._running
            package: Any = self
            package.__class__ = ModuleType


class LazyModule(ModuleType):
    """A module whose lines run when something of it is asked for."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or self.__spec__ is None or self.__spec__.loader is None:
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        with Deferred._lock:
            if type(self) is LazyModule:  # no other thread was here meanwhile
                self.__spec__.loader.exec_module(self)
                module: Any = self
                module.__class__ = ModuleType
        return getattr(self, name)


def defer() -> None:
    """Put the package in its place, if it is installed and nobody has imported it."""
    if PACKAGE not in sys.modules and (spec := find_spec(PACKAGE)) is not None:
        package = module_from_spec(spec)
        package.__class__ = Deferred
        sys.modules[PACKAGE] = package
        _defer_unused()


def _defer_unused() -> None:
    """The same of what nobody uses."""
    with suppress(ImportError):  # another version of protocol buffers
        if _UNUSED not in sys.modules and (spec := find_spec(_UNUSED)) is not None:
            module = module_from_spec(spec)
            module.__class__ = LazyModule
            sys.modules[_UNUSED] = module
