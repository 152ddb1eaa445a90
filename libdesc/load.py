"""From a description to handlers: importing what the text names, and finding descriptions.

Descriptions come from this folder, from the entry-point group ``vtensor.libraries`` and from the
paths in ``VTENSOR_LIBRARIES``. One that is broken is reported and skipped; it never breaks the
import of anything.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from collections.abc import Callable, Iterator
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Any

from libdesc.schema import Description
from vtensor.errors import DescriptionError

Handler = Callable[..., Any]


def handler(description: Description, key: str) -> Handler | None:
    """The function that a description names for a key, or None where it names none.

    Raises:
        DescriptionError: its module does not import, or has no such function.
    """
    text = description.handlers.get(key)
    if text is None:
        return None
    module_name, _, function = text.partition(":")
    try:
        module = import_module(module_name, description.file)
        found = getattr(module, function)
    except Exception as error:  # whatever a stranger's module raises while it is imported
        why = str(error).removeprefix(f"{description.file}: ")
        why = why if isinstance(error, DescriptionError) else f"{type(error).__name__}: {why}"
        raise DescriptionError(
            f"{description.file}: library.{key} = {text!r} does not import: {why}"
        ) from error
    if not callable(found):
        raise DescriptionError(f"{description.file}: library.{key} = {text!r} is no function")
    return found  # type: ignore[no-any-return]  # getattr of a module


def import_module(name: str, beside: Path) -> Any:
    """Import a module by name; one that begins with a dot lies beside the description."""
    if not name.startswith("."):
        return importlib.import_module(name)
    file = beside.parent.joinpath(*name[1:].split(".")).with_suffix(".py").resolve()
    unique = f"vtensor_library_{beside.stem}_{abs(hash(str(file))):x}"
    if unique in sys.modules:
        return sys.modules[unique]
    spec = importlib.util.spec_from_file_location(unique, file)
    if spec is None or spec.loader is None or not file.is_file():
        raise DescriptionError(f"{beside}: {name} names no file beside it, {file.name}")
    module = importlib.util.module_from_spec(spec)
    sys.modules[unique] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[unique]
        raise
    return module


def description_file(path: Path) -> Path:
    """The file that a path means: itself, or ``<folder>/<folder's name>.toml``.

    Raises:
        DescriptionError: there is none.
    """
    file = path / f"{path.name}.toml" if path.is_dir() else path
    if not file.is_file():
        raise DescriptionError(f"{path}: no description there; a TOML file or a folder with one")
    return file


def own_descriptions() -> list[Path]:
    """The descriptions that come with VTensor."""
    return sorted(Path(__file__).parent.glob("*/*.toml"))


def foreign_descriptions() -> Iterator[tuple[str, Callable[[], Path]]]:
    """Where others' descriptions come from, and how to get each one's path (which may fail)."""
    for entry in metadata.entry_points(group="vtensor.libraries"):

        def locate(entry: metadata.EntryPoint = entry) -> Path:
            found = entry.load()
            if not isinstance(found, (str, os.PathLike)):
                found = found()
            return Path(found)

        yield f"entry point {entry.name} = {entry.value}", locate
    for text in filter(None, os.environ.get("VTENSOR_LIBRARIES", "").split(os.pathsep)):
        yield f"VTENSOR_LIBRARIES: {text}", partial(Path, text)
