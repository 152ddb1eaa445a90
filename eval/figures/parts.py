"""Why a network is faster or slower: the parts of the difference from the baseline.

``python -m eval.figures.parts``. The runs of *Latency* have a clock around each step. The parts are
conversions that are gone, conversions that are new or stay, kernels that run in another layout and
take less or more time, and gaps between steps. They are means over the half of the pairs in the
middle, so that they add up to *difference*; *off* is how far this is from the median over all
pairs, as a share of a run. A kernel is slower or faster if the 95 % interval of its difference
excludes 0. *converting* is the share of a run that conversions take. Clocks and their gaps are part
of all times here.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence

import typer

from eval.drawing import COLOURS, drawn, legend
from eval.experiment import Store, command
from eval.figures.cells import PAPERS
from eval.figures.cells import PARTS as NAME
from eval.figures.cells import PARTS_KEY as KEY
from eval.figures.latency import measure
from eval.markdown import milliseconds, percent, picture, table, told
from eval.store import Row

TITLE = "Where the difference comes from"

__all__ = ["KEY", "NAME", "TITLE", "measure", "section"]


def section(store: Store) -> Iterator[str]:
    """Yield for each cap and mix a table of the parts, and a plot of those of the paper's passes.

    A list names the kernels that are slower, where fewer conversions make a network slower.
    """
    rows = list(store.table(NAME, KEY))
    yield told(__doc__)
    for cap, mix in dict.fromkeys((row["cap"], row["mix"]) for row in rows):
        inner = [row for row in rows if (row["cap"], row["mix"]) == (cap, mix)]
        heads = ["network, level", "pairs", "baseline, ms", "difference, ms", "off"]
        heads += [*inner[0]["parts_ns"], "converting before", "after"]
        yield f"**{cap}, {mix}**, ms:"
        yield table(heads, map(_line, inner))
        plot([row for row in inner if row["level"] == PAPERS], store, f"{NAME}_{cap}_{mix}")
        yield picture(f"{NAME}_{cap}_{mix}", f"parts of the difference, {cap}, {mix}")
        if lines := [text for row in inner if (text := _reason(row))]:
            yield "Slower than the baseline:\n\n" + "\n".join(lines)


def off(row: Row) -> float:
    """Return how far the sum of a row's parts is from the median difference, as a share of a run.

    >>> off({"parts_ns": {"gaps": 2.0}, "before_ns": 100.0, "ratio": [1.03, 1.0, 1.1]})
    0.01
    """
    parts, median = sum(row["parts_ns"].values()) / row["before_ns"], row["ratio"][0] - 1
    return round(abs(float(parts) - float(median)), 6)


def holds(row: Row) -> bool:
    """Return whether the sum of a row's parts is in the 95 % interval of the difference.

    >>> holds({"parts_ns": {"gaps": 2.0}, "before_ns": 100.0, "ratio": [1.03, 1.0, 1.1]})
    True
    """
    _, low, high = row["ratio"]
    return bool(low <= 1 + sum(row["parts_ns"].values()) / row["before_ns"] <= high)


def cells(store: Store, cap: str, mix: str | None = None) -> list[Row]:
    """Return the rows of the paper's passes under a cap; of one mix, or of all."""
    rows = store.table(NAME, KEY).rows(cap=cap, level=PAPERS)
    return [row for row in rows if mix in (None, row["mix"])]


def converting_ns(row: Row) -> tuple[float, float]:
    """Return the nanoseconds of conversions in a run of the baseline, and in one of VTensor."""
    before, after = row["converting_ns"]
    return float(before), float(after)


def converting(row: Row) -> tuple[float, float]:
    """Return the shares of both runs that conversions take."""
    before, after = converting_ns(row)
    return before / row["before_ns"], after / row["after_ns"]


def _line(row: Row) -> Sequence[object]:
    before, after = converting(row)
    return [
        f"{row['network']}, {row['level']}",
        row["pairs"],
        milliseconds(row["before_ns"] / 1e9),
        milliseconds((row["after_ns"] - row["before_ns"]) / 1e9),
        percent(off(row)),
        *(milliseconds(ns / 1e9) for ns in row["parts_ns"].values()),
        percent(before),
        percent(after),
    ]


def _reason(row: Row) -> str:
    """Return the kernels that make a network slower; empty if it is not shown to be slower."""
    if row["ratio"][1] <= 1:
        return ""
    slower = ", ".join(_kernel(kernel) for kernel in row["slower"][:4])
    low, high = (percent(end - 1) for end in row["ratio"][1:])
    text = f"- {row['network']}, {row['level']}, by {low} to {high}: {slower or 'no one kernel'}"
    if not any(row["parts_ns"][part] for part in ("conversions gone", "conversions new")):
        text += (
            "; it converts what the baseline does, and differs in layouts of kernels, in memory, "
        )
        text += "or by chance"
    return text


def _kernel(kernel: Mapping[str, object]) -> str:
    before, after = (float(str(kernel[key])) / 1e6 for key in ("before_ns", "after_ns"))
    return f"`{kernel['node']}` ({kernel['layouts']}) {before:.2f} to {after:.2f} ms"


def plot(rows: Sequence[Row], store: Store, name: str) -> None:
    """Draw stacked bars for each network: parts that save time below 0, parts that cost it above.

    Args:
        rows: a row for each network.
        store: the folder of results.
        name: the name of the plot's files.
    """
    if not rows:
        return
    with drawn(store.folder / name, size=(9, 4)) as [axes]:
        places = range(len(rows))
        ends = {True: [0.0] * len(rows), False: [0.0] * len(rows)}
        for part, colour in zip(rows[0]["parts_ns"], COLOURS, strict=False):
            for place, row in zip(places, rows, strict=True):
                share = 100 * row["parts_ns"][part] / row["before_ns"]
                base = ends[share > 0]
                label = part if place == 0 else f"_{part}"
                axes.bar(place, share, 0.7, bottom=base[place], color=colour, label=label)
                base[place] += share
        whole = [100 * (row["after_ns"] / row["before_ns"] - 1) for row in rows]
        axes.plot(places, whole, "kD", markersize=4, label="all together")
        axes.axhline(0, color="black", linewidth=0.8)
        turned = {"rotation": 40, "ha": "right", "rotation_mode": "anchor"}
        axes.set_xticks(places, [row["network"] for row in rows], **turned)
        axes.set_ylabel("% of the baseline's time")
        axes.grid(axis="y", color="0.9")
        axes.spines[["top", "right"]].set_visible(False)
        legend(axes)


if __name__ == "__main__":
    typer.run(command(sys.modules[__name__]))
