"""A lazy import of ONNX's package: the modules that a session needs, without the rest.

``import onnx`` imports command-line tools, mail and zip archives, which a session does not need.
Reading a model needs four of its modules and the classes of its protocol buffers. If the package is
not imported yet, it is put into ``sys.modules`` without running the code of its ``__init__.py``.
That code runs at the first use of a name that is neither a module of the package nor one of these
classes; from then on the package is an ordinary one.
"""

from __future__ import annotations

import importlib
import sys
from contextlib import suppress
from importlib.util import find_spec, module_from_spec
from types import ModuleType
from typing import Any

from vtensor.language.process.forks import process_lock

PACKAGE = "onnx"

#: A module that the C++ implementation of protocol buffers imports and never uses; it imports a
#: reader and a writer of text.
_UNUSED = "google.protobuf.internal.python_message"

#: The module whose classes the package has under the same names.
_CLASSES = f"{PACKAGE}.onnx_ml_pb2"

#: Names with double underscores that the package's own code defines; every module has the others.
_DEFINED_NAMES = ("__all__", "__version__")


class Deferred(ModuleType):
    """A package whose own code does not run at import.

    The code runs at the first use of a name that is neither a module of the package nor a class of
    the module ``_CLASSES``.
    """

    #: Held by the thread that runs the package's code; other threads wait until all names exist.
    _lock = process_lock()
    _running: bool

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name not in _DEFINED_NAMES:
            raise AttributeError(f"module {PACKAGE!r} has no attribute {name!r}")
        if (cls := getattr(importlib.import_module(_CLASSES), name, None)) is not None:
            vars(self)[name] = cls  # as the package's own code does
            return cls
        if name not in _DEFINED_NAMES and find_spec(f"{PACKAGE}.{name}") is not None:
            return importlib.import_module(f"{PACKAGE}.{name}")
        self._run(name)
        return getattr(self, name)

    def __dir__(self) -> list[str]:
        self._run("__dir__")
        return dir(self)

    def _run(self, name: str) -> None:
        """Run the package's own code, after which it is an ordinary module.

        Raises:
            AttributeError: this thread is running the code already, and ``name`` is not defined
                yet.
        """
        with Deferred._lock:
            if type(self) is ModuleType:  # another thread has run the code meanwhile
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
    """A module whose code runs when one of its names is used."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or self.__spec__ is None or self.__spec__.loader is None:
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        with Deferred._lock:
            if type(self) is LazyModule:  # no other thread has run the code meanwhile
                self.__spec__.loader.exec_module(self)
                module: Any = self
                module.__class__ = ModuleType
        return getattr(self, name)


def defer() -> None:
    """Put the lazy package into ``sys.modules``, if ONNX is installed and not imported yet."""
    if PACKAGE not in sys.modules and (spec := find_spec(PACKAGE)) is not None:
        package = module_from_spec(spec)
        package.__class__ = Deferred
        sys.modules[PACKAGE] = package
        _defer_unused()


def _defer_unused() -> None:
    """Put ``_UNUSED``, which protocol buffers import and never use, lazily into ``sys.modules``."""
    with suppress(ImportError):  # other versions of protocol buffers lack the module
        if _UNUSED not in sys.modules and (spec := find_spec(_UNUSED)) is not None:
            module = module_from_spec(spec)
            module.__class__ = LazyModule
            sys.modules[_UNUSED] = module
