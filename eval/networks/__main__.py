"""``python -m eval.networks``: Table 1 of the paper next to the networks here."""

from __future__ import annotations

import typer

from eval.experiment import command
from eval.networks import table1

if __name__ == "__main__":
    typer.run(command(table1))
