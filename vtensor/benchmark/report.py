"""Races as data: a row for each peer on each model, and what it comes to over all models.

The keys of a report are those of ``--json``: ``machine``, ``settings``, ``rows``, ``means``.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from vtensor.benchmark.agreement import BOUNDS
from vtensor.benchmark.machine import machine
from vtensor.benchmark.peer import Array, Precision, Task
from vtensor.benchmark.race import Advance, Contender, Settings, race
from vtensor.benchmark.summary import Logs, Summary, log_ratios, mean_ratio

Row = dict[str, Any]
Report = dict[str, Any]


@dataclass(frozen=True)
class Case:
    """A model as it is called, its ONNX file, and what it is fed."""

    name: str
    model: Path
    feeds: Mapping[str, Array]


def measure(
    cases: Iterable[Case],
    peers: Mapping[str, str],
    precisions: Collection[Precision],
    settings: Settings,
    advance: Advance,
) -> Report:
    """Race on every model in every precision.

    Args:
        cases: may be made one by one, while races run.
        peers: places (``"package.module:Class"``) by name.
        precisions: of the peers, each a race of its own.
        settings: of each race.
        advance: is told what is being done.
    """
    about = machine()  # before we are the load ourselves
    rows, logs = list[Row](), defaultdict[tuple[str, Precision], list[Logs]](list)
    for case in cases:
        for precision in precisions:

            def told(what: str, prefix: str = f"{case.name} {precision}") -> None:
                advance(f"{prefix}: {what}")

            task = Task(case.model, case.feeds, settings.threads, precision)
            ours, *others = race(task, peers, settings, told)
            for one in (ours, *others):
                row = {"model": case.name, "group": precision, **_row(one)}
                if one.status == ours.status == "timed":
                    found = log_ratios(one.rounds, ours.rounds)
                    row["ratio"] = asdict(mean_ratio([found], settings.seed))
                    if one is not ours:
                        logs[one.peer, precision].append(found)
                rows.append(row)
    return {
        "machine": about,
        "settings": {**asdict(settings), "bounds": dict(BOUNDS)},
        "rows": rows,
        "means": [
            {
                "peer": peer,
                "group": precision,
                "models": len(found),
                **asdict(mean_ratio(found, settings.seed)),
            }
            for (peer, precision), found in logs.items()
        ],
    }


def _row(one: Contender) -> Row:
    """What became of a contender; times of runs only where all of its rounds are there."""
    loaded, finished = one.loaded, one.finished
    return {
        "peer": one.peer,
        "version": one.version,
        "precision": one.precision,
        "status": one.status,
        "reason": one.reason or None,
        "difference": one.difference,
        "load_s": loaded and loaded.load_s,
        "first_s": loaded and loaded.first_s,
        "times": asdict(Summary.of(one.rounds)) if one.status == "timed" else None,
        "peak_bytes": finished and finished.peak_bytes,
        "conversions": finished and finished.conversions,
        "limits_s": finished and dict(finished.limits),
        "rounds_s": [list(seconds) for seconds in one.rounds],
        "ratio": None,
    }


def wrong(report: Report) -> Iterator[str]:
    """Who disagreed or failed, and how: what makes a benchmark fail."""
    for row in report["rows"]:
        if row["status"] in ("disagrees", "failed"):
            yield f"{row['model']}: {row['peer']} {row['status']}: {row['reason']}"
