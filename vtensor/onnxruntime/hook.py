"""The import hook: ``import onnxruntime`` gives VTensor's interface."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

from vtensor.errors import InputError
from vtensor.onnxruntime.names import NAME, OWN, PASSED, __version__
from vtensor.onnxruntime.real_package import FINDER, REAL, installed


def install() -> None:
    """Make ``import onnxruntime`` give ``vtensor.onnxruntime`` in this process from now on.

    ``importlib.util.find_spec`` and ``importlib.metadata.version`` answer accordingly. A second
    call does nothing.

    Raises:
        InputError: the installed package is imported already; modules that hold its names would
            keep them.
    """
    if _FINDER in sys.meta_path:
        return
    if f"{NAME}.capi" in sys.modules:
        raise InputError(
            "the installed onnxruntime is imported already, so parts of the program hold it\n"
            "  to fix: call vtensor.onnxruntime.install() first, or run the program as "
            "python -m vtensor.onnxruntime PROGRAM"
        )
    sys.meta_path[:0] = [_FINDER, FINDER]
    sys.modules[NAME] = importlib.import_module(OWN)


class _Finder:
    """Finds VTensor's modules under the names of ONNX Runtime's, and the package's metadata."""

    def find_spec(self, fullname: str, *_: object) -> ModuleSpec | None:
        """Return where a module is found, as ``sys.meta_path`` asks."""
        if fullname != NAME and not fullname.startswith(f"{NAME}."):
            return None
        below = fullname.removeprefix(NAME)
        if below and below.split(".")[1] in PASSED:
            return ModuleSpec(fullname, _alias(REAL + below)) if installed() else None
        if importlib.util.find_spec(OWN + below) is None:
            return None
        return ModuleSpec(fullname, _alias(OWN + below), is_package=below.count(".") < 2)

    def find_distributions(self, context: Any) -> list[Any]:
        """Return the package's metadata, as ``importlib.metadata`` asks."""
        if context.name not in (None, NAME):
            return []
        from importlib.metadata import Distribution

        class Interface(Distribution):
            """The metadata of the package that programs ask for."""

            def read_text(self, filename: str) -> str | None:
                text = f"Metadata-Version: 2.1\nName: {NAME}\nVersion: {__version__}\n"
                return text if filename == "METADATA" else None

            def locate_file(self, path: object) -> Path:
                return Path(__file__).parent / str(path)

        return [Interface()]


class _Alias:
    """Loads a module by importing another one, which then has both names.

    It is no ``importlib.abc.Loader``: that module imports a dozen others.

    Args:
        name: the other module's name.
    """

    def __init__(self, name: str) -> None:
        self._name = name

    def create_module(self, spec: ModuleSpec) -> ModuleType:  # noqa: ARG002
        module = importlib.import_module(self._name)
        self._own = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__ = self._own  # the import system has set the spec of the other name


#: Makes an ``_Alias``; ``ModuleSpec`` takes any object with its methods.
_alias: Any = _Alias
_FINDER = _Finder()
