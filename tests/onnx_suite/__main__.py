"""``python -m tests.onnx_suite``: the figures of ONNX's backend suite."""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.table import Table

from tests.onnx_suite import refused
from tests.onnx_suite.cases import CATEGORIES, Case, load
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
    engines: dict[str, Run] = {
        "VTensor": vtensor,
        "VTensor with onnx.reference": vtensor_reference,
    }
    absent: list[str] = []
    if with_peers:
        there, absent = peers()
        engines |= there
    outcomes = {name: run_all(name, run, cases) for name, run in engines.items()}
    ours = outcomes["VTensor"]
    faults = [c for c in cases if ours[c.name].status == "failed" and c.supported]
    if update and not pattern and not faults:
        refused.write({c.name: ours[c.name].reason for c in cases if _listed(c, ours)})
    folded = [c.name for c in cases if ours[c.name].status == "passed" and at_load(c)]
    if as_json:
        print(json.dumps(report(cases, outcomes, absent) | {"at load": folded}, indent=2))
    else:
        show(Console(), cases, outcomes, absent)
        Console().print(f"{len(folded)} of VTensor's passed cases are decided while loading")
    raise typer.Exit(1 if faults else 0)


def _listed(case: Case, outcomes: Mapping[str, Outcome]) -> bool:
    return case.supported and outcomes[case.name].status == "unsupported"


def run_all(name: str, run: Run, cases: Sequence[Case]) -> dict[str, Outcome]:
    """Every case on one engine, with a progress bar on standard error."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    outcomes = {}
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(name, total=len(cases))
        for case in cases:
            outcomes[case.name] = judge(case, run)
            bar.advance(task)
    return outcomes


def report(
    cases: Sequence[Case], outcomes: Mapping[str, Mapping[str, Outcome]], absent: Sequence[str]
) -> dict[str, Any]:
    """The figures, as JSON has them."""
    ours = outcomes["VTensor"]
    return {
        "engines": {
            name: {category: count(found, cases, category) for category in ("", *CATEGORIES)}
            for name, found in outcomes.items()
        },
        "absent": list(absent),
        "operators": {op: dict(counts) for op, counts in by_operator(cases, ours).items()},
        "cases": {
            case.name: {"status": ours[case.name].status, "reason": ours[case.name].reason}
            for case in cases
        },
    }


def count(
    outcomes: Mapping[str, Outcome], cases: Iterable[Case], category: str = ""
) -> dict[str, int]:
    """How many cases of a category, or of all, became what."""
    found = Counter(outcomes[c.name].status for c in cases if category in ("", c.category))
    return {status: found[status] for status in STATUSES}


def by_operator(cases: Iterable[Case], outcomes: Mapping[str, Outcome]) -> dict[str, Counter[str]]:
    """The same by operator; a case counts for each of its operators."""
    table: dict[str, Counter[str]] = defaultdict(Counter)
    for case in cases:
        for domain, op in case.operators:
            label = op if domain in ("", "ai.onnx") else f"{domain}::{op}"
            table[label][outcomes[case.name].status] += 1
    return dict(sorted(table.items()))


def show(
    console: Console,
    cases: Sequence[Case],
    outcomes: Mapping[str, Mapping[str, Outcome]],
    absent: Sequence[str],
) -> None:
    """Print the figures as tables, and each failed case of ours."""
    ours = outcomes["VTensor"]
    operators = _table("operator")
    for op, counts in by_operator(cases, ours).items():
        operators.add_row(op, *(str(counts[status] or "") for status in STATUSES))
    console.print(operators)
    for name, found in outcomes.items():
        table = _table(name)
        for category in CATEGORIES:
            row = count(found, cases, category)
            table.add_row(category, *(str(row[status]) for status in STATUSES))
        total = count(found, cases)
        table.add_row(f"all {len(cases)}", *(str(total[status]) for status in STATUSES))
        console.print(table)
    for case in cases:
        if ours[case.name].status == "failed":
            console.print(f"failed: {case.name}: {ours[case.name].reason}", markup=False)
    for name in absent:
        console.print(f"{name} is not installed: skipped")


def _table(title: str) -> Table:
    table = Table(title, *STATUSES)
    for column in table.columns[1:]:
        column.justify = "right"
    return table


if __name__ == "__main__":
    typer.run(main)
