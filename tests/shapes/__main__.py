"""``python -m tests.shapes``: the proof for models with open sizes, at random and at borders.

Inputs are the arrays of ``MODEL.npz`` where that stands beside ``MODEL.onnx``, else seeded noise;
for other sizes their numbers are cut off, or begin again.
"""

from __future__ import annotations

from itertools import chain
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Annotated

import numpy as np
import typer

from eval.reshaped import resized
from eval.shapes import axes_of
from tests.shapes.borders import at_borders, named_sizes
from tests.shapes.proof import BOUND, Proof
from vtensor.benchmark.report import Case
from vtensor.commands.bench import case_of

#: The least size of a picture; half of these are drawn in steps that can be halved often.
STEP = 32


def drawn(random: Random, size: int, most: int) -> int:
    """Return a random size for one that the model was exported with.

    Few networks can have any number of rows: half the larger sizes are multiples of 32.
    """
    top = min(size, most)
    if top >= STEP and random.random() < 0.5:
        return STEP * random.randint(1, top // STEP)
    return random.randint(1, top if top >= STEP else max(top, 3))


def main(
    models: Annotated[list[Path], typer.Argument(help="ONNX files.", metavar="MODEL...")],
    shapes: Annotated[int, typer.Option(help="Random choices of sizes, per model.")] = 200,
    borders: Annotated[int, typer.Option(help="Borders of each name that are looked for.")] = 4,
    most: Annotated[int, typer.Option(help="The largest size that is drawn.")] = 160,
    own: Annotated[int, typer.Option(help="Compare other choices at each so many shapes.")] = 1,
    bound: Annotated[float, typer.Option(help="What other choices may differ by.")] = BOUND,
    seconds: Annotated[float, typer.Option(help="Time for each model.")] = float("inf"),
    seed: Annotated[int, typer.Option(help="The same sizes for the same number.")] = 1,
) -> None:
    """Compare specialised plans with plans from scratch; exit with 1 if any differs."""
    failed = False
    for file in models:
        begun, random, case = perf_counter(), Random(seed), _case(file)
        axes = axes_of(case)
        sizes = named_sizes(case.feeds, axes)
        if not sizes:
            print(f"{case.name}: no open size has a name", flush=True)
            continue
        edges = at_borders(case, range(most + 1), borders)
        random.shuffle(edges)
        choices = (
            {name: drawn(random, size, most) for name, size in sizes.items()} for _ in range(shapes)
        )
        others = (resized(case.feeds, axes, chosen) for chosen in choices)
        with TemporaryDirectory() as folder, Proof(file, Path(folder), bound) as proof:
            for count, feeds in enumerate(chain(edges, others)):
                if perf_counter() - begun > seconds:
                    break
                proof.at(feeds, own=not count % own)
        took = f"{len(edges)} sizes at borders, {perf_counter() - begun:.0f} s"
        print(f"{case.name}: {proof.tally}, {took}", *proof.tally.faults, sep="\n  ", flush=True)
        failed |= bool(proof.tally.faults)
    raise typer.Exit(failed)


def _case(file: Path) -> Case:
    arrays = file.with_suffix(".npz")
    if not arrays.exists():
        return case_of(file, None, None)
    with np.load(arrays) as kept:
        return Case(file.stem, file, {name: kept[name] for name in kept.files})


if __name__ == "__main__":
    typer.run(main)
