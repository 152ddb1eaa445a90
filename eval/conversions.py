"""The conversions table: what networks convert at each level of optimisation, and what that takes.

``python -m eval.conversions`` plans the twelve networks under each cap on instruction sets that the
processor has (sse41 is the paper's machine), in each mix of libraries: the number of Transforms,
the bytes that they read and write, and the sum of their own times, which are medians.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from eval.converted import LEVELS
from eval.networks import NAMES
from eval.processes import CAPS, Row, chosen, collect
from vtensor.runtime.processors import available_threads

MIXES = ("onednn", "tensorflow", "elementwise")

#: What the paper says of conversions, section 6.5.
PAPER = {"resnet152": "317 to 18", "vgg19": "no gain", "nasnet_large": "most removed"}

NOTES = (
    "(a) layout-aware: operators convert inside themselves, NHWC between two libraries; (a2) the"
    " resolver with element-wise operators held at NHWC; (b) to (e): each of the levels of passes."
    " Bytes are read plus written, pads included. Above sse41 oneDNN wants NHWC mostly, where"
    " that may be a better guess than the resolver's; (d) is never above either.",
    "onednn: that library alone; tensorflow: BiasAdd, Pad and Mean on Eigen, as TensorFlow 1.14"
    " has it, the rest on oneDNN; elementwise: every element-wise operator on Eigen.",
)


def table(rows: Sequence[Row], cap: str, mix: str) -> Table:
    """Of each network a line of Transforms, one of MB and one of ms; a column a level."""
    heads = ("network", "", *LEVELS, "(d) proven", "paper")
    made = Table(*heads, title=f"{cap}, {mix}", box=None, padding=(0, 2, 0, 0))
    found = {(row["network"], row["level"]): row for row in rows if within(row, cap, mix)}
    for network in dict.fromkeys(name for name, _ in found):
        cells = [_cell(found[network, level]) for level in LEVELS]
        proof = found[network, "(d) + EWO"]["certificate"]
        units = "\n".join(("Transforms", "MB", "ms")[: cells[0].count("\n") + 1])
        proven = f"{proof['status']}\nof {proof['open_nodes']} open"
        made.add_row(network, units, *cells, proven, PAPER.get(network, ""))
    for column in made.columns[2:-2]:
        column.justify = "right"
    return made


def within(row: Row, cap: str, mix: str) -> bool:
    """True for a row of one of the tables."""
    return bool(row["cap"] == cap and row["mix"] == mix)


def plot(rows: Sequence[Row], caps: Sequence[str], sharing: Sequence[str], path: Path) -> None:
    """Bars of Transforms, a group a network, a panel a cap and mix: as PNG and as SVG."""
    import matplotlib as mpl

    mpl.use("agg")
    from matplotlib import pyplot as plt

    size = (6 * len(sharing), 3 * len(caps))
    figure, panels = plt.subplots(len(caps), len(sharing), figsize=size, squeeze=False, sharey=True)
    for cap, line in zip(caps, panels, strict=True):
        for mix, axes in zip(sharing, line, strict=True):
            _panel(axes, [row for row in rows if within(row, cap, mix)])
            axes.set(title=f"{cap}, {mix}", ylabel="Transforms a run")
    panels[0, 0].legend(list(LEVELS), fontsize="small")
    figure.tight_layout()
    for kind in ("png", "svg"):
        figure.savefig(path.with_suffix(f".{kind}"))
    plt.close(figure)


def _panel(axes: Any, rows: Sequence[Row]) -> None:
    networks = list(dict.fromkeys(row["network"] for row in rows))
    width = 0.8 / len(LEVELS)
    for place, level in enumerate(LEVELS):
        heights = [row["transforms"] for row in rows if row["level"] == level]
        axes.bar([i + place * width for i in range(len(networks))], heights, width, align="edge")
    axes.set_xticks([i + 0.4 for i in range(len(networks))], networks, rotation=45, ha="right")


def _cell(row: Row) -> str:
    times = [] if row["seconds"] is None else [f"{row['seconds'] * 1e3:.2f}"]
    return "\n".join([str(row["transforms"]), f"{row['bytes'] / 1e6:.1f}", *times])


def main(
    networks: Annotated[str, typer.Option(help="With commas.")] = ",".join(NAMES),
    caps: Annotated[str, typer.Option(help="With commas.")] = ",".join(CAPS[:-1]),
    mixes: Annotated[str, typer.Option(help="With commas.")] = ",".join(MIXES),
    objective: Annotated[str, typer.Option(help="What EWO minimises: shared, paper.")] = "shared",
    repeats: Annotated[int, typer.Option(help="How often a Transform is timed.")] = 25,
    threads: Annotated[int, typer.Option(help="Kernel threads.")] = available_threads(),
    times: Annotated[bool, typer.Option(help="Time Transforms.")] = True,
    as_json: Annotated[bool, typer.Option("--json", help="Print rows as JSON.")] = False,
    to: Annotated[Path | None, typer.Option("--plot", help="Draw PNG and SVG there.")] = None,
) -> None:
    """Plan all, show the tables."""
    named, sharing = chosen(networks, NAMES), chosen(mixes, MIXES)
    arguments = [",".join(named), ",".join(sharing), objective, str(times * repeats), str(threads)]
    count = len(named) * len(sharing) * len(LEVELS)
    rows = collect("eval.converted", chosen(caps, CAPS), arguments, count)
    ran = list(dict.fromkeys(row["cap"] for row in rows))
    if to:
        plot(rows, ran, sharing, to)
    if as_json:
        print(json.dumps(rows, indent=2))
        return
    console = Console()
    for cap in ran:
        for mix in sharing:
            console.print(table(rows, cap, mix), "")
    console.print(*NOTES, sep="\n", highlight=False)


if __name__ == "__main__":
    typer.run(main)
