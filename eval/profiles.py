"""Where the time of the twelve networks goes: ``python -m eval.profiles``.

Of each network as ``Session(model)`` runs it: what a run takes; what share of it are convolutions
and products of matrices, element-wise operators, pools, conversions, all other steps, and gaps in
which no step runs; and what all steps, and the heavy ones, reach of the machine's measured peaks
(in brackets what part of it can be had, given what each step does and moves). A profile is a run of
its own, with a clock around each step.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import Any

import typer

from eval.experiment import Scope, Store, command
from eval.markdown import percent, table
from eval.processes import measure as run_process
from eval.store import Row

NAME = "profiles"
TITLE = "Where the time goes"
KEY = ("network", "size", "cap", "mix", "optimize", "batch")
#: What steps count as, and how the table calls it.
KINDS = {
    "heavy": "conv., matmul",
    "element-wise": "element-wise",
    "pooling": "pools",
    "conversions": "conversions",
    "other": "other",
}
#: Profiled runs, where they are long and where they are short.
RUNS = 20


def measure(scope: Scope, store: Store) -> None:
    """Profile each network, a process each."""
    about = {"size": scope.size, "cap": "max", "mix": "priority", "optimize": "all", "batch": 1}
    profile(scope, store, store.table(NAME, KEY), [{"network": n, **about} for n in scope.networks])


def profile(scope: Scope, store: Store, kept: Any, wanted: Sequence[Row]) -> None:
    """Profile what is missing of some configurations."""
    todo = store.missing(kept, wanted)
    for count, key in enumerate(todo):
        if store.late:
            return
        name = f"{key['network']}, batch {key['batch']}, {key['optimize']}"
        store.advance(f"profile of {name}", count, len(todo))
        parts = (key["cap"], key["network"], key["batch"], key["size"] or 0, key["mix"])
        given = (*parts, key["optimize"], min(RUNS, scope.runs), scope.threads)
        found = list[Row]()
        run_process("eval.profiled", [str(one) for one in given], found.append)
        kept.add({**key, **row} for row in found)


def section(store: Store) -> Iterator[str]:
    """A line a network."""
    yield "\n\n".join((__doc__ or "").split("\n\n")[1:])
    yield shown(list(store.table(NAME, KEY)))


def shown(rows: Sequence[Row]) -> str:
    """Shares by kind of step; behind GFLOP/s what that is of the machine's peak."""
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
