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
from typing import Any, NamedTuple

import typer

from eval.experiment import Scope, Store, command
from eval.markdown import percent, table, told
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
    for name in scope.networks:
        profile(scope, store, NAME, Config(name, "max", "priority", ("all",), (1,)))


class Config(NamedTuple):
    """The configuration of a profile, for one process."""

    network: str
    cap: str
    mix: str
    levels: tuple[str, ...]
    batches: tuple[int, ...]


def profile(scope: Scope, store: Store, name: str, config: Config) -> None:
    """Profile one configuration, if a row of it is missing."""
    kept = store.table(name, KEY)
    about = {"network": config.network, "size": scope.size, "cap": config.cap, "mix": config.mix}
    keys = [
        {**about, "optimize": level, "batch": batch}
        for batch in config.batches
        for level in config.levels
    ]
    if store.late or not (missing := store.missing(kept, keys)):
        return
    batches = list(dict.fromkeys(str(key["batch"]) for key in missing))
    arguments = (config.network, ",".join(batches), str(scope.size or 0), config.mix)
    runs = str(min(RUNS, scope.runs))
    count, done = len(batches) * len(config.levels), list[Row]()

    def advance(row: Row) -> None:
        done.append({**about, **row})
        store.advance(f"profile of {config.network}, {config.cap}", len(done), count)

    levels = ",".join(config.levels)
    run_process(
        "eval.figures.profiled", [config.cap, *arguments, levels, runs, str(scope.threads)], advance
    )
    kept.add(done)


def section(store: Store) -> Iterator[str]:
    """Yield a table with a line for each network."""
    yield told(__doc__)
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
