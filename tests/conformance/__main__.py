"""``python -m tests.conformance``: the conformance matrix, or some of its cells, or one case."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Sequence
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import track
from rich.table import Table

from tests.conformance.matrix import Cell, cells, run_all
from vtensor import limit_isa


def main(
    operator: Annotated[
        list[str] | None, typer.Option(help="Only this operator. May be repeated.")
    ] = None,
    library: Annotated[
        list[str] | None, typer.Option(help="Only this library. May be repeated.")
    ] = None,
    seed: Annotated[int, typer.Option(help="The same cases for the same number.")] = 1,
    count: Annotated[int, typer.Option(min=1, help="How many cases for each cell.")] = 100,
    case: Annotated[int | None, typer.Option(min=0, help="One case alone.")] = None,
    isa: Annotated[str, typer.Option(help="Cap on the instruction set.")] = "max",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Run every operator on every library against NumPy in f64; 1 when a case fails."""
    if isa != "max":
        limit_isa(isa)
    matrix = cells(operator or (), library or ())
    if not matrix:
        raise typer.BadParameter("no library has an invoker of such an operator")
    numbers = range(count) if case is None else [case]
    bar = track(
        run_all(matrix, seed, numbers),
        "cases",
        total=len(matrix) * len(numbers),
        console=Console(stderr=True),
        transient=True,
    )
    deque(bar, maxlen=0)
    if as_json:
        rows = [vars(cell) | {"taken": cell.taken} for cell in matrix]
        print(json.dumps({"seed": seed, "cells": rows}))
    else:
        show(Console(), matrix, "" if isa == "max" else f" --isa {isa}")
    raise typer.Exit(1 if any(cell.failed for cell in matrix) else 0)


def show(console: Console, matrix: Sequence[Cell], more: str) -> None:
    """Print a row for each cell, then each failure with the command that repeats it, and more."""
    table = Table("operator", "library", "run", "taken", "failed", "declined, by reason")
    for cell in matrix:
        reasons = [f"{n} x {reason[:60]}" for reason, n in cell.declined.most_common(2)]
        figures = (str(cell.run), str(cell.taken), str(len(cell.failed)))
        table.add_row(cell.operator, cell.library, *figures, "\n".join(reasons))
    console.print(table)
    for cell in matrix:
        for command, text in cell.failed.items():
            print(f"{text}\n  {command}{more}")
    ran, taken = sum(cell.run for cell in matrix), sum(cell.taken for cell in matrix)
    print(f"{ran} cases, {taken} taken, {sum(len(cell.failed) for cell in matrix)} failed")


if __name__ == "__main__":
    typer.run(main)
