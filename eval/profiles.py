"""Where the time of the twelve networks goes: ``python -m eval.profiles``.

For each network as ``Session(model)`` runs it, the table has the time of a run; the shares of it in
convolutions and matrix products, element-wise operators, pools, conversions, other steps, and gaps
in which no step runs; and the GFLOP/s of all steps, and of convolutions and matrix products. The
brackets have the share of the machine's peak: the least possible time at its measured peaks, given
what each step computes and moves, divided by the time taken. A profile comes from runs of its own,
with a clock around each step.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import typer

from eval.experiment import Scope, Store, command
from eval.markdown import percent, table, told
from eval.processes import measure as run_process
from eval.store import Row, Table

NAME = "profiles"
TITLE = "Where the time goes"
KEY = ("network", "size", "cap", "mix", "optimize", "batch")
#: By kind of step, the head of its column in the table.
KINDS = {
    "heavy": "conv., matmul",
    "element-wise": "element-wise",
    "pooling": "pools",
    "conversions": "conversions",
    "other": "other",
}
#: The largest number of runs for a profile.
RUNS = 20


def measure(scope: Scope, store: Store) -> None:
    """Profile the networks whose rows the store lacks, in a process for each."""
    kept = store.table(NAME, KEY)
    about = {"size": scope.size, "cap": "max", "mix": "priority", "optimize": "all", "batch": 1}
    missing = store.missing(kept, [{"network": name, **about} for name in scope.networks])
    numbers = str(scope.size or 0), str(min(RUNS, scope.runs)), str(scope.threads)
    for count, key in enumerate(missing):
        if store.late:
            return
        store.advance(f"profile of {key['network']}", count, len(missing))
        done = partial(_keep, kept, key)
        run_process("eval.figures.profiled", [key["network"], *numbers], done)


def _keep(kept: Table, key: Row, row: Row) -> None:
    kept.add([{**key, **row}])


def section(store: Store) -> Iterator[str]:
    """Yield the report's text, and a table with a line for each network."""
    yield told(__doc__)
    yield shown(list(store.table(NAME, KEY)))


def shown(rows: Sequence[Row]) -> str:
    """Return a Markdown table with a line for each row, that is, for each network.

    It has the time of a run, the share of each kind of step, and rates in GFLOP/s, each followed by
    the share of the machine's peak that was reached.
    """
    lines = []
    for row in rows:
        kinds = row["by_kind"]
        parts = [percent(kinds[kind]["share"]) if kind in kinds else None for kind in KINDS]
        gaps = percent(row["gaps_ns"]["share"])
        heavy = kinds.get("heavy")
        reached = (_reached(row["total"]), heavy and _reached(heavy))
        time = f"{row['run_ns']['median'] / 1e6:.2f}"
        lines.append([row["network"], time, *parts, gaps, *reached])
    heads = ["network", "ms", *KINDS.values(), "gaps", "GFLOP/s, all", "of conv., matmul"]
    return table(heads, lines)


def _reached(group: dict[str, Any]) -> str:
    share = group["of_peak"]
    return f"{group['gflops']:.0f}" + ("" if share is None else f" ({share:.0%})")


if __name__ == "__main__":
    typer.run(command(sys.modules[__name__]))
