"""Fig. 14: how long the graph work before the first run takes, by phase.

``python -m eval.figures.overhead``. Medians over new processes with empty caches, in which
primitives are compiled, too. Times are shares of the baseline's whole graph work, as the paper
normalises to TensorFlow Grappler's. *DLR* is the partial evaluation, *insertion* adds the
Transforms that its layouts need, *LHO* and *EWO* are the passes. The baseline has two phases of its
own: in *operators* its operators ask libraries for kernels, in *layout pass* they compare layouts
and insert conversions. *check* proves that the plan is sound, *constants* transforms constants
ahead of time, *recording* collects the steps.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from statistics import median

import typer

from eval.drawing import bars, drawn
from eval.experiment import Scope, Store, command
from eval.figures.paper import paper
from eval.figures.planned import PHASES
from eval.figures.timing import caps
from eval.markdown import percent, picture, table, told
from eval.processes import measure as run_process
from eval.store import Row

NAME = "overhead"
TITLE = "Overhead of the resolver and of the passes (Fig. 14)"
KEY = ("network", "size", "cap", "mix", "engine", "number")
ENGINES = ("baseline", "ewo")
MIX = "tensorflow"
#: The phases that decide on layouts after the first choice of kernels.
LAYOUT = ("insertion", "LHO", "EWO", "layout pass")


def measure(scope: Scope, store: Store) -> None:
    """Plan the networks whose rows the store lacks with each of ``ENGINES``, in new processes."""
    kept, about = store.table(NAME, KEY), {"size": scope.size, "mix": MIX}
    wanted = [
        {"network": name, **about, "cap": cap, "engine": engine, "number": number}
        for cap in caps(scope)
        if cap in scope.batch_caps
        for name in scope.networks
        for number in range(scope.fresh)
        for engine in ENGINES
    ]
    todo = store.missing(kept, wanted)
    for count, key in enumerate(todo):
        if store.late:
            return
        store.advance(f"planning {key['network']}, {key['engine']}", count, len(todo))
        arguments = (key["cap"], key["network"], MIX, key["engine"], str(scope.size or 0))
        rows = list[Row]()
        run_process("eval.figures.planned", [*arguments, str(scope.threads)], rows.append)
        kept.add({**key, **row} for row in rows)


def phases(rows: list[Row]) -> dict[str, float]:
    """Return the median seconds of each phase of planning; each row is that of one process."""
    return {phase: median(row["seconds"][phase] for row in rows) for phase in PHASES}


def compared(store: Store, cap: str) -> dict[str, dict[str, dict[str, float]]]:
    """Return the median seconds of each phase, by network, then by engine, then by phase.

    Only rows under the cap ``cap`` on the instruction set count. A network for which one of
    ``ENGINES`` has no row is left out.
    """
    kept, phases_of = store.table(NAME, KEY), dict[str, dict[str, dict[str, float]]]()
    for name in dict.fromkeys(row["network"] for row in kept.rows(cap=cap)):
        rows = {level: kept.rows(network=name, cap=cap, engine=level) for level in ENGINES}
        if all(rows.values()):
            phases_of[name] = {engine: phases(these) for engine, these in rows.items()}
    return phases_of


def layout_work(found: dict[str, float]) -> float:
    """Return the seconds of the phases that correspond to TensorFlow's layout optimisation.

    Args:
        found: seconds by phase.
    """
    return sum(found[phase] for phase in LAYOUT)


def layout_times(store: Store, cap: str) -> dict[str, dict[str, list[float]]]:
    """Return ``layout_work`` in each process, by network and then by engine.

    A network for which one of ``ENGINES`` has no row is left out.
    """
    kept, times = store.table(NAME, KEY), dict[str, dict[str, list[float]]]()
    for row in kept.rows(cap=cap):
        by = times.setdefault(row["network"], {})
        by.setdefault(row["engine"], []).append(layout_work(row["seconds"]))
    return {name: by for name, by in times.items() if by.keys() >= {*ENGINES}}


def section(store: Store) -> Iterator[str]:
    """Yield for each cap a table of shares of the baseline's time, with numbers of Transforms."""
    yield told(__doc__)
    for cap in dict.fromkeys(row["cap"] for row in store.table(NAME, KEY)):
        yield from _under(store, cap)
    yield (
        f"The paper: {paper('overhead', 'says')}; {paper('overhead', 'also')}. EWO holds the time"
        f" of its solver, which proves its answer ({_solver(store)} of EWO, the median). Not"
        " comparable: Grappler's other passes (constant folding and more) are part of the paper's"
        " whole, and not of ours; compiling the libraries' kernels and packing weights are part of"
        " ours."
    )


def _solver(store: Store) -> str:
    """Return as text, in percent, the median share of EWO's time that its solver takes.

    It is ``unknown`` if no row has the solver's time.
    """
    rows = [row for row in store.table(NAME, KEY) if row["solver_s"] is not None]
    parts = [row["solver_s"] / row["seconds"]["EWO"] for row in rows]
    return percent(median(parts), 0) or "" if parts else "unknown"


def _under(store: Store, cap: str) -> Iterator[str]:
    phases_of, kept = compared(store, cap), store.table(NAME, KEY)
    heads = ["network, engine", "all, s", *PHASES, "all", "inserted", "left"]
    lines: list[list[object]] = []
    for name, engines in phases_of.items():
        whole = sum(engines["baseline"].values())
        for engine, seconds in engines.items():
            total = sum(seconds.values())
            parts = (seconds[phase] for phase in PHASES)
            shares = [percent(part / whole) if part else None for part in parts]
            row = kept.rows(network=name, cap=cap, engine=engine)[0]
            counts = (row["inserted"], row["left"])
            about = (f"{name}, {engine}", f"{total:.2f}")
            lines.append([*about, *shares, percent(total / whole), *counts])
    yield f"**{cap}, {MIX}**:"
    yield table(heads, lines)
    if phases_of:
        plot(phases_of, store, cap)
        yield picture(f"{NAME}_{cap}", "phases of the graph work, normalised to the baseline's")
    slower = [n for n, e in phases_of.items() if layout_work(e["ewo"]) > layout_work(e["baseline"])]
    behind = f" ({', '.join(slower)})" if slower else ""
    yield (
        "LHO, EWO and insertion take longer than the baseline's layout pass on"
        f" {len(slower)} of {len(phases_of)} networks{behind}."
    )


def plot(found: dict[str, dict[str, dict[str, float]]], store: Store, cap: str) -> None:
    """Draw two stacked bars for each network: the baseline and VTensor.

    Args:
        found: the result of ``compared``.
        store: the folder of results.
        cap: the cap on the instruction set.
    """
    whole = {name: sum(engines["baseline"].values()) for name, engines in found.items()}
    title = f"{cap}; left: baseline, right: VTensor"
    with drawn(store.folder / f"{NAME}_{cap}") as [axes]:
        for engine, begin in zip(ENGINES, (-0.4, 0.02), strict=True):
            series: dict[str, list[float | None]] = {
                phase if engine == "ewo" else f"_{phase}": [
                    100 * engines[engine][phase] / whole[name] for name, engines in found.items()
                ]
                for phase in PHASES
            }
            names, label = list(found), "% of the baseline's"
            bars(axes, names, series, width=0.38, begin=begin, title=title, ylabel=label)


if __name__ == "__main__":
    typer.run(command(sys.modules[__name__]))
