"""The results of races as data: a row for each peer and model, and means over all models.

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
from vtensor.benchmark.race import OURS, Advance, Contender, RaceSettings, race
from vtensor.benchmark.summary import Logs, Summary, log_ratios, mean_ratio
from vtensor.language.records import dataclass

Row = dict[str, Any]
Report = dict[str, Any]


@dataclass(frozen=True)
class Case:
    """A model's name, its ONNX file, and its inputs by name."""

    name: str
    model: Path
    feeds: Mapping[str, Array]


def measure(
    cases: Iterable[Case],
    peers: Mapping[str, str],
    precisions: Collection[Precision],
    settings: RaceSettings,
    advance: Advance,
) -> Iterator[Row]:
    """Run a race for each model and precision, and yield the rows of each race when it is over.

    Args:
        cases: the models; an iterator may make them while races run.
        peers: the peers' places (``"package.module:Class"``) by name, without VTensor.
        precisions: the precisions of the peers; there is a race for each.
        settings: the settings of each race.
        advance: called with a text that says what happens next.
    """
    for case in cases:
        for precision in precisions:
            yield from _rows(case, peers, precision, settings, advance)


def report_of(
    description: Mapping[str, Any], settings: RaceSettings, rows: Sequence[Row]
) -> Report:
    """Return the report of races on one machine with the same settings: rows and means.

    Args:
        description: the description of the machine, from ``machine()``.
        settings: the settings of all races.
        rows: the rows of all races, from ``measure``.
    """
    return {
        "machine": description,
        "settings": {**asdict(settings), "bounds": dict(BOUNDS)},
        "rows": rows,
        "means": list(_means(rows, settings.seed)),
    }


def _rows(
    case: Case,
    peers: Mapping[str, str],
    precision: Precision,
    settings: RaceSettings,
    advance: Advance,
) -> list[Row]:
    """Run one race, and return a row of the report for VTensor and one for each peer.

    If a peer and VTensor were both timed in all rounds, the peer's row has the ratio of their
    times.
    """
    task = Task(case.model, case.feeds, settings.threads, precision, settings.hint)
    name = f"{case.name} {precision}"
    contenders = race(task, peers, settings, lambda text: advance(f"{name}: {text}"))
    common: Row = {"model": case.name, "group": precision}
    rows = [common | row_of(each, len(each.rounds) == settings.rounds) for each in contenders]
    ours = rows[0]
    for row in rows:
        if row["times"] and ours["times"]:
            logs = log_ratios(row["rounds_s"], ours["rounds_s"])
            row["ratio"] = asdict(mean_ratio([logs], settings.seed))
    return rows


def _means(rows: Iterable[Row], seed: int) -> Iterator[Row]:
    """Yield, for each peer and precision, the mean of the peer's time ratios over all models.

    A model for which the peer has no ratio does not count.

    Args:
        rows: the rows of all races; in each race, VTensor's comes first.
        seed: the seed of the bootstrap.
    """
    ratios = defaultdict[tuple[str, str], list[Logs]](list)
    for row in rows:
        if row["peer"] in OURS:
            ours = row
        elif row["ratio"]:
            logs = log_ratios(row["rounds_s"], ours["rounds_s"])
            ratios[row["peer"], row["group"]].append(logs)
    for (peer, group), models in ratios.items():
        mean = asdict(mean_ratio(models, seed))
        yield {"peer": peer, "group": group, "models": len(models), **mean}


def row_of(contender: Contender, complete: bool) -> Row:
    """Return the row of a contender, without the ratio.

    A contender that has run all rounds may still fail at the end, when it is asked for its memory.

    Args:
        contender: the contender, after the race.
        complete: True if the contender has run all rounds; only then the row has times.
    """
    loaded, finished = contender.loaded, contender.finished
    return {
        "peer": contender.peer,
        "version": contender.version,
        "precision": contender.precision,
        "status": contender.status,
        "reason": contender.reason or None,
        "difference": contender.difference,
        "load_s": loaded and loaded.load_s,
        "first_s": loaded and loaded.first_s,
        "times": asdict(Summary.of(contender.rounds)) if complete else None,
        "peak_bytes": finished and finished.peak_bytes,
        "conversions": finished and finished.conversions,
        "python_steps": finished and finished.python_steps,
        "limits_s": finished and dict(finished.limits),
        "no_limits": finished and finished.no_limits,
        "rounds_s": [list(seconds) for seconds in contender.rounds],
        "ratio": None,
    }


def failed(rows: Iterable[Row]) -> bool:
    """Return whether a peer failed, or computed other outputs than VTensor, in any of the rows.

    A peer that is not installed, or that refuses the model, has not failed.
    """
    return any(row["status"] in ("disagrees", "failed") for row in rows)
