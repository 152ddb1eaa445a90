"""What installed distributions offer: their entry points; and their versions.

``importlib.metadata`` costs more to import than most sessions to make, and most installations have
nobody who offers anything: then a look at the files that would say so is enough.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from importlib.machinery import PathFinder
from pathlib import Path
from typing import TYPE_CHECKING

from vtensor.language.interrupts import ignored, pass_signals

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

#: How the headings of our groups of entry points begin; our own command is in another group.
_OURS = b"[vtensor."

#: How the names of variables begin that say how VTensor works; these say where it keeps things.
_PREFIX, _CACHES = "VTENSOR_", ("VTENSOR_CACHE", "VTENSOR_CACHE_DIR")

#: How the names of folders end that say what a distribution is.
_INFO = ".dist-info"


def entry_points(*groups: str) -> dict[str, list[EntryPoint]]:
    """The entry points of each of these groups of ours, of all distributions that Python finds."""
    if "importlib.metadata" not in sys.modules and not _offered():
        return {group: [] for group in groups}
    from importlib import metadata

    return {group: list(metadata.entry_points(group=group)) for group in groups}


def state() -> list[object]:
    """What differs once other distributions are installed, or the environment says something else.

    Where another finder than Python's own knows of distributions, that finder is part of it.
    """
    said = (row for row in os.environ.items() if row[0].startswith(_PREFIX))
    facts: list[object] = [*sorted(row for row in said if row[0] not in _CACHES)]
    facts += [type(one).__qualname__ for one in sys.meta_path if hasattr(one, "find_distributions")]
    for folder in dict.fromkeys(sys.path):
        with ignored(OSError):
            if Path(folder).is_file():
                facts.append((folder, Path(folder).stat().st_mtime_ns))
                continue
            with os.scandir(folder or os.curdir) as found:
                rows = [one for one in found if one.name.endswith((_INFO, ".egg-info", ".egg"))]
                if rows:
                    states = ((one.name, one.stat().st_mtime_ns) for one in rows)
                    facts.append((folder, sorted(states)))
    return facts


def version_of(name: str) -> str:
    """The version of a distribution, by the name of the folder that says what it is.

    Args:
        name: as that folder has it: in small letters, without hyphens.

    Raises:
        PackageNotFoundError: it is not installed.
    """
    for folder in dict.fromkeys(sys.path):
        with ignored(OSError), os.scandir(folder or os.curdir) as entries:
            for one in entries:
                found, _, version = one.name.removesuffix(_INFO).partition("-")
                if found == name and one.name.endswith(_INFO):
                    return version
    from importlib import metadata

    return metadata.version(name)


def _offered() -> bool:
    """Some distribution may have entry points of ours."""
    finders = [one for one in sys.meta_path if hasattr(one, "find_distributions")]
    return finders != [PathFinder] or any(map(_mentions, dict.fromkeys(sys.path)))


def _mentions(folder: str) -> bool:
    """A distribution in a folder may have entry points of ours; so may what is no plain folder."""
    if folder.endswith(".egg") or Path(folder).is_file():
        return True
    return any(_OURS in text for text in _entry_point_files(folder or os.curdir))


def _entry_point_files(folder: str) -> Iterator[bytes]:
    """What the distributions in a folder say of their entry points."""
    try:
        with os.scandir(folder) as entries:
            found = [one.path for one in entries if one.name.endswith((_INFO, ".egg-info"))]
    except OSError as error:  # it is not there, as some of Python's own are not
        pass_signals(error)
        return
    for one in found:
        with ignored(OSError), open(f"{one}/entry_points.txt", "rb") as file:  # noqa: PTH123
            yield file.read()  # it may have none
