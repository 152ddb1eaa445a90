"""Where the time of the twelve networks goes: ``python -m eval.profiles``.

Of each network: what a run takes; what share of it are convolutions and products of matrices,
element-wise operators, pooling, conversions, all other steps, and gaps in which no step runs; and
what the heavy ones and all steps reach of the machine's peaks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from eval.networks import NAMES
from eval.processes import Row, chosen, measure
from vtensor.commands.shared import print_json, progress
from vtensor.runtime.processors import available_threads

#: What steps count as, and how the table calls it.
KINDS = {
    "heavy": "conv.,\nmatmul",
    "element-wise": "element-\nwise",
    "pooling": "pools",
    "conversions": "conver-\nsions",
    "other": "other",
}


#: What a line of the table takes, where the terminal does not say.
WIDTH = 110


def table(rows: Sequence[Row]) -> Table:
    """A line a network; behind GFLOP/s what that is of the machine's peak."""
    heads = ("network", "ms", *KINDS.values(), "gaps", "GFLOP/s,\nall", "conv.,\nmatmul")
    made = Table(*heads, box=None, padding=(0, 2, 0, 0))
    for column in made.columns[1:]:
        column.justify = "right"
    for row in rows:
        kinds = row["by_kind"]
        shares = [kinds[kind]["share"] if kind in kinds else 0.0 for kind in KINDS]
        reached = map(_reached, (row["total"], kinds["heavy"]))
        parts = (f"{share:.1%}" for share in (*shares, row["gaps_ns"]["share"]))
        made.add_row(row["network"], f"{row['run_ns']['median'] / 1e6:.2f}", *parts, *reached)
    return made


def _reached(group: dict[str, Any]) -> str:
    share = group["of_peak"]
    return f"{group['gflops']:.0f}" + ("" if share is None else f" ({share:.0%})")


def main(
    networks: Annotated[str, typer.Option(help="With commas.")] = ",".join(NAMES),
    runs: Annotated[int, typer.Option(min=1, help="Medians are of so many.")] = 20,
    threads: Annotated[int, typer.Option(help="Kernel threads.")] = available_threads(),
    as_json: Annotated[bool, typer.Option("--json", help="Print rows as JSON.")] = False,
) -> None:
    """Profile all, a process each; show the table."""
    rows = list[Row]()
    with progress("profiles") as advance:
        for name in chosen(networks, NAMES):
            advance(name)
            measure("eval.profiled", [name, str(runs), str(threads)], rows.append)
    if as_json:
        print_json({"networks": rows})
    else:
        Console(width=max(Console().width, WIDTH)).print(table(rows))


if __name__ == "__main__":
    typer.run(main)
