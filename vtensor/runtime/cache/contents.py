"""The contents of a cache folder: its entries, their models, and the faults of damaged entries."""

from __future__ import annotations

import json
import os
import re
import sqlite3
import stat
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from vtensor.errors import InputError
from vtensor.frontends.files.fingerprint import check_surface
from vtensor.frontends.files.saved_text import check_known
from vtensor.language.process.interrupts import MALFORMED, ignored, pass_signals
from vtensor.language.records import dataclass
from vtensor.language.wording import counted, reason
from vtensor.runtime.tuning.timings import clear_timings, count_timings
from vtensor.storage.entries import (
    FOLDER,
    MOST_BYTES,
    check_folder,
    foreign,
    open_entry,
    payload_of,
)

#: Names of files that the cache writes: kind of entry, digest and number. While a file is being
#: written, its name also has the writer's process and thread.
_NAMES = re.compile(r"(model|surface|plan|weights)-[0-9a-f]{32}(-\d+)?(\.\d+\.\d+)?")

#: The files of measured times: the database, and a broken one that was set aside.
_TIMINGS, _BROKEN = "timings.sqlite", "timings.broken"

#: The errors that may be raised while a damaged entry is read.
_DAMAGED: tuple[type[Exception], ...] = (*MALFORMED, sqlite3.DatabaseError, OSError)

#: Age, in seconds, above which an unfinished file is taken to be left by a writer that was stopped.
_LEFTOVER_S = 60.0


@dataclass(frozen=True)
class Item:
    """An entry of a cache.

    Attributes:
        path: the entry's file.
        kind: model, plan, weights or timings.
        nbytes: the size of the file, in bytes.
        used: the time of the last use, in seconds since the epoch.
        file: the path of the model's file when the entry was written; empty if it is unknown.
        model: the name of the model's graph; empty if it is unknown.
        inputs: the shapes that the entry was made for, as text.
        quality: provisional, measured, tuned or declared; for timings, how many there are.
        problem: what is wrong with the entry; empty if nothing is.
    """

    path: Path
    kind: str
    nbytes: int
    used: float
    file: str = ""
    model: str = ""
    inputs: str = ""
    quality: str = ""
    problem: str = ""


class Contents(NamedTuple):
    """The entries of a cache, and the number of files next to them that the cache did not write."""

    items: Sequence[Item]
    foreign: int


def contents(folder: Path, deep: bool = False) -> Contents:
    """Return the entries of a cache; a missing folder has none.

    Args:
        folder: the folder of the cache.
        deep: True decodes plans as well, as far as that needs neither model nor kernel.

    Raises:
        InputError: the folder cannot be read, or is not the user's alone.

    >>> contents(Path("a folder that is not there"))
    Contents(items=[], foreign=0)
    """
    items, others = list[Item](), 0
    entries = folder / FOLDER
    try:
        paths = list[Path]()
        with ignored(FileNotFoundError):
            check_folder(entries)
            paths += sorted(entries.iterdir())
        paths += [folder / _TIMINGS, folder / _BROKEN]
    except (OSError, ValueError) as error:
        pass_signals(error)
        raise InputError(
            f"{folder}: the cache cannot be read: {reason(error)}\n  to fix: name a folder that "
            "only you may write to with --cache-dir or $VTENSOR_CACHE_DIR"
        ) from error
    for path in paths:
        with ignored(FileNotFoundError):  # another process may have removed the entry
            status = path.lstat()
            if _is_foreign(path, status):
                others += 1
            elif (item := _item(path, status, deep)) is not None:
                items.append(item)
    return Contents(items, others)


def clear(items: Sequence[Item]) -> int:
    """Remove entries, and return how many bytes that frees.

    Raises:
        InputError: an entry cannot be removed; the entries before it are removed.
    """
    nbytes = 0
    for item in items:
        try:
            if item.path.name == _TIMINGS and not item.problem:
                clear_timings(item.path)
                nbytes += item.nbytes - item.path.stat().st_size
            else:
                item.path.unlink(missing_ok=True)
                nbytes += item.nbytes
        except (OSError, sqlite3.Error) as error:
            pass_signals(error)
            raise InputError(f"{item.path}: cannot be removed: {reason(error)}") from error
    return nbytes


def _item(path: Path, status: os.stat_result, deep: bool) -> Item | None:
    """Return the ``Item`` of a file.

    Returns None for a file that is being written, and for a database without times.

    Args:
        path, status: the file's path, and its status from the system.
        deep: True decodes a plan as well.

    Raises:
        FileNotFoundError: the file was removed meanwhile.
    """
    match = _NAMES.fullmatch(path.name)
    kind = "timings" if match is None else match[1]
    facts: dict[str, str] = {}
    try:
        if match is None:
            facts["quality"] = _timings(path)
            if not facts["quality"]:
                return None
        elif match[3]:
            if time.time() - status.st_mtime < _LEFTOVER_S:
                return None
            raise ValueError("its writer was stopped")
        else:
            if (payload := _payload(path)) is None:
                raise ValueError("its digest or its format is wrong")
            facts = _facts(kind, path, payload, deep)
            if b"\0" in os.fsencode(facts["file"]):
                raise ValueError("it names no file")
    except _DAMAGED as why:
        pass_signals(why)
        if isinstance(why, FileNotFoundError):
            raise
        said = reason(why)
        facts = {"problem": said if type(why) is ValueError else f"{type(why).__name__}: {said}"}
    kind = "model" if kind == "surface" else kind
    return Item(path, kind, status.st_size, status.st_mtime, **facts)


def _is_foreign(path: Path, status: os.stat_result) -> bool:
    """Return whether a file was not written by this user's cache."""
    named = _NAMES.fullmatch(path.name) is not None or path.parent.name != FOLDER
    return not named or not stat.S_ISREG(status.st_mode) or foreign(status)


def _timings(path: Path) -> str:
    """Return the number of measured times in a database, as text such as ``3 times``; empty if
    there are none.

    If the database cannot be read now, for example because it is locked, the text says so.

    Raises:
        ValueError: the database was set aside because it is broken.
    """
    if path.name == _BROKEN:
        raise ValueError("it was put aside because it is broken")
    try:
        count = count_timings(path)
        return counted(count, "time") if count else ""
    except sqlite3.OperationalError as why:  # it may be locked: the file itself is not at fault
        return f"cannot be read now: {why}"


def _facts(kind: str, path: Path, payload: bytes, deep: bool) -> dict[str, str]:
    """Return the attributes of an ``Item`` that can be read from an entry's content, by name.

    Args:
        kind: the kind of the entry: model, surface (the fingerprint of a model), plan or weights.
        path, payload: the entry's file and content.
        deep: True decodes a plan as well.

    Raises:
        Exception: one of ``MALFORMED``, if the payload is no entry of this kind.
    """
    if kind == "model":
        return {"file": check_known(payload)}
    if kind == "surface":
        file, inputs = check_surface(payload)
        return {"file": file, "inputs": _shapes((port.name, port.shape) for port in inputs)}
    from vtensor.runtime.cache.codec import check_plan, weights_of

    if kind == "weights":
        return {"file": weights_of(path.name, payload)[0]}
    if deep:
        check_plan(path.name, payload, partial(_other, path.parent))
    data = json.loads(payload)
    file, model, costs = data["file"], data["model"], data["costs"]
    if not type(file) is type(model) is type(costs) is str:
        raise ValueError("it names no model")
    quality = "provisional" if data["provisional"] is True else costs
    shapes = _shapes(row[:2] for row in data["inputs"])
    return {"file": file, "model": model, "quality": quality, "inputs": shapes}


def _other(folder: Path, name: str) -> bytes | None:
    """Return the content of the entry ``name`` in ``folder``; None if it is missing or damaged."""
    if _NAMES.fullmatch(name) is None:
        return None
    with ignored(OSError):
        return _payload(folder / name)
    return None


def _payload(path: Path) -> bytes | None:
    """Return the content of an entry; None if its digest is wrong.

    The time of the entry's last use stays unchanged.
    """
    with open_entry(str(path)) as file:
        return payload_of(file.read(MOST_BYTES + 1))


def _shapes(rows: Any) -> str:
    """Return shapes as text in the form of the option ``--shape``.

    Each item of ``rows`` is (input, sizes). A size that is None becomes ``?``.

    >>> _shapes([("x", (None, 3)), ("n", ())])
    'x=?,3 n='
    """
    open_sizes = (
        (name, ",".join("?" if size is None else str(int(size)) for size in shape))
        for name, shape in rows
    )
    return " ".join(f"{name}={sizes}" for name, sizes in open_sizes)
