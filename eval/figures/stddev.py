"""Fig. 12: the standard deviation over the runs.

``python -m eval.figures.stddev``. The runs are those of the latencies, at batch 1: of the baseline
and of VTensor (*ewo*, the paper's passes; *all*, every pass), with one library (oneDNN) and with
two in a network (TensorFlow's mix with Eigen). Values are in ms, and in brackets relative to the
mean.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from statistics import median

import typer

from eval.drawing import bars, drawn
from eval.experiment import Store, command
from eval.figures.latency import measure
from eval.figures.paper import paper
from eval.figures.timing import table as timings
from eval.markdown import milliseconds, percent, picture, table, told
from eval.store import Row

NAME = "timings"
TITLE = "Standard deviation of a run (Fig. 12)"
#: The mixes of libraries: one with oneDNN alone, one with oneDNN and Eigen.
MIXES = ("onednn", "tensorflow")
#: The engines whose deviations are shown.
COMPARED = ("baseline", "ewo", "all")

__all__ = ["NAME", "TITLE", "measure", "section"]


def section(store: Store) -> Iterator[str]:
    """Yield a table for each cap and mix, and a plot with a panel for each."""
    rows = [row for row in timings(store).rows(batch=1) if row["runs"] and row["mix"] in MIXES]
    panels = list(dict.fromkeys((row["cap"], row["mix"]) for row in rows))
    yield told(__doc__)
    if panels:
        plot(rows, panels, store)
    for cap, mix in panels:
        by = {(r["network"], r["engine"]): r for r in rows if (r["cap"], r["mix"]) == (cap, mix)}
        names = dict.fromkeys(network for network, _ in by)
        lines = [[name, *(_cell(by.get((name, engine))) for engine in COMPARED)] for name in names]
        shares = [
            [
                row["std_s"] / row["mean_s"]
                for (_, row_engine), row in by.items()
                if row_engine == engine
            ]
            for engine in COMPARED
        ]
        typical = [percent(median(column)) if column else None for column in shares]
        lines.append(["median of the relative ones", *typical])
        yield f"**{cap}, {mix}**, ms:"
        yield table(["network", *COMPARED], lines)
    yield picture("stddev", "standard deviation of a run relative to its mean") if panels else ""
    yield (
        f"The paper: {paper('deviation', 'says')}; it blames the larger one of processors on Eigen"
        " and MKL-DNN having a pool of threads each. Here both run on one team, so that two"
        " libraries in a network cannot over-subscribe."
    )


def _cell(row: Row | None) -> str | None:
    if row is None:
        return None
    return f"{milliseconds(row['std_s'])} ({percent(row['std_s'] / row['mean_s'])})"


def plot(rows: list[Row], panels: list[tuple[str, str]], store: Store) -> None:
    """Draw standard deviations relative to the mean, a bar for each engine.

    Args:
        rows: the rows of the timings.
        panels: the caps and mixes.
        store: the folder of results.
    """
    with drawn(store.folder / "stddev", panels=len(panels), size=(9, 2.6)) as axes:
        for panel, (cap, mix) in zip(axes, panels, strict=True):
            inner = [row for row in rows if (row["cap"], row["mix"]) == (cap, mix)]
            by = {
                (row["network"], row["engine"]): 100 * row["std_s"] / row["mean_s"] for row in inner
            }
            names = list(dict.fromkeys(network for network, _ in by))
            series = {e: [by.get((name, e)) for name in names] for e in COMPARED}
            bars(panel, names, series, title=f"{cap}, {mix}", ylabel="% of the mean")


if __name__ == "__main__":
    typer.run(command(sys.modules[__name__]))
