"""``vtensor cache``: list, clear or verify the entries of the cache."""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vtensor.commands.shared import DebugOption, JsonOption, errors, print_json, print_lines
from vtensor.language.wording import counted
from vtensor.report import Line
from vtensor.storage.cache_folder import cache_folder
from vtensor.storage.entries import is_on

if TYPE_CHECKING:
    from vtensor.runtime.cache.contents import Contents, Item

cache = typer.Typer(
    help="List, clear or verify the cache of earlier sessions.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)

FolderOption = Annotated[
    Path | None,
    typer.Option(
        "--cache-dir", help="The cache's folder; default: $VTENSOR_CACHE_DIR or the user's cache."
    ),
]
OneModel = Annotated[
    Path | None, typer.Argument(help="Only the entries of this model's file.", metavar="MODEL")
]

#: Units of sizes and ages, the largest first.
SIZES = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"), (1, "bytes"))
AGES = ((86400, "days"), (3600, "h"), (60, "min"), (1, "s"))


@cache.command("list")
def list_entries(
    model: OneModel = None,
    cache_dir: FolderOption = None,
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """List the entries of the cache by model: kind, quality, size, age and input shapes."""
    with errors(debug):
        folder, listed = _read(cache_dir, model)
        if as_json:
            print_json(_dict(folder, listed))
        else:
            print_lines(_lines(folder, listed))


@cache.command()
def clear(
    model: OneModel = None,
    damaged: Annotated[
        bool, typer.Option("--damaged", help="Remove damaged entries only.")
    ] = False,
    cache_dir: FolderOption = None,
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Remove the entries of the cache, or of one model; leave all other files."""
    from vtensor.runtime.cache import contents

    with errors(debug):
        folder, listed = _read(cache_dir, model)
        items = [item for item in listed.items if item.problem or not damaged]
        nbytes = contents.clear(items)
        if as_json:
            print_json({"folder": str(folder), "removed": len(items), "bytes": nbytes})
        else:
            print(f"{_shown(str(folder))}: removed {_entries(items)}, {_scaled(nbytes, SIZES)}")


@cache.command()
def verify(
    cache_dir: FolderOption = None, as_json: JsonOption = False, debug: DebugOption = False
) -> None:
    """Read every entry, and list the damaged ones, which sessions ignore.

    The exit code is 1 if an entry is damaged.
    """
    with errors(debug):
        folder, listed = _read(cache_dir, None, deep=True)
        damaged = [item for item in listed.items if item.problem]
        if as_json:
            print_json(_dict(folder, listed) | {"damaged": len(damaged)})
        else:
            print_lines(_verified(folder, listed, damaged))
        if damaged:
            raise typer.Exit(1)


def _read(cache_dir: Path | None, model: Path | None, deep: bool = False) -> tuple[Path, Contents]:
    """Return the folder of a cache and its contents.

    Args:
        cache_dir: the folder; None for the default one.
        model: return only the entries of this model's file; None returns all.
        deep: whether entries are read in full, which finds more damage.

    Raises:
        InputError: the cache cannot be read, or ``VTENSOR_CACHE`` is wrong.
    """
    from vtensor.runtime.cache.contents import contents

    folder = cache_folder() if cache_dir is None else cache_dir
    if cache_dir is None:
        is_on()  # raises if the variable is wrong; a cache that is off can be listed, too
    listed = contents(folder.absolute(), deep)
    if model is not None:
        real = os.path.realpath(model)
        items = [item for item in listed.items if item.file and os.path.realpath(item.file) == real]
        listed = listed._replace(items=items, foreign=0)
    return folder.absolute(), listed


def _dict(folder: Path, listed: Contents) -> dict[str, Any]:
    now = time.time()
    rows = []
    for item in listed.items:
        row = asdict(item)
        row["path"], row["age_s"] = str(item.path), max(0.0, now - row.pop("used"))
        rows.append(row)
    nbytes = sum(item.nbytes for item in listed.items)
    return {"folder": str(folder), "entries": rows, "bytes": nbytes, "foreign": listed.foreign}


def _lines(folder: Path, listed: Contents) -> Iterator[Line]:
    """Yield a line for each model and each of its cache entries, then a line for the total.

    The most recently used come first.
    """
    groups: dict[str, list[Item]] = {}
    for item in sorted(listed.items, key=lambda item: item.used, reverse=True):
        groups.setdefault(_title(item), []).append(item)
    for title, items in groups.items():
        yield Line("head", _shown(title))
        for item in items:
            size = _scaled(item.nbytes, SIZES)
            age = _scaled(max(0, int(time.time() - item.used)), AGES)
            columns = f"  {item.kind:<7}  {item.quality:<11}  {size:>10}  {age:>8}  "
            yield Line("ref" if item.problem else "", (columns + _shown(item.inputs)).rstrip())
    total = _scaled(sum(item.nbytes for item in listed.items), SIZES)
    yield Line("", f"{_shown(str(folder))}: {_entries(listed.items)}, {total}")
    yield from _foreign(listed)


def _title(item: Item) -> str:
    if item.problem:
        return "damaged: vtensor cache verify says why"
    if item.kind == "timings":
        return "times measured on this machine"
    return item.file or f"model from memory {item.model}".rstrip()


def _verified(folder: Path, listed: Contents, damaged: Sequence[Item]) -> Iterator[Line]:
    for item in damaged:
        yield Line("ref", f"{_shown(str(item.path))}: {_shown(item.problem)}")
    count = f"{_entries(listed.items)}, {len(damaged)} damaged"
    yield Line("", f"{_shown(str(folder))}: {count}")
    if damaged:
        fix = f"vtensor cache clear --damaged --cache-dir {shlex.quote(str(folder))}"
        yield Line("note", f"  to fix: {_shown(fix)}")
    yield from _foreign(listed)


def _foreign(listed: Contents) -> Iterator[Line]:
    if listed.foreign:
        files = counted(listed.foreign, "other file")
        yield Line("note", f"  and {files}, which sessions do not read and clear does not remove")


def _entries(items: Sequence[Item]) -> str:
    """Return the number of entries as text.

    >>> _entries([])
    '0 entries'
    """
    return f"{len(items):,} {'entry' if len(items) == 1 else 'entries'}"


def _scaled(number: int, units: Sequence[tuple[int, str]]) -> str:
    """Return a number in the largest of ``units`` that it fills, rounded down.

    >>> _scaled(360448, SIZES), _scaled(12, SIZES), _scaled(7300, AGES)
    ('352 KiB', '12 bytes', '2 h')
    """
    scale, unit = next((row for row in units if number >= row[0]), units[-1])
    return f"{number // scale:,} {unit}"


def _shown(text: str) -> str:
    """Return text that is safe to print; escaped if it has control characters.

    >>> _shown("net"), _shown("a\\x1b[2J")
    ('net', "'a\\\\x1b[2J'")
    """
    return text if text.isprintable() else ascii(text)
