"""Rows of experiments on disk: JSON with the machine and time of each row, and the rows as CSV.

A key identifies a row. Rows that exist are not measured again, so an interrupted run goes on where
it stopped. In a table ``of_one_commit``, rows that another commit of the code measured are measured
again, and the first new row removes them all.
"""

from __future__ import annotations

import csv
import json
import platform
import subprocess
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
    """Return what is stored about a measurement that begins now.

    It is the time, the commit, the machine, the versions of packages, and both arguments.
    """
    here = machine()
    libraries = here["libraries"].items()  # file paths of this machine are not published
    here["libraries"] = {name: text.partition(", /")[0] for name, text in libraries}
    for name in here["environment"].keys() & {"VTENSOR_CACHE_DIR", "VTENSOR_ONEDNN_DIR"}:
        here["environment"][name] = "a folder of its own"
    when = datetime.now(UTC).isoformat(timespec="seconds")
    about = {"when": when, "commit": commit(), "scope": scope, "seed": seed}
    return {**about, "machine": here, "versions": versions()}


def commit() -> str | None:
    """Return the commit of the code, with a plus sign if files beside results differ from it.

    None outside of a clone.
    """
    root, others = RESULTS.parents[1], (":!eval/results", ":!README.md")
    git = ["git", "-C", str(root)]
    try:
        head = subprocess.run([*git, "rev-parse", "HEAD"], capture_output=True, text=True)
        changed = ["diff", "--quiet", "HEAD", "--", ".", *others]
        same = subprocess.run([*git, *changed], capture_output=True)
    except FileNotFoundError:
        return None
    return head.stdout.strip()[:12] + "+" * bool(same.returncode) if head.returncode == 0 else None


def instructions(machine: Mapping[str, Any]) -> str:
    """Return, as text, the instruction sets that VTensor's libraries use on a machine.

    They distinguish processors to which a virtual machine gives the same name. If they are unknown,
    the text is empty.

    >>> of_all = {"numpy": "2.4.6", "onednn": "3.2.0 on avx2", "eigen": "3.4.0 on avx2, built then"}
    >>> instructions({"libraries": of_all})
    'avx2'
    """
    texts = machine.get("libraries", {}).values()
    levels = {text.partition(" on ")[2].partition(", built ")[0] for text in texts}
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
    """The rows of one experiment, in two files.

    Args:
        folder: the folder of both files.
        name: the name of the experiment, and of the files without their suffixes.
        key: the columns whose values identify a row.
        run: what is stored about the run that adds rows, from ``about``; None if the table is only
            read.
        of_one_commit: whether all rows have to come from one commit of the code.
    """

    def __init__(
        self,
        folder: Path,
        name: str,
        key: Sequence[str],
        run: Mapping[str, Any] | None = None,
        of_one_commit: bool = False,
    ) -> None:
        self.name, self.key, self.folder = name, tuple(key), folder
        self.file = folder / f"{name}.json"
        kept = json.loads(self.file.read_text()) if self.file.exists() else {"runs": [], "rows": []}
        self.runs: list[Mapping[str, Any]] = kept["runs"]
        self._rows: dict[Key, Row] = {self._key(row): row for row in kept["rows"]}
        self._run, self.of_one_commit = run, of_one_commit

    def __iter__(self) -> Iterator[Row]:
        return iter(self._rows.values())

    def __len__(self) -> int:
        return len(self._rows)

    def rows(self, **wanted: Any) -> list[Row]:
        """Return the rows whose columns have the wanted values: ``rows(network="vgg19")``."""
        return [row for row in self if all(row.get(k) == value for k, value in wanted.items())]

    def one(self, **wanted: Any) -> Row | None:
        """Return the row whose columns have the wanted values; None if there is not exactly one."""
        rows = self.rows(**wanted)
        return rows[0] if len(rows) == 1 else None

    def has(self, **key: Any) -> bool:
        """Return whether the table has a row with this key, given as a value for each column."""
        return self._key(key) in self._rows

    def add(self, rows: Iterable[Row]) -> None:
        """Add rows, which replace those with the same key, and write both files."""
        assert self._run is not None, f"{self.name} is only read"
        if self._run not in self.runs:
            self.runs.append(self._run)
        number = self.runs.index(self._run)
        if self.of_one_commit:
            self._rows = {key: row for key, row in self._rows.items() if not self.outdated(row)}
        for row in rows:
            self._rows[self._key(row)] = {**row, "run": number}
        self._drop_runs()
        self._write()

    def outdated(self, row: Row) -> bool:
        """Return whether a row comes from another commit, in a table that has to be of one."""
        run = self._run
        if run is None or not self.of_one_commit:
            return False
        return bool(self.runs[row["run"]].get("commit") != run.get("commit"))

    def _drop_runs(self) -> None:
        """Remove the runs that no row comes from, and renumber the others from 0."""
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
    """Return whether a value has the times of single runs, which are left out of the CSV file."""
    return isinstance(value, list) and bool(value) and isinstance(value[0], list | float)


def _cell(value: object) -> object:
    return json.dumps(value) if isinstance(value, dict | list) else value
