"""The memory of a process that runs a model, the longer it is used.

``python -m eval.memory`` takes the twelve networks and all models of today, ``make eval`` some of
them, and ``python -m eval.memory MODEL...`` other files, with inputs from MODEL.npz. Every model
runs in processes of its own, one after another: VTensor with an empty cache (*new*), with the cache
that this process left (*second*), with the one that the second left (*kept*); then ONNX Runtime.
Memory is what the process holds (``VmRSS``) after the first run (*first*), after twenty more
(*runs*), and after eight further seconds of runs, when background work has ended (*used*).
*anonymous* is the part of *used* that belongs to no file, *most* the peak. *ratio* is VTensor's
*used* divided by ONNX Runtime's.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import numpy as np
import typer

from eval.experiment import Again, AsJson, Folder, Full, Quick, Scope, Store, alone
from eval.markdown import table, told
from eval.models_today import FAMILIES, models_of
from eval.models_today.__main__ import made
from eval.shapes import EXPORTER
from eval.start import US, fresh, here, mean_of, once, written
from eval.store import Row
from vtensor.runtime.execution.processors import available_threads

NAME = "memory"
TITLE = "What memory a process holds"
KEY = ("model", "engine", "turn")
PEER = "onnxruntime"

#: The report's models: of the twelve networks, and of today's.
SOME = ("mobilenet_v2", "resnet50"), ("efficientnet_b0", "yolo", "ppocr6_rec", "bert_base")

#: The number of runs after the first, and the seconds of runs after these.
RUNS, SECONDS = 20, 8.0

#: VTensor's processes in order; each has the cache that the ones before left.
TURNS = ("new", "second", "kept")

#: The columns in MB, and for each the field of a row, in KiB.
NUMBERS = {
    "first": "first_kib",
    "runs": "runs_kib",
    "used": "used_kib",
    "anonymous": "anon_kib",
    "most": "most_kib",
}


def measure(scope: Scope, store: Store) -> None:
    """Run the models whose rows the store lacks, if the scope has peers."""
    if not scope.peers:
        return
    kept, every = store.table(NAME, KEY), scope.every_model
    engines = [name for name in here() if name in (US, PEER)]
    networks, today = (scope.networks, [*models_of(FAMILIES)]) if every else SOME
    names = [*networks, *today]
    for number, name in enumerate(names):
        wanted = {"model": name, "engine": US, "turn": TURNS[0]}
        if store.late or not store.missing(kept, [wanted]):
            continue
        store.advance(f"the memory of {name}", number, len(names))
        with TemporaryDirectory() as folder:
            file = Path(folder) / f"{name}.onnx"
            if name in networks:
                feeds = written(name, scope, file)
            elif (case := made(name, EXPORTER)) is None:
                continue
            else:
                file, feeds = case.model, dict(case.feeds)
            np.savez(Path(folder) / "feeds.npz", **feeds)
            rows = measured(file, Path(folder) / "feeds.npz", engines, scope.threads)
        kept.add({**row, "model": name} for row in rows)


def measured(
    model: Path,
    feeds: Path,
    engines: Sequence[str],
    threads: int,
    runs: int = RUNS,
    seconds: float = SECONDS,
) -> list[Row]:
    """Run a model in VTensor's ``TURNS`` and in a process of each peer; return a row for each.

    A peer that fails is left out.

    Args:
        model: an ONNX file.
        feeds: its inputs, an ``.npz`` file.
        engines: the names of the engines.
        threads: the number of threads of a run.
        runs, seconds: as ``RUNS`` and ``SECONDS``.

    Raises:
        SystemExit: VTensor fails; the message is its error.
    """
    names = [(engine, turn) for engine in engines for turn in (TURNS if engine == US else ("",))]
    numbers, rows = [threads, runs, seconds], list[Row]()
    with TemporaryDirectory() as folder:
        environment = fresh(folder)
        environment.pop("PYTHONUNBUFFERED", None)
        for engine, turn in names:
            row = once(engine, model, feeds, numbers, environment)
            if row is not None:
                rows.append({"model": model.stem, "engine": engine, "turn": turn} | row)
    return rows


def section(store: Store) -> Iterator[str]:
    """Yield the report's text, a table with a line for each process, and mean ratios."""
    yield told(__doc__)
    yield from shown(list(store.table(NAME, KEY)))


def shown(rows: Sequence[Row]) -> Iterator[str]:
    """Yield a table in MB with a line for each row, and the mean ratios to ONNX Runtime."""
    peers = {row["model"]: row for row in rows if row["engine"] == PEER}
    lines, ratios = list[Sequence[object]](), dict[str, list[float]]()
    for row in rows:
        peer, ratio = peers.get(row["model"]), None
        if peer is not None and row is not peer:
            ratio = row["used_kib"] / peer["used_kib"]
            ratios.setdefault(row["turn"], []).append(ratio)
        cells = (f"{row[key] * 1024 / 1e6:.0f}" for key in NUMBERS.values())
        last = f"{ratio:.2f}" if ratio is not None else None
        lines.append([row["model"], f"{row['engine']} {row['turn']}".strip(), *cells, last])
    yield table(["model", "process", *(f"{head}, MB" for head in NUMBERS), "ratio"], lines)
    for turn, values in ratios.items():
        yield f"Geometric mean of the ratio to {PEER}, {turn}: {mean_of(values)}."


def main(
    models: Annotated[
        list[Path] | None, typer.Argument(help="With MODEL.npz, its feeds.", metavar="[MODEL...]")
    ] = None,
    full: Full = False,
    quick: Quick = False,
    again: Again = False,
    to: Folder = None,
    as_json: AsJson = False,
    runs: Annotated[int, typer.Option(min=1, help="Runs after the first answer.")] = RUNS,
    seconds: Annotated[float, typer.Option(min=0, help="Of runs after these.")] = SECONDS,
    peer: Annotated[bool, typer.Option(help="Beside ONNX Runtime.")] = True,
) -> None:
    """Measure the memory of a process that runs a model, next to ONNX Runtime."""
    if not models:
        scope = replace(Scope.of(full, quick), every_model=True)
        alone(sys.modules[__name__], scope, to, again, as_json)
        return
    engines = [name for name in here() if name == US or (peer and name == PEER)]
    rows = [
        row
        for model in models
        for row in measured(
            model, model.with_suffix(".npz"), engines, available_threads(), runs, seconds
        )
    ]
    print(json.dumps(rows, indent=2) if as_json else "\n\n".join(shown(rows)))


if __name__ == "__main__":
    typer.run(main)
