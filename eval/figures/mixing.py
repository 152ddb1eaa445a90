"""The largest errors of networks in mixes of libraries, under caps on the instruction set.

``python -m eval.figures.mixing`` runs networks that others defined in every mix of
``eval/mixes.py`` under every cap that the processor supports. It shows the largest difference from
ONNX Runtime, relative to the largest output, at the input of the last Softmax. ``--networks
built/vgg19`` runs one of the twelve.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from eval.compare import TOLERANCE
from eval.figures.capped import FOREIGN, NETWORKS
from eval.mixes import mixes
from eval.processes import CAPS, Row, chosen, collect


def table(rows: Iterable[Row], sharing: Sequence[str]) -> Table:
    """Return a table of differences: a line for each network and cap, a column for each mix.

    Args:
        rows: the rows of ``eval/figures/capped.py``.
        sharing: the names of the mixes.
    """
    differences = {(row["network"], row["cap"], row["mix"]): row["difference"] for row in rows}
    result = Table("network", "cap", *sharing, title="largest error, of the largest output")
    for network, cap in dict.fromkeys(key[:2] for key in differences):
        result.add_row(network, cap, *(f"{differences[network, cap, mix]:.1e}" for mix in sharing))
    return result


def main(
    caps: Annotated[str, typer.Option(help="With commas.")] = ",".join(CAPS),
    networks: Annotated[str, typer.Option(help="With commas.")] = ",".join(FOREIGN),
    as_json: Annotated[bool, typer.Option("--json", help="Print rows as JSON.")] = False,
) -> None:
    """Run the networks and show the table; the exit code is 1 if an error is above the bound."""
    sharing, wanted = list(mixes()), chosen(networks, list(NETWORKS))
    arguments = [",".join(wanted), ",".join(sharing), "1"]
    count = len(wanted) * len(sharing)
    rows = collect("eval.figures.capped", chosen(caps, CAPS), arguments, count)
    rows.sort(key=lambda row: wanted.index(row["network"]))
    if as_json:
        print(json.dumps(rows, indent=2))
    else:
        Console().print(table(rows, sharing))
    worst = max((row["difference"] for row in rows), default=0.0)
    if not worst <= TOLERANCE:
        raise SystemExit(f"FAILED: an error of {worst:.1e} is above {TOLERANCE:.0e}")


if __name__ == "__main__":
    typer.run(main)
