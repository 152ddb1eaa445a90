"""Find descriptions and operators, and import the modules that hold them.

Descriptions come from this folder, from the entry-point group ``vtensor.libraries`` and from the
paths in ``VTENSOR_LIBRARIES``. A broken description is reported and skipped, and fails no import.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vtensor.errors import DescriptionError
from vtensor.language.index import Index, row_of
from vtensor.language.process.interrupts import pass_signals
from vtensor.language.wording import reason

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

#: Prefix, in ``sys.modules``, of modules imported from a description's folder.
MODULE_PREFIX = "vtensor_library_"


def import_module(name: str, description: Path) -> Any:
    """Import a module and return it. Exceptions of the module's own code pass unchanged.

    Args:
        name: the module's name; with a leading dot, a Python file next to the description.
        description: the description file.

    Raises:
        DescriptionError: there is no such file next to the description.
    """
    if not name.startswith("."):
        return importlib.import_module(name)
    file = sibling_file(name, description)
    unique = f"{MODULE_PREFIX}{description.stem}_{abs(hash(str(file))):x}"
    if unique in sys.modules:
        return sys.modules[unique]
    spec = importlib.util.spec_from_file_location(unique, file)
    assert spec is not None, "a Python file has a spec"
    assert spec.loader is not None, "and a loader"
    module = importlib.util.module_from_spec(spec)
    sys.modules[unique] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[unique]
        raise
    return module


def forget_modules(kept: Collection[str], names: Collection[str]) -> None:
    """Remove from ``sys.modules`` the modules imported from descriptions' folders, and ``names``.

    Args:
        kept: names of modules that stay in any case.
        names: names of further modules to remove.
    """
    for name in set(sys.modules).difference(kept):
        if name in names or name.startswith(MODULE_PREFIX):
            del sys.modules[name]


def sibling_file(name: str, description: Path) -> Path:
    """Return the file of a module whose name begins with a dot, in the description's folder.

    Raises:
        DescriptionError: there is no such file, or links lead out of the folder.
    """
    folder = description.parent.resolve()
    file = folder.joinpath(*name[1:].split(".")).with_suffix(".py").resolve()
    if not file.is_relative_to(folder):
        raise DescriptionError(
            f"{description}: {name} leads out of the description's folder, to {file}"
        )
    if not file.is_file():
        raise DescriptionError(f"{description}: {name} names no file next to it, {file.name}")
    return file


def description_file(path: Path) -> Path:
    """Return the description file at a path: the path itself, or ``<folder>/<folder's name>.toml``.

    Raises:
        DescriptionError: there is no such file, or it cannot be read.
    """
    try:
        file = path / f"{path.name}.toml" if path.is_dir() else path
        exists = file.is_file()
    except OSError as error:
        pass_signals(error)
        raise DescriptionError(f"{path}: cannot be read: {reason(error)}") from error
    if not exists:
        raise DescriptionError(f"{path}: no description there; a TOML file or a folder with one")
    return file


def own_descriptions() -> list[Path]:
    """Return the description files that come with VTensor."""
    return sorted(Path(__file__).parent.glob("*/*.toml"))


def foreign_descriptions(
    offered: Iterable[EntryPoint],
) -> Iterator[tuple[str, Callable[[], Path]]]:
    """Yield, for each third-party description, its origin and a function that returns its path.

    The function imports the module of the other distribution, whose code may raise any exception.

    Args:
        offered: the entry points of the group ``vtensor.libraries``.
    """
    for entry in offered:

        def locate(entry: EntryPoint = entry) -> Path:
            location = entry.load()
            if not isinstance(location, (str, os.PathLike)):
                location = location()
            return Path(location)

        yield f"entry point {entry.name} = {entry.value}", locate
    for path in listed_descriptions():
        yield f"VTENSOR_LIBRARIES: {path}", partial(Path, path)


def listed_descriptions() -> list[Path]:
    """Return the paths in ``VTENSOR_LIBRARIES``."""
    listed = os.environ.get("VTENSOR_LIBRARIES", "").split(os.pathsep)
    return [Path(text) for text in listed if text]


def own_operators(loaded: Callable[[Sequence[str]], None]) -> Index:
    """Return the index of the operators in ``ops/``, from the file ``index.txt`` there.

    Modules of ``ops`` that ``index.txt`` lacks are imported at once.

    Args:
        loaded: the index calls it after each import of a module, with the names of the module's
            operators.
    """
    ops = importlib.import_module("ops")
    text = Path(ops.__path__[0], "index.txt").read_text(encoding="utf-8")
    rows = [row_of(line, "ops") for line in text.splitlines() if not line.startswith("#")]
    modules, indexed = set(_own_modules()), {row.module for row in rows}
    for module in sorted(modules - indexed):
        if not module.startswith("ops._"):
            importlib.import_module(module)
    return Index((row for row in rows if row.module in modules), loaded)


def import_own_operators() -> None:
    """Import every operator file in ``ops/``."""
    for module in _own_modules():
        importlib.import_module(module)


def _own_modules() -> list[str]:
    folders = importlib.import_module("ops").__path__  # a program may append a folder
    names = [name for folder in folders for name in sorted(os.listdir(folder))]  # noqa: PTH208
    files = dict.fromkeys(name for name in names if name.endswith(".py") and name != "__init__.py")
    return [f"ops.{name[:-3]}" for name in files]
