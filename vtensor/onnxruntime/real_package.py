"""The installed ONNX Runtime beside VTensor's interface, for what only it has.

``onnxruntime.quantization``, ``.transformers``, ``.tools`` and ``.datasets`` are its own; they make
sessions themselves, of models that are about to change. The package is imported under another name,
and inside of its modules the name ``onnxruntime`` means this package.
"""

from __future__ import annotations

import builtins
import importlib
import importlib.machinery
import importlib.util
import os
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any

from vtensor.onnxruntime.names import NAME, PASSED

#: The name under which the installed package is imported.
REAL = "onnxruntime_installed"


def passed(name: str) -> ModuleType:
    """Import a module of the installed package.

    Args:
        name: its name below the package: ``quantization.calibrate``.

    Raises:
        ModuleNotFoundError: the package is not installed, or lacks the module.
    """
    if FINDER not in sys.meta_path:
        sys.meta_path.insert(0, FINDER)
    return importlib.import_module(f"{REAL}.{name}")


def installed() -> ModuleSpec | None:
    """Return where the installed package is; None if there is none.

    The distribution of this name that only leads to VTensor does not count.
    """
    for folder in map(Path, sys.path):
        spec = PathFinder.find_spec(NAME, [str(folder.absolute())])
        if spec is not None and spec.origin and (Path(spec.origin).parent / "capi").is_dir():
            return spec
    return None


class _Finder:
    """Finds the modules of the installed package under their other name.

    Some of its modules put their folder into ``sys.path``, and import others without the package's
    name; these are found as well.
    """

    _root = ""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname == REAL:
            spec = installed()
            if spec is None or spec.origin is None:
                raise ModuleNotFoundError(
                    f"onnxruntime itself is not installed, and {', '.join(PASSED)} are its own; "
                    "to fix: pip install onnxruntime",
                    name=NAME,
                )
            self._root = f"{Path(spec.origin).parent}{os.sep}"
            spec = importlib.util.spec_from_file_location(
                REAL, spec.origin, submodule_search_locations=[self._root]
            )
        elif fullname.startswith(f"{REAL}."):
            spec = PathFinder.find_spec(fullname, path, target)
        elif path is None and self._root and any(each.startswith(self._root) for each in sys.path):
            spec = PathFinder.find_spec(fullname, None, target)
            if spec is None or not (spec.origin or "").startswith(self._root):
                return None
        else:
            return None
        if spec is not None and isinstance(spec.loader, importlib.machinery.SourceFileLoader):
            spec.loader = _Loader(fullname, spec.loader.path)
        return spec


class _Loader(importlib.machinery.SourceFileLoader):
    """Runs a module in which the name ``onnxruntime`` means the installed package."""

    def exec_module(self, module: ModuleType) -> None:
        vars(module)["__builtins__"] = {**vars(builtins), "__import__": _import}
        super().exec_module(module)


def _import(name: str, *rest: Any, **named: Any) -> ModuleType:
    """Import a module as ``import`` does, but the installed package for ``onnxruntime``.

    Args:
        name: the module's name.
        rest, named: the other arguments of ``__import__``: globals, locals, names, level.
    """
    level = rest[3] if len(rest) == 4 else named.get("level", 0)
    if level == 0 and f"{name}.".startswith(f"{NAME}."):
        name = REAL + name.removeprefix(NAME)
    return builtins.__import__(name, *rest, **named)


#: Finds the installed package once it stands in ``sys.meta_path``.
FINDER = _Finder()
