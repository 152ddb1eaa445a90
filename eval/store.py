"""Rows of experiments on disk: JSON with the machine and time of each row, and the rows as CSV.

A key identifies a row. Rows that exist are not measured again, so an interrupted run goes on where
it stopped.
"""

from __future__ import annotations

import csv
import json
import platform
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from vtensor.benchmark.machine import machine

Row = dict[str, Any]
Key = tuple[Any, ...]

#: The default folder of results.
RESULTS = Path(__file__).parent / "results"
#: Distributions whose versions are recorded with each run; one that is absent is left out.
DISTRIBUTIONS = (
    *("vtensor-layouts", "numpy", "onnx", "pulp", "highspy", "openvino", "onnxruntime"),
    *("tensorflow-cpu", "torch", "MNN"),
)


def about(seed: int, scope: str) -> Row:
    """Return the data of a run that begins now: time, machine, versions, and the two arguments."""
    here = machine()
    libraries = here["libraries"].items()  # file paths of this machine are not published
    here["libraries"] = {name: text.partition(", /")[0] for name, text in libraries}
    for name in here["environment"].keys() & {"VTENSOR_CACHE_DIR", "VTENSOR_ONEDNN_DIR"}:
        here["environment"][name] = "a folder of its own"
    when = datetime.now(UTC).isoformat(timespec="seconds")
    return {"when": when, "scope": scope, "seed": seed, "machine": here, "versions": versions()}


def instructions(machine: Mapping[str, Any]) -> str:
    """Return the instruction sets that VTensor's libraries use on a machine; empty if unknown.

    They distinguish processors to which a virtual machine gives the same name.

    >>> instructions({"libraries": {"numpy": "2.4.6", "onednn": "3.2.0 on avx2"}})
    'avx2'
    """
    levels = {text.partition(" on ")[2] for text in machine.get("libraries", {}).values()}
    return ", ".join(sorted(levels - {""}))


def versions() -> dict[str, str]:
    """Return the versions of Python and of the installed ``DISTRIBUTIONS``, by name."""
    known = {"python": platform.python_version()}
    for name in DISTRIBUTIONS:
        try:
            known[name] = version(name)
        except PackageNotFoundError:
            continue
    return known


class Table:
    """The rows of one experiment.

    Args:
        folder: the folder of its two files.
        name: the name of the experiment and of the files.
        key: the columns that identify a row.
        run: the result of ``about``, for rows that are added; None for a table that is only read.
    """

    def __init__(
        self, folder: Path, name: str, key: Sequence[str], run: Mapping[str, Any] | None = None
    ) -> None:
        self.name, self.key, self.folder = name, tuple(key), folder
        self.file = folder / f"{name}.json"
        kept = json.loads(self.file.read_text()) if self.file.exists() else {"runs": [], "rows": []}
        self.runs: list[Mapping[str, Any]] = kept["runs"]
        self._rows: dict[Key, Row] = {self._key(row): row for row in kept["rows"]}
        self._run = run

    def __iter__(self) -> Iterator[Row]:
        return iter(self._rows.values())

    def __len__(self) -> int:
        return len(self._rows)

    def rows(self, **wanted: Any) -> list[Row]:
        """Return the rows in which these columns have these values."""
        return [row for row in self if all(row.get(k) == value for k, value in wanted.items())]

    def one(self, **wanted: Any) -> Row | None:
        """Return the only row in which these columns have these values; None unless one is."""
        rows = self.rows(**wanted)
        return rows[0] if len(rows) == 1 else None

    def has(self, **key: Any) -> bool:
        """Return whether the table has a row with these values of its key."""
        return self._key(key) in self._rows

    def add(self, rows: Iterable[Row]) -> None:
        """Add rows, which replace those with the same key, and write both files."""
        assert self._run is not None, f"{self.name} is only read"
        if self._run not in self.runs:
            self.runs.append(self._run)
        number = self.runs.index(self._run)
        for row in rows:
            self._rows[self._key(row)] = {**row, "run": number}
        self._drop_runs()
        self._write()

    def _drop_runs(self) -> None:
        """Remove the runs without rows, and renumber the others."""
        used = sorted({row["run"] for row in self})
        place = {number: at for at, number in enumerate(used)}
        self.runs = [self.runs[number] for number in used]
        self._rows = {key: {**row, "run": place[row["run"]]} for key, row in self._rows.items()}

    def _key(self, row: Mapping[str, Any]) -> Key:
        return tuple(row.get(name) for name in self.key)

    def _write(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        head = json.dumps(self.runs, indent=1)
        lines = ",\n".join(json.dumps(row) for row in self)
        whole = self.file.with_suffix(".part")
        whole.write_text(f'{{"runs": {head},\n"rows": [\n{lines}\n]}}\n')
        whole.replace(self.file)
        flat = [{k: _cell(v) for k, v in row.items() if not _long(v)} for row in self]
        heads = list(dict.fromkeys(name for row in flat for name in row))
        with self.file.with_suffix(".csv").open("w", newline="") as file:
            writer = csv.DictWriter(file, heads)
            writer.writeheader()
            writer.writerows(flat)


def _long(value: object) -> bool:
    """Return whether a value holds times of single runs, which only the JSON file has."""
    return isinstance(value, list) and bool(value) and isinstance(value[0], list | float)


def _cell(value: object) -> object:
    return json.dumps(value) if isinstance(value, dict | list) else value
