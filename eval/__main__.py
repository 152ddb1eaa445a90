"""``python -m eval``: measure every table and figure of the paper, and write one report.

Rows that this machine measured before are not measured again, so an interrupted run goes on where
it stopped. After ``--minutes``, and in each section after its share of them (``report.SECTIONS``),
no further measurement begins; the next run adds what is missing. Sections without a share come
last.
"""

from __future__ import annotations

import math
import time
from dataclasses import replace
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
    begin, allowed, unfinished = time.monotonic(), 0.0, list[str]()
    wanted = report.experiments(only.split(",") if only else ())
    wanted.sort(key=lambda experiment: not report.minutes(experiment))
    with opened(scope, to, again, limit) as store:
        try:
            for experiment in wanted:
                share = 0.0 if full or only else report.minutes(experiment)
                allowed += share
                until = min(store.until, begin + 60 * allowed) if share else store.until
                own = replace(store, until=until)
                since = time.monotonic()
                if not own.late:
                    experiment.measure(scope, own)
                    spent = (time.monotonic() - since) / 60
                    print(f"{spent:5.1f} minutes: {experiment.TITLE}", flush=True)
                if own.late:
                    unfinished.append(experiment.TITLE)
        finally:  # the report also has the rows from before an error or an interrupt
            report.write(store)
    took = (time.monotonic() - begin) / 60
    print(f"{took:.1f} minutes; {store.folder / 'REPORT.md'}")
    if unfinished:
        print(f"the time was over before all was measured of: {', '.join(unfinished)}")
        print("run again to go on")


if __name__ == "__main__":
    typer.run(main)
