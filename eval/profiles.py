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
from typing import Any, NamedTuple

import typer

from eval.experiment import Scope, Store, command
from eval.markdown import percent, table, told
from eval.processes import measure as run_process
from eval.store import Row

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
    for name in scope.networks:
        profile(scope, store, NAME, Config(name, "max", "priority", ("all",), (1,)))


class Config(NamedTuple):
    """What one process profiles: a network with each of several levels and batch sizes.

    Attributes:
        network: the network's name.
        cap: the cap on the instruction set; ``max`` is none.
        mix: the name of the mix of libraries; ``priority`` is a session's own.
        levels: levels of optimisation.
        batches: the batch sizes.
    """

    network: str
    cap: str
    mix: str
    levels: tuple[str, ...]
    batches: tuple[int, ...]


def profile(scope: Scope, store: Store, name: str, config: Config) -> None:
    """Profile a configuration in a new process, if the store lacks one of its rows.

    ``name`` is the name of the table that gets the rows.
    """
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
