"""Races as data: a row for each peer on each model, and what it comes to over all models.

The keys of a report are those of ``--json``: ``machine``, ``settings``, ``rows``, ``means``.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from vtensor.benchmark.agreement import BOUNDS
from vtensor.benchmark.peer import Array, Precision, Task
from vtensor.benchmark.race import OURS, Advance, Contender, Settings, race
from vtensor.benchmark.summary import Logs, Summary, log_ratios, mean_ratio
from vtensor.language.records import dataclass

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
) -> Iterator[Row]:
    """Race on every model in every precision; rows come when their race is over.

    Args:
        cases: may be made one by one, while races run.
        peers: places (``"package.module:Class"``) by name.
        precisions: of the peers, each a race of its own.
        settings: of each race.
        advance: is told what is being done.
    """
    for case in cases:
        for precision in precisions:
            yield from _rows(case, peers, precision, settings, advance)


def report_of(about: Mapping[str, Any], settings: Settings, rows: Sequence[Row]) -> Report:
    """The rows of races on one machine with the same settings, and their means."""
    return {
        "machine": about,
        "settings": {**asdict(settings), "bounds": dict(BOUNDS)},
        "rows": rows,
        "means": list(_means(rows, settings.seed)),
    }


def _rows(
    case: Case,
    peers: Mapping[str, str],
    precision: Precision,
    settings: Settings,
    advance: Advance,
) -> list[Row]:
    """One race: a row for us, then one a peer, with its ratio to us where both were timed."""
    task = Task(case.model, case.feeds, settings.threads, precision, settings.hint)
    name = f"{case.name} {precision}"
    found = race(task, peers, settings, lambda what: advance(f"{name}: {what}"))
    about = {"model": case.name, "group": precision}
    rows = [{**about, **_row(one, complete=len(one.rounds) == settings.rounds)} for one in found]
    ours = rows[0]
    for row in rows:
        if row["times"] and ours["times"]:
            logs = log_ratios(row["rounds_s"], ours["rounds_s"])
            row["ratio"] = asdict(mean_ratio([logs], settings.seed))
    return rows


def _means(rows: Iterable[Row], seed: int) -> Iterator[Row]:
    """The ratio of each peer over all models on which it has one, in each group."""
    found = defaultdict[tuple[str, str], list[Logs]](list)
    for row in rows:
        if row["peer"] in OURS:
            ours = row
        elif row["ratio"]:
            logs = log_ratios(row["rounds_s"], ours["rounds_s"])
            found[row["peer"], row["group"]].append(logs)
    for (peer, group), models in found.items():
        mean = asdict(mean_ratio(models, seed))
        yield {"peer": peer, "group": group, "models": len(models), **mean}


def _row(one: Contender, complete: bool) -> Row:
    """What became of a contender; times of runs only where all of its rounds are there.

    It may have failed after them, when it was asked about itself.
    """
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
        "times": asdict(Summary.of(one.rounds)) if complete else None,
        "peak_bytes": finished and finished.peak_bytes,
        "conversions": finished and finished.conversions,
        "limits_s": finished and dict(finished.limits),
        "no_limits": finished and finished.no_limits,
        "rounds_s": [list(seconds) for seconds in one.rounds],
        "ratio": None,
    }


def failed(rows: Iterable[Row]) -> bool:
    """True if a peer disagreed or failed; one that is absent or refuses makes nothing fail."""
    return any(row["status"] in ("disagrees", "failed") for row in rows)
