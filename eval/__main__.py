"""``python -m eval``: measure every table and figure of the paper, and write one report.

Rows that this machine measured before are not measured again, so an interrupted run goes on where
it stopped. After ``--minutes`` no further measurement begins; the next run adds what is missing.
"""

from __future__ import annotations

import math
import time
from typing import Annotated

import typer

from eval import report
from eval.experiment import Again, Folder, Full, Quick, Scope, opened

#: Minutes after which no further measurement begins, without ``--full`` and ``--minutes``.
MINUTES = 88.0


def main(
    full: Full = False,
    quick: Quick = False,
    again: Again = False,
    to: Folder = None,
    only: Annotated[str, typer.Option(help="Sections, with commas.")] = "",
    minutes: Annotated[float | None, typer.Option(help="When to begin nothing more.")] = None,
) -> None:
    """Measure the rows that the folder of results lacks, and write the report."""
    scope = Scope.of(full, quick)
    limit = (math.inf if full else MINUTES) if minutes is None else minutes
    begin = time.monotonic()
    wanted = report.experiments(only.split(",") if only else ())
    with opened(scope, to, again, limit) as store:
        try:
            for experiment in wanted:
                if not store.late:
                    since = time.monotonic()
                    experiment.measure(scope, store)
                    spent = (time.monotonic() - since) / 60
                    print(f"{spent:5.1f} minutes: {experiment.TITLE}", flush=True)
        finally:  # the report also has the rows from before an error or an interrupt
            report.write(store)
    took = (time.monotonic() - begin) / 60
    print(f"{took:.1f} minutes; {store.folder / 'REPORT.md'}")
    if store.late:
        print("the time was over before all was measured: run again to go on")


if __name__ == "__main__":
    typer.run(main)
