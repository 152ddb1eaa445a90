"""Fig. 16: where the time of ResNet-50 goes at each batch size, in the baseline and in VTensor.

``python -m eval.figures.breakdown``. The time per image of each kind of operator, and of
conversions, in the runs of *Gain over batch sizes*: of the layout-aware baseline and of *ewo* (the
paper's passes); at batch 1 also of *none* (the resolver alone) and *all* (every pass). The
conversions of the baseline are steps of its operators.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

import typer

from eval.drawing import bars, drawn
from eval.experiment import Store, command
from eval.figures.batch import measure
from eval.figures.cells import BREAKDOWN as NAME
from eval.figures.cells import BREAKDOWN_KEY as KEY
from eval.figures.paper import paper
from eval.markdown import percent, picture, table, told
from eval.profiles import KINDS

TITLE = "Breakdown of ResNet-50 by batch (Fig. 16)"

__all__ = ["NAME", "TITLE", "measure", "section"]


def section(store: Store) -> Iterator[str]:
    """Yield for each cap a table, with a line for each batch size and engine, and a plot."""
    kept = store.table(NAME, KEY)
    yield told(__doc__)
    for cap in dict.fromkeys(row["cap"] for row in kept):
        lines, columns = [], dict[str, dict[str, float]]()
        for row in kept.rows(cap=cap):
            engine, kinds, images = row["optimize"], row["by_kind"], row["batch"]
            of = {
                kind: kinds[kind]["ns"] / 1e6 / images if kind in kinds else 0.0 for kind in KINDS
            }
            of["gaps"] = row["gaps_ns"]["share"] * row["run_ns"]["median"] / 1e6 / images
            columns[f"{images} {engine}"] = of
            cells = [f"{of[kind]:.2f}" for kind in of]
            whole = row["run_ns"]["median"] / 1e6 / images
            share = percent(of["conversions"] / whole)
            operators = percent((whole - of["conversions"] - of["gaps"]) / whole)
            lines.append([f"{images}, {engine}", f"{whole:.2f}", *cells, share, operators])
        heads = ["batch, engine", "ms an image", *KINDS.values(), "gaps"]
        yield f"**{cap}**:"
        yield table([*heads, "share of conversions", "share of operators"], lines)
        with drawn(store.folder / f"{NAME}_{cap}") as [axes]:
            parts = [*KINDS, "gaps"]
            series = {KINDS.get(k, k): [of[k] for of in columns.values()] for k in parts}
            bars(axes, list(columns), series, width=0.8, title=cap, ylabel="ms an image")
        yield picture(f"{NAME}_{cap}", "time by batch and kind of operator")
    yield f"The paper: {paper('breakdown', 'says')}."


if __name__ == "__main__":
    typer.run(command(sys.modules[__name__]))
