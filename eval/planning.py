"""How long it takes to find a plan: ``python -m eval.planning``.

It times, for each of the twelve networks, the resolver with the insertion of Transforms, hoisting,
and the integer program; the certificate has the solver's part. Nothing is recorded or run.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median
from typing import Annotated, Any, TypeVar

import typer
from rich.console import Console
from rich.table import Table

from eval.networks import NAMES, build
from optimizer.pipeline import optimise
from resolver.evaluate import resolve
from resolver.extend import extend
from vtensor.commands.shared import print_json, progress
from vtensor.language.graph import Graph

T = TypeVar("T")


def main(
    networks: Annotated[str, typer.Option(help="Names with commas.")] = ",".join(NAMES),
    rounds: Annotated[int, typer.Option(min=1, help="Medians are of so many.")] = 3,
    as_json: Annotated[bool, typer.Option("--json")] = False,
) -> None:
    """Measure the seconds of each part of planning: medians of rounds, without a first round."""
    rows = []
    with progress("planning") as advance:
        for name in networks.split(","):
            advance(name)
            rows.append({"network": name, **planned(build(name), rounds)})
    if as_json:
        print_json({"networks": rows})
    else:
        Console().print(_table(rows))


def planned(graph: Graph, rounds: int) -> dict[str, Any]:
    """Return a row: numbers of nodes, and the median seconds of each part of planning.

    An open node has several variants to choose from. A first round is not counted.
    """
    times: dict[str, list[float]] = {"resolve": [], "lho": [], "ewo": [], "solver": []}
    certificate = None
    for _ in range(rounds + 1):
        extended, seconds = timed(lambda: extend(resolve(graph)))
        times["resolve"].append(seconds)
        hoisted, seconds = timed(lambda extended=extended: optimise(extended, "lho"))  # type: ignore[misc]
        times["lho"].append(seconds)
        chosen, seconds = timed(lambda hoisted=hoisted: optimise(hoisted, ["ewo", "lho"]))  # type: ignore[misc]
        times["ewo"].append(seconds)
        certificate = chosen.certificate
        assert certificate is not None
        times["solver"].append(certificate.seconds)
    medians = {part: median(row[1:]) for part, row in times.items()}
    total = medians["resolve"] + medians["lho"] + medians["ewo"]
    assert certificate is not None
    counts = {"nodes": len(graph.nodes), "open": certificate.open_nodes}
    return {**counts, **medians, "total": total, "status": certificate.status}


def timed(run: Callable[[], T]) -> tuple[T, float]:
    """Call a function; return its result and the seconds that it took."""
    begin = time.perf_counter()
    result = run()
    return result, time.perf_counter() - begin


def _table(rows: list[dict[str, Any]]) -> Table:
    shown = Table(title="seconds to plan; ewo holds its solver's")
    for title in rows[0]:
        shown.add_column(title, justify="left" if title == "network" else "right")
    for row in rows:
        cells = (
            f"{value:.2f}" if isinstance(value, float) else str(value) for value in row.values()
        )
        shown.add_row(*cells)
    return shown


if __name__ == "__main__":
    typer.run(main)
