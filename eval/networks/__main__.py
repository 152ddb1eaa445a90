"""``python -m eval.networks [--json]``: Table 1 of the paper beside our networks."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from typing import Any

from rich.console import Console
from rich.table import Table

from eval.networks.table1 import NOTES, PAPER, compared
from vtensor.commands.shared import print_json, progress

HEADS = ("network", "image", "KMP", "inter", "intra", "layers", "ours", "params", "ours")


def table(rows: Iterable[dict[str, Any]]) -> Table:
    """The paper's numbers and ours, side by side."""
    made = Table(*HEADS, box=None, padding=(0, 2, 0, 0))
    for column in made.columns[1:]:
        column.justify = "right"
    for row in rows:
        settings = (row["kmp_blocktime"], row["inter_op"], row["intra_op"])
        layers, params = row["layers"], row["parameters"]
        made.add_row(
            row["network"],
            str(row["image_size"]),
            *map(str, settings),
            *(str(layers["paper"]), str(layers["ours"])),
            *(f"{params['paper_millions']:.2f}", f"{params['ours'] / 1e6:.3f}"),
        )
    return made


def main() -> None:
    """Build each network, print."""
    parser = argparse.ArgumentParser(prog="python -m eval.networks", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print JSON to standard output")
    rows = []
    as_json = parser.parse_args().json
    with progress("networks") as advance:
        for name in PAPER:
            advance(name)
            rows.append(compared(name))
    if as_json:
        print_json({"networks": rows})
        return
    console = Console()
    console.print(table(rows), "")
    for row in rows:
        if row["difference"]:
            console.print(f"{row['network']}: {row['difference']}", highlight=False)
    console.print("", *NOTES, sep="\n", highlight=False)


if __name__ == "__main__":
    main()
