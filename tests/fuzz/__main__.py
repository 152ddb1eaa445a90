"""``python -m tests.fuzz``: change models and inputs at random, and see that nothing breaks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from tests.fuzz.attempt import attempt
from tests.fuzz.campaign import Campaign, Case
from tests.fuzz.seeds import corpus


def main(
    minutes: Annotated[float, typer.Option(help="How long.")] = 5,
    seed: Annotated[int, typer.Option(help="The same cases for the same number.")] = 1,
    processes: Annotated[int, typer.Option(min=1, help="Processes at a time.")] = 2,
    folder: Annotated[Path, typer.Option(help="Where findings are saved.")] = Path("out/fuzz"),
    replay: Annotated[
        list[Path] | None, typer.Option(help="A saved case, to run alone. May be repeated.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Load, plan and run changed models; 1 when one crashes, hangs or fails without a type."""
    campaign = Campaign([] if replay else corpus(), seed, folder, attempt, processes)
    seconds = minutes * 60
    columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("fuzz", total=seconds)
        cases = iter([Case.read(file) for file in replay]) if replay else None
        for gone in campaign.over(cases, seconds) if cases else campaign.run(seconds):
            count = sum(campaign.counts.values())
            text = f"{count} cases, {len(campaign.findings)} findings"
            bar.update(task, completed=gone, description=text)
    if as_json:
        found = [
            {"kind": f.kind, "detail": f.detail, "command": f.command} for f in campaign.findings
        ]
        print(
            json.dumps({"seed": seed, "counts": dict(campaign.counts), "findings": found}, indent=2)
        )
    else:
        for finding in campaign.findings:
            print(f"{finding.kind}: {finding.detail}\n  {finding.command}")
        print(", ".join(f"{kind} {count}" for kind, count in sorted(campaign.counts.items())))
    raise typer.Exit(1 if campaign.findings else 0)


if __name__ == "__main__":
    typer.run(main)
