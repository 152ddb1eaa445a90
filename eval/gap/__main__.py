"""``python -m eval.gap``: how far solvers of layout problems are from the optimum.

With ``--score PROBLEM SOLUTION``, score one solution of a problem file instead.
"""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any, cast

import typer

from eval.experiment import Again, AsJson, Experiment, Folder, Full, Quick, Scope, alone
from eval.gap import gap
from eval.gap.cells import ESTIMATED, MEASURED, networks
from eval.gap.reading import read
from eval.gap.score import read_solution, score
from eval.processes import chosen
from vtensor.errors import VTensorError


def main(
    only: Annotated[str, typer.Option(help="Networks or random problems, with commas.")] = "",
    scored: Annotated[
        tuple[Path, Path] | None,
        typer.Option("--score", metavar="PROBLEM SOLUTION", help="Score a solution, two files."),
    ] = None,
    measured: Annotated[
        bool, typer.Option("--measured", help="Time kernels and conversions; of --only or all.")
    ] = False,
    full: Full = False,
    quick: Quick = False,
    again: Again = False,
    to: Folder = None,
    as_json: AsJson = False,
) -> None:
    """Solve the layout problems of networks and of random graphs, and compare the solvers."""
    if scored is not None:
        try:
            print(json.dumps(_scored(*scored)))
        except VTensorError as error:
            print(f"error: {error}", file=sys.stderr)
            raise typer.Exit(1) from None
        return
    names = tuple(chosen(only, [*gap.randoms(), *networks()])) if only else ()
    scope = replace(Scope.of(full, quick), only=names)
    parts = {"NAME": gap.NAME, "TITLE": gap.TITLE, "section": gap.section}
    costs = MEASURED if measured else ESTIMATED
    experiment = SimpleNamespace(**parts, measure=partial(gap.measure, costs=costs))
    alone(cast("Experiment", experiment), scope, to, again, as_json)


def _scored(problem_file: Path, solution_file: Path) -> dict[str, Any]:
    """Return the score of a solution, and what the file proves to be the least."""
    problem = read(problem_file)
    result: dict[str, Any] = score(problem, read_solution(solution_file))._asdict()
    least = {f"least_{name}": optimum.get("cost") for name, optimum in problem.optima.items()}
    return {**result, **least}


if __name__ == "__main__":
    typer.run(main)
