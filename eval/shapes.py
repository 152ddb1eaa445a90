"""Shapes that a session has not seen before, compared with the peers.

``python -m eval.shapes`` takes all models of today that have open sizes, ``make eval`` some. Each
engine runs in a process of its own, in turns with the others. It runs a model first, the peers
twice and VTensor for three seconds, then it gets other sizes. *new* is the first run of a shape,
*again* the runs that follow, *back* a run of the shape after other shapes. *in a first process* is
VTensor's time for other shapes, each run once, directly after the first run of a process, if no
process has run the model before: nothing is cached or prepared. *in a later process* is the same in
the next process.
OpenVINO compiles the model once for all sizes. *growing*: the length of the past grows by one with
every run, as with every word that a language model writes; *new* is then the time of a word.
*ratio* is VTensor's *new* divided by the peer's, the median over shapes and rounds. A ratio leaves
out the sizes that an engine refuses, such as a height that makes no line of text.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import typer

from eval.experiment import Scope, Store, command
from eval.markdown import told
from eval.models_today import FAMILIES, models_of
from eval.models_today.__main__ import made
from eval.start import US, beside, fresh, here, mean_of
from eval.store import Row
from vtensor.benchmark.agreement import BOUNDS, difference
from vtensor.benchmark.peer import Array
from vtensor.benchmark.report import Case
from vtensor.errors import PeerError
from vtensor.frontends.onnx import Model

NAME = "shapes"
TITLE = "A shape that was not seen before"
KEY = ("model", "engine")
EXPORTER, GROWING = "dynamo", "past_length"
#: The report's models. Their open sizes are of several kinds: batch, width of a line, length of a
#: text.
DEFAULT_MODELS = (
    "vit_small_patch16_224",
    "efficientnet_b0",
    "yolo",
    "ppocr6_rec",
    "bert_base",
    "gpt2_past",
)
#: The number of new values for the size that grows with every run, and for any other open size.
GROWN, CHANGED = 24, 4
#: Sizes of pictures change by multiples of this number, since networks halve them up to five times.
STEP = 32
ROUNDS, LIMIT_S = 2, 300.0
#: Fields of a row, for the time of a new shape right after the first run of a process: in a process
#: that finds a cache, and in one that does not.
SOON = ("later_process", "first_process")
#: Seconds for which VTensor runs a model before it gets other sizes, so that its background work
#: ends. Peers have none.
USED_S = 3.0

Axes = Mapping[str, Mapping[str, str]]
Sizes = Mapping[str, int]


def measure(scope: Scope, store: Store) -> None:
    """Measure every model on its shapes, if the scope has peers."""
    if not scope.peers:
        return
    kept, engines = store.table(NAME, KEY), here()
    names = list(models_of(FAMILIES)) if scope.every_model else list(DEFAULT_MODELS)
    for number, name in enumerate(names):
        if store.late or not store.missing(kept, [{"model": name, "engine": US}]):
            continue
        store.advance(f"{name} in other sizes", number, len(names))
        case = made(name, EXPORTER)
        if case is not None and (axes := axes_of(case)):
            kept.add(compared(case, axes, engines, scope.threads))


def axes_of(case: Case) -> Axes:
    """Return the names of the open sizes of a model's inputs.

    The keys are names of inputs, and in each of them indices of axes, as text.
    """
    symbols = Model(case.model).symbols
    names = {
        name: {str(axis): size for axis, size in enumerate(row or ()) if isinstance(size, str)}
        for name, row in symbols.items()
    }
    return {name: row for name, row in names.items() if row}


def sizes_of(feeds: Mapping[str, Array], axes: Axes) -> list[Sizes]:
    """Return the changes of sizes that are measured: in each, the new value of one size, by name.

    Args:
        feeds: the inputs, from whose sizes the new values are made.
        axes: the names of the open sizes, as ``axes_of`` returns them.

    >>> sizes_of({"x": np.zeros((1, 3, 64))}, {"x": {"0": "n", "2": "w"}})[:3]
    [{'n': 2}, {'n': 3}, {'w': 96}]
    """
    bases = {
        symbol: feeds[name].shape[int(axis)]
        for name, row in axes.items()
        for axis, symbol in row.items()
    }
    choices: list[Sizes] = []
    for symbol, base in bases.items():
        if symbol == GROWING:
            choices += [{symbol: base + more} for more in range(1, GROWN + 1)]
        elif base < STEP:
            choices += [{symbol: base + more} for more in range(1, CHANGED // 2 + 1)]
        else:
            steps = (1, 2, -1, 3)[:CHANGED]
            choices += [{symbol: base + STEP * step} for step in steps if base + STEP * step > 0]
    return choices


def compared(case: Case, axes: Axes, engines: Sequence[str], threads: int) -> list[Row]:
    """Run a model on all its shapes in each engine, and return a row for each engine.

    A peer that fails, or whose outputs differ from VTensor's, is left out, after a note.

    Args:
        case: the model and its inputs.
        axes: the names of the open sizes, as ``axes_of`` returns them.
        engines: the names of the engines.
        threads: the number of threads of a run.

    Raises:
        SystemExit: VTensor fails; the message has the reason.
    """
    sizes = sizes_of(case.feeds, axes)
    asked = {"axes": axes, "sizes": sizes, "runs": 2, "used_s": 0.0}
    rows_of: dict[str, list[Row]] = {engine: [] for engine in engines}
    with TemporaryDirectory() as folder:
        feeds, answers = Path(folder) / "feeds.npz", dict[str, dict[str, Array]]()
        np.savez(feeds, **dict[str, Any](case.feeds))
        environment = fresh(folder)
        for turn in range(ROUNDS):
            able = list(rows_of)
            for engine in (*able[turn:], *able[:turn]):
                to = Path(folder) / f"{engine}.npz"
                used = json.dumps({**asked, "used_s": USED_S if engine == US else 0.0})
                row = _once(engine, case, feeds, threads, used, to, environment)
                if row is None:
                    del rows_of[engine]
                    continue
                rows_of[engine].append(row)
                with np.load(to) as kept:
                    answers[engine] = {name: kept[name] for name in kept.files}
        about = (
            US,
            case,
            feeds,
            threads,
            json.dumps({**asked, "runs": 1}),
            Path(folder) / "soon.npz",
        )
        nothing = {**environment, "VTENSOR_CACHE_DIR": f"{folder}/nothing"}
        cold, soon = _once(*about, nothing), _once(*about, nothing)
    for engine in list(rows_of):
        if engine != US and (fault := _apart(answers[US], answers[engine])):
            print(f"note: {engine} on {case.name}: {fault}", file=sys.stderr)
            del rows_of[engine]
    growing = any(GROWING in row.values() for row in axes.values())
    told_of = {"model": case.name, "growing": growing, "shapes": len(sizes)}
    return [
        {**told_of, "engine": engine, **_summary(rows, rows_of[US], soon, cold)}
        for engine, rows in rows_of.items()
    ]


def _once(
    engine: str,
    case: Case,
    feeds: Path,
    threads: int,
    asked: str,
    to: Path,
    environment: Mapping[str, str],
) -> Row | None:
    """Run ``eval/reshaped.py`` once, and return the row that it prints; None if a peer failed.

    Args:
        engine, case, feeds, threads: the engine, the model, the file of inputs, and the number of
            threads.
        asked: JSON that says which shapes are run, as ``eval/reshaped.py`` describes it.
        to: the file that gets the outputs.
        environment: the environment variables of the process.

    Raises:
        SystemExit: VTensor failed.
    """
    arguments = (engine, str(case.model), str(feeds), str(threads), asked, str(to))
    ran = subprocess.run(
        [sys.executable, "-m", "eval.reshaped", *arguments],
        check=False,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        env=environment,
    )
    if ran.returncode:
        lines = ran.stderr.strip().splitlines() or ["it gave no reason"]
        fault = f"{engine} on {case.name}: {lines[-1]}"
        if engine == US:
            raise SystemExit(fault)
        print(f"note: {fault}", file=sys.stderr)
        return None
    row: Row = json.loads(ran.stdout.splitlines()[-1])
    return row


def _apart(ours: Mapping[str, Array], theirs: Mapping[str, Array]) -> str:
    """Return in words how a peer's outputs differ from VTensor's; an empty text if they agree."""
    both = [name for name in ours if name in theirs]
    try:
        off = difference([ours[name] for name in both], [theirs[name] for name in both])
    except PeerError as error:
        return str(error)
    return "" if off <= BOUNDS["f32"] else f"its answers differ by {off:.1e}"


def _summary(rows: Sequence[Row], ours: Sequence[Row], soon: Row | None, cold: Row | None) -> Row:
    """Return an engine's medians over rounds and shapes, and the ratios of VTensor's first runs.

    Args:
        rows: the engine's rows of ``eval/reshaped.py``, by round.
        ours: VTensor's rows, by round.
        soon: VTensor's row of a process that runs the model once before, and finds a cache; None if
            there is none.
        cold: the same of a process that finds no cache.
    """
    known = {
        what: [second for row in rows for second in row[what]]
        for what in ("new_s", "again_s", "back_s")
    }
    return {
        "rounds": len(rows),
        "refused": sum(second is None for second in rows[0]["new_s"]),
        **{what: _middle(seconds) for what, seconds in known.items()},
        "ratio": _ratio(ours, rows),
        "later_process": _ratio([soon] * len(rows), rows) if soon else None,
        "first_process": _ratio([cold] * len(rows), rows) if cold else None,
    }


def _ratio(ours: Sequence[Row], rows: Sequence[Row]) -> float | None:
    """Return the time of VTensor's first run of a shape divided by an engine's.

    It is the median over shapes and rounds; None if no shape was run by both.

    Args:
        ours: VTensor's rows of ``eval/reshaped.py``, by round.
        rows: the engine's rows, by round.
    """
    pairs = [
        mine / its
        for us, it in zip(ours, rows, strict=True)
        for mine, its in zip(us["new_s"], it["new_s"], strict=True)
        if mine is not None and its is not None
    ]
    return round(median(pairs), 3) if pairs else None


def _middle(seconds: Sequence[float | None]) -> float | None:
    """Return the median of the numbers in ``seconds`` that are not None; None if all are."""
    there = [time for time in seconds if time is not None]
    return median(there) if there else None


def section(store: Store) -> Iterator[str]:
    """Yield the report's text, a table with a line for each model, and mean ratios to each peer."""
    yield told(__doc__)
    rows = [
        row | {"model": f"{row['model']}, growing"} if row["growing"] else row
        for row in store.table(NAME, KEY)
    ]
    yield from beside(rows, "ms: new / again / back", _times)
    for peer in dict.fromkeys(row["engine"] for row in rows if row["engine"] != US):
        of_peer = [row for row in rows if row["engine"] == peer]
        mean, without = (mean_of(row.get(what) for row in of_peer) for what in SOON)
        yield (
            "Another size right after the first run, geometric mean of the ratio to "
            f"{peer}: {without} in a first process, {mean} in a later one."
        )


def _times(row: Row) -> str | None:
    if row["new_s"] is None:
        return None
    return " / ".join(f"{row[what] * 1e3:.1f}" for what in ("new_s", "again_s", "back_s"))


if __name__ == "__main__":
    typer.run(command(sys.modules[__name__], every_model=True))
