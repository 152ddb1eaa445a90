"""``python -m tests.onnx_suite``: the figures of ONNX's backend suite."""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import track
from rich.table import Table

from tests.onnx_suite import refused
from tests.onnx_suite.cases import Case, load
from tests.onnx_suite.engines import (
    Outcome,
    Run,
    at_load,
    judge,
    peers,
    vtensor,
    vtensor_reference,
)

STATUSES = ("passed", "unsupported", "failed")


def main(
    pattern: Annotated[str, typer.Option("--filter", help="Only cases whose name matches.")] = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    with_peers: Annotated[
        bool, typer.Option("--peers", help="Run the peers that are installed too.")
    ] = False,
    update: Annotated[
        bool, typer.Option("--update", help=f"Rewrite {refused.FILE.name} from what is found.")
    ] = False,
) -> None:
    """Run the cases and count; 1 when a case whose operators VTensor has fails."""
    cases = [case for name, case in load().items() if re.search(pattern, name)]
    engines: dict[str, Run] = {"VTensor": vtensor, "VTensor with onnx.reference": vtensor_reference}
    there, absent = peers() if with_peers else ({}, [])
    outcomes = {name: run_all(name, run, cases) for name, run in {**engines, **there}.items()}
    ours = outcomes["VTensor"]
    faults = [case for case in cases if ours[case.name].status == "failed" and case.supported]
    if update and not pattern and not faults:
        listed = (case.name for case in cases if case.supported)
        refused.write({n: ours[n].reason for n in listed if ours[n].status == "unsupported"})
    folded = [c.name for c in cases if ours[c.name].status == "passed" and at_load(c)]
    operators = count(ours, ((op, case) for case in cases for op in names(case)))
    engine_counts = {
        name: count(found, ((kind, c) for c in cases for kind in ("all", c.category)))
        for name, found in outcomes.items()
    }
    if as_json:
        about = {name: {"status": o.status, "reason": o.reason} for name, o in ours.items()}
        engine_rows = {  # the total has no category
            name: {"" if kind == "all" else kind: row for kind, row in counts.items()}
            for name, counts in engine_counts.items()
        }
        figures = {"engines": engine_rows, "absent": absent, "operators": operators}
        print(json.dumps({**figures, "cases": about, "at load": folded}, indent=2))
        raise typer.Exit(1 if faults else 0)
    console = Console()
    for title, counts in {"operator": operators, **engine_counts}.items():
        console.print(table(title, counts))
    for name, outcome in ours.items():
        if outcome.status == "failed":
            console.print(f"failed: {name}: {outcome.reason}", markup=False)
    console.print(*(f"{name} is not installed: skipped" for name in absent), sep="\n")
    console.print(f"{len(folded)} of VTensor's passed cases are decided while loading")
    raise typer.Exit(1 if faults else 0)


def run_all(name: str, run: Run, cases: Sequence[Case]) -> dict[str, Outcome]:
    """Run every case on one engine, with a progress bar on standard error."""
    bar = track(cases, name, console=Console(stderr=True), transient=True)
    return {case.name: judge(case, run) for case in bar}


def names(case: Case) -> list[str]:
    """Return the names of a case's operators, behind their domains."""
    return [op if domain in ("", "ai.onnx") else f"{domain}::{op}" for domain, op in case.operators]


def count(
    outcomes: Mapping[str, Outcome], rows: Iterable[tuple[str, Case]]
) -> dict[str, Counter[str]]:
    """Return how many cases of each label became what."""
    counts = defaultdict[str, Counter[str]](lambda: Counter(dict.fromkeys(STATUSES, 0)))
    for label, case in rows:
        counts[label][outcomes[case.name].status] += 1
    return dict(sorted(counts.items()))


def table(title: str, counts: Mapping[str, Counter[str]]) -> Table:
    """Return a table of counts, a row for each label."""
    shown = Table(title)
    for status in STATUSES:
        shown.add_column(status, justify="right")
    for label, row in counts.items():
        shown.add_row(label, *(str(row[status]) for status in STATUSES))
    return shown


if __name__ == "__main__":
    typer.run(main)
