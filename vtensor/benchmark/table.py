"""A report as text: a table for each precision, and notes on peers that were not timed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.table import Table

from vtensor.benchmark.machine import CALM
from vtensor.benchmark.race import OUR_PRECISION
from vtensor.benchmark.report import Report, Row

_COLUMNS = (
    "median",
    "p99",
    "std",
    "min",
    "of ours",
    "95 %",
    "load s",
    "first s",
    "MB",
    "apart",
    "changes",
)

CAPTION = (
    "median to min: ms of a run, or of concurrent runs until one more is done; of ours: this time"
    " divided by VTensor's in f32, and its interval; load s, first s: until the model was ready,"
    " and until it had run once; MB: peak memory of the process; apart: the largest difference from"
    " VTensor's outputs, relative to the largest; changes: conversions of layout in a run; warm,"
    " chain: ms of VTensor's convolutions and products alone, each in a warm cache, or in sequence"
)


def tables(report: Report) -> Iterator[Table]:
    """Yield a table for each precision, with a line for each peer on each model."""
    for group in dict.fromkeys(row["group"] for row in report["rows"]):
        rows = [row for row in report["rows"] if row["group"] == group]
        timed = [row for row in rows if row["times"]]
        limits = list(dict.fromkeys(name for row in timed for name in row["limits_s"] or ()))
        title = f"{group}, {report['settings']['threads']} threads"
        if report["settings"]["hint"] != "latency":
            title += f", {report['settings']['hint']}"
        table = Table(title=title, caption=CAPTION, box=None, padding=(0, 1))
        for name in ("model", "peer", *_COLUMNS, *limits):
            right = name not in ("model", "peer")
            table.add_column(name, justify="right" if right else "left", no_wrap=True)
        seen = ""
        for row in timed:
            name = "" if row["model"] == seen else row["model"]
            table.add_row(
                name, row["peer"], *_cells(row), *_milliseconds(row["limits_s"] or {}, limits)
            )
            seen = row["model"]
        for mean in report["means"]:
            if mean["group"] == group:
                name = f"geometric mean of {mean['models']}"
                table.add_row(name, mean["peer"], *[""] * 4, *_ratio(mean), style="bold")
        yield table


def notes(report: Report) -> Iterator[str]:
    """Yield the notes below the tables, a line each.

    A note says that the machine was busy, that peers computed in another precision than VTensor,
    that a peer was not timed, or that limits could not be measured.
    """
    load = report["machine"]["load_average"]
    if load > CALM:
        yield f"the load average was {load:.1f} at the beginning: others use this machine, too"
    for group in dict.fromkeys(row["group"] for row in report["rows"]):
        if group != OUR_PRECISION:
            against = "as they are installed" if group == "default" else f"in {group}"
            yield f"VTensor runs in {OUR_PRECISION} against peers {against}"
    for row in report["rows"]:
        peer = f"{row['model']}, {row['precision']}: {row['peer']}"
        if row["status"] != "timed":
            yield f"{peer} {row['status']}: {row['reason']}"
        if row["no_limits"]:
            yield f"{peer} has no limits: {row['no_limits']}"


def _cells(row: Row) -> Iterator[str]:
    times, peak = row["times"], row["peak_bytes"]
    yield from (f"{times[key] * 1e3:.2f}" for key in ("median_s", "p99_s", "std_s", "min_s"))
    yield from _ratio(row["ratio"])
    yield from (f"{row['load_s']:.2f}", f"{row['first_s']:.2f}")
    yield f"{peak / 1e6:.0f}" if peak else ""
    yield "" if row["difference"] is None else f"{row['difference']:.1e}"
    yield "" if row["conversions"] is None else str(row["conversions"])


def _ratio(ratio: Mapping[str, Any] | None) -> tuple[str, str]:
    if ratio is None:
        return "", ""
    return f"{ratio['value']:.2f}", f"{ratio['low']:.2f} to {ratio['high']:.2f}"


def _milliseconds(limits: Mapping[str, float], names: Sequence[str]) -> Iterator[str]:
    return (f"{limits[name] * 1e3:.2f}" if name in limits else "" for name in names)
