"""The time from the start of a process to its first answer.

``python -m eval.start``. Every engine starts in new processes, in turns with the others, on the
same file, inputs and threads. *CPU* is the processor time of all threads until the first answer,
which a busy machine changes little; *wall* is the time by the wall clock. One start that does not
count leaves Python's compiled code, and what engines cache on disk. *ratio* is VTensor's processor
time divided by the peer's, the median over rounds. Before a cold start VTensor's cache is removed,
and Python's compiled code stays; ``--cold MODEL...`` measures cold starts of other models.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import geometric_mean, median
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import numpy as np
import typer

from eval import first
from eval.compare import photograph
from eval.experiment import AsJson, Folder, Full, Quick, Scope, Store, alone
from eval.markdown import table, told
from eval.networks import build
from eval.store import Row
from ops import Relu
from vtensor import Graph, save_onnx
from vtensor.benchmark.peer import peer_at
from vtensor.commands.bench import PEERS
from vtensor.runtime.execution.processors import available_threads

NAME = "start"
TITLE = "From process start to the first answer"
KEY = ("model", "engine")
US, ONE_NODE = "vtensor", "one node"
ROUNDS, LIMIT_S = 3, 300.0

#: The number of rounds at the beginning that do not count.
BEFORE = 1


def measure(scope: Scope, store: Store) -> None:
    """Start every engine on each network whose rows the store lacks, warm and cold.

    The networks are one of a single node, and those of the scope.
    """
    kept, names = store.table(NAME, KEY), (ONE_NODE, *scope.networks)
    engines = here() if scope.peers else [US]
    rounds = 1 if scope.fresh == 1 else ROUNDS
    for number, name in enumerate(names):
        if store.late or not store.missing(kept, [{"model": name, "engine": US}]):
            continue
        store.advance(f"{name} from its start", number, len(names))
        with TemporaryDirectory() as folder:
            model = Path(folder) / "model.onnx"
            feeds = written(name, scope, model)
            arguments = (name, model, feeds, engines, scope.threads, rounds)
            cold = {row["engine"]: row for row in started(*arguments, cold=True)}
            kept.add(row | _cold(cold.get(row["engine"], {})) for row in started(*arguments))


def _cold(row: Row) -> Row:
    """Return the times and ratios of ``row``, by names with the prefix ``cold_``.

    ``row`` is that of an engine's cold starts.
    """
    return {f"cold_{key}": row.get(key) for key in ("cpu_s", "wall_s", "ratio", "wall_ratio")}


def here() -> list[str]:
    """Return the names of the installed engines, VTensor first."""
    return [US, *(name for name, place in PEERS.items() if not peer_at(place).absent())]


def written(name: str, scope: Scope, model: Path) -> dict[str, Any]:
    """Write a network as the ONNX file ``model``, and return its inputs by name.

    ``name`` is that of one of the twelve networks, or ``ONE_NODE`` for a network of one node.
    """
    if name == ONE_NODE:
        graph = Graph("one")
        graph.output(graph.add(Relu(), graph.input("x", {"N": 1, "C": 3, "H": 8, "W": 8})), "y")
    else:
        graph = build(name, size=scope.size)
    save_onnx(graph, model)
    [image] = graph.inputs
    return {image: photograph(tuple(graph.values[image].dims.values()))}


def started(
    name: str,
    model: Path,
    feeds: Mapping[str, Any],
    engines: Sequence[str],
    threads: int,
    rounds: int,
    cold: bool = False,
) -> list[Row]:
    """Start every engine once in each round, and return a row of medians for each engine.

    A peer that fails is left out.

    Args:
        name: the model's name in rows.
        model: the ONNX file.
        feeds: its inputs.
        engines: the names of the engines.
        threads: the number of threads of a run.
        rounds: the number of rounds that count.
        cold: True removes VTensor's cache before each start.

    Raises:
        SystemExit: VTensor fails; the message is its error.
    """
    with TemporaryDirectory() as folder:
        file = Path(folder) / "feeds.npz"
        np.savez(file, **feeds)
        environment = fresh(folder)
        rows_of: dict[str, list[Row]] = {engine: [] for engine in engines}
        for turn in range(BEFORE + rounds):
            able = list(rows_of)
            place = turn % len(able)
            for engine in (*able[place:], *able[:place]):
                if cold:
                    shutil.rmtree(f"{folder}/cache", ignore_errors=True)
                row = once(engine, model, file, [threads], environment)
                if row is None:
                    del rows_of[engine]
                else:
                    rows_of[engine] += [row] * (turn >= BEFORE)
    return [
        {"model": name, "engine": engine, "rounds": rounds, **_summary(rows, rows_of[US])}
        for engine, rows in rows_of.items()
    ]


def fresh(folder: str) -> dict[str, str]:
    """Return this process's environment variables, with caches put in a folder.

    The caches are Python's compiled code and VTensor's cache.
    """
    kept = {"PYTHONPYCACHEPREFIX": f"{folder}/code", "VTENSOR_CACHE_DIR": f"{folder}/cache"}
    environment = {**os.environ, **kept}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    return environment


def once(
    engine: str,
    model: Path,
    feeds: Path,
    told: Sequence[float],
    environment: Mapping[str, str],
) -> Row | None:
    """Run ``eval/first.py`` once, and return the row that it prints, with ``wall_s`` added.

    ``wall_s`` is the number of seconds from the start of the process to the first answer. None if a
    peer failed.

    Args:
        engine, model, feeds: the first arguments of ``eval/first.py``: the engine's name, the ONNX
            file and the file of inputs.
        told: the further arguments: the number of threads, then, if wanted, runs and seconds.
        environment: the environment variables of the process.

    Raises:
        SystemExit: VTensor fails; the message is its error.
    """
    arguments = [engine, str(model), str(feeds), *map(str, told)]
    command = [sys.executable, "-P", first.__file__, *arguments]
    begin = time.monotonic()
    ran = subprocess.run(
        command, check=False, capture_output=True, text=True, env=environment, timeout=LIMIT_S
    )
    if ran.returncode:
        fault = f"{engine} on {model}: {ran.stderr.strip() or 'it gave no reason'}"
        if engine == US:
            raise SystemExit(fault)
        print(f"note: {fault}", file=sys.stderr)
        return None
    row: Row = json.loads(ran.stdout.splitlines()[-1])
    row["wall_s"] = row.pop("answered") - begin
    return row


def _summary(rows: Sequence[Row], ours: Sequence[Row]) -> Row:
    """Return an engine's row: medians over rounds of its numbers, and of two ratios.

    The ratios are VTensor's time divided by the engine's: of processor time (``ratio``), and by the
    wall clock (``wall_ratio``).

    Args:
        rows: the engine's rows of ``eval/first.py``, by round.
        ours: VTensor's rows, by round.
    """
    pairs = [*zip(ours, rows, strict=True)]
    ratio, wall = (
        round(median(us[key] / it[key] for us, it in pairs), 3) for key in ("cpu_s", "wall_s")
    )
    medians = {key: median(row[key] for row in rows) for key in rows[0]}
    return {**medians, "ratio": ratio, "wall_ratio": wall}


def section(store: Store) -> Iterator[str]:
    """Yield a table with a line for each model, and the means of the ratios."""
    yield told(__doc__)
    yield from shown(list(store.table(NAME, KEY)))


def shown(rows: Sequence[Row]) -> Iterator[str]:
    """Yield a table with a line for each model in ``rows``, then each peer's mean ratios."""
    yield from beside(rows, "CPU s (wall s)", _times)
    for peer in dict.fromkeys(row["engine"] for row in rows if row["engine"] != US):
        theirs = [row for row in rows if row["engine"] == peer]
        means = (
            mean_of(row.get(key) for row in theirs)
            for key in ("wall_ratio", "cold_ratio", "cold_wall_ratio")
        )
        text = "by the wall clock {}; cold starts {}, by the wall clock {}".format(*means)
        yield f"Geometric means of the other ratios to {peer}: {text}."


def beside(rows: Sequence[Row], what: str, cell: Callable[[Row], str | None]) -> Iterator[str]:
    """Yield a table with a line for each model, then each peer's mean ratio.

    A line has a cell for each engine, and the ratio to each peer.

    Args:
        rows: a row for each model and engine, with ``ratio``, which may be None.
        what: the quantity and the unit of the cells, for the columns' heads.
        cell: returns the text of an engine's cell from its row.
    """
    engines = list(dict.fromkeys(row["engine"] for row in rows))
    peers = [engine for engine in engines if engine != US]
    heads = ["model", *(f"{engine}, {what}" for engine in engines)]
    heads += [f"ratio to {peer}" for peer in peers]
    lines = list[Sequence[object]]()
    for model in dict.fromkeys(row["model"] for row in rows):
        by = {row["engine"]: row for row in rows if row["model"] == model}
        cells = (cell(by[engine]) if engine in by else None for engine in engines)
        lines.append([model, *cells, *(by[p]["ratio"] if p in by else None for p in peers)])
    yield table(heads, lines)
    for peer in peers:
        mean = mean_of(row["ratio"] for row in rows if row["engine"] == peer)
        yield f"Geometric mean of the ratio to {peer}: {mean}."


def _times(row: Row) -> str:
    return f"{row['cpu_s']:.2f} ({row['wall_s']:.2f})"


def mean_of(ratios: Iterable[float | None]) -> str:
    """Return as text the geometric mean of ``ratios``, and of how many models it is.

    Ratios that are None are left out.
    """
    known = [ratio for ratio in ratios if ratio]
    return f"{geometric_mean(known):.2f} over {len(known)} models" if known else "not known"


def main(
    models: Annotated[list[Path] | None, typer.Argument(help="With MODEL.npz, its feeds.")] = None,
    full: Full = False,
    quick: Quick = False,
    again: Annotated[bool, typer.Option("--again", help="Measure what is there, too.")] = False,
    to: Folder = None,
    as_json: AsJson = False,
    rounds: Annotated[int, typer.Option(min=1, help="Of models that are named.")] = ROUNDS,
    cold: Annotated[
        bool, typer.Option("--cold", help="Nothing is kept of models that are named.")
    ] = False,
) -> None:
    """Measure the time from the start of a process to its first answer, next to the installed
    peers.
    """
    if not models:
        alone(sys.modules[__name__], Scope.of(full, quick), to, again, as_json)
        return
    rows = list[Row]()
    for model in models:
        with np.load(model.with_suffix(".npz")) as kept:
            feeds, threads = dict(kept), available_threads()
            rows += started(model.stem, model, feeds, here(), threads, rounds, cold)
    print(json.dumps(rows, indent=2) if as_json else "\n\n".join(shown(rows)))


if __name__ == "__main__":
    typer.run(main)
