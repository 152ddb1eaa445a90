"""Entry points and versions of installed distributions.

Importing ``importlib.metadata`` takes longer than making most sessions. Most installations have no
distribution with entry points for VTensor; to know this, the ``entry_points.txt`` files are read.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from importlib.machinery import PathFinder
from pathlib import Path
from typing import TYPE_CHECKING

from vtensor.language.process.interrupts import ignored, pass_signals

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

#: How the headings of VTensor's groups begin in an ``entry_points.txt``. VTensor's own command is
#: in another group.
_GROUP_PREFIX = b"[vtensor."

#: How the names of environment variables that configure VTensor begin; and which of these only
#: configure the cache.
_VARIABLE_PREFIX, _CACHE_VARIABLES = "VTENSOR_", ("VTENSOR_CACHE", "VTENSOR_CACHE_DIR")

#: Suffix of the folder with a distribution's metadata.
_METADATA_SUFFIX = ".dist-info"


def entry_points(*groups: str) -> dict[str, list[EntryPoint]]:
    """Return, by group, the entry points that all installed distributions have in these groups.

    Args:
        groups: names that begin with ``vtensor.``.
    """
    if "importlib.metadata" not in sys.modules and not _may_offer_entry_points():
        return {group: [] for group in groups}
    from importlib import metadata

    return {group: list(metadata.entry_points(group=group)) for group in groups}


def state() -> list[object]:
    """Return data that change when a distribution is installed or removed, or when an environment
    variable that configures VTensor changes.

    A finder of distributions in ``sys.meta_path`` other than Python's own is in the data only by
    the name of its type: a change of what it finds is not noticed.
    """
    variables = (row for row in os.environ.items() if row[0].startswith(_VARIABLE_PREFIX))
    facts: list[object] = [*sorted(row for row in variables if row[0] not in _CACHE_VARIABLES)]
    facts += [
        type(entry).__qualname__ for entry in sys.meta_path if hasattr(entry, "find_distributions")
    ]
    for folder in dict.fromkeys(sys.path):
        with ignored(OSError):
            if Path(folder).is_file():
                facts.append((folder, Path(folder).stat().st_mtime_ns))
                continue
            with os.scandir(folder or os.curdir) as entries:
                rows = [
                    entry
                    for entry in entries
                    if entry.name.endswith((_METADATA_SUFFIX, ".egg-info", ".egg"))
                ]
                if rows:
                    states = ((entry.name, entry.stat().st_mtime_ns) for entry in rows)
                    facts.append((folder, sorted(states)))
    return facts


def version_of(name: str) -> str:
    """Return the version of a distribution. It is read from the name of its metadata folder if
    there is such a folder.

    Args:
        name: the distribution's name as the metadata folder spells it: lower case, no hyphens.

    Raises:
        PackageNotFoundError: the distribution is not installed.
    """
    for folder in dict.fromkeys(sys.path):
        with ignored(OSError), os.scandir(folder or os.curdir) as entries:
            for entry in entries:
                distribution, _, version = entry.name.removesuffix(_METADATA_SUFFIX).partition("-")
                if distribution == name and entry.name.endswith(_METADATA_SUFFIX):
                    return version
    from importlib import metadata

    return metadata.version(name)


def _may_offer_entry_points() -> bool:
    """Return whether some distribution may have entry points of VTensor's groups."""
    finders = [finder for finder in sys.meta_path if hasattr(finder, "find_distributions")]
    return finders != [PathFinder] or any(map(_folder_may_offer, dict.fromkeys(sys.path)))


def _folder_may_offer(folder: str) -> bool:
    """Return whether a distribution in a folder of ``sys.path`` may have entry points of VTensor's
    groups; always True for an archive or an egg.
    """
    if folder.endswith(".egg") or Path(folder).is_file():
        return True
    return any(_GROUP_PREFIX in text for text in _entry_point_files(folder or os.curdir))


def _entry_point_files(folder: str) -> Iterator[bytes]:
    """Yield the contents of the ``entry_points.txt`` files of the distributions in a folder."""
    try:
        with os.scandir(folder) as entries:
            folders = [
                entry.path
                for entry in entries
                if entry.name.endswith((_METADATA_SUFFIX, ".egg-info"))
            ]
    except OSError as error:  # folders of sys.path need not exist
        pass_signals(error)
        return
    for entry in folders:
        with ignored(OSError), open(f"{entry}/entry_points.txt", "rb") as file:  # noqa: PTH123
            yield file.read()  # a distribution may have no such file
