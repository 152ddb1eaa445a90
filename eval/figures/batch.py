"""Fig. 15: the gain over batch sizes.

``python -m eval.figures.batch``. The gain of *ewo* (the paper's passes) over the layout-aware
baseline in TensorFlow's mix of oneDNN and Eigen, from median times; a run computes one batch.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

import typer

from eval.drawing import bars, drawn
from eval.experiment import Scope, Store, command
from eval.figures.cells import MIX, PAPERS, batch_groups, groups
from eval.figures.cells import measure as measure_cells
from eval.figures.latency import ends_of
from eval.figures.paper import paper
from eval.figures.timing import Gain, gain, mean_gain
from eval.figures.timing import table as timings
from eval.markdown import percent, picture, table, told

NAME = "timings"
TITLE = "Gain over batch sizes (Fig. 15)"


def measure(scope: Scope, store: Store) -> None:
    """Time the networks, at each batch size, whose rows the store lacks.

    The rows of batch 1 are also those of Fig. 11.
    """
    first = [
        group
        for group in groups(scope)
        if group.mix == MIX
        and group.cap in scope.batch_caps
        and group.network in scope.batch_networks
    ]
    measure_cells(scope, store, [*first, *batch_groups(scope)])


Gains = dict[str, dict[int, Gain | None]]


def gains(store: Store, cap: str) -> Gains:
    """Return the gains of the paper's passes, by network and then by batch size.

    Networks with only one batch size are left out. A gain is None if one of both was not timed.

    Args:
        store: the folder of results.
        cap: the cap on the instruction set.
    """
    rows = timings(store).rows(cap=cap, mix=MIX)
    by = {(row["network"], row["batch"], row["engine"]): row for row in rows}
    by_network: Gains = {}
    for network, batch, engine in by:
        if engine == PAPERS:
            base = by.get((network, batch, "baseline"))
            by_network.setdefault(network, {})[batch] = gain(base, by[network, batch, engine])
    return {
        network: dict(sorted(row.items())) for network, row in by_network.items() if len(row) > 1
    }


def section(store: Store) -> Iterator[str]:
    """Yield for each cap a table, with a line for each network and a column for each batch size."""
    yield told(__doc__)
    caps = dict.fromkeys(row["cap"] for row in timings(store) if row["batch"] > 1)
    for cap in caps:
        by_network = gains(store, cap)
        batches = sorted({batch for row in by_network.values() for batch in row})
        lines = [[name, *(row.get(batch) for batch in batches)] for name, row in by_network.items()]
        means = (mean_gain(row.get(batch) for row in by_network.values()) for batch in batches)
        lines.append(["mean of means", *map(percent, means)])
        yield f"**{cap}**:"
        yield table(["network", *(f"batch {batch}" for batch in batches)], lines)
        plot(by_network, batches, store, cap)
        yield picture(f"batch_{cap}", f"gain by batch, {cap}")
    yield (
        f"The paper: {paper('batch', 'says')}. It does not say in its text which batches it has,"
        " nor what they gain."
    )


def plot(found: Gains, batches: list[int], store: Store, cap: str) -> None:
    """Draw a group of bars for each batch size, with a bar for each network, as in Fig. 15.

    Args:
        found: the result of ``gains``.
        batches: the batch sizes.
        store: the folder of results.
        cap: the cap on the instruction set.
    """
    with drawn(store.folder / f"batch_{cap}") as [axes]:
        series = {
            name: [gained.median * 100 if (gained := row.get(batch)) else None for batch in batches]
            for name, row in found.items()
        }
        ends = {name: [ends_of(row.get(batch)) for batch in batches] for name, row in found.items()}
        names = [f"batch {batch}" for batch in batches]
        about = f"{cap}: gain of ewo, with its interval"
        bars(axes, names, series, intervals=ends, title=about, ylabel="% of the baseline")


if __name__ == "__main__":
    typer.run(command(sys.modules[__name__]))
