"""Fig. 14: how long the graph work before the first run takes, by phase.

``python -m eval.overhead``. Medians over new processes, each with empty caches, in which primitives
are compiled, too. All is normalised to the baseline's whole graph work, as the paper normalises to
TensorFlow Grappler's. *DLR* is the partial evaluation, *insertion* the Transforms that it leads to,
*LHO* and *EWO* the passes; *layout pass* is the baseline's deciding and converting; *check* proves
the plan sound; *constants* are transformed ahead of time; *recording* collects the steps.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from statistics import median

import typer

from eval.drawing import bars, drawn
from eval.experiment import Scope, Store, command
from eval.markdown import percent, picture, table
from eval.paper import paper
from eval.planned import PHASES
from eval.processes import measure as run_process
from eval.store import Row

NAME = "overhead"
TITLE = "Overhead of the resolver and of the passes (Fig. 14)"
KEY = ("network", "size", "mix", "engine", "number")
ENGINES = ("baseline", "ewo")
MIX = "tensorflow"
#: The phases that are about layouts.
LAYOUT = ("insertion", "LHO", "EWO", "layout pass")


def measure(scope: Scope, store: Store) -> None:
    """Plan in new processes, the two engines in turns."""
    kept, cap = store.table(NAME, KEY), "max"
    wanted = [
        {"network": name, "size": scope.size, "mix": MIX, "engine": engine, "number": number}
        for name in scope.networks
        for number in range(scope.fresh)
        for engine in ENGINES
    ]
    todo = store.missing(kept, wanted)
    for count, key in enumerate(todo):
        if store.late:
            return
        store.advance(f"planning {key['network']}, {key['engine']}", count, len(todo))
        given = (cap, key["network"], MIX, key["engine"], str(scope.size or 0))
        found = list[Row]()
        run_process("eval.planned", [*given, str(scope.threads)], found.append)
        kept.add({**key, **row} for row in found)


def phases(rows: list[Row]) -> dict[str, float]:
    """The median of each phase over processes, in seconds."""
    return {phase: median(row["seconds"][phase] for row in rows) for phase in PHASES}


def compared(store: Store) -> dict[str, dict[str, dict[str, float]]]:
    """Phases by network and engine."""
    kept = store.table(NAME, KEY)
    names = dict.fromkeys(row["network"] for row in kept)
    return {
        name: {engine: phases(kept.rows(network=name, engine=engine)) for engine in ENGINES}
        for name in names
        if all(kept.rows(network=name, engine=engine) for engine in ENGINES)
    }


def layout_work(found: dict[str, float]) -> float:
    """Seconds of what is the counterpart of TensorFlow's layout optimisation."""
    return sum(found[phase] for phase in LAYOUT)


def section(store: Store) -> Iterator[str]:
    """Shares of the baseline's time, Transforms beside them."""
    found, kept = compared(store), store.table(NAME, KEY)
    yield "\n\n".join((__doc__ or "").split("\n\n")[1:]).replace("``python -m eval.overhead``. ", "")
    heads = ["network", "engine", "all, s", *PHASES, "all", "inserted", "left"]
    lines = []
    for name, engines in found.items():
        whole = sum(engines["baseline"].values())
        for engine, seconds in engines.items():
            total = sum(seconds.values())
            shares = [percent(seconds[phase] / whole) if seconds[phase] else None for phase in PHASES]
            row = kept.rows(network=name, engine=engine)[0]
            counts = (row["inserted"] if engine == "ewo" else None, row["left"])
            lines.append([name, engine, f"{total:.2f}", *shares, percent(total / whole), *counts])
    yield table(heads, lines)
    if found:
        plot(found, store)
        yield picture(NAME, "phases of the graph work, normalised to the baseline's")
    slower = [n for n, e in found.items() if layout_work(e["ewo"]) > layout_work(e["baseline"])]
    yield (
        f"The paper: {paper('overhead', 'says')}. Here LHO, EWO and insertion take longer than the"
        f" baseline's layout pass on {len(slower)} of {len(found)} networks"
        + (f" ({', '.join(slower)})" if slower else "")
        + ". EWO is an integer program that is solved to proven optimality, and most of its time"
        " is the solver's, in a process of its own. Not comparable: Grappler's other passes"
        " (constant folding and more) are part of the paper's whole, and not of ours; compiling the"
        " libraries' kernels and packing weights are part of ours."
    )


def plot(found: dict[str, dict[str, dict[str, float]]], store: Store) -> None:
    """Two stacked bars a network: the baseline, and ours."""
    whole = {name: sum(engines["baseline"].values()) for name, engines in found.items()}
    with drawn(store.folder / NAME) as [axes]:
        for engine, begin in zip(ENGINES, (-0.4, 0.02), strict=True):
            series = {
                phase if engine == "ewo" else f"_{phase}": [
                    100 * engines[engine][phase] / whole[name] for name, engines in found.items()
                ]
                for phase in PHASES
            }
            about = {"title": "left: baseline, right: VTensor", "ylabel": "% of the baseline's"}
            bars(axes, list(found), series, width=0.38, begin=begin, **about)


if __name__ == "__main__":
    typer.run(command(sys.modules[__name__]))
