"""Rows of a table from processes of their own, one for each cap on the instruction set.

A library fixes its cap at its first use, so one process cannot have two.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from typing import Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from libdesc.onednn import native
from vtensor.isa import CAPS as KNOWN

#: The caps at which libraries choose other kernels than at the cap before; ``max`` is no cap.
CAPS = ("sse41", "avx2", "avx512", "max")
Row = dict[str, Any]


def capable() -> list[str]:
    """Return the caps that this processor supports; "max" is no cap."""
    has = native.load().isa()
    best = max((index for index, cap in enumerate(KNOWN) if has.startswith(cap)), default=0)
    return [cap for index, cap in enumerate(KNOWN) if index <= best or cap == "max"]


def measure(module: str, arguments: Sequence[str], done: Callable[[Row], None]) -> None:
    """Run a module as a process, and pass each line of JSON that it prints to ``done``, decoded.

    Raises:
        SystemExit: the process fails.
    """
    command = [sys.executable, "-m", module, *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            done(json.loads(line))
    if process.returncode:
        raise SystemExit(f"python -m {module} {' '.join(arguments)} failed")


def collect(module: str, caps: Sequence[str], arguments: Sequence[str], count: int) -> list[Row]:
    """Run a module under each cap that the processor supports, and return the rows that it prints.

    A note names each cap that the processor does not support.

    Args:
        module: takes a cap, then ``arguments``; its rows name cap, network and mix.
        caps: the caps.
        arguments: further arguments of the module.
        count: the number of rows for each cap, for the progress bar.
    """
    rows, able, console = list[Row](), capable(), Console(stderr=True)
    running = [cap for cap in caps if cap in able]
    for cap in caps:
        if cap not in able:
            console.print(f"{cap}: skipped, this processor does not have it")
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    hidden = not console.is_terminal
    with Progress(*columns, TimeElapsedColumn(), console=console, disable=hidden) as bar:
        task = bar.add_task("", total=len(running) * count)

        def done(row: Row) -> None:
            rows.append(row)
            bar.update(task, advance=1, description=f"{row['cap']} {row['network']} {row['mix']}")

        for cap in running:
            measure(module, [cap, *arguments], done)
    return rows


def chosen(text: str, known: Sequence[str]) -> list[str]:
    """Return the names in a text, which commas separate, each once.

    Raises:
        typer.BadParameter: a name is not known.
    """
    names = list(dict.fromkeys(text.split(",")))
    if unknown := [name for name in names if name not in known]:
        raise typer.BadParameter(f"no {', '.join(unknown)}; there are {', '.join(known)}")
    return names
