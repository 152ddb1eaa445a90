"""The memory of a process that runs a model, the longer it is used.

``python -m eval.memory MODEL...`` runs every model in processes of its own, one after another: ours
without anything on disk but compiled code (*new*), with what that one has kept, and with what the
second one has (*kept*); and ONNX Runtime's. Memory is what the process holds (``VmRSS``) after the
first answer, after ``--runs`` further ones, and after ``--seconds`` of runs, when what is done
beside runs is over; *anonymous* is the part of that which lies in no file, *most* the largest that
there was at any time. *ratio* is ours by ONNX Runtime's at the end. MODEL.npz has the feeds.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import typer

from eval import first
from eval.experiment import AsJson
from eval.markdown import table
from eval.start import LIMIT_S, US, fresh
from eval.store import Row
from vtensor.runtime.processors import available_threads

PEER = "onnxruntime"

#: Ours, each behind what the ones before have kept.
TURNS = ("new", "second", "kept")

#: Columns, and the number of each in MB.
NUMBERS = {
    "first": "first_kib",
    "runs": "runs_kib",
    "used": "used_kib",
    "anonymous": "anon_kib",
    "most": "most_kib",
}


def measured(model: Path, runs: int, seconds: float, peer: bool) -> list[Row]:
    """A row a process."""
    threads = available_threads()
    with TemporaryDirectory() as folder:
        environment = fresh(folder)
        environment.pop("PYTHONUNBUFFERED", None)
        names = [(US, turn) for turn in TURNS] + [(PEER, "")] * peer
        return [
            {"model": model.stem, "engine": engine, "turn": turn}
            | _once(engine, model, [threads, runs, seconds], environment)
            for engine, turn in names
        ]


def _once(engine: str, model: Path, told: Sequence[float], environment: Mapping[str, str]) -> Row:
    """What one process says.

    Raises:
        SystemExit: it failed; says how.
    """
    files = [str(model), str(model.with_suffix(".npz"))]
    command = [sys.executable, "-P", first.__file__, engine, *files, *map(str, told)]
    ran = subprocess.run(
        command, check=False, capture_output=True, text=True, env=environment, timeout=LIMIT_S
    )
    if ran.returncode:
        raise SystemExit(f"{engine} on {model}: {ran.stderr.strip() or 'it gave no reason'}")
    row: Row = json.loads(ran.stdout.splitlines()[-1])
    return row


def shown(rows: Sequence[Row]) -> str:
    """A line a process, in MB."""
    peers = {row["model"]: row for row in rows if row["engine"] == PEER}
    lines = list[Sequence[object]]()
    for row in rows:
        peer = peers.get(row["model"])
        ratio = f"{row['used_kib'] / peer['used_kib']:.2f}" if peer else None
        cells = (f"{row[key] * 1024 / 1e6:.0f}" for key in NUMBERS.values())
        lines.append([row["model"], f"{row['engine']} {row['turn']}".strip(), *cells, ratio])
    return table(["model", "process", *(f"{head}, MB" for head in NUMBERS), "ratio"], lines)


def main(
    models: Annotated[list[Path], typer.Argument(help="With MODEL.npz, its feeds.")],
    as_json: AsJson = False,
    runs: Annotated[int, typer.Option(min=1, help="Runs after the first answer.")] = 20,
    seconds: Annotated[float, typer.Option(min=0, help="Of runs after these.")] = 10.0,
    peer: Annotated[bool, typer.Option(help="Beside ONNX Runtime.")] = True,
) -> None:
    """What memory a process holds that runs a model, beside ONNX Runtime."""
    rows = [row for model in models for row in measured(model, runs, seconds, peer)]
    print(json.dumps(rows, indent=2) if as_json else shown(rows))


if __name__ == "__main__":
    typer.run(main)
