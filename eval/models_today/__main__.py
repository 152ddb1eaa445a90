"""Today's models compared with the peers: ``python -m eval.models_today [NAME...]``.

Each model is made once, in a process of its own, and kept in ``out/models_today/``. Then engines
run it as in ``vtensor bench``: their outputs are compared, and their runs are timed.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from eval.models_today import FAMILIES, models_of
from eval.models_today.exporting import EXPORTERS
from vtensor.benchmark.race import RaceSettings
from vtensor.benchmark.report import Case
from vtensor.commands.bench import (
    PEERS,
    LimitOption,
    PlotOption,
    RoundsOption,
    SecondsOption,
    SeedOption,
    chosen,
    present,
)
from vtensor.commands.shared import DebugOption, JsonOption, ThreadsOption, errors
from vtensor.runtime.execution.executor import Executor

FOLDER = Path("out/models_today")


def made(name: str, exporter: str) -> Case | None:
    """Return a model's file and inputs, and make them if they are missing.

    None, after a note, if the model cannot be made, for instance because a package is absent.

    Args:
        name: the model's name.
        exporter: one of ``EXPORTERS``.
    """
    path = FOLDER / f"{name}.{exporter}.onnx"
    feeds = path.with_suffix(".npz")
    if not feeds.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        command = [
            sys.executable,
            "-m",
            "eval.models_today",
            "--make",
            "--exporter",
            exporter,
            name,
        ]
        ran = subprocess.run(command, check=False, capture_output=True, text=True)
        if ran.returncode:
            reason = (ran.stderr.strip().splitlines() or ["no reason given"])[-1]
            print(f"note: {name} is left out: {reason}", file=sys.stderr)
            return None
    with np.load(feeds) as kept:
        return Case(name, path, dict(kept))


def make(name: str, exporter: str) -> None:
    """Write a model's file, then its inputs: if the file of inputs exists, both are complete."""
    path = FOLDER / f"{name}.{exporter}.onnx"
    path.parent.mkdir(parents=True, exist_ok=True)
    feeds: dict[str, Any] = models_of(FAMILIES)[name](path, exporter)  # Any: savez has keywords
    part = path.with_suffix(".part.npz")
    np.savez(part, **feeds)
    part.rename(path.with_suffix(".npz"))


def cases(names: Iterable[str], exporter: str) -> Iterator[Case]:
    """Yield a case for each model that can be made on this machine."""
    for name in names:
        if case := made(name, exporter):
            yield case


def main(
    names: Annotated[list[str] | None, typer.Argument(metavar="NAME...")] = None,
    exporter: Annotated[str, typer.Option(help=f"Of {', '.join(EXPORTERS)}.")] = EXPORTERS[0],
    families: Annotated[str, typer.Option(help="With commas.")] = ",".join(FAMILIES),
    only_make: Annotated[bool, typer.Option("--make", help="Make files, time nothing.")] = False,
    peers: Annotated[str, typer.Option(help="With commas.")] = ",".join(PEERS),
    threads: ThreadsOption = None,
    rounds: RoundsOption = 10,
    seconds: SecondsOption = 3.0,
    limit: LimitOption = 300.0,
    seed: SeedOption = 0,
    to: PlotOption = None,
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Time today's models, all by default; the exit code is that of ``vtensor bench``."""
    with errors(debug):
        known = models_of(chosen(families, FAMILIES, "family"))
        wanted = chosen(",".join(names or known), known, "model")
        chosen(exporter, dict.fromkeys(EXPORTERS), "exporter")
        if only_make:
            for name in wanted:
                make(name, exporter)
            return
        settings = RaceSettings(Executor.of(threads).threads, rounds, seconds, limit, seed)
        here = chosen(peers, PEERS, "peer")
        present(cases(wanted, exporter), here, ["f32"], settings, to, as_json)


if __name__ == "__main__":
    typer.run(main)
