"""The mixing table: libraries mixed at will, networks and caps on instruction sets; largest errors.

``python -m eval.mixing`` runs every network in every mix of ``eval/mixes.py`` under every cap that
the processor has, and shows the largest difference to ONNX Runtime relative to the largest output,
at the input of the last Softmax.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from eval.capped import NETWORKS, capable
from eval.compare import TOLERANCE
from eval.mixes import mixes

CAPS = ("sse41", "avx2", "avx512", "max")
Row = dict[str, Any]


def measure(
    cap: str, networks: Sequence[str], sharing: Sequence[str], done: Callable[[Row], None]
) -> None:
    """Run a process under a cap, and hand on its rows as they come."""
    arguments = [cap, ",".join(networks), ",".join(sharing), "1"]
    command = [sys.executable, "-m", "eval.capped", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            done(json.loads(line))
    if process.returncode:
        raise SystemExit(f"python -m eval.capped {' '.join(arguments)} failed")


def table(rows: Iterable[Row], sharing: Sequence[str]) -> Table:
    """A line a network and cap, a column a mix."""
    found = {(row["network"], row["cap"], row["mix"]): row["difference"] for row in rows}
    result = Table("network", "cap", *sharing, title="largest error, of the largest output")
    for network, cap in dict.fromkeys(key[:2] for key in found):
        result.add_row(network, cap, *(f"{found[network, cap, mix]:.1e}" for mix in sharing))
    return result


def chosen(text: str, known: Sequence[str]) -> list[str]:
    """The names in a text, each once.

    Raises:
        typer.BadParameter: one of them is not known.
    """
    names = list(dict.fromkeys(text.split(",")))
    if unknown := [name for name in names if name not in known]:
        raise typer.BadParameter(f"no {', '.join(unknown)}; there are {', '.join(known)}")
    return names


def main(
    caps: Annotated[str, typer.Option(help="With commas.")] = ",".join(CAPS),
    networks: Annotated[str, typer.Option(help="With commas.")] = ",".join(NETWORKS),
    as_json: Annotated[bool, typer.Option("--json", help="Print rows as JSON.")] = False,
) -> None:
    """Run all, show the table; the exit code says whether every error is small."""
    sharing, wanted = list(mixes()), chosen(networks, list(NETWORKS))
    able, rows = capable(), list[Row]()
    running = [cap for cap in chosen(caps, CAPS) if cap in able]
    console = Console(stderr=True)
    for cap in chosen(caps, CAPS):
        if cap not in able:
            console.print(f"{cap}: skipped, this processor does not have it")
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    hidden = not console.is_terminal
    with Progress(*columns, TimeElapsedColumn(), console=console, disable=hidden) as bar:
        task = bar.add_task("", total=len(running) * len(wanted) * len(sharing))

        def done(row: Row) -> None:
            rows.append(row)
            bar.update(task, advance=1, description=f"{row['cap']} {row['network']} {row['mix']}")

        for cap in running:
            measure(cap, wanted, sharing, done)
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
